"""`replicator reload`: change the configuration of a running mirror."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

from typing import Annotated

import typer

from replicator.cli.options import DEFAULT_CONFIG, AsJson, ConfigFile


def reload(
    config: ConfigFile = DEFAULT_CONFIG,
    wait: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", help="How long to wait for the mirror.")
    ] = 600,
    as_json: AsJson = False,
) -> None:
    """Let the running mirror read its configuration again.

    Sends SIGHUP to the `replicator run` of this configuration on this machine, and waits for its answer. The mirror
    finishes the batch under way and continues with the new configuration; reading tables continues too. Tables that
    the configuration leaves out are not applied any more, and stay in the lake. New tables are read at once. Paused
    tables are tried again, as after a restart.

    If tables are added or removed, run `replicator connect` first; otherwise this command refuses (exit code 1). The
    mirror continues as before if the file has an error, or if it changes what a running process cannot change:
    [mirror], [lake], [spark], source.url, kind, topic_prefix, format and flattened in [log], and columns.hash_key.

    Exits with 1 if the mirror refused or has not answered in time, and with 2 if it does not run here or the file has
    errors.

    \b
    Examples:
      replicator connect -c shop.toml && replicator reload -c shop.toml
      replicator reload -c shop.toml --json | jq -r '.changed[]'
    """
    from replicator.cli.output import print_json, progress_bar
    from replicator.config import load
    from replicator.operations.reload import reload as reload_mirror

    settings = load(config)
    with progress_bar("waiting for the mirror"):
        done = reload_mirror(settings, config, wait)
    if as_json:
        print_json({"version": 1, "changed": list(done.changed)})
    elif done.changed:
        typer.echo(f"Reloaded. Changed: {', '.join(done.changed)}.")
    else:
        typer.echo("Reloaded. No setting has changed.")
