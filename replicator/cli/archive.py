"""Commands of event archives: `record`, `replay` and `archive`."""

# ruff: noqa: PLC0415 - what a command needs is imported inside it, so that --help answers at once

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replicator.cli.options import DEFAULT_CONFIG, AsJson, ConfigFile, TableOption, Tables, chosen, moment
from replicator.errors import UsageError
from replicator.model.common import counted

if TYPE_CHECKING:
    from replicator.operations.binlog import ImportRequest
    from replicator.operations.record import RecordProgress

_From = Annotated[
    str,
    typer.Option("--from", metavar="DIR", help="Folder of the archive, or a URL such as s3://bucket/folder."),
]


def record(  # noqa: PLR0917 - typer calls it, by name
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="DIR", help="Folder of the archive, or a URL; created if it does not exist."
        ),
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
    segment_size: Annotated[
        str,
        typer.Option("--segment-size", metavar="SIZE", help="Complete a segment at this size of its events."),
    ] = "64 MiB",
    segment_time: Annotated[
        str, typer.Option("--segment-time", metavar="TIME", help="Complete a segment after this time.")
    ] = "5 minutes",
    with_rows: Annotated[
        bool,
        typer.Option(
            "--with-rows",
            help="Also read the rows from MySQL of tables that the topics lack the first rows of.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy topics or binary logs into an event archive.

    Without --binlog and --from-server, it copies the mirror's topics in Kafka. An archive outlives Kafka's
    retention, and `replicator replay` applies it like the topics themselves. It contains the events as the
    connector wrote them: columns that are masked in the lake are not masked there. Recording continues at the end
    of the archive, also after SIGKILL. Without --until-caught-up it follows the topics until Ctrl-C or SIGTERM.

    The topics have the changes of a table, and its first rows only if the connector has read them, or if the table was
    created later. With --with-rows, a temporary connector reads the rows of all other tables at one position, so that
    a replay needs nothing but the archive. It needs log.connect_url, and room in Kafka for these rows.

    With --binlog or --from-server, the events come from MySQL's binary logs: a temporary MySQL server serves the
    files to Debezium. --definitions names a file from `mysqldump --no-data` with the tables that were created
    before the first file.

    Events are kept in memory until their segment is complete. If the process is killed, they are read from Kafka again,
    so Kafka must keep events for longer than --segment-time.

    \b
    Examples:
      replicator record -c shop.toml --to shop-archive --until-caught-up
      replicator record -c shop.toml --to shop-archive --with-rows --until-caught-up
      replicator record -c shop.toml --to s3://backups/shop --segment-time "15 minutes"
      replicator record -c shop.toml --to history --binlog mysql-bin.0000*
      replicator record -c shop.toml --to history --from-server --definitions shop.sql
    """
    from replicator.cli.output import print_json, progress_bar
    from replicator.config import load
    from replicator.config.values import parse_duration, parse_size
    from replicator.operations.record import RecordTimes
    from replicator.operations.record import record as record_topics
    from replicator.runner.signals import stop_on_signals

    try:
        size, seconds = parse_size(segment_size), parse_duration(segment_time)
    except ValueError as error:
        raise UsageError(str(error), "see: replicator record --help") from error
    if binlog and from_server:
        raise UsageError("--from-server fetches the files itself", "omit --binlog")
    if with_rows and (binlog or from_server):
        raise UsageError("binary logs have no rows from before them", "omit --with-rows")
    if binlog or from_server:
        from replicator.operations.binlog import ImportRequest

        request = ImportRequest(
            to,
            tuple(files or ()),
            from_server=from_server,
            definitions=definitions,
            mysql=mysql,
            segment_bytes=size,
            segment_seconds=seconds,
        )
        if until_caught_up:
            raise UsageError("an import ends at the end of the files", "omit --until-caught-up")
        _import_files(config, request, as_json=as_json)
        return
    if files or definitions is not None:
        raise UsageError("files and --definitions are for binary logs", "add --binlog or --from-server")
    settings = load(config)
    stop = threading.Event()
    with stop_on_signals(stop), progress_bar("recording") as show:

        def report(state: "RecordProgress") -> None:
            show(f"recording, {state.bytes / 1e6:,.1f} MB", state.events, state.events + state.remaining)

        done = record_topics(
            settings,
            to,
            until_caught_up=until_caught_up,
            on_progress=report,
            stop=stop,
            times=RecordTimes(segment=seconds),
            segment_bytes=size,
            with_rows=with_rows,
        )
    if as_json:
        print_json({"events": done.events, "bytes": done.bytes, "remaining": done.remaining})
        return
    typer.echo(f"Recorded {counted(done.events, 'event')} ({done.bytes / 1e6:,.1f} MB) into {to}.")
    if done.remaining:
        typer.echo(
            f"{counted(done.remaining, 'event remains', 'events remain')}; run the same command to continue."
        )


def _import_files(config: Path, request: "ImportRequest", *, as_json: bool) -> None:
    """Import binary logs into an archive, and print the result."""
    from replicator.cli.output import print_json, progress_bar
    from replicator.config import load
    from replicator.operations.binlog import import_binlog
    from replicator.runner.signals import stop_on_signals

    stop = threading.Event()
    with stop_on_signals(stop), progress_bar("checking the files") as show:
        done = import_binlog(load(config), request, on_progress=show, stop=stop)
    if as_json:
        files = [
            {"name": f.name, "bytes": f.size, "version": f.version, "cut_at": f.cut_at} for f in done.files
        ]
        found = {"events": done.events, "complete": done.complete, "transactions": done.transactions}
        print_json({**found, "files": files})
    elif done.files:
        first, last = done.files[0], done.files[-1]
        size = sum(file.size for file in done.files)
        typer.echo(
            f"Read {first.name} to {last.name} ({size / 1e6:,.1f} MB, {counted(done.transactions, 'transaction')}),"
            f" recorded {counted(done.events, 'event')} into {request.to}."
        )
        if last.cut_at is not None:
            typer.echo(
                f"{last.name} is incomplete from offset {last.cut_at}; a transaction there was left out."
            )
    if not done.complete:
        if not as_json:
            typer.echo("The import was stopped; run the same command to continue.")
        raise typer.Exit(1)


def replay(
    source: _From,
    tables: Tables = None,
    config: ConfigFile = DEFAULT_CONFIG,
    table: TableOption = None,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="MOMENT", help="Events up to there must be in the lake already."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            "--until", metavar="MOMENT", help="Apply no event after it; default: the archive's end."
        ),
    ] = None,
    allow_gap: Annotated[
        bool,
        typer.Option(
            "--allow-gap",
            help="Also begin tables whose earlier rows neither the lake nor the range has: they get changed rows only.",
        ),
    ] = False,
) -> None:
    """Apply an event archive to the lake.

    Applies the events as `run` applies those of the recorded topics. Events that the lake already contains, from
    Kafka or an earlier replay, are skipped, so a replay can be repeated, and continued by `run`.

    MOMENT is, as in `rebuild --as-of`, a position in the binlog ("binlog.000123:4567"), a GTID (UUID:NUMBER, the end of
    that transaction), or a time in ISO 8601 (UTC without an offset; before the first transaction with a later change).

    Nothing is applied if the lake lacks events from before --after: the mirror would miss changes. A table is refused,
    and the others are applied, if the lake has nothing of it and the archive begins after its first rows. With
    --allow-gap, such tables begin at --after, or where the archive does; they have only rows that changed since.

    \b
    Examples:
      replicator replay -c shop.toml --from shop-archive
      replicator replay -c shop.toml --from s3://backups/shop shop.orders
      replicator replay -c scratch.toml --from shop-archive --until 2026-07-25T10:00:00Z
    """
    from replicator.cli.output import progress_bar
    from replicator.cli.run import finish
    from replicator.config import load
    from replicator.model.moments import ReplayRange
    from replicator.telemetry import setup_logging

    ends = moment("--after", after, "replay"), moment("--until", until, "replay")
    wanted = ReplayRange(chosen(tables, table), *ends, allow_gap)
    settings = load(config)
    from replicator.runner.process import replay as replay_archive

    with progress_bar("starting Spark") as show:
        # Inside, so that log lines are printed above the bar instead of through it.
        setup_logging()
        started: list[float] = []

        def report(done: int, total: int) -> None:
            # The first report comes before the first batch.
            started.append(time.monotonic())
            rate = done / max(0.1, started[-1] - started[0])
            show(f"replaying, {rate:,.0f} events/s", done, total)

        summary = replay_archive(settings, source, wanted, on_progress=report)
    finish(summary, complete=True)


def archive(
    source: _From,
    tables: Tables = None,
    table: TableOption = None,
    segments: Annotated[bool, typer.Option("--segments", help="Show each segment with its ranges.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Read every file, and compare it with its checksum.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", metavar="FILE", help="Configuration whose lake.options open an object store."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the contents of an event archive.

    Shows for each partition the number of events, the range of offsets, and the ranges of times, positions and GTIDs of
    the source that its events have: what --after and --until of `replicator replay` can name. Exits with 1 if --verify
    finds a damaged or missing file.

    \b
    Examples:
      replicator archive --from shop-archive
      replicator archive --from shop-archive shop.orders --segments
      replicator archive --from s3://backups/shop --verify
    """
    from replicator.cli.output import progress_bar
    from replicator.cli.render_archive import print_archive
    from replicator.config import load
    from replicator.operations.archive import read_archive

    lake = None if config is None else load(config).lake
    with progress_bar("reading the index") as show:
        report = read_archive(
            source,
            {} if lake is None else lake.catalog_options(),
            tables=chosen(tables, table),
            verify=verify,
            on_progress=show,
        )
    print_archive(report, segments=segments, as_json=as_json)
    if report.problems:
        raise typer.Exit(1)
