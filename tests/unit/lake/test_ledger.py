"""The offset ranges to read next, their chunks, and the marker of a commit."""

import itertools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.lake.ledger import Ledger, Progress, chunks, next_marker, ranges_to_read
from replicator.model.batch_stats import BatchStats
from replicator.model.commit_marker import CommitMarker, HighWater, OffsetRange, PartitionProgress
from replicator.model.position import SourcePosition
from replicator.model.roles import LakeRole
from replicator.model.table import TableId
from replicator.schema.evolution.changes import SchemaState
from tests.support.config import minimal_config

TOPIC = "shop.shop.orders"


def marker(sequence: int = 1, **offsets: int) -> CommitMarker:
    """Return a marker with the next offsets of the partitions p0, p1, …"""
    progress = {int(name[1:]): PartitionProgress(n) for name, n in offsets.items()}
    return CommitMarker("shop", sequence, 1, {TOPIC: progress})


def stats(ends: dict[int, int], **others: Any) -> BatchStats:
    values: dict[str, Any] = {
        "events": {"c": 1},
        "duplicates": (),
        "bad": 0,
        "unknown_schema": 0,
        "truncates": (),
        "progress": {p: PartitionProgress(end) for p, end in ends.items()},
        "position": None,
        "watermark_ms": None,
    }
    return BatchStats(**values | others)


def test_ranges_to_read_continue_at_the_marker_and_include_new_partitions() -> None:
    resume_marker = marker(p0=7)
    assert ranges_to_read(TOPIC, resume_marker, {0: 3, 1: 2}, {0: 9, 1: 4}) == (
        OffsetRange(TOPIC, 0, 7, 9),
        OffsetRange(TOPIC, 1, 2, 4),
    )
    assert ranges_to_read(TOPIC, marker(p0=9), {0: 0}, {0: 9}) == ()


@given(
    spans=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=4),
    max_events=st.integers(1, 60),
)
def test_chunks_cover_the_ranges_in_order_without_gaps(spans: list[tuple[int, int]], max_events: int) -> None:
    ranges = tuple(OffsetRange(TOPIC, p, start, start + n) for p, (start, n) in enumerate(spans) if n)
    pieces = chunks(ranges, max_events)
    assert all(pieces) or not ranges
    for r in ranges:
        own = [piece for cut in pieces for piece in cut if piece.partition == r.partition]
        assert own[0].start == r.start
        assert own[-1].end == r.end
        assert all(a.end == b.start for a, b in itertools.pairwise(own))
    for cut in pieces:
        assert len({r.partition for r in cut}) == len(cut)
        # Rounding may give each partition one more.
        assert sum(r.count for r in cut) <= max_events + len(ranges)


def test_next_marker_keeps_the_progress_that_the_batch_does_not_change() -> None:
    at = SourcePosition("binlog.000003", 10)
    base = CommitMarker(
        "shop", 8, 2, {TOPIC: {0: PartitionProgress(5), 1: PartitionProgress(6)}, "other": {0: PartitionProgress(1)}},
        position=at, watermark_ms=99,
    )  # fmt: skip
    found = next_marker("shop", 4, TOPIC, None, base, stats({1: 9}, watermark_ms=50))
    assert found.sequence == 9
    assert found.progress == {
        TOPIC: {0: PartitionProgress(5), 1: PartitionProgress(9)},
        "other": {0: PartitionProgress(1)},
    }
    assert (found.position, found.watermark_ms) == (at, 99)


def test_next_marker_never_decreases_when_the_table_is_ahead() -> None:
    """After a crash between the commits, the changelog may be ahead of the next batch."""
    far = SourcePosition("binlog.000003", 900)
    base = CommitMarker(
        "shop", 8, 2, {TOPIC: {0: PartitionProgress(100, HighWater(far, 1, 7))}}, position=far, watermark_ms=7
    )
    near = SourcePosition("binlog.000003", 500)
    found = next_marker("shop", 3, TOPIC, None, base, stats({0: 50}, position=near, watermark_ms=5))
    assert found.sequence == 9
    assert found.progress == base.progress
    assert (found.position, found.watermark_ms) == (far, 7)


