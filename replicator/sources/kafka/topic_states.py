"""What topics have: their offsets, and what identifies them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replicator.sources.kafka.admin import KafkaAdmin


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic, as it is now.

    Attributes:
        id: identifies a topic that was created again; None if Kafka has no ids.
        first, ends: partition → offset of the first and of the next record.
    """

    id: str | None = None
    first: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)

    @property
    def lost(self) -> dict[int, int]:
        """Partition → the first offset, of the partitions whose oldest records were deleted."""
        return {partition: first for partition, first in self.first.items() if first > 0}


def topic_states(admin: "KafkaAdmin", is_wanted: Callable[[str], bool]) -> dict[str, TopicState]:
    """Return the state of each topic whose name is wanted, without open transactions. Raises LogUnavailable."""
    partitions = {topic: numbers for topic, numbers in admin.partitions().items() if is_wanted(topic)}
    ids = admin.topic_ids(partitions)
    every = [(topic, number) for topic, numbers in partitions.items() for number in numbers]
    first, ends = admin.first_offsets(every), admin.end_offsets(every, committed=True)
    return {
        topic: TopicState(
            ids.get(topic),
            {number: first[topic, number] for number in numbers},
            {number: ends[topic, number] for number in numbers},
        )
        for topic, numbers in partitions.items()
    }
