"""Keep the queries by which the driver decodes few records of a table, so that Spark plans each of them only once."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from replicator.decode.event_frame import WriterSchema
from replicator.jvm.local_query import LocalQuery, remove_leftovers
from replicator.model.table import TableId, TableSchema
from replicator.sources.change_log import RECORDS

_SPARK_TYPES: Final = {pa.int32(): IntegerType(), pa.int64(): LongType(), pa.binary(): BinaryType()}
_EVENTS: Final = StructType(
    [StructField(field.name, _SPARK_TYPES[field.type], field.name != "value") for field in RECORDS]
)
"""Records that are not tombstones."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """What records are decoded from and to; see `json_events.decode`."""

    writer_schemas: tuple[WriterSchema, ...]
    target: TableSchema
    for_changelog: bool
    undecodable: str


class DecodeQueries:
    """The newest query of each table. Several threads may use it, each for different tables."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        """Use `folder` for files that live for one call; remove those that a killed process left there."""
        self._spark = spark
        self._folder = folder
        self._queries: dict[TableId, tuple[Decoding, LocalQuery | None]] = {}
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        remove_leftovers(folder)

    def query(
        self, table: TableId, decoding: Decoding, decode: Callable[[DataFrame], DataFrame]
    ) -> LocalQuery | None:
        """Return the query of `decode`, which must depend only on `decoding`; None if only Spark can run it."""
        found = self._queries.get(table)
        if found is None or found[0] != decoding:
            planned = LocalQuery.plan(self._spark, self._folder, _EVENTS, decode)
            found = self._queries[table] = decoding, planned
        return found[1]


def without_tombstones(records: pa.Table) -> pa.Table:
    """Return the records that `DecodeQueries.query` expects."""
    return records.filter(pc.field("value").is_valid())
