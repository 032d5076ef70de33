"""Plan what a consumer reads next. Pure: no access to the lake.

Two ways lead from a cursor to the newest state of the changelog. As long as the snapshots in between exist, their
added files are exactly the rows that are missing, whatever these rows are; maintenance only adds snapshots that replace
files. If a snapshot was deleted, the rows with later offsets are the missing ones. That is exact unless rows with
earlier offsets were added meanwhile (`model.changelog`); then the cursor has expired.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from replicator.consumer.cursor import Cursor, Offsets, Point
from replicator.consumer.heads import ChangelogHead, LogSnapshot
from replicator.errors import CursorExpired, ForeignChange, UsageError

_APPEND: Final = "append"
_REPLACE: Final = "replace"
_AGAIN: Final = "start again, with the rows of the mirror: --from mirror"


@dataclass(frozen=True, slots=True)
class AppendedRows:
    """The rows that one snapshot added, without the first `skip` of them."""

    snapshot: LogSnapshot
    skip: int = 0


@dataclass(frozen=True, slots=True)
class RowsByOffset:
    """The rows of one state of the changelog from the offsets `after` on, in their order, without the first `skip`.

    `before`, if not None, are the offsets up to which (exclusive) they are wanted.
    """

    point: Point
    after: Offsets
    skip: int = 0
    before: Offsets | None = None


Part = AppendedRows | RowsByOffset


def next_parts(cursor: Cursor, head: ChangelogHead) -> Sequence[Part]:
    """Return what leads from `cursor` to the newest state of its changelog, in order.

    Raises:
        UsageError: the cursor is of another changelog.
        CursorExpired: snapshots are gone, and offsets do not tell which rows were delivered.
        ForeignChange: the changelog was rolled back, or rows of it were changed or deleted.
    """
    if cursor.changelog != head.uuid:
        raise UsageError(
            f"the cursor is of another changelog of {cursor.table}, which was dropped since",
            "start again, without the cursor",
        )
    if cursor.scan is not None:
        if cursor.scan.snapshot_id not in head.snapshots:
            return [_by_offset(cursor, head)]
        rest = snapshots_after(cursor.scan, head)
        skip = 0 if cursor.within is None else cursor.within.rows
        scan = RowsByOffset(cursor.scan, cursor.at.offsets, skip)
        return [scan] if rest is None else [scan, *_appended(rest)]
    found = snapshots_after(cursor.at, head)
    if found is None:
        return [_by_offset(cursor, head)]
    parts = _appended(found)
    if cursor.within is None:
        return parts
    if not parts or parts[0].snapshot.snapshot_id != cursor.within.snapshot_id:
        raise UsageError("the cursor is damaged", "start again, without the cursor")
    return [AppendedRows(parts[0].snapshot, cursor.within.rows), *parts[1:]]


def parts_between(cursor: Cursor, until: Point, head: ChangelogHead) -> Sequence[Part]:
    """Return what leads from `cursor` to an earlier state of the changelog than its newest one.

    Raises:
        UsageError, CursorExpired, ForeignChange: as `next_parts`.
    """
    if until.snapshot_id is None or until.snapshot_id in head.snapshots:
        return next_parts(cursor, replace(head, point=until))
    by_offset = _by_offset(cursor, head)
    return [replace(by_offset, before=until.offsets)]


def snapshots_after(point: Point, head: ChangelogHead) -> Sequence[LogSnapshot] | None:
    """Return the snapshots after `point`, oldest first; None if some of them no longer exist.

    Raises:
        ForeignChange: the changelog was rolled back to before `point`.
    """
    if point.sequence_number > head.point.sequence_number:
        raise ForeignChange(
            "the changelog was rolled back to a snapshot from before the cursor",
            "undo that, as `replicator run` says; the cursor is then valid again",
        )
    found: list[LogSnapshot] = []
    snapshot_id = head.point.snapshot_id
    while snapshot_id != point.snapshot_id:
        snapshot = None if snapshot_id is None else head.snapshots.get(snapshot_id)
        if snapshot is None:
            return None
        found.append(snapshot)
        snapshot_id = snapshot.parent_id
    # PyIceberg lets the oldest snapshot that it leaves look like the first one of the table.
    is_complete = point.snapshot_id is not None or not found or found[-1].sequence_number == 1
    return found[::-1] if is_complete else None


def _appended(snapshots: Sequence[LogSnapshot]) -> list[AppendedRows]:
    for snapshot in snapshots:
        if snapshot.operation not in (_APPEND, _REPLACE):
            raise ForeignChange(
                f"rows of the changelog were changed or deleted (snapshot {snapshot.snapshot_id})", _AGAIN
            )
    return [AppendedRows(found) for found in snapshots if found.operation == _APPEND]


def _by_offset(cursor: Cursor, head: ChangelogHead) -> RowsByOffset:
    reached = cursor.reached
    if not reached.is_of_same_topics(head.point):
        raise CursorExpired(
            f"snapshots of the changelog of {cursor.table} from after the cursor were deleted, and its changes are of "
            "several topics, so offsets do not tell which of them were delivered",
            _AGAIN,
        )
    is_divided = cursor.scan is not None and cursor.within is not None
    if is_divided or (head.restated is not None and head.restated.commit > reached.commit):
        raise CursorExpired(
            f"snapshots of the changelog of {cursor.table} from after the cursor were deleted, and a re-read, a replay "
            "or a new topic added changes that do not follow by offset",
            _AGAIN,
        )
    return RowsByOffset(head.point, cursor.at.offsets)


def first_offset(after: Offsets) -> Mapping[int, int]:
    """Return partition → the first offset to deliver; partitions that are missing are delivered from the beginning."""
    return next(iter(after.values()), {})


def start_of_history(table: str, head: ChangelogHead) -> Cursor:
    """Return the cursor of a consumer that gets the whole changelog.

    Raises:
        CursorExpired: the changelog has no certain order any more.
    """
    cursor = Cursor(table, head.uuid)
    if head.point.snapshot_id is None:
        return cursor
    if head.has_one_order:
        return Cursor(table, head.uuid, scan=head.point)
    if snapshots_after(Point(), head) is None:
        raise CursorExpired(
            f"the changelog of {table} has changes of several topics, of a topic that was recreated, or of several "
            "partitions and a re-read, and its oldest snapshots were deleted, so their order is not certain",
            "start with the rows of the mirror: --from mirror",
        )
    return cursor


def start_after_image(
    table: str, mirror_offsets: Offsets, mirror_topic_ids: Mapping[str, str], head: ChangelogHead
) -> Cursor | None:
    """Return the cursor of a consumer that has the rows of a mirror with these offsets.

    None if the changelog lacks changes that the mirror has, or if it is not certain which ones it has more.
    """
    point = head.point
    if mirror_offsets == point.offsets and mirror_topic_ids == point.topic_ids:
        return Cursor(table, head.uuid, point)
    mirror = Point(None, 0, 0, mirror_offsets, mirror_topic_ids)
    if not mirror.is_of_same_topics(point):
        return None
    for topic, partitions in mirror_offsets.items():
        for partition, offset in partitions.items():
            if point.offsets[topic].get(partition, 0) < offset:
                return None
    at = Point(None, 0, point.commit, mirror_offsets, point.topic_ids)
    return Cursor(table, head.uuid, at, scan=point)
