"""Commands that only read: `check` and `status`."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

from typing import Annotated

import typer

from replicator.cli.options import DEFAULT_CONFIG, AsJson, ConfigFile


def check(config: ConfigFile = DEFAULT_CONFIG, as_json: AsJson = False) -> None:
    """Check source, log, connector, lake and this machine.

    Inspects MySQL's settings and the user's privileges, the tables, the topics, connector options that lose
    data, the lake and this machine, and names the next step for each finding. Changes nothing. Exits with
    1 if a mirror would not work or would lose data; warnings alone exit with 0.

    \b
    Examples:
      replicator check -c shop.toml
      replicator check -c shop.toml --json | jq '.results[] | select(.status != "ok")'
    """
    from replicator.cli.render import print_checks
    from replicator.config import load
    from replicator.operations.check import run_checks, worst

    results = run_checks(load(config))
    verdict = worst(results)
    print_checks(results, verdict, as_json=as_json)
    raise typer.Exit(1 if verdict == "fail" else 0)


def status(
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
) -> None:
    """Show rows, position, lag, last commit and state of each table.

    Also shows the connector. Reads the lake itself, so the result is correct even if the mirror is stopped. A
    table is current if it has everything that the source had at the time of the query: MySQL reports the end of
    its binlog, Kafka Connect the connector's position. Without log.connect_url, and for an archive, tables are
    compared with the log instead. Tables that are not current are listed with the reason and the next step.

    With --maintenance, a second table shows the files, snapshots and metadata of each mirror, of each changelog and
    of the quarantine, the last maintenance, and what is due. With --checks, another one shows the newest comparisons of
    each table with its source; see `replicator verify`. --json always contains all of them.

    \b
    Examples:
      replicator status -c shop.toml
      replicator status -c shop.toml --maintenance
      replicator status -c shop.toml --checks
      replicator status -c shop.toml --watch
      replicator status -c shop.toml --json | jq '.tables[] | select(.state != "current")'
    """
    from replicator.cli.render import StatusParts, print_status, watch_status
    from replicator.config import load
    from replicator.operations.status.read import read_status

    settings = load(config)
    parts = StatusParts(maintenance, checks)
    if watch:
        watch_status(lambda: read_status(settings), parts, as_json=as_json)
    else:
        print_status(read_status(settings), parts, as_json=as_json)
