"""Commands that only read: `check` and `status`."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

from typing import TYPE_CHECKING, Annotated

import typer

from replicator.cli.options import DEFAULT_CONFIG, AsJson, ConfigFile, Tables

if TYPE_CHECKING:
    from replicator.operations.status.mirror_status import MirrorStatus


def check(
    config: ConfigFile = DEFAULT_CONFIG,
    everything: Annotated[bool, typer.Option("--all", help="Show the checks that passed too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check source, log, connector, lake and this machine.

    Inspects MySQL's settings and the user's privileges, the tables, the topics, connector options that lose
    data, the lake and this machine, and shows what is wrong, each with the next step. Changes nothing. Exits with
    1 if a mirror would not work or would lose data; warnings alone exit with 0. --json contains all checks.

    \b
    Examples:
      replicator check -c shop.toml
      replicator check -c shop.toml --all
      replicator check -c shop.toml --json | jq '.results[] | select(.status != "ok")'
    """
    from replicator.cli.render import print_checks
    from replicator.config import load
    from replicator.operations.check import run_checks, worst

    results = run_checks(load(config))
    verdict = worst(results)
    print_checks(results, verdict, as_json=as_json, everything=everything)
    raise typer.Exit(1 if verdict == "fail" else 0)


def status(
    tables: Tables = None,
    config: ConfigFile = DEFAULT_CONFIG,
    as_json: AsJson = False,
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every two seconds, until Ctrl-C.")] = False,
    maintenance: Annotated[
        bool,
        typer.Option("--maintenance", help="Also show files, snapshots and maintenance of each lake table."),
    ] = False,
    checks: Annotated[
        bool, typer.Option("--checks", help="Also show the past comparisons of each table with the source.")
    ] = False,
    positions: Annotated[
        bool, typer.Option("--positions", help="Show positions in the binlog, and the connector's.")
    ] = False,
) -> None:
    """Show whether the mirror runs, and the state of each table.

    Reads the lake itself, so the result is correct even if the mirror is stopped. TABLES are source tables, as in
    shop.orders; the default is all. A table is current if it has everything that the source had, except for changes
    that are younger than apply.trigger and 5 seconds: MySQL reports the end of its binlog, Kafka Connect the
    connector's position. The lag is the age of the oldest change that is not applied. Without log.connect_url, and
    for an archive, tables are compared with the log instead. What concerns all tables is said once, before them, with
    the next step.

    With --maintenance, a second table shows the files, snapshots and metadata of each mirror, of each changelog and
    of the quarantine, the last maintenance, and what is due. With --checks, another one shows the newest comparisons of
    each table with its source; see `replicator verify`. --json always contains all of them.

    \b
    Examples:
      replicator status -c shop.toml
      replicator status -c shop.toml shop.orders --positions
      replicator status -c shop.toml --maintenance
      replicator status -c shop.toml --checks
      replicator status -c shop.toml --watch
      replicator status -c shop.toml --json | jq '.tables[] | select(.state != "current")'
    """
    from replicator.cli.render_status import StatusParts, print_status, watch_status
    from replicator.config import load
    from replicator.operations.status.read import only, read_status

    settings = load(config)
    parts = StatusParts(maintenance, checks, positions)

    def read() -> "MirrorStatus":
        return only(read_status(settings), tables or ())

    if watch:
        watch_status(read, parts, as_json=as_json)
    else:
        print_status(read(), parts, as_json=as_json)
