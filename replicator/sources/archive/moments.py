"""Find the part of an archive up to a moment of the source, by the index and the events of a few files.

Events of a partition are in the order of the source, except those that a restarted connector delivered again: these
come after later ones, and repeat earlier ones. So the part up to a moment ends before the first event from after it.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from replicator.errors import CheckFailed
from replicator.model.moments import AsOf, Bound
from replicator.sources.archive.format import PartitionKey, Segment
from replicator.sources.archive.positions import EventPosition, PositionReader
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.change_log import data_topic

_CACHED_FILES: Final = 8

_Positions = Mapping[PartitionKey, list[tuple[int, EventPosition]]]
"""Offset and position of each event that has one, by partition."""


class Moments:
    """Searches one archive; `prefix` is that of its topics."""

    def __init__(self, reader: ArchiveReader, prefix: str) -> None:
        self._reader = reader
        self._prefix = prefix
        schemas = reader.writer_schemas() or {}
        self._positions = PositionReader(schemas.get)
        self._of_file = lru_cache(_CACHED_FILES)(self._read_file)

    def ends(self, moment: AsOf) -> dict[PartitionKey, int]:
        """Return (topic, partition) → the offset after the last event up to `moment`, for every partition.

        The topic of schema changes is included.

        Raises:
            CheckFailed: the archive does not have the transaction.
            ArchiveError: the archive is damaged.
        """
        ends, bound = self._reader.end_offsets(), self._bound(moment)
        return ends if bound is None else {key: self._end(key, bound, end) for key, end in ends.items()}

    def _end(self, key: PartitionKey, bound: Bound, end: int) -> int:
        """Return the offset of the first event of a partition from after `bound`; `end` if there is none."""
        for segment in self._reader.segments(*key):
            source = segment.source
            if segment.is_indexed and (source is None or source.last_key < bound.position_key):
                continue
            for offset, found in self._of_segment(segment):
                if bound.excludes(found.key, found.row):
                    return offset
        return end

    def _bound(self, as_of: AsOf) -> Bound | None:
        """Return the position for what the operator asked for, as a rebuild does; None for a time after all events."""
        if as_of.bound is not None:
            return as_of.bound
        if as_of.gtid is not None:
            last = max((found.key for found in self._of_transaction(as_of.gtid)), default=None)
            if last is None:
                raise CheckFailed(
                    f"{self._reader.storage.location} has no change of the transaction {as_of.gtid}",
                    "name a position of the binlog; `replicator archive` shows the ranges that the archive has",
                )
            return Bound(last)
        first = min(self._first_later(as_of.time_ms or 0), key=lambda found: found.key, default=None)
        if first is None:
            return None
        if first.gtid is None:
            # It is not known where the transaction of the change begins.
            return Bound(first.key - 1)
        return Bound(min(found.key for found in self._of_transaction(first.gtid)) - 1)

    def _first_later(self, time_ms: int) -> Iterator[EventPosition]:
        """Yield the events after a source time in the first segment of each partition that has any."""
        for key in self._data_partitions():
            for segment in self._reader.segments(*key):
                source = segment.source
                if segment.is_indexed and (source is None or source.times[1] <= time_ms):
                    continue
                later = [found for _, found in self._of_segment(segment) if found.ts_ms > time_ms]
                yield from later
                if later:
                    break

    def _of_transaction(self, gtid: str) -> Iterator[EventPosition]:
        wanted = gtid.lower()
        for key in self._data_partitions():
            for segment in self._reader.segments(*key):
                source = segment.source
                if segment.is_indexed and (source is None or not source.may_have(wanted)):
                    continue
                for _, found in self._of_segment(segment):
                    if found.gtid is not None and found.gtid.lower() == wanted:
                        yield found

    def _data_partitions(self) -> Iterable[PartitionKey]:
        for key in self._reader.manifest.partitions:
            if data_topic(key[0], self._prefix) is not None:
                yield key

    def _of_segment(self, segment: Segment) -> list[tuple[int, EventPosition]]:
        return self._of_file(segment.path).get(segment.key, [])

    def _read_file(self, name: str) -> _Positions:
        found: dict[PartitionKey, list[tuple[int, EventPosition]]] = {}
        for event in self._reader.file_events(name):
            position = self._positions.read(event.value)
            if position is not None:
                found.setdefault((event.topic, event.partition), []).append((event.offset, position))
        return found
