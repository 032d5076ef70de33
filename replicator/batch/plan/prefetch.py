"""Fetches records for the driver: all of tables with few events, of others the last ones.

Those of the smallest tables are fetched by one request before the tasks of a batch begin, those of others when their
task does.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import pyarrow as pa

from replicator.batch.context import TAIL, MirrorContext
from replicator.batch.plan.parts import begun_ends, first_ranges
from replicator.batch.state.driver_limits import DriverLimits, RecordSizes
from replicator.batch.task import TableTask
from replicator.errors import DataLossError, LogError
from replicator.lake.ledger import chunks
from replicator.model.commit_marker import OffsetRange
from replicator.sources.change_log import RECORDS, ChangeLog, TooLarge

_SAMPLE: Final = 20
"""Number of records of a topic that are measured."""


def prefetch_plans(context: MirrorContext, plans: Sequence[Sequence[TableTask]]) -> list[list[TableTask]]:
    """Return the tasks of several tables with what is fetched before they begin; see `TableTask`.

    Later tasks of a table wait until the previous one is committed, so only the first ones get records.
    """
    first = prefetch_records(context, [tasks[0] for tasks in plans])
    return _with_tails(context, [[task, *tasks[1:]] for task, tasks in zip(first, plans, strict=True)])


def prefetch_records(context: MirrorContext, tasks: Sequence[TableTask]) -> list[TableTask]:
    """Return `tasks`, the small ones with their records, which are fetched by one request."""
    small = _small(tasks, context.driver_limits, context.sizes)
    found = _fetch(context.log, context.driver_limits, context.sizes, small)
    nothing, chosen = RECORDS.empty_table(), {task.topic for task in small}
    return [
        replace(task, records=found.get(task.topic, nothing)) if task.topic in chosen else task
        for task in tasks
    ]


def fetched_late(context: MirrorContext, task: TableTask) -> TableTask:
    """Return a task with its records, if they are few and were not fetched before: a batch may have many such tasks.

    Safe for several threads. If the log cannot be read, the workers find out why.
    """
    limits, sizes, found, size = context.driver_limits, context.sizes, list[pa.RecordBatch](), 0
    is_small = 0 < task.count <= limits.table_events
    if (
        task.records is not None
        or not is_small
        or sizes.expected(task.topic, task.count) > limits.batch_bytes
    ):
        return task
    with suppress(LogError):
        for part in context.log.parts(task.ranges, 1):
            for batch in part():
                found.append(batch)
                size += batch.column("value").nbytes
                if size > limits.batch_bytes:
                    sizes.note(task.topic, size / sum(len(each) for each in found))
                    return task
        return replace(task, records=pa.Table.from_batches(found, RECORDS), tail=None)
    return task


def divided(
    context: MirrorContext,
    tasks: Sequence[TableTask],
    later: Mapping[str, tuple[OffsetRange, ...]] | None = None,
) -> list[list[TableTask]]:
    """Divide each task into tasks of at most `apply.max_events` events with about `apply.max_size` bytes.

    What Spark's workers have begun of a task stays one task, which may be larger. Each gets the ranges that follow it:
    those of the next one, and at last the first of those that the table's topic has in `later`, if the driver does not
    do them itself.

    The first records of each task that has too many events for the driver are fetched, by one request, and measured.
    """
    apply, sizes, later = context.config.apply, context.sizes, later or {}
    many = [task for task in tasks if task.count > context.driver_limits.table_events]
    samples = [replace(task, ranges=_first_records(task.ranges)) for task in many]
    _fetch(context.log, context.driver_limits, sizes, samples)
    found = []
    for task in tasks:
        most = sizes.most_records(task.topic, apply.max_size) if task in many else None
        limit = min(most or apply.max_events, apply.max_events)
        pieces = _with_begun(task.ranges, context.ahead.ranges(task.table), limit)
        if task in many and context.ledger.progress(task.table).resume_marker is None:
            pieces = _with_small_beginning(task.ranges, context.driver_limits.table_events, pieces)
        following = [*pieces[1:], _first_of(later.get(task.topic, ()), limit, context.driver_limits)]
        found.append(
            [
                replace(task, ranges=piece, following=after)
                for piece, after in zip(pieces, following, strict=True)
            ]
        )
    return found


def _first_of(ranges: tuple[OffsetRange, ...], most: int, limits: DriverLimits) -> tuple[OffsetRange, ...]:
    """Return the first of later ranges; none if they are few events, which the driver does itself."""
    first = first_ranges(ranges, most)
    return first if sum(r.count for r in first) > limits.table_events else ()


def _with_begun(
    ranges: tuple[OffsetRange, ...], begun: tuple[OffsetRange, ...], most: int
) -> list[tuple[OffsetRange, ...]]:
    """Cut ranges into pieces of at most `most` events; the first one is what was `begun`, if they begin with it."""
    ends = begun_ends(ranges, begun)
    if not ends:
        return chunks(ranges, most)
    rest = tuple(replace(r, start=ends.get(r.partition, r.start)) for r in ranges)
    return [begun, *chunks(rest, most)]


def _with_small_beginning(
    ranges: Sequence[OffsetRange], most: int, pieces: Sequence[tuple[OffsetRange, ...]]
) -> list[tuple[OffsetRange, ...]]:
    """Return `pieces` with a first one of at most `most` events: it makes the tables whose files workers write then."""
    first, *others = pieces
    if not 0 < most < sum(r.count for r in first):
        return list(pieces)
    small = chunks(tuple(ranges), most)[0]
    ends = {r.partition: r.end for r in small}
    rest = tuple(replace(r, start=ends.get(r.partition, r.start)) for r in first)
    return [small, tuple(r for r in rest if r.count > 0), *others]


def _first_records(ranges: Sequence[OffsetRange]) -> tuple[OffsetRange, ...]:
    most = -(-_SAMPLE // len(ranges))
    return tuple(replace(r, end=min(r.end, r.start + most)) for r in ranges)


def _with_tails(context: MirrorContext, plans: Sequence[Sequence[TableTask]]) -> list[list[TableTask]]:
    """Return the tasks of several tables, those without records with the last ones of the table's ranges.

    Needs one request to the log, and no Spark job.
    """
    wanted = [tasks for tasks in plans if any(_needs_tail(context, task) for task in tasks)]
    tails = _fetch_tails(context, [r for tasks in wanted for r in _tail_ranges(tasks)])
    return [
        [replace(task, tail=tails.get(task.topic)) if _needs_tail(context, task) else task for task in tasks]
        for tasks in plans
    ]


def _needs_tail(context: MirrorContext, task: TableTask) -> bool:
    return (
        task.records is None and context.log.grows and context.schemas.discovery.needs_definitions(task.table)
    )


def _tail_ranges(tasks: Sequence[TableTask]) -> list[OffsetRange]:
    """Return the end of each partition of a table's tasks."""
    last = {r.partition: r for task in tasks for r in task.ranges}
    return [replace(r, start=max(r.start, r.end - TAIL)) for r in last.values()]


