"""Read Kafka's topics and their archive as one log: what Kafka has deleted is read from the archive."""

import math
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from replicator.errors import ArchiveError, DataLossError, LogUnavailable
from replicator.model.commit_marker import OffsetRange
from replicator.model.events import RawRecord
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.sources.archive.format import Manifest, PartitionKey
from replicator.sources.archive.joints import Joint, Joints, joined, split
from replicator.sources.archive.reader import load_manifest
from replicator.sources.archive.storage import Storage
from replicator.sources.change_log import LogPart, Offsets, TooLarge
from replicator.sources.kafka.log import KafkaChangeLog
from replicator.sources.kafka.topic_states import TopicState
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.log")
_RELOAD_S: Final = 10.0
"""How long a manifest that does not reach Kafka's start is used before it is read again."""
_RETRY_S: Final = 2.0
"""The same for an archive that could not be read yet."""
_ATTEMPTS: Final = 3
"""After this number of failures at one offset, a topic is no longer read from the archive."""

_Place = tuple[str, tuple[tuple[int, int], ...]]
"""A topic, and the partitions and offsets at which it was read."""


class RecordedPast:
    """What an archive has of Kafka's topics.

    The manifest is read only if Kafka has deleted events, and again if what is known of the archive does not reach
    Kafka's first offset. The index and the events are read when they are needed. Safe for several threads.
    """

    def __init__(self, storage: Storage, topic_prefix: str) -> None:
        self._storage = storage
        self._prefix = topic_prefix
        self._manifest: Manifest | None = None
        self._loaded = -math.inf
        self._log: ArchiveChangeLog | None = None
        self._opening = threading.Lock()
        self._problems: dict[str, str] = {}
        self._unreadable = False
        self._failures: Counter[_Place] = Counter()
        self._abandoned: set[str] = set()

    def joints(self, topics: Mapping[str, TopicState]) -> Mapping[PartitionKey, Joint]:
        """Return where the archive is joined to Kafka's `topics`, and log once why others are not."""
        lost = {name: live for name, live in topics.items() if live.lost and name not in self._abandoned}
        if not lost:
            return {}
        found = self._joined(lost)
        if self._must_reload(found, lost):
            self._reload()
            found = self._joined(lost)
        self._report({} if found is None else found.problems, lost)
        return {} if found is None else found.partitions

    def first_partitions(self, topic: str) -> int | None:
        """Return how many partitions a topic had at its first event in the archive; None if that is unknown."""
        return None if self._manifest is None else self._manifest.partition_counts.get(topic)

    def _joined(self, topics: Mapping[str, TopicState]) -> Joints | None:
        """Return the joints as far as the archive is known; None if it is not."""
        return None if self._manifest is None else joined(topics, self._manifest)

    def _must_reload(self, found: Joints | None, topics: Iterable[str]) -> bool:
        if found is not None and not found.problems:
            return False
        waited = time.monotonic() - self._loaded
        if found is None:
            # A start asks several times in succession, and its tables are read again if all of them fail.
            return waited >= _RETRY_S
        known = {topic: self._problems[topic] for topic in topics if topic in self._problems}
        return found.problems != known or waited >= _RELOAD_S

    def _reload(self) -> None:
        self._loaded = time.monotonic()
        try:
            manifest = _load(self._storage, self._prefix)
        except ArchiveError as error:
            # What is known of the archive remains true, because an archive only grows.
            if not self._unreadable:
                _LOG.warning("the archive cannot be read", reason=error.message, next=error.hint)
            self._unreadable = True
            return
        self._manifest, self._unreadable = manifest, False

    def _report(self, problems: Mapping[str, str], topics: Iterable[str]) -> None:
        """Log the problems of topics that had none before."""
        new = {topic: problem for topic, problem in problems.items() if topic not in self._problems}
        for topic in topics:
            self._problems.pop(topic, None)
        self._problems |= problems
        if new:
            _LOG.warning(
                "the log begins where Kafka does, because the archive lacks events",
                archive=self._storage.location,
                topics=new,
                next="run: replicator check",
            )

    def parts(self, ranges: Sequence[OffsetRange], tasks: int) -> Sequence[LogPart]:
        """Return parts of `ranges`, as a `ChangeLog` does, after their files were verified.

        Raises:
            LogUnavailable: the archive cannot be read. After some attempts, its topic is not joined any more.
        """
        with self._reading(ranges):
            log = self._opened(ranges)
            log.verify(ranges)
            return log.parts(ranges, tasks)

    def fetch(self, ranges: Sequence[OffsetRange], max_bytes: int) -> Mapping[str, pa.Table] | TooLarge:
        """Read `ranges` immediately, as a `ChangeLog` does. Raises as `parts`."""
        with self._reading(ranges):
            return self._opened(ranges).fetch(ranges, max_bytes)

    def records(self, ranges: Sequence[OffsetRange]) -> list[RawRecord]:
        """Return the records of `ranges`, in offset order within each partition. Raises as `parts`."""
        if not ranges:
            return []
        with self._reading(ranges):
            reader = self._opened(ranges).reader
            return [e for r in ranges for e in reader.events(r.topic, r.partition, r.start, r.end)]

    def _opened(self, ranges: Iterable[OffsetRange]) -> ArchiveChangeLog:
        """Return the archive with an index that has all of `ranges`. Raises ArchiveError."""
        with self._opening:
            if self._log is None:
                # A file that is missing concerns only the topics that are in it.
                self._log = ArchiveChangeLog(self._storage, self._prefix, check_sizes=False)
            ends = self._log.reader.end_offsets()
            if any(ends.get((r.topic, r.partition), 0) < r.end for r in ranges):
                self._log.refresh()
            return self._log

    @contextmanager
    def _reading(self, ranges: Sequence[OffsetRange]) -> Iterator[None]:
        try:
            yield
        except ArchiveError as error:
            self._count_failure(ranges, error)
            raise LogUnavailable(error.message, error.hint) from error
        for topic in {r.topic for r in ranges}:
            self._failures.pop(_place(topic, ranges), None)

    def _count_failure(self, ranges: Sequence[OffsetRange], error: ArchiveError) -> None:
        """Count the failure of each topic that still cannot be read, and abandon those that failed too often."""
        for topic in {r.topic for r in ranges}:
            own = [r for r in ranges if r.topic == topic]
            try:
                self._opened(own).verify(own)
            except ArchiveError as found:
                error = found
            else:
                continue
            # Not by topic alone: others may read another part of it, and succeed, between two attempts.
            self._failures[_place(topic, own)] += 1
            if self._failures[_place(topic, own)] >= _ATTEMPTS:
                self._abandoned.add(topic)
                _LOG.warning(
                    "the log begins where Kafka does, because the archive cannot be read",
                    topic=topic,
                    reason=error.message,
                    next=error.hint,
                )


