"""Keep the queries by which the driver decodes few records of a table, so that Spark plans each of them only once."""

from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from replicator.decode.event_frame import Decoding
from replicator.jvm.local_query import LocalQuery, remove_leftovers
from replicator.model.table import TableId
from replicator.sources.change_log import RECORDS

_SPARK_TYPES: Final = {pa.int32(): IntegerType(), pa.int64(): LongType(), pa.binary(): BinaryType()}
_EVENTS: Final = StructType(
    [StructField(field.name, _SPARK_TYPES[field.type], field.name != "value") for field in RECORDS]
)
"""Records that are not tombstones."""
_COLUMN_BYTES: Final = 50_000
"""Java's memory for each column of a query, measured with queries of 10 and of 60 columns."""


class DecodeQueries:
    """The newest query of each table. Several threads may use it, each for different tables."""

    def __init__(self, spark: SparkSession, folder: Path, *, most_columns: int | None = None) -> None:
        """Use `folder` for files that live for one call; remove those that a killed process left there.

        `most_columns` is the number of columns of all queries that are kept; by default, as many as fit into an eighth
        of Java's memory.
        """
        self._spark = spark
        self._folder = folder
        self._most_columns = _columns_in_memory(spark) if most_columns is None else most_columns
        self._queries: OrderedDict[TableId, tuple[Decoding, LocalQuery | None]] = OrderedDict()
        self._lock = Lock()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        remove_leftovers(folder)

    def query(
        self, table: TableId, decoding: Decoding, decode: Callable[[DataFrame], DataFrame]
    ) -> LocalQuery | None:
        """Return the query of `decode`, which must depend only on `decoding`; None if only Spark can run it."""
        with self._lock:
            found = self._queries.pop(table, None)
        if found is None or found[0] != decoding:
            found = decoding, LocalQuery.plan(self._spark, self._folder, _EVENTS, decode)
        with self._lock:
            self._queries[table] = found
            self._remove_oldest()
        return found[1]

    def _remove_oldest(self) -> None:
        """Remove the queries that were used longest ago, if they have too many columns together."""
        columns = sum(len(decoding.target.columns) + 1 for decoding, _ in self._queries.values())
        while columns > self._most_columns and len(self._queries) > 1:
            _, (decoding, _) = self._queries.popitem(last=False)
            columns -= len(decoding.target.columns) + 1


def _columns_in_memory(spark: SparkSession) -> int:
    jvm: Any = spark._jvm  # noqa: SLF001 no public way
    return int(jvm.java.lang.Runtime.getRuntime().maxMemory()) // 8 // _COLUMN_BYTES


def without_tombstones(records: pa.Table) -> pa.Table:
    """Return the records that `DecodeQueries.query` expects."""
    return records.filter(pc.field("value").is_valid())
