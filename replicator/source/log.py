"""What a change log offers to the engine, whichever kind it is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from replicator.model.commit import OffsetRange
from replicator.model.record import RawRecord

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


@dataclass(frozen=True, slots=True)
class TooLarge:
    """Records that were more bytes than wanted. `topic` has most of them, `record_bytes` a record on average."""

    topic: str
    record_bytes: float


class ChangeLog(Protocol):
    """A change log: topics of partitions of records with rising offsets."""

    topic_prefix: str

    grows: bool
    """Whether what is missing may still come."""

    def offsets(self) -> tuple[Offsets, Offsets]:
        """First and next offset of every partition of every data topic, as of now.

        Raises:
            LogUnavailable: the log cannot be reached.
        """
        ...

    def topic_id(self, topic: str) -> str | None:
        """What tells a topic from a later one of the same name, as `offsets` last found it; None where nothing does."""
        ...

    def read(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        """The records of `ranges`, all of one topic: partition, offset, timestamp (ms), key, value.

        Lazy; fails when it runs where records of a range are gone.
        """
        ...

    def fetch(self, ranges: Sequence[OffsetRange], max_bytes: int) -> Mapping[str, pa.Table] | TooLarge:
        """The records of `ranges` at once: topic → records (see RECORDS). For few records, as it takes no Spark job.

        TooLarge where they are more than `max_bytes` of values; it stops reading there.

        Raises:
            LogUnavailable: the log does not answer.
            DataLossError: records of a range are gone.
        """
        ...

    def schema_changes(self) -> Iterator[RawRecord]:
        """Records of the schema-change topic, oldest first; what was read to the end before is not read again.

        Nothing else may be read from the log meanwhile.

        Raises:
            LogUnavailable: the log does not answer.
        """
        ...


def data_topic(topic: str, prefix: str) -> tuple[str, str] | None:
    """(database, table) of a topic ``prefix.database.table``; None for every other topic."""
    start = prefix + "."
    if not topic.startswith(start):
        return None
    database, dot, table = topic[len(start) :].partition(".")
    return (database, table) if dot and database and table else None


class Collected:
    """Records on their way into Arrow tables, up to a number of bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._bytes: dict[str, int] = {}
        self._columns: dict[str, tuple[list[object], ...]] = {}

    @property
    def too_large(self) -> TooLarge | None:
        """Set once there were more bytes than wanted."""
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
        """Topic → its records."""
        return {
            topic: pa.table(dict(zip(RECORDS.names, columns, strict=True)), schema=RECORDS)
            for topic, columns in self._columns.items()
        }
