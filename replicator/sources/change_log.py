"""Define the interface between the engine and any kind of change log."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

from replicator.model.commit_marker import OffsetRange
from replicator.model.events import RawRecord

Offsets = Mapping[str, Mapping[int, int]]
"""Topic → partition → offset."""

RECORDS: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
"""Records of one topic; `timestamp` in milliseconds."""


SCHEMA_PREFIX: Final = b"schema-prefix"
"""Key in the metadata of a batch of events in JSON that have the same schema. Its value is the text up to the payload.
The batch has the payloads only: each value lacks that text and its last byte."""


class LogPart(Protocol):
    """A part of a log; it can be pickled."""

    def __call__(self, prefixes: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Yield the records in offset order; see RECORDS.

        Of events that begin with one of `prefixes`, it may yield the payloads only; see SCHEMA_PREFIX.
        """
        ...


@dataclass(frozen=True, slots=True)
class TooLarge:
    """Records that exceed a size limit. `topic` has most of the bytes, with `record_bytes` per record on average."""

    topic: str
    record_bytes: float


class ChangeLog(Protocol):
    """A change log: topics with partitions of records in ascending offset order."""

    topic_prefix: str

    grows: bool
    """Whether the log may still receive missing events."""

    lists_partitions: bool
    """Whether `offsets` has all partitions of a topic, those without events too."""

    def offsets(self) -> tuple[Offsets, Offsets]:
        """Return the first and the next offset of every partition of every data topic, as of now.

        Raises:
            LogUnavailable: the log cannot be reached.
        """
        ...

    def readable_ends(self) -> Offsets:
        """Return the next offset of every partition that the last call of `offsets` found, before open transactions.

        Raises:
            LogUnavailable: the log cannot be reached.
        """
        ...

    def topic_id(self, topic: str) -> str | None:
        """Return the topic id from the last call of `offsets`, which identifies a recreated topic; None if unknown."""
        ...

    def first_partitions(self, topic: str) -> int | None:
        """Return how many partitions a topic had at the first event that `offsets` found; None if that is unknown."""
        ...

    def compacted(self, topics: Collection[str]) -> frozenset[str]:
        """Return those of `topics` whose records may be removed if a later one has the same key.

        Raises:
            LogUnavailable: the log cannot be reached.
        """
        ...

    def parts(self, ranges: Sequence[OffsetRange], tasks: int) -> Sequence[LogPart]:
        """Return parts of `ranges`, all of one topic, for about `tasks` Spark tasks. A part fails as `fetch` does.

        Raises:
            LogUnavailable: the log cannot be read.
        """
        ...

    def fetch(self, ranges: Sequence[OffsetRange], max_bytes: int) -> Mapping[str, pa.Table] | TooLarge:
        """Read the records of `ranges` immediately: topic → records (see RECORDS). Needs no Spark job, for few records.

        Returns TooLarge if the values exceed `max_bytes`; reading stops there.

        Raises:
            LogUnavailable: the log does not answer.
            DataLossError: records of a range are no longer in the log.
        """
        ...

    def schema_changes(self) -> Iterator[RawRecord]:
        """Yield the records of the schema-change topic, oldest first, starting after those that earlier calls read.

        Nothing else may be read from the log until the iterator is exhausted.

        Raises:
            LogUnavailable: the log does not answer.
        """
        ...


def data_topic(topic: str, prefix: str) -> tuple[str, str] | None:
    """Return (database, table) of a topic ``prefix.database.table``; None for any other topic."""
    start = prefix + "."
    if not topic.startswith(start):
        return None
    database, dot, table = topic[len(start) :].partition(".")
    return (database, table) if dot and database and table else None


class Collected:
    """Collect records into Arrow tables, up to a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._bytes: dict[str, int] = {}
        self._columns: dict[str, tuple[list[object], ...]] = {}

    @property
    def too_large(self) -> TooLarge | None:
        """Return the largest topic once the limit is exceeded; None before."""
        if self._left >= 0:
            return None
        topic = max(self._bytes, key=self._bytes.__getitem__)
        return TooLarge(topic, self._bytes[topic] / len(self._columns[topic][0]))

    def add(
        self, topic: str, partition: int, offset: int, timestamp: int, key: bytes | None, value: bytes | None
    ) -> None:
        size = len(value or b"")
        self._left -= size
        self._bytes[topic] = self._bytes.get(topic, 0) + size
        columns = self._columns.setdefault(topic, tuple([] for _ in RECORDS))
        for column, cell in zip(columns, (partition, offset, timestamp, key, value), strict=True):
            column.append(cell)

    def tables(self) -> dict[str, pa.Table]:
        """Return topic → its records."""
        return {
            topic: pa.table(dict(zip(RECORDS.names, columns, strict=True)), schema=RECORDS)
            for topic, columns in self._columns.items()
        }