def _fetch_tails(context: MirrorContext, ranges: Sequence[OffsetRange]) -> Mapping[str, pa.Table]:
    if not ranges:
        return {}
    try:
        found = context.log.fetch(ranges, context.driver_limits.batch_bytes)
    except DataLossError:
        # Each table finds out whether it is affected.
        return {}
    return {} if isinstance(found, TooLarge) else found


def _small(tasks: Sequence[TableTask], limits: DriverLimits, sizes: RecordSizes) -> list[TableTask]:
    """Return the tasks for the driver, selected by number of events and expected size."""
    small: list[TableTask] = []
    events_left, bytes_left = limits.batch_events, float(limits.batch_bytes)
    for task in sorted(tasks, key=lambda task: task.count):
        if task.count > min(limits.table_events, events_left):
            break
        size = sizes.expected(task.topic, task.count)
        if size > bytes_left:
            continue
        small.append(task)
        events_left -= task.count
        bytes_left -= size
    return small


def _fetch(
    log: ChangeLog, limits: DriverLimits, sizes: RecordSizes, small: list[TableTask]
) -> Mapping[str, pa.Table]:
    """Return topic → records of the tasks in `small`; tasks whose records are too large are removed from that list.

    If the log lacks records of any of them, the list is emptied: each table then finds out whether it is affected.
    """
    while small:
        try:
            found = log.fetch([r for task in small for r in task.ranges], limits.batch_bytes)
        except DataLossError:
            small.clear()
            break
        if not isinstance(found, TooLarge):
            for topic, records in found.items():
                sizes.note(topic, records.column("value").nbytes / len(records))
            return found
        # The request is repeated without this topic, but only once: its next records are expected to have that size.
        sizes.note(found.topic, found.record_bytes)
        small[:] = [task for task in small if task.topic != found.topic]
    return {}
