"""The index of row locations has the true location of every row, whatever writes the table and however."""

import random
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from replicator.batch.context import MirrorContext
from replicator.config import Config
from replicator.errors import LakeUnavailable
from replicator.lake.rows import search
from replicator.lake.rows.driver_keys import few_keys
from replicator.lake.rows.locations import ReadCost, RowLocationCache, RowLocations
from replicator.lake.rows.search import locate, read_unread
from replicator.model.types import LakeType
from replicator.runner.scheduler import Scheduler
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness
from tests.support.logs import captured_logs
from tests.support.order_changes import assert_exact, changes, ends, located, write
from tests.support.orders_table import DEFINITION, ORDERS

AT_ONCE = ReadCost(constant=0.0, row=0.0)
"""Reading all keys counts as free, so that an index is complete before its first use."""


def config(lake: LakeHarness, **sections: Any) -> Config:
    maintenance = {"merge_files": 4, "max_snapshots": 8, "max_lag": "100000 days"}
    return lake.config(maintenance=maintenance | sections.pop("maintenance", {}), **sections)


@pytest.fixture
def indexed(lake: LakeHarness) -> LakeHarness:
    """Return a lake whose mirrors read all keys at once; batches of more than six events use the executors."""

    def impatient(context: MirrorContext) -> MirrorContext:
        return replace(context, row_locations=RowLocationCache(lake.folder, cost=AT_ONCE))

    lake.adapt = impatient
    lake.driver_max_events = 6
    return lake


def batches_of(seed: int, count: int = 9) -> list[list[Record]]:
    """Return batches for the driver and for the executors, in random order."""
    chance, small = random.Random(seed), changes(seed, batches=3 * count, size=5)
    found = []
    while small:
        size = chance.choice((1, 1, 3))
        found.append([record for batch in small[:size] for record in batch])
        small = small[size:]
    return found


def known_locations(mirror: Scheduler) -> RowLocations:
    """Return the locations that the next batch would use."""
    loaded = mirror.context.lake.load("shop", "orders")
    assert loaded is not None
    known = mirror.context.row_locations.of(loaded, ("id",))
    read_unread(mirror.context.lake, loaded, known)
    return known


def assert_located(mirror: Scheduler) -> None:
    known, loaded = known_locations(mirror), mirror.context.lake.load("shop", "orders")
    assert loaded is not None
    assert known.is_complete
    found, searched = known.find(pa.table({"k0": pa.array(range(100), pa.int64())}))
    assert not len(searched)
    positions = [(f.file.path, int(at)) for f in found for at in f.positions]
    assert len(set(positions)) == len(positions)
    assert set(positions) == located(mirror.context.lake, loaded)


