"""What of its topic a log table has, and what it reads next. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from replicator.model.commit_marker import CommitMarker, OffsetRange, PartitionProgress
from replicator.model.common import now_ms
from replicator.sources.kafka.topic_states import TopicState


@dataclass(frozen=True, slots=True)
class Reading:
    """What a log table reads next.

    Attributes:
        ranges: the offsets, at most as many as a batch may have.
        left: how many offsets come after them.
        gaps: the offsets that the table lacks and Kafka has deleted.
        recreated: whether the topic was created again, so that its offsets begin at 0 again.
        rewound: the partitions that end before what the table has of them.
    """

    ranges: tuple[OffsetRange, ...]
    left: int
    gaps: tuple[OffsetRange, ...] = ()
    recreated: bool = False
    rewound: tuple[int, ...] = ()


def reading(topic: str, state: TopicState, marker: CommitMarker | None, most: int) -> Reading:
    """Return what a table with the newest marker `marker` reads next: an equal number of each partition."""
    known = None if marker is None else marker.topic_ids.get(topic)
    recreated = known is not None and state.id is not None and known != state.id
    before = {} if marker is None or recreated else marker.progress.get(topic, {})
    missing, gaps, rewound = [], [], []
    for partition, end in sorted(state.ends.items()):
        first = state.first.get(partition, 0)
        start = before[partition].next_offset if partition in before else first
        if start < first:
            gaps.append(OffsetRange(topic, partition, start, first))
            start = first
        if start > end:
            # Kafka lost its newest records, or another topic has this name.
            rewound.append(partition)
        elif start < end:
            missing.append(OffsetRange(topic, partition, start, end))
    ranges = shared(missing, most)
    left = sum(r.count for r in missing) - sum(r.count for r in ranges)
    return Reading(ranges, left, tuple(gaps), recreated, tuple(rewound))


def shared(missing: Sequence[OffsetRange], most: int) -> tuple[OffsetRange, ...]:
    """Return the beginnings of ranges, together at most `most` offsets; the shortest ranges as a whole first."""
    found, left = [], most
    for number, r in enumerate(sorted(missing, key=lambda r: r.count)):
        count = min(r.count, max(1, left // (len(missing) - number)))
        left -= count
        found.append(replace(r, end=r.start + count))
    return tuple(sorted(found, key=lambda r: r.partition))


def next_marker(
    mirror: str,
    topic: str,
    state: TopicState,
    marker: CommitMarker | None,
    read: Reading,
    newest_ms: int | None,
) -> CommitMarker:
    """Return the marker of a table that has what was read."""
    before = {} if marker is None or read.recreated else dict(marker.progress.get(topic, {}))
    # A partition of which nothing was read yet begins where it begins now.
    starts = {p: PartitionProgress(first) for p, first in state.first.items()}
    reached = {r.partition: PartitionProgress(r.end) for r in (*read.gaps, *read.ranges)}
    times = [ms for ms in (newest_ms, None if marker is None else marker.watermark_ms) if ms is not None]
    return CommitMarker(
        mirror,
        1 if marker is None else marker.sequence + 1,
        0,
        {topic: {**starts, **before, **reached}},
        watermark_ms=max(times, default=None),
        committed_ms=now_ms(),
        topic_ids={} if state.id is None else {topic: state.id},
    )


def lacks(state: TopicState, topic: str, marker: CommitMarker | None) -> int:
    """Return how many offsets a table lacks."""
    read = reading(topic, state, marker, 1)
    return read.left + sum(r.count for r in read.ranges)
