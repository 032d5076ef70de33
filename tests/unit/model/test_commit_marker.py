"""Markers as text, and the order of binlog positions."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.model.commit_marker import CommitMarker, HighWater, PartitionProgress
from replicator.model.position import SourcePosition, binlog_number
from replicator.model.snapshot import SnapshotRead, Truncate

positions = st.builds(
    SourcePosition,
    file=st.sampled_from(["", "mysql-bin.000001", "a.b.999999", "binlog.1000000"]),
    pos=st.integers(0, 2**40),
    row=st.integers(0, 9),
    server_id=st.integers(0, 2**32),
    gtid=st.none() | st.text(max_size=20),
)
progresses = st.builds(
    PartitionProgress,
    next_offset=st.integers(0, 2**62),
    high_water=st.none()
    | st.builds(
        HighWater,
        positions,
        st.integers(0, 1),
        st.integers(0, 2**50),
        tx_order=st.none() | st.integers(1, 9),
        rows_ascending=st.booleans(),
        is_replay=st.booleans(),
    ),
)
markers = st.builds(
    CommitMarker,
    mirror=st.text(max_size=9),
    sequence=st.integers(1, 2**40),
    batch=st.integers(0, 2**40),
    progress=st.dictionaries(
        st.text(max_size=9), st.dictionaries(st.integers(0, 99), progresses, max_size=3), max_size=2
    ),
    position=st.none() | positions,
    watermark_ms=st.none() | st.integers(0, 2**50),
    committed_ms=st.integers(0, 2**50),
    truncate=st.none()
    | st.builds(Truncate, st.integers(0, 99), st.integers(0, 2**62), positions, st.integers(0, 2**50)),
    topic_ids=st.dictionaries(st.text(max_size=9), st.text(max_size=9), max_size=2),
    snapshot=st.none()
    | st.builds(
        SnapshotRead,
        positions,
        st.integers(0, 2**50),
        st.dictionaries(st.integers(0, 9), st.integers(0, 99), max_size=2),
        st.none() | st.tuples(st.integers(0, 9), st.integers(0, 99)),
        st.booleans(),
    ),
    alone=st.booleans(),
)


@given(marker=markers)
def test_commit_marker_is_unchanged_after_a_json_round_trip(marker: CommitMarker) -> None:
    text = marker.to_json()
    assert "\n" not in text
    found = CommitMarker.from_json(text)
    assert found == marker
    # Positions are equal if only their order is, so the texts are compared too.
    assert found.to_json() == text


def test_commit_marker_of_another_version_is_refused() -> None:
    text = json.dumps(json.loads(CommitMarker("m", 1, 1).to_json()) | {"version": 2})
    with pytest.raises(ValueError, match="version 2"):
        CommitMarker.from_json(text)


def test_source_positions_are_ordered_by_binlog_number() -> None:
    ordered = [
        SourcePosition("", 0),
        SourcePosition("mysql-bin.000009", 4),
        SourcePosition("mysql-bin.999999", 4),
        SourcePosition("mysql-bin.999999", 100),
        SourcePosition("mysql-bin.999999", 100, 1),
        SourcePosition("mysql-bin.1000000", 4),
    ]
    assert sorted(ordered) == ordered
    assert ordered[2] < ordered[5]
    assert binlog_number("name.with.dots.000123") == 123


def test_commit_marker_has_no_truncate_when_an_older_version_wrote_it() -> None:
    at = Truncate(0, 5, SourcePosition("b.000009", 500, 0, 7), 1)
    document = json.loads(CommitMarker("m", 1, 1, truncate=at).to_json())
    assert CommitMarker.from_json(json.dumps(document)).truncate == at
    del document["truncate"]
    assert CommitMarker.from_json(json.dumps(document)).truncate is None
