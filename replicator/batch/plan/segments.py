"""Splits tasks into schema segments: at schema changes before and after which rows must not be handled together."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replicator.batch.context import MirrorContext
from replicator.batch.plan.epochs import next_epoch, next_rows, refuse_next_epoch
from replicator.batch.plan.places import OTHERS, first_offsets
from replicator.batch.task import Segment, TableTask
from replicator.decode.schemas.versions import Longs, Places, is_past
from replicator.errors import UnsupportedChange
from replicator.lake.ledger import Progress
from replicator.model.table import TableId
from replicator.schema.history.order import VersionStart
from replicator.schema.history.versions import BEGINNING, SchemaHistory

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


def schema_segments(whole: Segment, before: int | None = None) -> list[TableTask]:
    """Split a task at the schema changes that separate earlier rows from later ones; see `SchemaHistory.is_barrier`.

    Versions that begin at `before` or later are not considered.

    Raises:
        SchemaError: an epoch begins, and the table cannot follow it.
    """
    refuse_next_epoch(whole)
    history, task = whole.history, whole.task
    if (epoch := next_epoch(whole)) is None:
        return _segments(whole, before, ends=False)
    own = history.until(history.versions[epoch - 1].at)
    begun, rows = next_rows(whole, epoch)
    if not rows:
        return _segments(replace(whole, history=own), before, ends=True)
    earlier, later = cut_task(task, rows)
    later = replace(later, since_schema_at=history.versions[begun].at)
    return [
        *(_segments(replace(whole, task=earlier, history=own), before, ends=True) if earlier.ranges else ()),
        *schema_segments(replace(whole, task=later), before),
    ]


def _segments(whole: Segment, before: int | None, *, ends: bool) -> list[TableTask]:
    """Split a task whose events have versions of its history, which `ends` with an epoch if a later one is known."""
    task, history, known = whole.task, whole.history, whole.progress.schema_at
    if task.since_schema_at is not None:
        known = max(task.since_schema_at, BEGINNING if known is None else known)
    news = history.after(known) if known is not None else history.versions_of_current_name[1:]
    first = history.own if known is None else history.index_at(known)
    if not news:
        # Without a target, events may have any version, those of later epochs included.
        any_version = not ends and task.since_schema_at is None
        return [task if any_version else replace(task, target_schema_at=history.versions[first].at)]
    newest = len(history.versions) - 1 if before is None else history.index_at(before - 1)
    starts: dict[int, dict[int, int]] = {}
    if task.ranges:
        starts = _first_offsets(whole)
        newest = max(starts, default=first)
        first = min(starts, default=first) if known is None else first
    newest = max(newest, first)
    segments, left = [], task
    for end in _versions_before_barriers(history, first, newest):
        segment, left = cut_task(left, _first_offsets_after(end, starts))
        segments.append(replace(segment, target_schema_at=history.versions[end].at))
    return [*segments, replace(left, target_schema_at=history.versions[newest].at)]


def _first_offsets(whole: Segment) -> dict[int, dict[int, int]]:
    """Return version index → partition → the offset of the version's first event in the task."""
    task, history = whole.task, whole.history
    oldest = 0 if task.since_schema_at is None else history.index_at(task.since_schema_at)
    starts = tuple(v.start for v in history.versions[oldest + 1 :])
    return first_offsets(whole, partial(_versions, oldest, starts))


def _versions(oldest: int, starts: Sequence[VersionStart], places: Places) -> Longs:
    """Return the index of each event's version: `oldest`, or a later one, which begin at `starts`."""
    found = np.where(places.is_known, oldest, OTHERS)
    for i, start in enumerate(starts, start=oldest + 1):
        found[is_past(places, (start,))] = i
    return found


def _versions_before_barriers(history: SchemaHistory, first: int, newest: int) -> list[int]:
    """Return the versions that segments end with, from version `first` of the lake up to version `newest`."""
    ends, since = [], first
    for i in range(first + 1, newest + 1):
        if history.is_barrier(i, since):
            ends.append(i - 1)
            since = i - 1
    return ends


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
        replace(task, ranges=tuple(before), records=records[0], following=()),
        replace(task, ranges=tuple(after), records=records[1]),
    )
