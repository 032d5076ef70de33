"""Decode the records of a batch and stage their rows: few of them on the driver, many in Spark or its workers."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import DataFrame

from replicator.decode.records import each_part, run_on_parts
from replicator.jvm.spark import local_frame
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.files.arrow_schemas import arrow_schema
from replicator.lake.files.data_files import stage_data
from replicator.lake.files.driver_files import appended_files, appending_style, writable_rows, write_data
from replicator.lake.files.parquet import FileStyle, fitted
from replicator.lake.files.spark_tables import as_table
from replicator.lake.files.task_files import RESULT, UNWRITTEN, files_in
from replicator.log_tables.decoding import BAD, LogDecoding
from replicator.log_tables.notes import Notes, noted_in, notes_of
from replicator.log_tables.row_writing import RowWriting
from replicator.sources.change_log import LogPart

_PIECE: Final = 20_000
"""The driver decodes this number of records at a time."""


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Staged rows of a batch.

    Attributes:
        data: Iceberg's DataFile objects.
        bad: the bad events; see `BAD`. None if there are none.
        writing: how workers wrote the data files; None if they did not.
    """

    data: Sequence[Any]
    notes: Notes
    bad: DataFrame | None
    writing: RowWriting | None = None

    @contextmanager
    def discarded_on_error(self) -> Iterator[None]:
        """Remove the files of workers if what is done meanwhile fails."""
        try:
            yield
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove the files of workers. No commit may have got them, also none whose answer was lost."""
        if self.writing is not None:
            self.writing.remove_files()


def stage_few(
    lake: Lake, table: LakeTable, decoding: LogDecoding, event_time: str | None, records: pa.Table
) -> StagedRows:
    """Stage records that the driver holds."""
    schema, notes, rows, bad = arrow_schema(table.schema_json()), Notes(), [], []
    for start in range(0, records.num_rows, _PIECE):
        found = decoding.decode(records.slice(start, _PIECE))
        notes += notes_of(found, event_time)
        rows.append(fitted(found.rows, schema))
        bad.append(found.bad)
    good, wrong = pa.concat_tables([schema.empty_table(), *rows]), pa.concat_tables([BAD.empty_table(), *bad])
    parts = writable_rows(table, good)
    if parts is None:
        data = list(stage_data(lake, table, as_table(lake, table, local_frame(lake.spark, good))))
    else:
        data = [write_data(lake, table, part).file for part in parts]
    return StagedRows(data, notes, local_frame(lake.spark, wrong) if wrong.num_rows else None)


def stage_many(
    lake: Lake, table: LakeTable, decoding: LogDecoding, event_time: str | None, records: Sequence[LogPart]
) -> StagedRows:
    """Stage records that Spark's workers read. They tell what else they found, and write the rows if they can."""
    style = appending_style(table)
    staged = None if style is None else _by_workers(lake, table, style, decoding, event_time, records)
    return _by_spark(lake, table, decoding, event_time, records) if staged is None else staged


def _by_workers(
    lake: Lake,
    table: LakeTable,
    style: FileStyle,
    decoding: LogDecoding,
    event_time: str | None,
    records: Sequence[LogPart],
) -> StagedRows | None:
    """Stage rows that workers write; None if they do not write these."""
    writing = RowWriting(decoding, event_time, style, uuid.uuid4().hex, noted_in(lake.spark.sparkContext))
    kept = frozenset[str]()
    try:
        rows = run_on_parts(lake.spark, records, writing, RESULT).toArrow().to_pylist()
        files = files_in(rows)
        is_right = all(row["kind"] != UNWRITTEN for row in rows)
        data = appended_files(lake, table, style, files) if is_right else None
        if data is None:
            return None
        kept = frozenset(file.path for file in files)
    finally:
        # Of tasks that were repeated, too.
        writing.remove_files(kept)
    notes = writing.notes.value
    return StagedRows(data, notes, _bad_events(lake, decoding, records, notes), writing)


def _by_spark(
    lake: Lake, table: LakeTable, decoding: LogDecoding, event_time: str | None, records: Sequence[LogPart]
) -> StagedRows:
    noted = noted_in(lake.spark.sparkContext)
    schema = arrow_schema(table.schema_json())
    good = partial(_good, decoding, schema, event_time, noted)
    rows = run_on_parts(lake.spark, records, partial(each_part, good), schema)
    data = list(stage_data(lake, table, as_table(lake, table, rows)))
    return StagedRows(data, noted.value, _bad_events(lake, decoding, records, noted.value))


def _bad_events(
    lake: Lake, decoding: LogDecoding, records: Sequence[LogPart], notes: Notes
) -> DataFrame | None:
    bad = partial(each_part, partial(_bad, decoding))
    return run_on_parts(lake.spark, records, bad, BAD) if notes.bad else None


def _good(
    decoding: LogDecoding,
    schema: pa.Schema,
    event_time: str | None,
    noted: "Accumulator[Notes]",
    records: pa.Table,
) -> pa.Table:
    found = decoding.decode(records)
    noted.add(notes_of(found, event_time))
    return fitted(found.rows, schema)


def _bad(decoding: LogDecoding, records: pa.Table) -> pa.Table:
    return decoding.decode(records).bad
