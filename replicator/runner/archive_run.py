"""Apply an archive, or a part of it, up to its end."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from replicator.batch.plan.epochs import refuse_missing_rows
from replicator.config import ArchiveLog, Config
from replicator.errors import BeginningMissing, CheckFailed, ConfigError, SnapshotLacksTable, UsageError
from replicator.model.commit_marker import OffsetRange
from replicator.model.common import listing, matches
from replicator.model.moments import ReplayRange
from replicator.model.table import TableId
from replicator.runner.archive_rows import begin_with_rows
from replicator.runner.scheduler import Scheduler
from replicator.runner.table_renames import TableRenames
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.sources.archive.format import PartitionKey
from replicator.sources.archive.moments import Moments
from replicator.sources.archive.origin import Beginning, Beginnings
from replicator.sources.archive.storage import open_storage
from replicator.sources.change_log import Offsets
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.runner")

OnProgress = Callable[[int, int], None]
"""Called with (events done, events in total)."""


def open_archive(config: Config, location: str | Path | None = None) -> ArchiveChangeLog:
    """Open the archive at `location`, by default the configured log, as the log of a mirror.

    Raises:
        ArchiveError: there is no archive, or it is damaged.
        ConfigError: its topics have another prefix than the configuration.
        UsageError: without `location`, the configured log is not an archive.
    """
    if location is None:
        if not isinstance(config.log, ArchiveLog):
            raise UsageError("the configured log is not an archive", "name an archive")
        location = config.log.path
    log = ArchiveChangeLog(open_storage(location, config.lake.catalog_options), config.log.topic_prefix)
    recorded = log.reader.manifest.topic_prefix
    if log.topic_prefix != recorded:
        raise ConfigError(
            f'the topics of the archive {location} have the prefix "{recorded}", not "{log.topic_prefix}"',
            f'set topic_prefix = "{recorded}" in [log]',
        )
    return log


def limit_archive(log: ArchiveChangeLog, wanted: ReplayRange) -> Mapping[PartitionKey, int]:
    """Hide the events after the range, and return (topic, partition) → the first offset of the range.

    The result has only the partitions that have events from before the range.

    Raises:
        CheckFailed: the archive does not have a transaction that the range names.
        UsageError: the range is empty.
        ArchiveError: the archive is damaged.
    """
    moments = Moments(log.reader, log.topic_prefix)
    ends = {} if wanted.until is None else moments.ends(wanted.until)
    starts = {} if wanted.after is None else moments.ends(wanted.after)
    if any(start > ends.get(key, start) for key, start in starts.items()):
        raise UsageError("the range ends before it begins", "compare --after with --until")
    log.end_at(ends)
    first = log.reader.start_offsets()
    return {key: start for key, start in starts.items() if start > first[key]}


def check_range(
    scheduler: Scheduler, log: ArchiveChangeLog, wanted: ReplayRange, starts: Mapping[PartitionKey, int]
) -> None:
    """Check that the lake has everything from before the range, and that every pattern selects a table.

    Tables of which neither the lake nor the archive has the rows from before the range are paused. With `allow_gap`,
    they begin at the range.

    Raises:
        UsageError: a pattern selects no mirrored table of the archive.
        CheckFailed: the lake lacks events from before the range. Nothing was applied.
    """
    first, ends = scheduler.check_log()
    tables = scheduler.tables
    chosen = tables.mirrored(ends)
    names = [
        name
        for topic, partitions in chosen.items()
        if any(end > first[topic][partition] for partition, end in partitions.items())
        for name in tables.names(topic)
    ]
    for pattern in wanted.tables:
        if not any(matches(name, [pattern]) for name in names):
            raise UsageError(
                f"--table {pattern}: the range has no event of a mirrored table of this name",
                "`replicator archive` lists the topics of the archive; source.tables selects tables of the mirror",
            )
    before: dict[str, dict[int, int]] = {}
    for (topic, partition), start in starts.items():
        if topic in chosen:
            before.setdefault(topic, {})[partition] = start
    missing = {r.topic: r for chunk in scheduler.unread_chunks(before) for r in chunk}
    has_events = TableRenames(scheduler.context, tables).has_events
    new = {topic for topic in missing if not has_events(topic)}
    if refused := [topic for topic in sorted(missing) if not (wanted.allow_gap and topic in new)]:
        raise _gap([tables.table_of(topic) for topic in refused], all_new=new.issuperset(refused))
    log.begin_at({key: start for key, start in starts.items() if key[0] in missing})
    begin_with_rows(scheduler, log, wanted)
    if not wanted.allow_gap:
        _refuse_partial(scheduler, log)


def _gap(tables: Sequence[TableId], *, all_new: bool) -> CheckFailed:
    names = listing(tables)
    hint = "replay without --after: events that the lake has are skipped"
    if all_new:
        hint += "; or, for tables that need no earlier rows, add --allow-gap"
    return CheckFailed(f"the lake lacks events from before the range, of {names}; nothing was applied", hint)


def _refuse_partial(scheduler: Scheduler, log: ArchiveChangeLog) -> None:
    """Pause the tables of which the lake has nothing, and the archive only the changes from some moment on.

    If it is unknown whether rows are missing, that is logged.

    Raises:
        ArchiveError: the archive is damaged.
        LakeUnavailable: a pause cannot be recorded.
    """
    _, ends = scheduler.check_log()
    tables, config = scheduler.tables, scheduler.context.config
    has_events = TableRenames(scheduler.context, tables).has_events
    new = {topic: tables.table_of(topic) for topic in sorted(tables.mirrored(ends)) if not has_events(topic)}
    begun = Beginnings(log.reader, connector_reads_rows=True if config.bootstrap.by == "connector" else None)
    unknown = [table for topic, table in new.items() if begun.of(topic) is Beginning.UNKNOWN]
    if unknown:
        _LOG.warning(
            "the archive does not tell whether it has all rows of new tables", tables=listing(unknown)
        )
    for topic, table in new.items():
        if begun.of(topic) is Beginning.PARTIAL:
            tables.pause(table, _beginning_missing(config, table))


def _beginning_missing(config: Config, table: TableId) -> BeginningMissing:
    if not config.can_read_source:
        step = "record an archive that has its rows: replicator record --with-rows --to ANOTHER_ARCHIVE"
    elif config.reads_new_tables:
        step = "read it from the source: replicator run"
    else:
        step = f"read it from the source: replicator heal {table}"
    return BeginningMissing(
        f"the archive does not have {table} from its beginning: rows that did not change since are missing",
        f"{step}; or, to get only the changed rows: replicator replay --allow-gap",
    )


def apply_archive(scheduler: Scheduler, on_progress: OnProgress | None = None) -> None:
    """Apply everything that the log has now, in chunks, and retry the tables that fail.

    `on_progress` is called before the first event too. It may be called from several threads, one at a time.
    """
    _, ends = scheduler.check_log()
    chunks = scheduler.unread_chunks(ends)
    if not chunks:
        _say_why_nothing_is_left(scheduler, ends)
    on_events = None if on_progress is None else _event_counter(on_progress, chunks)
    following = [*chunks[1:], ()]
    for goal, later in zip(chunk_goals(chunks, ends), following, strict=True):
        if scheduler.stopping.is_set():
            break
        scheduler.advance(goal, on_events, following=_by_topic(later))
    while scheduler.failing and not scheduler.stopping.is_set():
        scheduler.await_retry()
        scheduler.advance(ends, on_events)
    if not scheduler.stopping.is_set():
        pause_unfinished(scheduler, ends)


def _by_topic(ranges: Sequence[OffsetRange]) -> dict[str, tuple[OffsetRange, ...]]:
    return {topic: tuple(r for r in ranges if r.topic == topic) for topic in {r.topic for r in ranges}}


def pause_unfinished(scheduler: Scheduler, ends: Offsets) -> None:
    """Pause the tables of which the log ends without the rows of a repeated snapshot."""
    tables = scheduler.tables
    for table in map(tables.table_of, sorted(tables.mirrored(ends))):
        if table in tables.paused or not tables.is_readable(table):
            continue
        try:
            refuse_missing_rows(scheduler.context, table)
        except SnapshotLacksTable as error:
            tables.pause(table, error)


def _say_why_nothing_is_left(scheduler: Scheduler, ends: Offsets) -> None:
    """Log why no event is applied, except if tables are paused or wait for a retry, which is shown anyway."""
    if not scheduler.tables.mirrored(ends):
        _LOG.warning(
            "the archive has no event of a mirrored table",
            next="compare source.tables with the topics that replicator archive lists",
        )
    elif not scheduler.tables.paused and not scheduler.failing:
        _LOG.info("nothing to apply: the lake has all these events already")


def chunk_goals(chunks: Sequence[Sequence[OffsetRange]], ends: Offsets) -> Iterator[Offsets]:
    """Yield the end offsets of each batch: those of a chunk, and at last `ends`.

    `ends` includes the topics without unread events: the table of such a topic may have been renamed, or redefined.
    """
    for chunk in chunks[:-1]:
        goal: dict[str, dict[int, int]] = {}
        for r in chunk:
            goal.setdefault(r.topic, {})[r.partition] = r.end
        yield goal
    yield ends


def _event_counter(on_progress: OnProgress, chunks: Sequence[Sequence[OffsetRange]]) -> Callable[[int], None]:
    """Return a function that adds finished events, from any thread, and reports them."""
    total = sum(r.count for chunk in chunks for r in chunk)
    done, lock = 0, threading.Lock()

    def add(events: int) -> None:
        nonlocal done
        with lock:
            done += events
            on_progress(done, total)

    add(0)
    return add
