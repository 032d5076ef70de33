"""Commands that apply events: `demo` and `run`."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.cli.options import DEFAULT_CONFIG, AsJson, ConfigFile
from replicator.model.common import counted

if TYPE_CHECKING:
    from replicator.config import Config
    from replicator.runner.summary import RunSummary

CaughtUp = Annotated[
    bool,
    typer.Option("--until-caught-up", help="Stop once the lake has everything that the source has now."),
]


def demo(
    directory: Annotated[
        Path,
        typer.Option("--dir", metavar="DIR", help="Folder of the lake; an earlier demo in it is replaced."),
    ] = Path("demo-lake"),
    as_json: AsJson = False,
) -> None:
    """Replay a recording of a real MySQL database into a local lake.

    Needs Java 17 or newer and no server. Shows for each table the rows, the changes by kind and the last
    position, and compares every table with the checksum of the source. The lake stays in DIR, and can be
    queried with Spark, PyIceberg or DuckDB.

    \b
    Example:
      replicator demo --dir /tmp/demo
    """
    from replicator.cli.output import progress_bar
    from replicator.cli.render_demo import print_demo
    from replicator.errors import CheckFailed
    from replicator.operations.demo import LOG_NAME, run_demo

    result, source = run_demo(directory, progress_bar)
    print_demo(result, source, as_json=as_json)
    if not result.match:
        names = ", ".join(table.source for table in result.tables if not table.match)
        raise CheckFailed(f"the lake differs from the source in {names}", f"See {result.folder / LOG_NAME}.")


def run(config: ConfigFile = DEFAULT_CONFIG, until_caught_up: CaughtUp = False) -> None:
    """Apply current and future changes until Ctrl-C or SIGTERM.

    Logs one line per batch: on a terminal events, tables, seconds and lag; otherwise JSON, also with rows per kind
    and seconds per stage. A signal takes effect after the current batch. It may also be killed at any time: when
    restarted, it continues from the state of the lake. A second process for the same mirror is refused. A failed
    connector is restarted; servers that become unavailable are logged. With --until-caught-up it ends when the lake
    has everything that was in the source's binlog at its start, and exits with 1 if it cannot reach or verify that, or
    if a table is paused. Without log.connect_url it compares with the end of the topics instead. A password that MySQL
    refuses, a folder of the lake that cannot be written, and a missing connector end it at once. A connector whose
    settings lose data is refused (exit code 1), unless log.allow_lossy names them. SIGHUP lets the
    mirror read its configuration again, as `replicator reload` does.

    \b
    Examples:
      replicator run -c shop.toml                       until stopped
      replicator run -c shop.toml --until-caught-up     for a scheduler
      replicator run -c shop.toml 2>> shop.jsonl        log lines as JSON
    """
    if sys.stderr.isatty():
        # Everything below takes a second to import.
        typer.echo(f"reading {config}", err=True)
    from replicator.config import load
    from replicator.jvm.launch import early_java

    settings = load(config)
    with early_java(settings) as java:
        from replicator.telemetry import setup_logging

        setup_logging()
        _refuse(settings)
        from replicator.runner.process import run as run_mirror
        from replicator.runner.reloads import ConfigFile

        # The path is not resolved: if it is a link, that may name another file later.
        file = ConfigFile(config.absolute(), lambda: _load(config.absolute()))
        summary = run_mirror(settings, until_caught_up=until_caught_up, file=file, java=java)
    finish(summary, complete=until_caught_up)


def _load(config: Path) -> "Config":
    """Read the configuration of a running mirror again, with the checks of a start."""
    from replicator.config import load

    settings = load(config)
    _look_at_connector(settings)
    return settings


def _refuse(settings: "Config") -> None:
    """Refuse a start that cannot succeed, before Spark is used."""
    from replicator.operations.check import refuse_start

    refuse_start(settings)
    _look_at_connector(settings)


def _look_at_connector(settings: "Config") -> None:
    """Refuse a connector that loses data. If Kafka Connect is unavailable, continue: the events are in Kafka."""
    import structlog

    from replicator.errors import ConnectError
    from replicator.operations.check import refuse_losses

    try:
        refuse_losses(settings)
    except ConnectError as error:
        structlog.get_logger().warning("the connector's settings were not checked", reason=error.message)


def finish(summary: "RunSummary", *, complete: bool) -> None:
    """Print a summary of the run. If the run was `complete`, a paused table makes the exit code 1."""
    rows = sum(summary.rows.values())
    typer.echo(
        f"{counted(summary.events, 'event')} in {counted(summary.batches, 'batch', 'batches')},"
        f" {counted(rows, 'row change')}, {counted(len(summary.tables), 'table')}, {summary.seconds:,.1f} s"
    )
    for table, read in summary.reread.items():
        typer.echo(f"{table}: {counted(read, 'row')} read from the source")
    if summary.quarantined:
        said = f"{counted(summary.quarantined, 'event')} quarantined."
        typer.secho(said, fg=typer.colors.YELLOW, err=True)
    for table, reason in summary.paused.items():
        typer.secho(f"{table} is paused: {reason}", fg=typer.colors.RED, err=True)
    if complete and summary.paused:
        raise typer.Exit(1)
