"""The epochs of a table: the stretches of its events that each follow one initial snapshot of the connector.

Nothing that is known of the events before a snapshot tells to which schema version those after it belong, or which of
them the mirror has: the connector may read another server. So nothing is compared across epochs, and a table does not
pass from one to the next by its events: it is read again from the source. Where no source can be read, the first row of
the snapshot removes all earlier rows, in the order of offsets.
"""

from collections.abc import Mapping
from functools import partial

import numpy as np

from replicator.batch.context import MirrorContext
from replicator.batch.plan.places import OTHERS, first_offsets
from replicator.batch.task import Segment
from replicator.decode.schemas.versions import Longs, Places
from replicator.errors import SnapshotLacksTable, SourceChanged
from replicator.model.commit_marker import PartitionProgress
from replicator.model.roles import LakeRole
from replicator.model.table import TableId
from replicator.schema.history.order import binlog_key
from replicator.schema.history.versions import BEGINNING


def refuse_next_epoch(segment: Segment) -> None:
    """Check that no later epoch than that of the lake has begun, if tables can be read again.

    A changelog without a mirror cannot: it may lack changes, and only its owner can decide that this does not matter.

    Raises:
        SourceChanged: one has begun.
    """
    table, progress, history = segment.table, segment.progress, segment.history
    role = LakeRole.CHANGELOG if progress.stands_alone else LakeRole.MIRROR
    marker, state = progress.marker(role), progress.schema(role)
    if marker is None:
        return
    if marker.snapshot is not None and marker.snapshot.replaces_rows:
        # An earlier version of the engine was to remove rows at the end of this snapshot.
        raise source_changed(table, str(marker.snapshot.position))
    if state is None or not segment.context.reads_again or (begun := history.epoch_after(state.at)) is None:
        return
    error = source_changed(table, str(history.versions[begun].position))
    if progress.stands_alone:
        error.hint = (
            f'give it a mirror: set keyless = "identity" under [[table]] name = "{table}", start the mirror '
            f"again, and run: replicator heal {table}; or begin its changelog again: replicator drop {table}"
        )
    raise error


def source_changed(table: TableId, position: str) -> SourceChanged:
    """Return the error of a table whose epoch has ended."""
    return SourceChanged(
        f"the connector took its snapshot again, at {position}: changes of {table} from before may be missing",
        f"read the table again: replicator heal {table}",
    )


def unordered_snapshot(table: TableId, position: str) -> SourceChanged:
    """Return the error of a repeated snapshot whose rows and earlier changes are in several partitions."""
    return SourceChanged(
        f"the connector took its snapshot of {table} again, at {position}, and its topic has several partitions: the "
        "order of their events is not known",
        f"let the mirror read the source (source.url), and run: replicator heal {table}",
    )


def next_epoch(segment: Segment) -> int | None:
    """Return the index of the first version after that of the lake that begins an epoch; None if there is none.

    Of a task that was split where an epoch begins, it is the one after that.
    """
    known, history = segment.task.since_schema_at, segment.history
    if known is None:
        known = segment.progress.schema_at
    if known is None:
        # A new table begins with the first version of its name.
        known = history.versions[history.own].at if history else BEGINNING
    return history.epoch_after(known)


def next_rows(segment: Segment, epoch: int) -> tuple[int, dict[int, int]]:
    """Return the first epoch, from `epoch` on, whose snapshot has rows in the task, with its `first_rows`.

    An earlier one has none if its snapshot found the table empty, or the topic was created again since.

    Raises:
        SourceChanged: as `first_rows`.
    """
    found: int | None = epoch
    while found is not None and segment.task.ranges:
        if rows := first_rows(segment, found):
            return found, rows
        found = segment.history.epoch_after(segment.history.versions[found].at)
    return epoch, {}


def first_rows(segment: Segment, epoch: int) -> dict[int, int]:
    """Return partition → the offset of the first row of the snapshot with which an epoch begins, in the task.

    Raises:
        SourceChanged: the topic has several partitions, so the order of their events is not known.
    """
    table, position = segment.table, segment.history.versions[epoch].position
    rows = first_offsets(segment, partial(_rows_at, binlog_key(position))).get(0, {})
    if rows and any(r.partition for r in segment.task.ranges):
        raise unordered_snapshot(table, str(position))
    return rows


def _rows_at(key: int, places: Places) -> Longs:
    """Return 0 for rows of the initial snapshot at a `binlog_key`."""
    return np.where(places.is_known & places.is_row & (places.key == key), 0, OTHERS)


def refuse_missing_rows(context: MirrorContext, table: TableId) -> None:
    """Check that no repeated snapshot has sent no rows of a table whose mirror has some; the log is complete.

    Raises:
        SnapshotLacksTable: one has sent none.
    """
    progress, history = context.ledger.progress(table), context.schemas.history(table)
    state = progress.mirror_schema
    epoch = None if progress.mirror is None or state is None else history.epoch_after(state.at)
    mirror = None if epoch is None else context.lake.load(context.config.lake.namespace, table.name)
    if epoch is None or mirror is None or mirror.is_empty:
        return
    position = history.versions[epoch].position
    raise SnapshotLacksTable(
        f"the connector took its snapshot again, at {position}, and sent no rows of {table}: it was empty, or changes "
        "are missing",
        f"let the mirror read the source (replicator run), and then: replicator heal {table}",
    )


def oldest_version(segment: Segment, before: Mapping[int, PartitionProgress]) -> int | None:
    """Return the `at` of the oldest schema version that new events of a task may have; None if unknown.

    They are of the epoch of the lake, or of that which begins with the task, and come after what the table has read of
    their partitions (`before`). The lake may have followed a later version than that.
    """
    task, history, known = segment.task, segment.history, segment.progress.schema_at
    if not history:
        return None
    if task.since_schema_at is not None:
        return task.since_schema_at
    if known is None:
        return None
    followed = history.index_at(known)
    first = history.epoch_of(followed)
    highs = [p.high_water for r in task.ranges if (p := before.get(r.partition)) is not None]
    if len(highs) == len(task.ranges) and all(high is not None and high.snapshot is None for high in highs):
        versions = (history.index_of(high.position, high.ts_ms, first) for high in highs if high is not None)
        first = min([followed, *versions])
    return history.versions[first].at if first else None
