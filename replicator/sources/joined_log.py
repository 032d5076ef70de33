"""Read Kafka's topics and their archive as one log: what Kafka has deleted is read from the archive."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import reduce
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from replicator.errors import DataLossError
from replicator.model.commit_marker import OffsetRange
from replicator.model.events import RawRecord
from replicator.sources.archive.format import PartitionKey
from replicator.sources.archive.joints import Joint, LiveTopic, split
from replicator.sources.archive.past import RecordedPast
from replicator.sources.change_log import ChangeLog, Offsets, TooLarge


class LiveLog(ChangeLog, Protocol):
    """The log that an archive is joined to, such as `KafkaChangeLog`."""

    def schema_topic(self) -> LiveTopic:
        """Return the offsets of the schema-change topic, without its id. Raises LogUnavailable."""
        ...

    def schema_topic_id(self) -> str | None:
        """Return the id of the schema-change topic; None if it has none. Raises LogUnavailable."""
        ...

    def records(self, ranges: Sequence[OffsetRange]) -> Iterator[RawRecord]:
        """Yield the records of `ranges`, in offset order within each partition. Raises as `fetch`."""
        ...

    def close(self) -> None:
        """Close the connections. The log cannot be read any more."""
        ...


class JoinedLog:
    """Kafka and an archive of its topics.

    A partition begins at the archive's first offset if the archive has the same topic, without a gap before Kafka's
    first offset; otherwise where Kafka's does. Offsets are the same in both, so they mean the same to the lake.
    """

    grows = True

    def __init__(self, live: LiveLog, past: RecordedPast) -> None:
        self.topic_prefix = live.topic_prefix
        self.lists_partitions = live.lists_partitions
        self._live = live
        self._past = past
        # Of the data topics, as of the last call of `offsets`.
        self._joints: Mapping[PartitionKey, Joint] = {}
        self._joined: frozenset[str] = frozenset()
        self._schema_ends: dict[int, int] = {}

    def offsets(self) -> tuple[Offsets, Offsets]:
        first, ends = self._live.offsets()
        topics = {t: LiveTopic(self._live.topic_id(t), first[t], ends.get(t, {})) for t in first}
        self._joints = joints = self._past.joints(topics)
        self._joined = frozenset(topic for topic, _ in joints)
        if not joints:
            return first, ends
        starts = {topic: dict(partitions) for topic, partitions in first.items()}
        for (topic, partition), joint in joints.items():
            starts[topic][partition] = joint.start
        return starts, ends

    def readable_ends(self) -> Offsets:
        return self._live.readable_ends()

    def topic_id(self, topic: str) -> str | None:
        return self._live.topic_id(topic)

    def first_partitions(self, topic: str) -> int | None:
        """Return what the archive tells of a topic that begins in it."""
        log = self._past if topic in self._joined else self._live
        return log.first_partitions(topic)

    def compacted(self, topics: Collection[str]) -> frozenset[str]:
        return self._live.compacted(topics)

    def read(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        """See `ChangeLog`. If Kafka deletes records before Spark reads them, the next attempt takes the archive's.

        Raises:
            LogUnavailable: the archive cannot be read.
        """
        archived, live = split(ranges, self._joints)
        frames = [self._past.read(spark, archived)] if archived else []
        if live:
            frames.append(self._live.read(spark, live))
        return reduce(DataFrame.unionByName, frames)

    def fetch(self, ranges: Sequence[OffsetRange], max_bytes: int) -> Mapping[str, pa.Table] | TooLarge:
        try:
            return self._fetch(ranges, max_bytes)
        except DataLossError:
            # Kafka may have deleted records since `offsets` was called, which are in the archive.
            if not self._moves(ranges):
                raise
            return self._fetch(ranges, max_bytes)

    def schema_changes(self) -> Iterator[RawRecord]:
        topic, found = self.topic_prefix, self._live.schema_topic()
        known = self._schema_ends
        lost = {p: first for p, first in found.first.items() if known.get(p, 0) < first}
        joints: Mapping[PartitionKey, Joint] = {}
        if lost:
            live = LiveTopic(self._live.schema_topic_id(), lost, found.ends)
            joints = self._past.joints({topic: live})
        ranges = []
        for partition, end in found.ends.items():
            joint = joints.get((topic, partition))
            begin = found.first[partition] if joint is None else joint.start
            ranges.append(OffsetRange(topic, partition, max(begin, known.get(partition, 0)), end))
        archived, rest = split(ranges, joints)
        yield from self._past.records(archived)
        yield from self._live.records(rest)
        self._schema_ends |= found.ends

    def close(self) -> None:
        """Close the connections, and delete the files of the archive that were copied for Spark."""
        self._live.close()
        self._past.close()

    def _fetch(self, ranges: Sequence[OffsetRange], max_bytes: int) -> Mapping[str, pa.Table] | TooLarge:
        archived, live = split(ranges, self._joints)
        if not archived:
            return self._live.fetch(live, max_bytes)
        old = self._past.fetch(archived, max_bytes)
        if isinstance(old, TooLarge) or not live:
            return old
        read = sum(pc.sum(pc.binary_length(records.column("value"))).as_py() or 0 for records in old.values())
        new = self._live.fetch(live, max_bytes - read)
        if isinstance(new, TooLarge):
            return new
        return {
            topic: pa.concat_tables([part[topic] for part in (old, new) if topic in part])
            for topic in old.keys() | new.keys()
        }

    def _moves(self, ranges: Sequence[OffsetRange]) -> bool:
        """Return whether `ranges` are divided in another way after Kafka was asked again; its topics are the same."""
        topics = {r.topic for r in ranges}
        ids, before = {t: self.topic_id(t) for t in topics}, split(ranges, self._joints)
        self.offsets()
        return ids == {t: self.topic_id(t) for t in topics} and before != split(ranges, self._joints)
