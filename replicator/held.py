"""Decoded events, computed once and kept while a batch works on them.

Many stay with Spark's executors. Few come to the driver, which then plans on rows that it has: no Spark job is
needed to count or to group them, and what is written of them is one file.
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.spark import local_frame

FEW_EVENTS: Final = 10_000
"""Events of one table up to which the driver takes them."""

FEW_IN_ALL: Final = 40_000
"""Events of all tables of a batch that the driver takes."""

FEW_BYTES: Final = 32 << 20
"""Bytes of values that the driver takes in a batch."""


class RecordSizes:
    """How many bytes the records of each topic had when they were last looked at."""

    def __init__(self) -> None:
        self._bytes: dict[str, float] = {}

    def note(self, topic: str, record_bytes: float) -> None:
        """Remember the average of a topic's newest records."""
        self._bytes[topic] = record_bytes

    def expected(self, topic: str, records: int) -> float:
        """Bytes that so many records probably have; 0 for a topic that was never looked at."""
        return records * self._bytes.get(topic, 0.0)


@dataclass(frozen=True, slots=True)
class Held:
    """A frame that was computed; `rows` are its rows where the driver has them."""

    frame: DataFrame
    rows: pa.Table | None

    @property
    def few(self) -> bool:
        return self.rows is not None

    def release(self) -> None:
        """Give the memory back at once; Spark would wait for a garbage collection."""
        if self.rows is None:
            self.frame._jdf.queryExecution().logical().rdd().unpersist(False)  # noqa: SLF001 no public way


def hold(frame: DataFrame, *, few: bool) -> Held:
    """Keep what `frame` gives. Lazy where rows are not few: the first use computes it."""
    if not few:
        # Rows stay as they are in memory; a cached DataFrame would be rewritten column by column and compressed.
        return Held(frame.localCheckpoint(eager=False), None)
    rows = frame.toArrow()
    return Held(local_frame(frame.sparkSession, rows, frame.schema), rows)


def control(held: Held) -> pa.Table:
    """The columns that `census` looks at, on the driver."""
    if held.rows is not None:
        return held.rows.select([*_NUMBERS, *_NAMES])
    names = [F.when(F.col("near_end"), F.col(name)).alias(name) for name in _NAMES]
    return held.frame.select(*_NUMBERS, *names).toArrow()


_NUMBERS: Final = ("partition", "offset", "code", "hi", "lo", "ts_ms", "server_id")
_NAMES: Final = ("file", "gtid", "nth", "mark")
