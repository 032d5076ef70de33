"""Raw records of one table, on the driver or in Spark, and summaries of them.

Records are columns: partition, offset, timestamp, key and value; see `sources.change_log.RECORDS`.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.functions import vectorized_udf  # type: ignore[attr-defined]  # its stub lacks it
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.util import PythonEvalType

from replicator.model.commit_marker import OffsetRange
from replicator.model.common import quoted
from replicator.sources.change_log import ChangeLog, LogPart

Summary = Callable[[pa.Table], pa.Table]
"""A function of records without tombstones that can be pickled."""

OfTask = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function of all parts of a Spark task that can be pickled."""


class Records(Protocol):
    """Raw records of one table."""

    def summarized(self, summary: Summary, schema: pa.Schema) -> pa.Table:
        """Return the rows, of `schema`, that `summary` returns for all records, or for each of several parts."""
        ...


@dataclass(frozen=True, slots=True)
class DriverRecords:
    """Records on the driver."""

    table: pa.Table

    def summarized(self, summary: Summary, schema: pa.Schema) -> pa.Table:  # noqa: ARG002
        return summary(without_tombstones(self.table))


@dataclass(frozen=True, slots=True)
class SparkRecords:
    """Records of a log that Spark reads. Its Python workers apply functions to them."""

    spark: SparkSession
    log: ChangeLog
    ranges: Sequence[OffsetRange]

    def summarized(self, summary: Summary, schema: pa.Schema) -> pa.Table:
        return self.run(partial(each_part, partial(_of_events, summary)), schema).toArrow()

    def run(self, function: OfTask, schema: pa.Schema, *, prefixes: Sequence[str] = ()) -> DataFrame:
        """Return the rows, of `schema`, of a function that gets all records of a Spark task, a part at a time. Lazy.

        Of events that begin with one of `prefixes`, the function may get the payloads only; see
        `sources.change_log.SCHEMA_PREFIX`.
        """
        tasks = self.spark.sparkContext.defaultParallelism
        parts = self.log.parts(self.ranges, tasks)
        return run_on_parts(self.spark, parts, function, schema, prefixes=prefixes)


def run_on_parts(
    spark: SparkSession,
    parts: Sequence[LogPart],
    function: OfTask,
    schema: pa.Schema,
    *,
    prefixes: Sequence[str] = (),
) -> DataFrame:
    """Return the rows, of `schema`, of a function that gets the records of each part of a log. Lazy."""
    # One row for each task: the number of its part.
    numbers = spark.range(0, len(parts), 1, max(len(parts), 1))
    return run_in_workers(numbers, partial(_read_parts, tuple(parts), prefixes, function), schema)


def _read_parts(
    parts: Sequence[LogPart], prefixes: Sequence[str], function: OfTask, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from function(parts[number](prefixes))


def run_in_workers(frame: DataFrame, function: OfTask, schema: pa.Schema) -> DataFrame:
    """Return the rows, of `schema`, of a function that can be pickled and gets all parts of a Spark task. Lazy."""
    wanted = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    # `DataFrame.mapInArrow` does the same, but demands pandas, which PyArrow would import in every process.
    udf = vectorized_udf(function, wanted, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    mapped = udf(*(frame[quoted(name)] for name in frame.columns))
    return DataFrame(frame._jdf.mapInArrow(mapped._jc, False, None), frame.sparkSession)  # noqa: SLF001


def without_tombstones(records: pa.Table) -> pa.Table:
    """Return the records that have a value."""
    if not records.column("value").null_count:
        return records
    return records.filter(pc.field("value").is_valid())


def values_of(records: pa.Table) -> pa.BinaryArray:
    """Return the values of records as one array."""
    chunks = records.column("value").chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays([pa.array([], pa.binary()), *chunks])


def _of_events(function: Summary, records: pa.Table) -> pa.Table:
    return function(without_tombstones(records))


def each_part(
    function: Callable[[pa.Table], pa.Table], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a function returns for each part of a Spark task; `partial` makes an `OfTask` of it."""
    for batch in batches:
        yield from function(pa.Table.from_batches([batch])).to_batches()
