"""Large batches: Spark's workers decode them and write their files, which are used only if they are right."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from replicator.batch.events.ahead import Forecast, WorkersAhead
from replicator.batch.events.worker_files import WorkerFiles
from replicator.batch.events.worker_task import WorkerWriting
from replicator.decode.decoder import Decoder
from replicator.decode.decoding import Decoding
from replicator.decode.json.parser import JsonParser
from replicator.decode.records import SparkRecords, run_in_workers
from replicator.lake.files.parquet import FileStyle
from replicator.model.commit_marker import OffsetRange
from replicator.model.table import TableId, TableSchema
from replicator.runner.rounds import Rounds
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.sources.change_log import RECORDS, SCHEMA_PREFIX, LogPart
from replicator.sources.kafka.worker_reads import _payloads
from tests.oracle.compare import assert_changelog_equals, assert_mirror_equals
from tests.oracle.events import ColumnSpec
from tests.oracle.model import Source
from tests.support.lake_files import unreferenced
from tests.support.lake_harness import LakeHarness
from tests.support.law import cuts
from tests.support.mirror import until
from tests.support.orders_table import ORDERS
from tests.support.scenario import ID, Scenario


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the commits of files that workers wrote, and the rows in them that later ones replaced."""
    found: Counter[str] = Counter()
    mirror_rows, changelog_files = WorkerFiles.mirror_rows, WorkerFiles.changelog_files

    def counted_rows(files: WorkerFiles, *args: Any) -> Any:
        rows = mirror_rows(files, *args)
        if rows is not None:
            found["mirror"] += 1
            found["superseded"] += sum(len(p.positions) for p in rows.superseded)
        return rows

    def counted_files(files: WorkerFiles, *args: Any) -> Any:
        written = changelog_files(files, *args)
        found["changelog"] += written is not None
        return written

    monkeypatch.setattr(WorkerFiles, "mirror_rows", counted_rows)
    monkeypatch.setattr(WorkerFiles, "changelog_files", counted_files)
    return found


class DividedLog(ArchiveChangeLog):
    """Gives the records of one key to several Spark tasks, as Kafka does if a topic has fewer partitions than cores."""

    def parts(self, ranges: Sequence[OffsetRange], _tasks: int) -> Sequence[LogPart]:
        read = [batch for part in super().parts(ranges, 1) for batch in part()]
        records = pa.Table.from_batches(read, RECORDS)
        return [partial(_batches, records.take(list(range(i, len(records), 2)))) for i in range(2)]