def _place(topic: str, ranges: Sequence[OffsetRange]) -> _Place:
    return topic, tuple(sorted((r.partition, r.start) for r in ranges if r.topic == topic))


def _load(storage: Storage, prefix: str) -> Manifest:
    """Load the manifest of an archive of the topics with `prefix`. Raises ArchiveError."""
    manifest = load_manifest(storage)
    if manifest.topic_prefix != prefix:
        raise ArchiveError(
            f"{storage.location} contains events of {manifest.topic_prefix!r}, not of {prefix!r}",
            "Name an archive of this mirror's topics in log.archive.",
        )
    return manifest


class JoinedLog:
    """Kafka and an archive of its topics.

    A partition begins at the archive's first offset if the archive has the same topic, without a gap before Kafka's
    first offset; otherwise where Kafka's does. Offsets are the same in both, so they mean the same to the lake.
    """

    grows = True

    def __init__(self, live: KafkaChangeLog, past: RecordedPast) -> None:
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
        topics = {t: TopicState(self._live.topic_id(t), first[t], ends.get(t, {})) for t in first}
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

    def parts(self, ranges: Sequence[OffsetRange], tasks: int) -> Sequence[LogPart]:
        """See `ChangeLog`. If Kafka deletes records before a worker reads them, the next attempt takes the archive's.

        Raises:
            LogUnavailable: the archive cannot be read.
        """
        archived, live = split(ranges, self._joints)
        old = self._past.parts(archived, tasks) if archived else []
        return [*old, *(self._live.parts(live, tasks) if live else [])]

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
            live = TopicState(self._live.schema_topic_id(), lost, found.ends)
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
        """Close the connections."""
        self._live.close()

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
