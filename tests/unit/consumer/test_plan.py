"""What a consumer reads next: snapshots while they exist, then offsets, and never a silent gap."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pyiceberg.schema import Schema

from replicator.consumer.cursor import Cursor, Point, Within
from replicator.consumer.heads import ChangelogHead, LogSnapshot
from replicator.consumer.plan import (
    AppendedRows,
    RowsByOffset,
    next_parts,
    parts_between,
    start_after_image,
    start_of_history,
)
from replicator.errors import CursorExpired, ForeignChange, ReplicatorError
from replicator.model.changelog import Restatement

TOPIC = "shop.shop.orders"


def point(number: int, *, topic_id: str = "t", topic: str = TOPIC) -> Point:
    """Return the state after commit `number`, whose snapshot is a hundred times that, with ten offsets each."""
    snapshot = None if number == 0 else number * 100
    return Point(snapshot, number, number, {topic: {0: number * 10}}, {topic: topic_id})


def head(
    newest: int,
    *,
    oldest: int = 1,
    operations: Sequence[str] = (),
    restated: Restatement | None = None,
) -> ChangelogHead:
    """Return a changelog with one snapshot for each commit from `oldest` on."""
    snapshots = {
        n * 100: LogSnapshot(n * 100, None if n == 1 else (n - 1) * 100, n, "append", n)
        for n in range(oldest, newest + 1)
    }
    for n, operation in enumerate(operations, start=oldest):
        snapshots[n * 100] = replace(snapshots[n * 100], operation=operation)
    return ChangelogHead("u", point(newest), snapshots, restated, Schema())


def snapshots(found: Sequence[object]) -> list[int]:
    return [part.snapshot.snapshot_id for part in found if isinstance(part, AppendedRows)]


def test_snapshots_after_the_cursor_are_read_in_order() -> None:
    found = next_parts(Cursor("shop.orders", "u", point(2)), head(5))
    assert snapshots(found) == [300, 400, 500]


def test_merges_of_files_are_passed_over() -> None:
    found = next_parts(
        Cursor("shop.orders", "u", point(1)), head(4, operations=["append", "append", "replace"])
    )
    assert snapshots(found) == [200, 400]


@pytest.mark.parametrize("operation", ["overwrite", "delete"])
def test_changed_rows_are_refused(operation: str) -> None:
    with pytest.raises(ForeignChange, match="changed or deleted"):
        next_parts(Cursor("shop.orders", "u", point(1)), head(2, operations=["append", operation]))


def test_part_of_a_snapshot_is_skipped() -> None:
    cursor = Cursor("shop.orders", "u", point(1), within=Within(200, 7))
    first, second = next_parts(cursor, head(3))
    assert isinstance(first, AppendedRows)
    assert isinstance(second, AppendedRows)
    assert (first.snapshot.snapshot_id, first.skip, second.skip) == (200, 7, 0)


def test_offsets_continue_if_snapshots_were_deleted() -> None:
    found = next_parts(Cursor("shop.orders", "u", point(2)), head(9, oldest=5))
    assert found == [RowsByOffset(point(9), {TOPIC: {0: 20}})]


def test_scan_continues_in_its_snapshot_as_long_as_that_exists() -> None:
    cursor = Cursor(
        "shop.orders", "u", replace(point(2), snapshot_id=None), scan=point(4), within=Within(400, 3)
    )
    first, *rest = next_parts(cursor, head(6, oldest=4))
    assert first == RowsByOffset(point(4), {TOPIC: {0: 20}}, skip=3)
    assert snapshots(rest) == [500, 600]
    with pytest.raises(CursorExpired):
        next_parts(cursor, head(6, oldest=5))
    whole = replace(cursor, within=None)
    assert next_parts(whole, head(6, oldest=5)) == [RowsByOffset(point(6), {TOPIC: {0: 20}})]


def expired(cursor: Cursor, found: ChangelogHead) -> ReplicatorError:
    with pytest.raises(CursorExpired) as raised:
        next_parts(cursor, found)
    return raised.value


def test_restated_rows_since_the_cursor_end_it_if_snapshots_were_deleted() -> None:
    cursor, later = Cursor("shop.orders", "u", point(3)), Restatement("reread-1", 4)
    assert "re-read" in expired(cursor, head(9, oldest=6, restated=later)).message
    assert snapshots(next_parts(cursor, head(5, oldest=3, restated=later))) == [400, 500]
    earlier = Restatement("reread-1", 3)
    assert next_parts(cursor, head(9, oldest=6, restated=earlier)) == [
        RowsByOffset(point(9), {TOPIC: {0: 30}})
    ]


def test_other_topics_end_a_cursor_if_snapshots_were_deleted() -> None:
    found = head(9, oldest=6)
    assert "several topics" in expired(Cursor("shop.orders", "u", point(3, topic_id="old")), found).message
    assert (
        "several topics"
        in expired(Cursor("shop.orders", "u", point(3, topic="shop.shop.old")), found).message
    )
    two = replace(found, point=replace(found.point, offsets={TOPIC: {0: 90}, "shop.shop.old": {0: 5}}))
    assert "several topics" in expired(Cursor("shop.orders", "u", point(3)), two).message


def test_rolled_back_changelog_is_refused() -> None:
    back = replace(head(5), point=point(2))
    with pytest.raises(ForeignChange, match="rolled back"):
        next_parts(Cursor("shop.orders", "u", point(4)), back)
    gone = ChangelogHead(
        "u", point(2), {100: head(1).snapshots[100], 200: head(2).snapshots[200]}, None, Schema()
    )
    with pytest.raises(ForeignChange, match="rolled back"):
        next_parts(Cursor("shop.orders", "u", point(4)), gone)


def test_cursor_at_a_kept_snapshot_continues_by_offset_if_later_ones_were_deleted() -> None:
    """A tag keeps the snapshot of the cursor."""
    found = head(9, oldest=6)
    tagged = replace(found, snapshots={**found.snapshots, 300: head(3).snapshots[300]})
    assert next_parts(Cursor("shop.orders", "u", point(3)), tagged) == [
        RowsByOffset(point(9), {TOPIC: {0: 30}})
    ]


def test_earlier_state_is_reached_by_snapshots_or_by_offsets() -> None:
    cursor = Cursor("shop.orders", "u", point(2))
    assert snapshots(parts_between(cursor, point(4), head(6))) == [300, 400]
    assert parts_between(cursor, point(4), head(9, oldest=6)) == [
        RowsByOffset(point(9), {TOPIC: {0: 20}}, before={TOPIC: {0: 40}})
    ]
    assert parts_between(cursor, point(4), head(9, oldest=4)) == [RowsByOffset(point(4), {TOPIC: {0: 20}})]


def test_history_is_read_by_offset_if_that_is_its_order() -> None:
    assert start_of_history("shop.orders", head(3)).scan == point(3)
    assert start_of_history("shop.orders", head(9, oldest=5)).scan == point(9)
    recreated = Restatement("topic", 2, topics=1)
    assert start_of_history("shop.orders", head(3, restated=recreated)) == Cursor("shop.orders", "u")
    with pytest.raises(CursorExpired, match="not certain"):
        start_of_history("shop.orders", head(9, oldest=5, restated=recreated))


def test_offsets_of_several_partitions_do_not_order_a_reread() -> None:
    found = head(3, restated=Restatement("reread-1", 2))
    assert start_of_history("shop.orders", found).scan == point(3)
    wide = replace(found, point=replace(found.point, offsets={TOPIC: {0: 30, 1: 4}}))
    assert start_of_history("shop.orders", wide) == Cursor("shop.orders", "u")
    assert start_of_history("shop.orders", replace(wide, restated=None)).scan == wide.point


def test_changes_follow_the_image() -> None:
    ids = {TOPIC: "t"}
    assert start_after_image("shop.orders", {TOPIC: {0: 30}}, ids, head(3)) == Cursor(
        "shop.orders", "u", point(3)
    )
    ahead = start_after_image("shop.orders", {TOPIC: {0: 25}}, ids, head(3))
    assert ahead is not None
    assert (ahead.at.offsets, ahead.scan) == ({TOPIC: {0: 25}}, point(3))
    assert start_after_image("shop.orders", {TOPIC: {0: 31}}, ids, head(3)) is None
    assert start_after_image("shop.orders", {TOPIC: {0: 30}}, {TOPIC: "new"}, head(3)) is None
    assert start_after_image("shop.orders", {TOPIC: {0: 30}, "old": {0: 1}}, ids, head(3)) is None
