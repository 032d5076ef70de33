"""What a change log offers to the engine, whichever kind it is."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from replicator.model.commit import OffsetRange

Offsets = Mapping[str, Mapping[int, int]]
"""Topic → partition → offset."""


class ChangeLog(Protocol):
    """A change log: topics of partitions of records with rising offsets."""

    topic_prefix: str

    def offsets(self) -> tuple[Offsets, Offsets]:
        """First and next offset of every partition of every data topic, as of now.

        Raises:
            LogUnavailable: the log cannot be reached.
        """
        ...

    def read(self, spark: SparkSession, ranges: Sequence[OffsetRange]) -> DataFrame:
        """The records of `ranges`, all of one topic: partition, offset, timestamp (ms), key, value.

        Lazy; fails when it runs where records of a range are gone.
        """
        ...

    def schema_changes(self) -> list[bytes]:
        """Values of the schema-change topic, oldest first; those read before are not read again."""
        ...


def data_topic(topic: str, prefix: str) -> tuple[str, str] | None:
    """(database, table) of a topic ``prefix.database.table``; None for every other topic."""
    start = prefix + "."
    if not topic.startswith(start):
        return None
    database, dot, table = topic[len(start) :].partition(".")
    return (database, table) if dot and database and table else None