@pytest.fixture
def spark_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark read the keys of small tables too."""
    monkeypatch.setattr(search, "few_keys", lambda *_: None)


@pytest.mark.parametrize("partition", [[], ["bucket(3, id)"]], ids=["unpartitioned", "partitioned"])
@pytest.mark.parametrize("reader", ["driver", "spark_reads"])
def test_index_has_the_location_of_every_row_after_every_batch(
    indexed: LakeHarness, partition: list[str], reader: str, request: pytest.FixtureRequest
) -> None:
    """Small and large batches, maintenance after some of them, and a restart in the middle."""
    if reader == "spark_reads":
        request.getfixturevalue(reader)
    batches = batches_of(len(reader))
    write(indexed, batches)
    settings = config(indexed, table=[{"name": "shop.orders", "partition": partition}])
    mirror, end = indexed.mirror(settings), 0
    for i, batch in enumerate(batches):
        end += len(batch)
        if i == len(batches) // 2:
            mirror = indexed.mirror(settings)
        mirror.advance({ORDERS: {0: end}})
        if len(batch) <= 6:
            assert_located(mirror)
    assert mirror.summary().paused == {}
    assert_exact(indexed, batches)


def test_index_stays_valid_when_another_process_compacts_the_table(indexed: LakeHarness) -> None:
    batches = changes(7, batches=6)
    write(indexed, batches)
    mirror = indexed.mirror(config(indexed, maintenance={"enabled": False}))
    for i, end in enumerate(ends(batches)):
        mirror.advance({ORDERS: {0: end}})
        index = known_locations(mirror).index
        if i in (1, 3):
            mirror.context.spark.sql(
                "CALL lake.system.rewrite_data_files(table => 'shop.orders', options => map('rewrite-all', 'true'))"
            ).collect()
        assert_located(mirror)
        assert known_locations(mirror).index is index
    assert_exact(indexed, batches)


def test_keys_are_read_again_when_another_process_changes_rows(indexed: LakeHarness) -> None:
    batches = changes(8, batches=4)
    write(indexed, batches)
    mirror = indexed.mirror(config(indexed))
    for end in ends(batches):
        mirror.advance({ORDERS: {0: end}})
        # An UPDATE that changes no value writes each row to another file.
        mirror.context.spark.sql("UPDATE lake.shop.orders SET name = name").collect()
        assert not known_locations(mirror).is_complete
    assert_exact(indexed, batches)


@pytest.mark.long
def test_search_continues_when_the_table_has_two_rows_with_the_same_key(indexed: LakeHarness) -> None:
    """Only another writer can add such rows. A search finds all of them, so that the next change removes them."""
    batches = changes(9, batches=6, keys=5)
    write(indexed, batches)
    settings = config(indexed)
    mirror, end = indexed.mirror(settings), len(batches[0])
    mirror.advance({ORDERS: {0: end}})
    mirror.context.spark.sql("INSERT INTO lake.shop.orders SELECT * FROM lake.shop.orders").collect()
    with captured_logs() as logs:
        for batch in batches[1:]:
            end += len(batch)
            mirror.advance({ORDERS: {0: end}})
    assert [line["table"] for line in logs if line["event"].startswith("rows with equal keys")] == [
        "shop.orders"
    ]
    assert_exact(indexed, batches)


def test_index_is_not_built_when_it_would_be_larger_than_configured(lake: LakeHarness) -> None:
    batches = changes(10, batches=5)
    write(lake, batches)
    lake.adapt = lambda context: replace(context, row_locations=RowLocationCache(most_bytes=0, cost=AT_ONCE))
    mirror = lake.mirror(config(lake))
    for end in ends(batches):
        mirror.advance({ORDERS: {0: end}})
        assert not known_locations(mirror).is_complete
    assert_exact(lake, batches)


def test_driver_reads_the_keys_of_a_small_table_by_their_field_ids(lake: LakeHarness) -> None:
    """A renamed key column has its old name in older files."""
    batches = changes(16, batches=4)
    write(lake, batches)
    settings = config(lake, maintenance={"enabled": False})
    first, *_, last = ends(batches)
    lake.mirror(settings).advance({ORDERS: {0: first}})
    mirror = lake.mirror(settings)
    with captured_logs() as logs, patch.object(search, "matching_positions", side_effect=AssertionError):
        mirror.advance({ORDERS: {0: last}})
    assert [line["table"] for line in logs if line["event"] == "row index built"] == ["shop.orders"]
    assert_located(mirror)
    assert_exact(lake, batches)
    table = mirror.context.lake.load("shop", "orders")
    assert table is not None
    files = search._scanned_files(mirror.context.lake, table)
    assert any(len(deletes) for _, deletes in files)
    before = few_keys(table, files, (("id", LakeType("long")),))
    mirror.context.spark.sql("ALTER TABLE lake.shop.orders RENAME COLUMN id TO number")
    renamed = mirror.context.lake.load("shop", "orders")
    assert renamed is not None
    assert before is not None
    after = few_keys(renamed, files, (("number", LakeType("long")),))
    assert after is not None
    assert [(f.keys, pa.array(f.positions)) for f in after] == [
        (f.keys, pa.array(f.positions)) for f in before
    ]


def test_spark_reads_the_keys_of_files_that_the_driver_does_not_know(lake: LakeHarness) -> None:
    """Deletion vectors are in no Parquet file."""
    batches = changes(17, batches=4)
    write(lake, batches)
    settings = config(lake, apply={"format_version": 3}, maintenance={"enabled": False})
    first, second, *_, last = ends(batches)
    lake.mirror(settings).advance({ORDERS: {0: first}})
    lake.mirror(settings).advance({ORDERS: {0: second}})
    mirror = lake.mirror(settings)
    mirror.advance({ORDERS: {0: last}})
    table = mirror.context.lake.load("shop", "orders")
    assert table is not None
    files = search._scanned_files(mirror.context.lake, table)
    assert any(len(deletes) for _, deletes in files)
    assert few_keys(table, files, (("id", LakeType("long")),)) is None
    assert_located(mirror)
    assert_exact(lake, batches)


@pytest.mark.long
@pytest.mark.usefixtures("spark_reads")
def test_keys_of_a_file_with_many_rows_are_read_in_parts(
    indexed: LakeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_READ_ROWS", 7)
    read: list[int] = []
    inserted = RowLocations.put

    def put(known: RowLocations, keys: pa.Table, *places: Any) -> None:
        read.append(keys.num_rows)
        inserted(known, keys, *places)

    monkeypatch.setattr(RowLocations, "put", put)
    batches = changes(15, keys=90, batches=1, size=90)
    indexed.write([DEFINITION, *batches[0]])
    settings = config(indexed, maintenance={"enabled": False})
    indexed.mirror(settings).advance({ORDERS: {0: 80}})
    for end in (85, 90):
        # A restart, so that nothing is known of the rows; the first file has deleted rows in the second run.
        mirror = indexed.mirror(settings)
        read.clear()
        mirror.advance({ORDERS: {0: end}})
        assert_located(mirror)
    assert sum(read) > 28
    # A part has these positions of each file that is read at once.
    assert max(read) <= 14
    assert_exact(indexed, batches)


@pytest.mark.usefixtures("spark_reads")
@pytest.mark.parametrize("case", ["all keys", "rewritten files"])
def test_index_begins_empty_again_when_keys_could_not_be_read(indexed: LakeHarness, case: str) -> None:
    """An index that lacks rows would let a batch add a row beside the one that it should replace."""
    batches = changes(13, batches=3)
    write(indexed, batches)
    settings = config(indexed, maintenance={"enabled": False})
    mirror = indexed.mirror(settings)
    mirror.advance({ORDERS: {0: 12}})
    if case == "all keys":
        mirror = indexed.mirror(settings)
    else:
        mirror.context.spark.sql(
            "CALL lake.system.rewrite_data_files('shop.orders', options => map('rewrite-all', 'true'))"
        ).collect()
    tables, cache = mirror.context.lake, mirror.context.row_locations
    loaded = tables.load("shop", "orders")
    assert loaded is not None
    known, keys = cache.of(loaded, ("id",)), pa.table({"k0": pa.array([1, 2], pa.int64())})
    with (
        patch(
            "replicator.lake.rows.search._file_numbers", side_effect=LakeUnavailable("the storage is away")
        ),
        pytest.raises(LakeUnavailable),
    ):
        locate(tables, loaded, known, keys, cache)
    assert cache.of(loaded, ("id",)) is not known
    mirror.advance({ORDERS: {0: 18}})
    assert_exact(indexed, batches)
