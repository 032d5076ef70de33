"""Splits tasks into schema segments: at schema changes before and after which rows must not be handled together."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from replicator.batch.context import MirrorContext, TableTask, read_records
from replicator.batch.version_offsets import first_offsets
from replicator.errors import UnsupportedChange
from replicator.lake.ledger import Progress
from replicator.model.commit_marker import CommitMarker
from replicator.model.table import TableId
from replicator.model.truncate import SKEW_MS
from replicator.schema.binlog_order import SnapshotPlace
from replicator.schema.history import SchemaHistory

_NO_END: Final = 1 << 62
"""An offset after all others."""


def has_news(context: MirrorContext, table: TableId) -> bool:
    """Return whether a later schema version than that of the lake is known, or the table's removal.

    So it is if the mirror has a version, and the process ended before it gave its rows what that version requires.
    """
    progress = context.ledger.progress(table)
    known = progress.schema_at
    if known is None:
        return False
    history = context.schemas.history(table)
    if history.after(known) or (history.gone is not None and history.gone.at > known):
        return True
    return progress.has_pending_rows and _can_be_kept(progress, history)


def _can_be_kept(progress: Progress, history: SchemaHistory) -> bool:
    """Return whether a mirror can be kept at the newest known version: it has rows, and no later version."""
    state = progress.mirror_schema
    if progress.mirror is None or state is None:
        return False
    return not history or history.versions[-1].at >= state.at


def newest_known(context: MirrorContext, table: TableId) -> int | None:
    """Return the `at` of the newest known schema version; None if the lake has that version.

    Raises:
        UnsupportedChange: there is a barrier before that version.
    """
    history, known = context.schemas.history(table), context.ledger.progress(table).schema_at
    if known is None or not history.after(known):
        return None
    first, newest = history.index_at(known), len(history.versions) - 1
    if any(history.is_barrier(i, first) for i in range(first + 1, newest + 1)):
        raise UnsupportedChange(
            f"the schema of {table} changed since the mirror ran last",
            "let the mirror follow it first: replicator run --until-caught-up; then replay the events",
        )
    return history.versions[newest].at


def schema_segments(context: MirrorContext, task: TableTask, before: int | None = None) -> list[TableTask]:
    """Split a task at the schema changes that separate earlier rows from later ones; see `SchemaHistory.is_barrier`.

    Versions that begin at `before` or later are not considered.
    """
    history = context.schemas.history(task.table)
    known = context.ledger.progress(task.table).schema_at
    news = history.after(known) if known is not None else history.versions_of_current_name[1:]
    awaited = _awaited_snapshot(context, task, history)
    if not news and awaited is None:
        return [task]
    first = history.own if known is None else history.index_at(known)
    newest = len(history.versions) - 1 if before is None else history.index_at(before - 1)
    starts: dict[int, dict[int, int]] = {}
    if task.ranges:
        events = context.schemas.with_sources(read_records(context, task))
        marker = context.ledger.progress(task.table).resume_marker
        starts = first_offsets(events, history, None if marker is None else marker.snapshot)
        newest = max(starts, default=first)
        first = min(starts, default=first) if known is None else first
    newest = max(newest, first)
    segments, left = [], task
    if awaited is not None:
        earlier, left = _parted_by_snapshot(task, history, awaited, starts)
        segments += [replace(part, target_schema_at=history.versions[first].at) for part in earlier]
    for end in _versions_before_barriers(history, first, newest):
        segment, left = cut_task(left, _first_offsets_after(end, starts))
        segments.append(replace(segment, target_schema_at=history.versions[end].at))
        if (begun := history.versions[end + 1]).is_read:
            left = replace(left, since_schema_at=begun.at)
    return [*segments, replace(left, target_schema_at=history.versions[newest].at)]


def _versions_before_barriers(history: SchemaHistory, first: int, newest: int) -> list[int]:
    """Return the versions that segments end with, from version `first` of the lake up to version `newest`."""
    ends, since = [], first
    for i in range(first + 1, newest + 1):
        if history.is_barrier(i, since):
            ends.append(i - 1)
            since = i - 1
    return ends


def _awaited_snapshot(context: MirrorContext, task: TableTask, history: SchemaHistory) -> int | None:
    """Return the version that a repeated snapshot shows whose rows may still come, if the lake follows it already.

    So it does if the mirror read the definition before the rows, or was killed when only a part was committed.
    """
    progress = context.ledger.progress(task.table)
    marker, known = progress.resume_marker, progress.schema_at
    if not task.ranges or task.since_schema_at is not None or marker is None or known is None:
        return None
    if not history.repeated_reads:
        return None
    for i in range(history.index_at(known), 0, -1):
        if (place := history.first_read_of(i)) is not None:
            return i if _is_awaited(place, marker, history) else None
    return None


def _parted_by_snapshot(
    task: TableTask, history: SchemaHistory, shown: int, starts: Mapping[int, Mapping[int, int]]
) -> tuple[list[TableTask], TableTask]:
    """Split a task before the rows of the snapshot that shows version `shown`: the first part may be missing."""
    rows = _first_offsets_after(shown - 1, starts)
    if not rows:
        return [], replace(task, until_schema_at=history.versions[shown - 1].at)
    earlier, later = cut_task(task, rows)
    later = replace(later, since_schema_at=history.versions[shown].at)
    return [replace(earlier, until_schema_at=history.versions[shown - 1].at)] if earlier.ranges else [], later


def _is_awaited(place: SnapshotPlace, marker: CommitMarker, history: SchemaHistory) -> bool:
    """Return whether the rows of a snapshot may still come: the lake has none, and no change from long after it."""
    known = None if marker.snapshot is None else history.snapshot_of(marker.snapshot)
    if known is not None and known.ts_ms >= place.ts_ms:
        return False
    return (marker.watermark_ms or 0) <= place.ts_ms + SKEW_MS


def _first_offsets_after(version: int, starts: Mapping[int, Mapping[int, int]]) -> dict[int, int]:
    """Return partition → the first offset of an event of a later version than `version`."""
    found: dict[int, int] = {}
    for later, offsets in starts.items():
        for partition, offset in offsets.items() if later > version else ():
            found[partition] = min(offset, found.get(partition, offset))
    return found


def cut_task(task: TableTask, at: Mapping[int, int]) -> tuple[TableTask, TableTask]:
    """Split a task at the offsets `at` (partition → offset); partitions without an offset belong to the first part."""
    before, after = [], []
    for r in task.ranges:
        middle = at.get(r.partition, r.end)
        before += [replace(r, end=middle)] if middle > r.start else []
        after += [replace(r, start=middle)] if middle < r.end else []
    records: list[pa.Table | None] = [None, None]
    if task.records is not None:
        early = pc.less(
            task.records.column("offset"),
            pa.array([at.get(p, _NO_END) for p in task.records.column("partition").to_pylist()], pa.int64()),
        )
        records = [task.records.filter(early), task.records.filter(pc.invert(early))]
    return (
        replace(task, ranges=tuple(before), records=records[0]),
        replace(task, ranges=tuple(after), records=records[1]),
    )
