"""The Spark data source without Spark: planned in one process, read in another one; on a lake of an earlier version."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.sql import SparkSession

from replicator.config import load
from replicator.consumer.cursor import Cursor, Within
from replicator.consumer.feed import Feed
from replicator.consumer.spark import spark_changes
from replicator.consumer.spark_source import ChangesReader, ChangesSource
from replicator.errors import UnsupportedChange, UsageError
from replicator.lake.reading.reader import open_catalog
from replicator.schema.evolution.steps import STEPS_KEY, SchemaStep, SchemaSteps
from replicator.schema.history.partitions import RowCondition
from tests.support.config_files import ARCHIVE_MIRROR
from tests.support.golden import FOLDER
from tests.support.packed_lake import unpack


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked(tmp_path_factory.mktemp("golden"))


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A lake that the test may change."""
    return unpacked(tmp_path)


def unpacked(folder: Path) -> Path:
    unpack(FOLDER / "lakes" / "0.1.0.tar.xz", folder)
    file = Path(folder / "shop.toml")
    file.write_text(ARCHIVE_MIRROR, encoding="utf-8")
    return file


def start(config: Path, table: str, where: str = "changelog") -> Cursor:
    settings = load(config)
    with open_catalog(settings.lake) as catalog:
        return Feed(catalog, settings, table).start(where)


def reader(config: Path, cursor: Cursor, **options: str) -> ChangesReader:
    known = {"config": str(config), "table": cursor.table, "cursor": cursor.to_json()}
    source = ChangesSource(known | options)
    return cloudpickle.loads(cloudpickle.dumps(source.streamReader(source.schema())))


def rows(found: ChangesReader, since: dict[str, str], until: dict[str, str]) -> list[dict[str, Any]]:
    parts = cloudpickle.loads(cloudpickle.dumps(found.partitions(since, until)))
    return [row for part in parts for batch in found.read(part) for row in batch.to_pylist()]


@pytest.mark.parametrize(("table", "count"), [("orders", 10), ("items", 5), ("numbers", 3), ("visits", 5)])
def test_all_changes_are_between_the_first_offset_and_the_newest(
    config: Path, table: str, count: int
) -> None:
    found = reader(config, start(config, f"shop.{table}"))
    latest = found.latestOffset()
    assert len(rows(found, found.initialOffset(), latest)) == count
    assert found.partitions(latest, latest) == []
    assert found.latestOffset() == latest


def test_batch_whose_end_was_deleted_is_read_by_offset(config: Path) -> None:
    """Spark repeats an interrupted batch with its old end, after both snapshots may have been deleted."""
    cursor = start(config, "shop.items")
    found = reader(config, cursor)
    assert cursor.scan is not None
    gone = replace(cursor.scan, snapshot_id=1, sequence_number=1, offsets={"shop.shop.items": {0: 3}})
    since = replace(cursor, scan=None, at=replace(gone, offsets={"shop.shop.items": {0: 1}}))
    until = replace(cursor, scan=None, at=gone)
    changed = rows(found, {"cursor": since.to_json()}, {"cursor": until.to_json()})
    assert [row["_change"]["offset"] for row in changed] == [1, 2, 2]


def test_query_with_other_columns_is_refused(config: Path) -> None:
    cursor = start(config, "shop.items")
    orders = ChangesSource({"config": str(config), "table": "shop.orders", "cursor": cursor.to_json()})
    options = {"config": str(config), "table": "shop.items", "cursor": cursor.to_json()}
    found = ChangesReader(options, orders.schema())
    with pytest.raises(UnsupportedChange, match="other columns"):
        found.partitions(found.initialOffset(), found.latestOffset())


REMOVED = SchemaStep(7, unlogged="DROP PARTITION p0", removed=RowCondition(("id",), "({0} < 5)"))


def record(config: Path, table: str, *steps: SchemaStep) -> None:
    text = SchemaSteps(("id",), steps).to_json()
    with open_catalog(load(config).lake) as catalog:
        changelog = catalog.load_table(("shop_changes", table))
        with changelog.transaction() as transaction:
            transaction.set_properties({STEPS_KEY: text})


def test_query_is_refused_until_it_is_told_of_removed_rows(own: Path) -> None:
    """The columns stay the same, and no change tells which rows are gone."""
    first = replace(start(own, "shop.numbers"), steps_at=-1)
    running = reader(own, first)
    offset = running.latestOffset()
    record(own, "numbers", REMOVED)
    with pytest.raises(UnsupportedChange, match="no change tells"):
        running.latestOffset()
    with pytest.raises(UnsupportedChange, match="no change tells"):
        running.partitions(running.initialOffset(), offset)
    again = reader(own, first, steps_at="7")
    assert again.partitions(offset, again.latestOffset()) == []
    assert len(rows(again, again.initialOffset(), again.latestOffset())) == 3
    # A cursor from after the statement does not tell it to a query whose checkpoint is from before it.
    later = reader(own, replace(first, steps_at=7), steps_at="7")
    with pytest.raises(UnsupportedChange, match="the checkpoint is from before it"):
        later.partitions(offset, later.latestOffset())
    assert later.partitions(again.latestOffset(), later.latestOffset()) == []


@pytest.mark.parametrize("part", [{"within": Within(1, 2)}, {"image": Within(1, 2)}])
def test_cursor_in_the_middle_of_a_snapshot_is_refused(config: Path, part: dict[str, Any]) -> None:
    session: SparkSession = object()  # type: ignore[assignment]  # it is not used
    with pytest.raises(UsageError, match="in the middle"):
        spark_changes(session, config, "shop.items", replace(Cursor("shop.items", "u"), **part))