def _batches(records: pa.Table, _prefixes: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
    yield from records.to_batches()


def assert_exact(lake: LakeHarness, source: Source, restarts: int, batches: int) -> None:
    """Apply a history of a source, with restarts of its connector, and compare mirror and changelog."""
    source.start(("bigint", "varchar"), rows=20)
    source.run(150)
    lake.write(source.delivered(restarts), gaps=7)
    mirror = lake.mirror(lake.config())
    _, ends = mirror.context.log.offsets()
    for cut in cuts(7, batches, ends):
        Rounds(mirror, follows=False).advance(cut)
    assert mirror.summary().paused == {}
    with lake.catalog() as catalog:
        for table in source.tables:
            assert_mirror_equals(catalog, "shop", table)
            assert_changelog_equals(catalog, "shop", table)


@pytest.mark.parametrize(("restarts", "driver_max_events"), [(0, 0), (2, 0), (0, 20)])
def test_files_of_workers_make_the_mirror_and_its_changelog(
    lake: LakeHarness, used: Counter[str], restarts: int, driver_max_events: int
) -> None:
    """After restarts of the connector, some batches have events that were delivered before: Spark writes those.

    The driver locates the rows of small batches between them.
    """
    lake.driver_max_events, lake.open_log = driver_max_events, DividedLog
    source = Source(7 + restarts, partitions=2, with_schemas=False, alters=3)
    assert_exact(lake, source, restarts, batches=5 if driver_max_events == 0 else 12)
    assert used["mirror"] > 1
    assert used["changelog"] > 1
    assert used["superseded"] > 0
    assert not unreferenced(lake)


@pytest.mark.parametrize(("alters", "restarts"), [(0, 0), (4, 2)])
def test_workers_begin_the_next_task_while_the_driver_commits(
    lake: LakeHarness, monkeypatch: pytest.MonkeyPatch, alters: int, restarts: int
) -> None:
    """After ALTERs, what was begun is not what the next task needs: its files are removed."""
    found: Counter[bool] = Counter()
    take = WorkersAhead.take

    def counted(ahead: WorkersAhead, *args: Any) -> Any:
        result = take(ahead, *args)
        found[result is not None] += 1
        return result

    monkeypatch.setattr(WorkersAhead, "take", counted)
    lake.driver_max_events = 0
    source = Source(7, partitions=2, with_schemas=False, alters=alters)
    source.start(("bigint", "varchar"), rows=20)
    source.run(100)
    source.alters = 0
    source.run(150)
    lake.write(source.delivered(restarts), gaps=7)
    mirror = lake.mirror(lake.config(apply={"max_events": 120}))
    _, ends = mirror.context.log.offsets()
    Rounds(mirror, follows=False).advance(ends)
    assert mirror.summary().paused == {}
    mirror.close()
    with lake.catalog() as catalog:
        for table in source.tables:
            assert_mirror_equals(catalog, "shop", table)
            assert_changelog_equals(catalog, "shop", table)
    assert found[True] > 0
    assert not unreferenced(lake)


def test_closing_stops_the_job_that_was_begun(spark: SparkSession, tmp_path: Path) -> None:
    failed = list[Exception]()

    def run(ranges: tuple[OffsetRange, ...], begun: WorkerWriting) -> pa.Table:
        del ranges, begun
        try:
            return run_in_workers(spark.range(1), _slowly, pa.schema([("id", pa.int64())])).toArrow()
        except Exception as error:
            failed.append(error)
            raise

    ahead = WorkersAhead(spark, 1)
    decoder = Decoder(JsonParser(), Decoding((), TableSchema(()), for_changelog=False))
    writing = WorkerWriting(
        decoder, TableSchema(()), FileStyle(str(tmp_path), pa.schema([]), "zstd"), None, 0, ""
    )
    ahead.begin(TableId("shop", "t"), Forecast((), None), writing, run)
    jobs = spark.sparkContext.statusTracker()
    until(jobs.getActiveJobsIds, seconds=60, doing="beginning the job")
    ahead.close()
    assert len(failed) == 1


def _slowly(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    time.sleep(300)
    yield from batches


def test_files_of_some_tasks_are_removed_if_another_one_cannot_be_used(
    lake: LakeHarness, used: Counter[str]
) -> None:
    lake.driver_max_events, lake.open_log = 0, DividedLog
    source = Source(7, with_schemas=False)
    source.start(("bigint", "varchar"), rows=20)
    source.run(60)
    records = source.delivered(0)
    bad = next(r for r in reversed(records) if r.topic != "shop" and r.value is not None)
    lake.write([*records, replace(bad, value=b"garbage{")])
    mirror = lake.mirror(lake.config())
    _, ends = mirror.context.log.offsets()
    for cut in cuts(7, 3, ends):
        Rounds(mirror, follows=False).advance(cut)
    assert used["mirror"] > 0
    with lake.catalog() as catalog:
        for table in source.tables:
            assert_mirror_equals(catalog, "shop", table)
    assert not unreferenced(lake)


class PayloadLog(ArchiveChangeLog):
    """Gives the payloads of events that have their schema, as Kafka does."""

    def parts(self, ranges: Sequence[OffsetRange], tasks: int) -> Sequence[LogPart]:
        return [partial(_payload_batches, part) for part in super().parts(ranges, tasks)]


def _payload_batches(part: LogPart, prefixes: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
    for batch in part():
        for row in range(batch.num_rows):
            event = batch.slice(row, 1)
            (value,), prefix = _payloads(event.column("value").to_pylist(), [p.encode() for p in prefixes])
            schema = RECORDS if prefix is None else RECORDS.with_metadata({SCHEMA_PREFIX: prefix})
            yield pa.RecordBatch.from_arrays(
                [*event.columns[:4], pa.array([value], pa.binary())], schema=schema
            )


def test_workers_decode_the_payloads_of_events_with_schemas(
    lake: LakeHarness, used: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted: list[Sequence[str]] = []
    run = SparkRecords.run

    def seen(*args: Any, prefixes: Sequence[str] = ()) -> Any:
        wanted.append(prefixes)
        return run(*args, prefixes=prefixes)

    monkeypatch.setattr(SparkRecords, "run", seen)
    lake.driver_max_events, lake.open_log = 0, PayloadLog
    assert_exact(lake, Source(7, partitions=2, with_schemas=True, alters=3), restarts=1, batches=4)
    assert used["mirror"] > 1
    assert any(wanted)


def test_quarantine_has_events_whole_of_which_workers_saw_the_payloads(lake: LakeHarness) -> None:
    lake.driver_max_events, lake.open_log = 0, PayloadLog
    scenario = Scenario([ID, ColumnSpec("n", "int")], True)
    for n in range(8):
        scenario.insert(id=n, n=n)
    *_, before, last = scenario.records
    assert last.value is not None
    bad = replace(last, value=last.value.replace(b'"n":7', b'"n":"x"'))
    truncated = replace(last, value=last.value[:-20])
    lake.write([*scenario.records, bad, truncated, before])
    mirror = lake.mirror(lake.config())
    for end in (4, 11):
        Rounds(mirror, follows=False).advance({ORDERS: {0: end}})
    found = sorted(lake.rows("quarantine", "shop_ops"), key=lambda row: int(row["offset"]))
    assert [bytes(row["value"]) for row in found] == [bad.value, truncated.value]
    assert len(lake.rows("orders")) == 8
