"""Commands that look and change nothing: `check` and `status`."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

import typer

from replicator.cli.options import DEFAULT_CONFIG, AsJson, ConfigFile


def check(config: ConfigFile = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """Say whether source, log and lake are fit, or what to do.

    Looks at MySQL's settings and the user's privileges, at the tables, at the topics and the connector's
    options that lose data, at the lake and at this machine. Changes nothing. Exits with 1 where a mirror
    could not work or would lose data; warnings alone exit with 0.

    \b
    Examples:
      replicator check -c shop.toml
      replicator check -c shop.toml --json | jq '.results[] | select(.status != "ok")'
    """
    from replicator.check import run_checks, worst
    from replicator.cli.render import print_checks
    from replicator.config import load

    results = run_checks(load(config))
    verdict = worst(results)
    print_checks(results, verdict, as_json=as_json)
    raise typer.Exit(1 if verdict == "fail" else 0)


def status(config: ConfigFile = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """Show per table: rows, position, lag, last commit, state.

    Reads the lake itself, so it tells the truth also while the mirror is stopped. Where the broker can be
    reached, it adds how many events are still to come.

    \b
    Examples:
      replicator status -c shop.toml
      replicator status -c shop.toml --json | jq '.tables[] | select(.state != "current")'
    """
    from replicator.cli.render import print_status
    from replicator.config import load
    from replicator.status import read_status

    print_status(read_status(load(config)), as_json=as_json)
