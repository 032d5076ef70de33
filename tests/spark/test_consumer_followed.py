"""Consumers that keep a copy of a table have no rows of partitions whose DROP or TRUNCATE the mirror followed."""

import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from replicator.consumer import FeedOptions
from replicator.consumer.spark import SparkFeed, spark_changes
from replicator.model.position import FILE_SHIFT, binlog_number
from replicator.operations.consume import consume
from tests.spark.test_consumer_restated import expire
from tests.spark.test_consumer_spark import CONFIG
from tests.spark.test_followed_partitions import DROP, N, applied, configured, pairs, partitioned
from tests.support.consumers import StoredConsumer
from tests.support.lake_harness import LakeHarness
from tests.support.scenario import ID, Scenario


def copied(
    session: SparkSession,
    image: Iterable[Mapping[str, Any]],
    changes: Iterable[Mapping[str, Any]],
    steps: Iterable[Mapping[str, Any]],
) -> dict[int, int]:
    """Return the copy of a consumer that follows the guide: `id` → `n`."""
    rows = {row["id"]: (-1, row["n"]) for row in image}
    for row in changes:
        change = row["_change"]
        at = (binlog_number(change["file"]) << FILE_SHIFT) + change["pos"]
        if change["kind"] == "DELETE":
            rows.pop(row["id"], None)
        elif change["kind"] != "UPDATE_BEFORE":
            rows[row["id"]] = (at, row["n"])
    kept = session.createDataFrame([(i, n, at) for i, (at, n) in rows.items()], "id long, n int, at long")
    for removed, at in ((step["removed"], step["at"]) for step in steps if "removed" in step):
        kept = kept.where(f"NOT (({removed['where'].format(*removed['columns'])}) AND at < {at})")
    return {row["id"]: row["n"] for row in kept.collect()}


def before_statements(lake: LakeHarness) -> Scenario:
    scenario = partitioned()
    for number in (1, 10, 15, 20, 30):
        scenario.insert(id=number, n=number)
    applied(lake, scenario, "once")
    return scenario


def drop_and_truncate(lake: LakeHarness, scenario: Scenario) -> None:
    """Drop p1 and truncate p0, each after further rows, and with rows of the same values afterwards."""
    scenario.insert(id=11, n=11)
    scenario.change("u", before={"id": 10, "n": 10}, after={"id": 10, "n": 0})
    scenario.define(DROP, [ID, N])
    scenario.insert(id=12, n=12)
    scenario.insert(id=2, n=2)
    scenario.execute("ALTER TABLE orders TRUNCATE PARTITION p0")
    scenario.insert(id=3, n=3)
    assert applied(lake, scenario, "once").summary().paused == {}
    assert pairs(lake) == {3: 3, 12: 12, 20: 20, 30: 30}


@pytest.mark.fault(
    "A consumer keeps a copy of a table whose partitions are dropped and truncated, followed as configured",
    area="Source",
    on="Iceberg; events by hand",
    outcome="wherever it started, and after its snapshots were deleted, it is told which rows are gone",
)
def test_each_consumer_is_told_which_rows_are_gone(lake: LakeHarness) -> None:
    scenario, config = before_statements(lake), configured(lake)

    def consumer(start: str, rows: int = 10_000) -> StoredConsumer:
        return StoredConsumer("shop.orders", start, FeedOptions(rows, settle_seconds=0))

    live, of_mirror, away, halfway = (
        consumer("changelog"),
        consumer("mirror"),
        consumer("mirror"),
        consumer("mirror", 1),
    )
    for each in (live, of_mirror, away):
        each.read(config)
    halfway.read(config, 2)
    assert len(halfway.image) == 2
    drop_and_truncate(lake, scenario)
    for each in (live, of_mirror, halfway):
        each.read(config)
    expire(lake)
    fresh, everything = consumer("mirror"), consumer("changelog", 1)
    for each in (away, fresh, everything):
        each.read(config)
    session = lake.session(config)
    for each in (live, of_mirror, away, halfway, fresh, everything):
        assert copied(session, each.image, each.changes, each.steps) == pairs(lake)
        assert len(each.steps) == (0 if each is fresh else 2)
    output = io.StringIO()
    consume(config, "shop.orders", "changelog", output)
    first, *_ = (json.loads(line) for line in output.getvalue().splitlines())
    assert [step["removed"]["columns"] for step in first["steps"]] == [["id"], ["id"]]


class SparkCopy:
    """A streaming query that stores all changes."""

    def __init__(self, feed: SparkFeed, folder: Path) -> None:
        assert feed.history is not None
        self.image = [row.asDict() for row in feed.history.collect()]
        self.changes: dict[int, list[dict[str, Any]]] = {}
        self._folder = folder

    def run(self, feed: SparkFeed) -> None:
        """Process what there is."""

        def store(rows: DataFrame, number: int) -> None:
            found = [row.asDict(recursive=True) for row in rows.collect()]
            self.changes[number] = sorted(found, key=lambda r: r["_change"]["offset"])

        writer = feed.changes.writeStream.foreachBatch(store)
        query = writer.option("checkpointLocation", str(self._folder)).trigger(availableNow=True).start()
        query.awaitTermination()

    def rows(self, session: SparkSession, feed: SparkFeed) -> dict[int, int]:
        changes = [row for number in sorted(self.changes) for row in self.changes[number]]
        return copied(session, self.image, changes, feed.steps)


@pytest.mark.long
def test_spark_query_fails_until_its_program_is_told_which_rows_are_gone(
    lake: LakeHarness, tmp_path: Path
) -> None:
    file = lake.folder / "shop.toml"
    file.write_text(CONFIG, encoding="utf-8")
    scenario, session = before_statements(lake), lake.session(configured(lake))
    feed = spark_changes(session, file, "shop.orders")
    copy = SparkCopy(feed, tmp_path / "checkpoint")
    scenario.insert(id=16, n=16)
    applied(lake, scenario, "once")
    copy.run(feed)
    assert copy.rows(session, feed) == pairs(lake)
    drop_and_truncate(lake, scenario)
    with pytest.raises(StreamingQueryException, match="no change tells which"):
        copy.run(feed)
    other = spark_changes(session, file, "shop.orders")
    with pytest.raises(StreamingQueryException, match="the checkpoint is from before it"):
        copy.run(other)
    again = spark_changes(session, file, "shop.orders", feed.cursor)
    copy.run(again)
    assert copy.rows(session, again) == pairs(lake)
    scenario.insert(id=4, n=4)
    applied(lake, scenario, "once")
    # The checkpoint knows that the query was told.
    copy.run(other)
    assert copy.rows(session, again) == pairs(lake)
