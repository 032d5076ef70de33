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
from replicator.lake.reader import open_catalog
from tests.support.config_files import ARCHIVE_MIRROR
from tests.support.golden import FOLDER
from tests.support.packed_lake import unpack


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("golden")
    unpack(FOLDER / "lakes" / "0.1.0.tar.xz", folder)
    file = Path(folder / "shop.toml")
    file.write_text(ARCHIVE_MIRROR, encoding="utf-8")
    return file


def start(config: Path, table: str, where: str = "changelog") -> Cursor:
    settings = load(config)
    with open_catalog(settings.lake) as catalog:
        return Feed(catalog, settings, table).start(where)


def reader(config: Path, cursor: Cursor) -> ChangesReader:
    source = ChangesSource({"config": str(config), "table": cursor.table, "cursor": cursor.to_json()})
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


def test_changes_after_the_rows_of_a_mirror_are_those_that_it_lacks(config: Path) -> None:
    cursor = start(config, "shop.items", "mirror")
    found = reader(config, replace(cursor, image=None))
    changed = rows(found, found.initialOffset(), found.latestOffset())
    assert [row["_change"]["offset"] for row in changed] == [2, 2, 3]


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


@pytest.mark.parametrize("part", [{"within": Within(1, 2)}, {"image": Within(1, 2)}])
def test_cursor_in_the_middle_of_a_snapshot_is_refused(config: Path, part: dict[str, Any]) -> None:
    session: SparkSession = object()  # type: ignore[assignment]  # it is not used
    with pytest.raises(UsageError, match="in the middle"):
        spark_changes(session, config, "shop.items", replace(Cursor("shop.items", "u"), **part))
