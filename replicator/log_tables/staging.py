"""Decode the records of a batch and stage their rows: few of them on the driver, many in Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark import AccumulatorParam
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.decode.records import mapped_parts
from replicator.jvm.spark import local_frame
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.files.arrow_schemas import arrow_schema
from replicator.lake.files.data_files import stage_data
from replicator.lake.files.driver_files import writable_rows, write_data
from replicator.lake.files.spark_tables import columns_of
from replicator.log_tables.decoding import BAD, Decoded, LogDecoding, fitted, newest_ms
from replicator.model.common import quoted
from replicator.model.shapes import Shape, merged
from replicator.sources.change_log import LogPart

_PIECE: Final = 20_000
"""The driver decodes this number of records at a time."""


@dataclass(frozen=True, slots=True)
class Notes:
    """What is known of decoded records besides their rows.

    Attributes:
        rows, bad: number of good and of bad events.
        newest_ms: the newest time of a good event.
        unknown: the fields that are no columns.
        writers: the ids of writer schemas that must be looked up first.
    """

    rows: int = 0
    bad: int = 0
    newest_ms: int | None = None
    unknown: tuple[Shape, ...] = ()
    writers: frozenset[int] = frozenset()

    def __add__(self, other: "Notes") -> "Notes":
        times = [ms for ms in (self.newest_ms, other.newest_ms) if ms is not None]
        unknown = (*self.unknown, *(found for found in other.unknown if found not in self.unknown))
        writers = self.writers | other.writers
        return Notes(self.rows + other.rows, self.bad + other.bad, max(times, default=None), unknown, writers)

    @property
    def fields(self) -> Shape:
        """All fields that are no columns."""
        found: Shape = {}
        for shape in self.unknown:
            found = merged(found, shape)
        return found


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Staged rows of a batch.

    Attributes:
        data: Iceberg's DataFile objects.
        bad: the bad events; see `BAD`. None if there are none.
    """

    data: Sequence[Any]
    notes: Notes
    bad: DataFrame | None


def stage_few(
    lake: Lake, table: LakeTable, decoding: LogDecoding, event_time: str | None, records: pa.Table
) -> StagedRows:
    """Stage records that the driver holds."""
    schema, notes, rows, bad = arrow_schema(table.schema_json()), Notes(), [], []
    for start in range(0, records.num_rows, _PIECE):
        found = decoding.decode(records.slice(start, _PIECE))
        notes += _notes(found, event_time)
        rows.append(fitted(found.rows, schema))
        bad.append(found.bad)
    good, wrong = pa.concat_tables([schema.empty_table(), *rows]), pa.concat_tables([BAD.empty_table(), *bad])
    parts = writable_rows(table, good)
    if parts is None:
        data = list(stage_data(lake, table, _as_table(lake, table, local_frame(lake.spark, good))))
    else:
        data = [write_data(lake, table, part).file for part in parts]
    return StagedRows(data, notes, local_frame(lake.spark, wrong) if wrong.num_rows else None)


def stage_many(
    lake: Lake, table: LakeTable, decoding: LogDecoding, event_time: str | None, records: Sequence[LogPart]
) -> StagedRows:
    """Stage records that Spark's workers read. They tell what else they found.

    If a task is repeated, it is counted twice: the numbers are only for the log.
    """
    schema, context = arrow_schema(table.schema_json()), lake.spark.sparkContext
    notes: Accumulator[Notes] = context.accumulator(Notes(), _NotesParam())
    rows = mapped_parts(lake.spark, records, partial(_good, decoding, schema, event_time, notes), schema)
    data = list(stage_data(lake, table, _as_table(lake, table, rows)))
    bad = mapped_parts(lake.spark, records, partial(_bad, decoding), BAD) if notes.value.bad else None
    return StagedRows(data, notes.value, bad)


class _NotesParam(AccumulatorParam[Notes]):
    def zero(self, value: Notes) -> Notes:  # noqa: ARG002
        return Notes()

    def addInPlace(self, value1: Notes, value2: Notes) -> Notes:  # noqa: N802 - PySpark's name
        return value1 + value2


def _good(
    decoding: LogDecoding,
    schema: pa.Schema,
    event_time: str | None,
    notes: "Accumulator[Notes]",
    records: pa.Table,
) -> pa.Table:
    found = decoding.decode(records)
    notes.add(_notes(found, event_time))
    return fitted(found.rows, schema)


def _bad(decoding: LogDecoding, records: pa.Table) -> pa.Table:
    return decoding.decode(records).bad


def _notes(found: Decoded, event_time: str | None) -> Notes:
    unknown = (found.unknown,) if found.unknown else ()
    newest = newest_ms(found.rows, event_time)
    return Notes(found.rows.num_rows, found.bad.num_rows, newest, unknown, found.writers)


def _as_table(lake: Lake, table: LakeTable, rows: DataFrame) -> DataFrame:
    fields = columns_of(lake, table).fields
    return rows.select(*(F.col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in fields))
