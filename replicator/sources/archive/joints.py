"""Decide from which offset on Kafka continues an archive of its topics. Pure.

Kafka deletes the oldest records of a partition. If the archive has all records from before Kafka's first one, both are
one log, which begins where the archive does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from replicator.model.commit_marker import OffsetRange
from replicator.sources.archive.format import Manifest, PartitionKey
from replicator.sources.kafka.topic_states import TopicState


@dataclass(frozen=True, slots=True)
class Joint:
    """A partition that is in the archive from offset `start` to before `live`, and in Kafka from `live` on."""

    start: int
    live: int


@dataclass(frozen=True, slots=True)
class Joints:
    """Where archive and Kafka are joined.

    Attributes:
        partitions: the partitions that begin in the archive: without a gap, Kafka continues them.
        problems: topic → why it, or one of its partitions, begins where Kafka does.
    """

    partitions: Mapping[PartitionKey, Joint] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


def joined(topics: Mapping[str, TopicState], manifest: Manifest) -> Joints:
    """Return where an archive and Kafka's `topics` are joined."""
    partitions: dict[PartitionKey, Joint] = {}
    problems: dict[str, str] = {}
    for topic, live in topics.items():
        held = {p: manifest.partitions[topic, p] for p in live.lost if (topic, p) in manifest.partitions}
        if held and (problem := _other_topic(live.id, manifest.topic_ids.get(topic))):
            problems[topic] = problem
            continue
        for partition, first in live.lost.items():
            entry = held.get(partition)
            if entry is None:
                # If Kafka has none either, all were deleted before the recording began: usual for a quiet table.
                if live.ends.get(partition, first) > first:
                    problems[topic] = f"it has no event of partition {partition}, and Kafka begins at {first}"
            elif entry.end < first:
                problems[topic] = (
                    f"it ends at offset {entry.end} of partition {partition}, and Kafka begins at {first}"
                )
            elif entry.first < first:
                partitions[topic, partition] = Joint(entry.first, first)
    return Joints(partitions, problems)


def _other_topic(live: str | None, archived: str | None) -> str | None:
    """Return why the events of an archive are not known to be of Kafka's topic; None if they are."""
    if archived is None:
        return "it does not tell of which topic its events are: they were not recorded by this version from Kafka"
    return None if archived == live else "its events are of an earlier topic, which was deleted and recreated"


def split(
    ranges: Sequence[OffsetRange], joints: Mapping[PartitionKey, Joint]
) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Divide `ranges` into the parts to read from the archive, and all others, which are left to Kafka."""
    archived: list[OffsetRange] = []
    live: list[OffsetRange] = []
    for r in ranges:
        joint = joints.get((r.topic, r.partition))
        if joint is None or not joint.start <= r.start < joint.live:
            live.append(r)
            continue
        archived.append(replace(r, end=min(r.end, joint.live)))
        if r.end > joint.live:
            live.append(replace(r, start=joint.live))
    return archived, live
