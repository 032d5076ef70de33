"""Read a mirror's status from the lake: without Java, Spark or a running mirror process."""

import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from replicator.config import ArchiveLog, Config
from replicator.errors import UsageError
from replicator.lake.reading.catalog import unreadable_reason
from replicator.lake.reading.table_metadata import newest_marker
from replicator.log_tables.status import list_log_tables
from replicator.model.commit_marker import CommitMarker
from replicator.model.common import matches
from replicator.model.compared import ComparedDefinitions
from replicator.model.position import place_order
from replicator.operations.status.judge import Judge, sources_of
from replicator.operations.status.lake_state import LakeState, read_lake
from replicator.operations.status.mirror_status import (
    ConnectorStatus,
    MirrorStatus,
    Problem,
    RunStatus,
    TableStatus,
)
from replicator.pipelines.results import has_pipelines
from replicator.runner.run_record import RunRecord, read_record
from replicator.sources.kafka.topic_patterns import topic_pattern
from replicator.sources.oldest_unread import OldestUnread, Partition, read_oldest
from replicator.sources.source_reader import read_source
from replicator.sources.source_view import SourceView

if TYPE_CHECKING:
    from replicator.pipelines.status import PipelineStatus


def read_status(config: Config) -> MirrorStatus:
    """Read the lake, and the log, the connector and the source as far as they can be reached.

    Raises LakeUnavailable.
    """
    with ThreadPoolExecutor(1) as pool:
        view = pool.submit(read_source, config)
        # Whatever the lake has now it still has later, so it may be read before the log.
        lake = read_lake(config)
        record = read_record(config)
        logs = list_log_tables(config, lake.quarantined)
        assembled = _assemble(config, lake, view.result(), record)
        return replace(assembled, pipelines=_pipelines(config), log_tables=logs)


def _pipelines(config: Config) -> "tuple[PipelineStatus, ...]":
    if not has_pipelines(config):
        return ()
    from replicator.pipelines.status import list_pipelines  # noqa: PLC0415 - it loads a parser of SQL

    return tuple(list_pipelines(config))


def only(status: MirrorStatus, patterns: Collection[str]) -> MirrorStatus:
    """Return what the status says of the source tables that match; all of it if there are no patterns.

    Raises:
        UsageError: a pattern matches no table.
    """
    if not patterns:
        return status
    known = {source for entry in status.tables for source in entry.source.split(", ")}
    known |= {entry.table for entry in status.log_tables}
    known |= {*status.not_started, *status.paused, *status.retrying, *status.empty, *status.unread}
    for pattern in patterns:
        if not any(matches(name, [pattern]) for name in known):
            raise UsageError(
                f"the mirror {status.mirror} has no table {pattern}",
                "run: replicator status, which lists them",
            )

    def chosen(name: object) -> bool:
        return any(matches(part, patterns) for part in str(name).split(", "))

    return replace(
        status,
        tables=tuple(entry for entry in status.tables if chosen(entry.source)),
        not_started=tuple(filter(chosen, status.not_started)),
        paused={name: reason for name, reason in status.paused.items() if chosen(name)},
        retrying={name: reason for name, reason in status.retrying.items() if chosen(name)},
        empty=tuple(filter(chosen, status.empty)),
        unread=tuple(filter(chosen, status.unread)),
        maintenance=tuple(entry for entry in status.maintenance if chosen(entry.source)),
        rereads=tuple(request for request in status.rereads if chosen(request.table)),
        verified=tuple(check for check in status.verified if chosen(check.table)),
        checks=tuple(history for history in status.checks if chosen(history.table)),
        pipelines=(),
        log_tables=tuple(entry for entry in status.log_tables if chosen(entry.table)),
    )


