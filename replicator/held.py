"""Decoded events, computed once and kept while a batch works on them.

Many stay with Spark's executors. Few come to the driver, which then plans on rows that it has: no Spark job is
needed to count or to group them, and what is written of them is one file.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
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
    """A frame that was computed; `rows` are its rows where the driver has them.

    Of many rows the driver may have the keys: partition, offset and k0, k1, … of each.
    """

    frame: DataFrame
    rows: pa.Table | None
    keys: pa.Table | None = None

    @property
    def few(self) -> bool:
        return self.rows is not None

    def filtered(self, frame: DataFrame) -> "Held":
        """The same events but for those that `frame` leaves out."""
        return replace(self, frame=frame, keys=None)

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


def control(held: Held, keys: Sequence[SparkColumn] = ()) -> tuple[pa.Table, Held]:
    """The columns that `census` looks at, on the driver; and `held` with the events' `keys`, where any are given."""
    if held.rows is not None:
        return held.rows.select([*_NUMBERS, *_NAMES]), held
    names = [F.when(F.col("near_end"), F.col(name)).alias(name) for name in _NAMES]
    found = held.frame.select(*_NUMBERS, *names, *keys).toArrow()
    if not keys:
        return found, held
    kept = found.select([*_PLACE, *(n for n in found.column_names if n not in {*_NUMBERS, *_NAMES})])
    return found, replace(held, keys=kept)


_NUMBERS: Final = ("partition", "offset", "code", "hi", "lo", "ts_ms", "server_id")
_NAMES: Final = ("file", "gtid", "nth", "mark")
_PLACE: Final = ("partition", "offset")
