"""What Spark's workers began for the next task of a table is used only if that task needs exactly it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from unittest.mock import Mock

import pyarrow as pa
import pytest

from replicator.batch.events.ahead import Forecast, WorkersAhead
from replicator.batch.events.worker_task import WorkerWriting
from replicator.decode.decoder import Decoder
from replicator.decode.decoding import Decoding, WriterSchema
from replicator.decode.json.parser import JsonParser
from replicator.lake.files.parquet import FileStyle
from replicator.lake.files.task_files import RESULT
from replicator.model.commit_marker import OffsetRange
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import INT
from tests.support.decoding import ID

TABLE = TableId("shop", "orders")
RANGES = (OffsetRange("shop.orders", 0, 10, 30),)
FORECAST = Forecast(RANGES, "topic-1")


def writing(folder: Path, *columns: Column, commit: int = 7) -> WorkerWriting:
    schema = TableSchema((ID, *columns), ("id",))
    decoder = Decoder(JsonParser(), Decoding((WriterSchema(schema),), schema, True), RANGES)
    style = FileStyle(str(folder), pa.schema([]), "zstd")
    return WorkerWriting(decoder, schema, style, style, commit, "label")


def run(_ranges: tuple[OffsetRange, ...], begun: WorkerWriting) -> pa.Table:
    (Path(begun.mirror.folder) / f"{begun.label}-1.parquet").touch()
    return RESULT.empty_table()


@pytest.fixture
def ahead() -> Iterator[WorkersAhead]:
    found = WorkersAhead(Mock(), 1)
    yield found
    found.close()


def test_a_task_that_is_as_expected_gets_what_was_begun(ahead: WorkersAhead, tmp_path: Path) -> None:
    current = replace(writing(tmp_path, commit=6), decoder=replace(writing(tmp_path).decoder, ranges=()))
    ahead.begin(TABLE, FORECAST, current, run)
    assert ahead.ranges(TABLE) == RANGES
    taken = ahead.take(TABLE, FORECAST, writing(tmp_path))
    assert taken is not None
    assert taken.found() == RESULT.empty_table()
    assert (taken.writing.decoder.ranges, taken.writing.commit) == (RANGES, 7)
    assert [file.name.partition("-")[0] for file in tmp_path.iterdir()] == [taken.writing.label]
    assert ahead.ranges(TABLE) == ()
    assert ahead.take(TABLE, FORECAST, writing(tmp_path)) is None


@pytest.mark.parametrize("changed", ["ranges", "topic", "schema", "commit"])
def test_files_for_another_task_are_removed(ahead: WorkersAhead, tmp_path: Path, changed: str) -> None:
    forecast, wanted = FORECAST, writing(tmp_path)
    match changed:
        case "ranges":
            forecast = replace(FORECAST, ranges=(OffsetRange("shop.orders", 0, 10, 29),))
        case "topic":
            forecast = replace(FORECAST, topic_id="topic-2")
        case "schema":
            wanted = writing(tmp_path, Column("added", INT))
        case _:
            wanted = replace(wanted, commit=9)
    ahead.begin(TABLE, FORECAST, writing(tmp_path, commit=6), run)
    assert ahead.take(TABLE, forecast, wanted) is None
    ahead.close()
    assert not list(tmp_path.iterdir())


def test_a_job_that_fails_is_run_again_by_its_task(ahead: WorkersAhead, tmp_path: Path) -> None:
    ahead.begin(TABLE, FORECAST, writing(tmp_path, commit=6), Mock(side_effect=OSError))
    taken = ahead.take(TABLE, FORECAST, writing(tmp_path))
    assert taken is not None
    assert taken.found() is None
    assert ahead.take(TABLE, FORECAST, writing(tmp_path)) is None


def test_two_jobs_of_a_table_are_begun_if_the_first_one_is_taken_before_its_end(
    ahead: WorkersAhead, tmp_path: Path
) -> None:
    second = Event()

    def first(ranges: tuple[OffsetRange, ...], begun: WorkerWriting) -> pa.Table:
        assert second.wait(10)
        return run(ranges, begun)

    def following(ranges: tuple[OffsetRange, ...], begun: WorkerWriting) -> pa.Table:
        second.set()
        return run(ranges, begun)

    ahead.begin(TABLE, FORECAST, writing(tmp_path, commit=6), first)
    taken = ahead.take(TABLE, FORECAST, writing(tmp_path))
    assert taken is not None
    ahead.begin(TABLE, FORECAST, taken.writing, following)
    assert taken.found() is not None


def test_closing_stops_a_running_job_and_removes_its_files(tmp_path: Path) -> None:
    began, stopped = Event(), Event()
    spark = Mock(**{"sparkContext.cancelJobsWithTag": lambda _: stopped.set()})
    ahead = WorkersAhead(spark, 1)

    def slow(ranges: tuple[OffsetRange, ...], begun: WorkerWriting) -> pa.Table:
        began.set()
        assert stopped.wait(10)
        return run(ranges, begun)

    ahead.begin(TABLE, FORECAST, writing(tmp_path), slow)
    assert began.wait(10)
    ahead.close()
    assert not list(tmp_path.iterdir())


def test_closing_does_not_begin_jobs_that_wait(tmp_path: Path) -> None:
    stopped, ran = Event(), list[str]()
    spark = Mock(**{"sparkContext.cancelJobsWithTag": lambda _: stopped.set()})
    ahead = WorkersAhead(spark, 1)

    def slow(ranges: tuple[OffsetRange, ...], begun: WorkerWriting) -> pa.Table:
        ran.append(begun.label)
        assert stopped.wait(10)
        return run(ranges, begun)

    for number in range(6):
        ahead.begin(TableId("shop", str(number)), FORECAST, writing(tmp_path), slow)
    ahead.close()
    assert len(ran) <= 2
    assert not list(tmp_path.iterdir())
