"""What topics have: their offsets, and what identifies them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from replicator.sources.kafka.admin import KafkaAdmin


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic, as it is now.

    Attributes:
        id: identifies a topic that was created again; None if Kafka has no ids.
        first, ends: partition → the first offset, and the one after the last record that can be read.
    """

    id: str | None = None
    first: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)


def topic_states(admin: "KafkaAdmin", topics: Collection[str]) -> dict[str, TopicState]:
    """Return the state of each of some topics that exists. Raises LogUnavailable."""
    partitions = {topic: numbers for topic, numbers in admin.partitions().items() if topic in topics}
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
