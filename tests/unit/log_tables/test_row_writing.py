"""What Spark's Python workers do with the records of a log table: files of the good events, and notes of all."""

import json
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq

from replicator.lake.files.arrow_schemas import arrow_schema
from replicator.lake.files.parquet import FileStyle
from replicator.lake.files.task_files import UNWRITTEN, files_in
from replicator.lake.files.time_partitions import MOST_PARTITIONS, TimePartitions
from replicator.log_tables.decoding import LogDecoding
from replicator.log_tables.notes import Notes
from replicator.log_tables.row_writing import RowWriting
from replicator.model.shapes import parse_shape, to_iceberg
from replicator.sources.change_log import RECORDS

SHAPE = parse_shape({"id": "long", "at": "timestamptz"})
HOUR_MS = 3_600_000


class Noted:
    """As Spark's accumulator."""

    def __init__(self) -> None:
        self.value = Notes()

    def add(self, notes: Notes) -> None:
        self.value += notes


def writing(folder: Path, *, label: str = "label") -> RowWriting:
    schema = arrow_schema(to_iceberg(SHAPE))
    style = FileStyle(str(folder), schema, "zstd", TimePartitions("at", "hour"))
    return RowWriting(LogDecoding("json", "evolve", SHAPE, {}), "at", style, label, Mock(wraps=Noted()))


def batch(*values: str) -> pa.RecordBatch:
    columns = [[0] * len(values), range(len(values)), [0] * len(values), [None] * len(values), values]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, RECORDS, strict=True)], schema=RECORDS
    )


def event(number: int, hour: int | None) -> str:
    return json.dumps({"id": number, "at": None if hour is None else hour * HOUR_MS})


def test_good_events_are_written_and_all_are_noted(tmp_path: Path) -> None:
    task, noted = writing(tmp_path), Noted()
    task.notes.add.side_effect = noted.add  # type: ignore[attr-defined]
    batches = [
        batch(event(1, 0), "bad", '{"id": 2, "more": 1}'),
        batch(event(3, 5), '{"id": "x"}', event(4, 0)),
    ]
    files = files_in([row for found in task(batches) for row in found.to_pylist()])
    rows = sorted(pq.read_table(file.path).column("id").to_pylist() for file in files)
    assert rows == [[1, 4], [2], [3]]
    assert noted.value == Notes(4, 2, 5 * HOUR_MS, parse_shape({"more": "long"}))


def test_a_task_ends_at_once_if_spark_must_write(tmp_path: Path) -> None:
    many = batch(*(event(n, n) for n in range(MOST_PARTITIONS + 1)))
    batches = iter([many, batch(event(1, 1))])
    rows = [row for found in writing(tmp_path)(batches) for row in found.to_pylist()]
    assert [row["kind"] for row in rows] == [UNWRITTEN]
    assert len(list(batches)) == 1


def test_files_of_a_task_that_failed_are_found_by_their_label(tmp_path: Path) -> None:
    for label in ("label", "other"):
        list(writing(tmp_path, label=label)([batch(event(1, 1))]))
    assert len(list(tmp_path.iterdir())) == 2
    writing(tmp_path).remove_files()
    assert [file.name.partition("-")[0] for file in tmp_path.iterdir()] == ["other"]