def test_next_marker_records_the_partitions_of_a_topic_once() -> None:
    """A number that changes shows that partitions were added, so no batch may replace it."""
    first = next_marker("shop", 1, TOPIC, None, None, stats({0: 5}), 2)
    assert first.partition_counts == {TOPIC: 2}
    assert next_marker("shop", 2, TOPIC, None, first, stats({0: 6}), 3).partition_counts == {TOPIC: 2}
    assert next_marker("shop", 2, TOPIC, None, marker(p0=1), stats({0: 6})).partition_counts == {}
    other = next_marker("shop", 2, "other", None, first, stats({0: 6}), 3)
    assert other.partition_counts == {TOPIC: 2, "other": 3}
    assert other.with_new_topic(TOPIC, "id").partition_counts == {"other": 3}
    assert other.with_new_topic(TOPIC, "id", 2).partition_counts == {"other": 3, TOPIC: 2}


def test_known_partitions_are_those_of_the_table_that_knows_fewer() -> None:
    two, three = (replace(marker(p0=1), partition_counts={TOPIC: n}) for n in (2, 3))
    assert Progress(three, two, changelog_wanted=True).known_partitions(TOPIC) == 2
    assert Progress(three, marker(p0=1), changelog_wanted=True).known_partitions(TOPIC) == 3
    assert Progress(None, two, changelog_wanted=True).known_partitions(TOPIC) == 2
    assert Progress(two, None, changelog_wanted=True).known_partitions("other") is None


@pytest.mark.parametrize("text", ["x", "ж", "🦊"])
def test_records_of_pauses_and_failures_fit_into_a_property(tmp_path: Path, text: str) -> None:
    lake, table = Mock(), TableId("d" * 64, "t" * 64)
    ledger = Ledger(lake, minimal_config(tmp_path))
    ledger.pause(table, text * 5000, text * 300, stays=True)
    ((_, key, paused), _) = lake.set_namespace_property.call_args
    lake.namespace_properties.return_value = {key: paused}
    ledger.note_heal(table, 2**41)
    ledger.note_failure(table, text * 5000, None, 3.0)
    for call in lake.set_namespace_property.call_args_list:
        assert len(call.args[2]) <= 1000
        assert json.loads(call.args[2])["reason"].startswith(text * 10)
    assert json.loads(lake.set_namespace_property.call_args_list[1].args[2])["heal_ms"] == 2**41


def test_rows_of_a_mirror_are_pending_from_its_evolution_to_the_commit_that_changes_them(
    tmp_path: Path,
) -> None:
    table, state = TableId("shop", "orders"), SchemaState(7)
    found = Mock()
    found.marker.return_value, found.schema_state.return_value = marker(p0=3), state
    found.unfilled.return_value, found.has_pending_rows.return_value = (), True
    found.property.return_value = None
    lake = Mock()
    lake.load.return_value = found
    ledger = Ledger(lake, minimal_config(tmp_path))
    assert ledger.progress(table).has_pending_rows
    ledger.committed(table, LakeRole.CHANGELOG, marker(2, p0=4), fills_done=True)
    ledger.committed(table, LakeRole.MIRROR, marker(2, p0=4))
    assert ledger.progress(table).has_pending_rows
    ledger.committed(table, LakeRole.MIRROR, marker(3, p0=5), fills_done=True)
    assert not ledger.progress(table).has_pending_rows
    ledger.evolved(table, LakeRole.CHANGELOG, state, has_pending_rows=True)
    assert not ledger.progress(table).has_pending_rows
    ledger.evolved(table, LakeRole.MIRROR, state, has_pending_rows=True)
    assert ledger.progress(table).has_pending_rows
