"""Commands that move events: `demo`, `run`, `record` and `replay`."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

import threading
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.cli.options import DEFAULT_CONFIG, AsJson, ConfigFile

if TYPE_CHECKING:
    from replicator.config import Config
    from replicator.operations.record import RecordProgress
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
    from replicator.cli.progress import progress_bar
    from replicator.operations.demo import run_demo

    run_demo(directory, progress_bar, as_json=as_json)


def run(config: ConfigFile = DEFAULT_CONFIG, until_caught_up: CaughtUp = False) -> None:
    """Apply current and future changes until Ctrl-C or SIGTERM.

    Logs one line per batch: events, rows per kind, tables, seconds per stage, lag. A signal takes effect after the
    current batch. It may also be killed at any time: when restarted, it continues from the state of the lake. A
    second process for the same mirror is refused. A failed connector is restarted; servers that become
    unavailable are logged. With --until-caught-up it ends when the lake has everything that was in the source's
    binlog at its start, and exits with 1 if it cannot reach or verify that, or if a table is paused. Without
    log.connect_url it compares with the end of the topics instead. A connector whose settings lose data is refused
    (exit code 1), unless log.allow_lossy names them.

    \b
    Examples:
      replicator run -c shop.toml                       until stopped
      replicator run -c shop.toml --until-caught-up     for a scheduler
      replicator run -c shop.toml 2>> shop.jsonl        log lines as JSON
    """
    from replicator.config import load
    from replicator.telemetry import setup_logging

    settings = load(config)
    setup_logging()
    _look_at_connector(settings)
    from replicator.runner.process import run as run_mirror

    _finish(run_mirror(settings, until_caught_up=until_caught_up), complete=until_caught_up)


def _look_at_connector(settings: "Config") -> None:
    """Refuse a connector that loses data. If Kafka Connect is unavailable, continue: the events are in Kafka."""
    import structlog

    from replicator.errors import ConnectError
    from replicator.operations.check import refuse_losses

    try:
        refuse_losses(settings)
    except ConnectError as error:
        structlog.get_logger().warning("the connector's settings were not checked", reason=error.message)


def record(  # noqa: PLR0917 - typer calls it, by name
    to: Annotated[
        Path, typer.Option("--to", metavar="DIR", help="Folder of the archive; created if it does not exist.")
    ],
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILES]...", help="With --binlog: the files, in order.", show_default=False),
    ] = None,
    config: ConfigFile = DEFAULT_CONFIG,
    until_caught_up: Annotated[
        bool,
        typer.Option(
            "--until-caught-up",
            help="Stop at the end that the topics have now, instead of following them.",
        ),
    ] = False,
    binlog: Annotated[
        bool, typer.Option("--binlog", help="Import binary log files instead of topics.")
    ] = False,
    from_server: Annotated[
        bool, typer.Option("--from-server", help="Import all binary logs that the source has.")
    ] = False,
    definitions: Annotated[
        Path | None,
        typer.Option(
            "--definitions", metavar="FILE", help="Tables as they were before the first binary log."
        ),
    ] = None,
    mysql: Annotated[
        str,
        typer.Option(envvar="REPLICATOR_MYSQL", help="MySQL that serves binary logs: a version or a path."),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Copy topics or binary logs into an event archive.

    Without --binlog and --from-server, it copies the mirror's topics in Kafka. An archive outlives Kafka's
    retention, and `replicator replay` applies it like the topics themselves. It contains the events as the
    connector wrote them: columns that are masked in the lake are not masked there. Recording continues at the end
    of the archive. Without --until-caught-up it follows the topics until Ctrl-C or SIGTERM.

    With --binlog or --from-server, the events come from MySQL's binary logs: a temporary MySQL server serves the
    files to Debezium. --definitions names a file from `mysqldump --no-data` with the tables that were created
    before the first file; it is not needed if the files were written with binlog_row_metadata = FULL and have rows
    of these tables before they alter them.

    \b
    Examples:
      replicator record -c shop.toml --to shop-archive --until-caught-up
      replicator record -c shop.toml --to history --binlog mysql-bin.0000*
      replicator record -c shop.toml --to history --from-server --definitions shop.sql
    """
    from replicator.errors import UsageError

    if binlog and from_server:
        raise UsageError("--from-server fetches the files itself", "omit --binlog")
    if binlog or from_server:
        from replicator.cli.binlog import import_files
        from replicator.operations.binlog.request import ImportRequest

        request = ImportRequest(
            to, tuple(files or ()), from_server=from_server, definitions=definitions, mysql=mysql
        )
        import_files(config, request, until_caught_up=until_caught_up, as_json=as_json)
        return
    if files or definitions is not None:
        raise UsageError("files and --definitions are for binary logs", "add --binlog or --from-server")
    from replicator.cli.output import print_json
    from replicator.cli.progress import progress_bar
    from replicator.config import load
    from replicator.operations.record import record as record_topics
    from replicator.runner.signals import stop_on_signals

    settings = load(config)
    stop = threading.Event()
    with stop_on_signals(stop), progress_bar("recording") as show:

        def report(state: "RecordProgress") -> None:
            show(f"recording, {state.bytes / 1e6:,.1f} MB", state.events, state.events + state.remaining)

        done = record_topics(settings, to, until_caught_up=until_caught_up, on_progress=report, stop=stop)
    if as_json:
        print_json({"events": done.events, "bytes": done.bytes, "remaining": done.remaining})
        return
    typer.echo(f"Recorded {done.events:,} events ({done.bytes / 1e6:,.1f} MB) into {to}.")
    if done.remaining:
        typer.echo(f"{done.remaining:,} events remain; run the same command to continue.")


def replay(
    archive: Annotated[Path, typer.Option("--from", metavar="DIR", help="Folder of the archive.")],
    config: ConfigFile = DEFAULT_CONFIG,
) -> None:
    """Apply an event archive to the lake.

    Applies the events as `run` applies those of the recorded topics. Events that the lake already contains are
    skipped, so a replay can be repeated.

    \b
    Example:
      replicator replay -c shop.toml --from shop-archive
    """
    from replicator.cli.progress import progress_bar
    from replicator.config import load
    from replicator.telemetry import setup_logging

    settings = load(config)
    from replicator.runner.process import replay as replay_archive

    with progress_bar("starting Spark") as show:
        # Inside, so that log lines are printed above the bar instead of through it.
        setup_logging()
        summary = replay_archive(settings, archive, on_progress=partial(show, "replaying"))
    _finish(summary, complete=True)


def _number(count: int, one: str, several: str | None = None) -> str:
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def _finish(summary: "RunSummary", *, complete: bool) -> None:
    """Print a summary of the run. If the run was `complete`, a paused table makes the exit code 1."""
    rows = sum(summary.rows.values())
    typer.echo(
        f"{_number(summary.events, 'event')} in {_number(summary.batches, 'batch', 'batches')},"
        f" {_number(rows, 'row change')}, {_number(len(summary.tables), 'table')}, {summary.seconds:,.1f} s"
    )
    if summary.quarantined:
        said = f"{_number(summary.quarantined, 'event')} quarantined."
        typer.secho(said, fg=typer.colors.YELLOW, err=True)
    for table, reason in summary.paused.items():
        typer.secho(f"{table} is paused: {reason}", fg=typer.colors.RED, err=True)
    if complete and summary.paused:
        raise typer.Exit(1)