def _assemble(
    config: Config, lake: LakeState, view: SourceView, record: RunRecord | None = None
) -> MirrorStatus:
    markers = {
        name: found for name, table in lake.mirrors.items() if (found := newest_marker(table)) is not None
    }
    started = {topic for marker in markers.values() for topic in marker.progress}
    pattern = topic_pattern(view.prefix.removesuffix("."), config.source.tables, config.source.exclude)
    waiting = sorted(
        {topic for (topic, _), end in (view.ends or {}).items() if end > 0 and topic not in started}
    )
    watermarks = [m.watermark_ms for m in markers.values() if m.watermark_ms is not None]
    run = None if isinstance(config.log, ArchiveLog) else run_status(record)
    judge = Judge(config, lake, view, watermarks, _oldest(config, lake, view, markers))
    tables = tuple(_judged(judge, name, marker, config.lake.namespace) for name, marker in markers.items())
    sources = {
        source
        for name, marker in markers.items()
        for source in sources_of(lake.mirrors[name], marker, view.prefix)
    }
    return MirrorStatus(
        mirror=config.mirror.name,
        namespace=config.lake.namespace,
        tables=(*tables, *map(_unreadable, lake.unreadable.items())),
        not_started=tuple(
            source
            for topic in waiting
            if re.fullmatch(pattern, topic)
            if not config.source.excludes(source := topic.removeprefix(view.prefix))
        ),
        paused={source: trouble.reason for source, trouble in lake.paused.items()},
        quarantined=lake.quarantined.total(),
        log_problem=view.log_problem,
        source_problem=view.source_problem,
        connector=_connector(view),
        empty=tuple(table for table in view.empty if table not in sources),
        unread=tuple(table for table in view.unread if table not in sources),
        retrying={source: trouble.reason for source, trouble in lake.retrying.items()},
        maintenance=lake.maintenance,
        rereads=lake.rereads,
        tags=lake.tags,
        verified=lake.verified,
        checks=lake.checks,
        run=run,
        problems=tuple(_problems(view, lake.definitions if run is not None and run.is_alive else None)),
        lag_seconds=max((t.lag_seconds for t in tables if t.lag_seconds is not None), default=None),
    )


def run_status(record: RunRecord | None) -> RunStatus:
    """Return whether the mirror runs, as its record says."""
    if record is None:
        return RunStatus("unknown")
    state = record.state
    since = {"ended": record.ended_ms, "killed": record.seen_ms or None}.get(state, record.began_ms)
    return RunStatus(state, record.pid, record.host or None, since, record.batch_ms, record.reason)


def _oldest(
    config: Config, lake: LakeState, view: SourceView, markers: Mapping[str, CommitMarker]
) -> OldestUnread:
    judge = Judge(config, lake, view, [])
    unread: dict[Partition, int] = {}
    for name, marker in markers.items():
        for partition, (first, _) in (judge.unread(name, marker) or {}).items():
            unread[partition] = min(first, unread.get(partition, first))
    positions = [(m.position.file, m.position.pos) for m in markers.values() if m.position is not None]
    newest = max(positions, key=place_order, default=None)
    return read_oldest(config, view, unread, newest)


def _problems(view: SourceView, definitions: ComparedDefinitions | None) -> Iterator[Problem]:
    """Yield what keeps all tables from being current, or from being known to be."""
    if view.log_problem:
        yield Problem(view.log_problem, "check that Kafka is running; run: replicator check")
    if view.source_problem:
        yield Problem(view.source_problem, "run: replicator check")
    if (seen := view.connector) is not None and (seen.state != "RUNNING"):
        yield Problem(seen.describe(), seen.next_step())
    if definitions is not None and definitions.problem:
        told = f"the definitions of the tables are not compared with the source: {definitions.problem}"
        yield Problem(told, "run: replicator check")


def _judged(judge: Judge, name: str, marker: CommitMarker, namespace: str) -> TableStatus:
    try:
        return judge.table(name, marker)
    except (FileNotFoundError, PermissionError, ValueError) as error:
        # Its manifests are read to count its rows.
        return _unreadable((f"{namespace}.{name}", unreadable_reason(error)))


def _unreadable(found: tuple[str, str]) -> TableStatus:
    """Return the status of a table whose files are missing."""
    name, reason = found
    unknown = (None, None, None, None, None, None)
    step = "restore the files of the lake; the other tables are not affected"
    return TableStatus(name, name, "unreadable", *unknown, 0, 0, 0, 0, 0, 0, reason=reason, next_step=step)


def _connector(view: SourceView) -> ConnectorStatus | None:
    seen = view.connector
    if seen is None:
        return None
    behind = view.offset.transactions_behind(view.end) if view.offset and view.end else None
    return ConnectorStatus(
        name=seen.name,
        state=seen.state,
        reason=seen.reason,
        next_step=seen.next_step(),
        position=None if view.offset is None else str(view.offset),
        source_position=None if view.end is None else str(view.end),
        transactions_behind=behind,
    )
