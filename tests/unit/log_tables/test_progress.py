"""What a log table reads next."""

from hypothesis import given
from hypothesis import strategies as st

from replicator.log_tables.progress import next_marker, reading, shared
from replicator.model.commit_marker import CommitMarker, OffsetRange
from replicator.sources.kafka.topic_states import TopicState


def places(ranges: tuple[OffsetRange, ...]) -> list[tuple[int, int]]:
    return [(r.partition, offset) for r in ranges for offset in range(r.start, r.end)]


@given(
    st.lists(st.dictionaries(st.integers(0, 3), st.integers(0, 30), max_size=4), min_size=1, max_size=5),
    st.integers(1, 20),
)
def test_batches_read_each_offset_once(growth: list[dict[int, int]], most: int) -> None:
    marker: CommitMarker | None = None
    ends: dict[int, int] = {}
    found: list[tuple[int, int]] = []
    for grown in growth:
        ends = {p: max(ends.get(p, 0), end) for p, end in {**ends, **grown}.items()}
        state = TopicState("1", dict.fromkeys(ends, 0), ends)
        while (read := reading("clicks", state, marker, most)).ranges:
            assert sum(r.count for r in read.ranges) <= max(most, len(ends))
            found += places(read.ranges)
            marker = next_marker("shop", "clicks", state, marker, read, None)
        assert not read.gaps
        assert not read.left
    assert sorted(found) == [(p, o) for p, end in sorted(ends.items()) for o in range(end)]


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=6), st.integers(1, 500))
def test_no_partition_waits_for_the_backlog_of_another(counts: list[int], most: int) -> None:
    ranges = [OffsetRange("clicks", p, 0, count) for p, count in enumerate(counts)]
    found = {r.partition: r.count for r in shared(ranges, most)}
    fair = max(1, most // len(counts))
    assert all(found[p] >= min(count, fair) for p, count in enumerate(counts))
