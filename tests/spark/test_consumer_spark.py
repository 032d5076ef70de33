"""A Spark job gets the history as a DataFrame and the changes after it as a stream, exactly once with a checkpoint."""

import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

from replicator.consumer.spark import SparkFeed, spark_changes
from replicator.errors import CursorExpired
from replicator.lake.catalog.exact_commit import set_properties
from replicator.model.changelog import RESTATED_KEY, Restatement
from replicator.runner.scheduler import Scheduler
from tests.support.config_files import ARCHIVE_MIRROR
from tests.support.consumers import maintained
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, created, event

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "consume-changes.md"
CONFIG = (
    ARCHIVE_MIRROR.replace("[source]", 'state_dir = "state"\n[source]')
    + """\
[maintenance]
enabled = false
"""
)


@dataclass
class SparkJob:
    """A streaming query that stores each micro-batch under its number, so a repeated one replaces itself."""

    folder: Path
    stored: dict[int, list[tuple[str, int]]] = field(default_factory=dict)

    def run(self, feed: SparkFeed, *, fail: bool = False) -> None:
        """Process what there is."""

        def store(rows: DataFrame, number: int) -> None:
            if fail:
                raise OSError("no room")
            found = [(row["_change"]["kind"], row["id"]) for row in rows.collect()]
            if found:
                self.stored[number] = found

        writer = feed.changes.writeStream.foreachBatch(store)
        query = writer.option("checkpointLocation", str(self.folder)).trigger(availableNow=True).start()
        query.awaitTermination()

    @property
    def rows(self) -> list[tuple[str, int]]:
        return sorted(row for rows in self.stored.values() for row in rows)


def write(lake: LakeHarness, *records: Any) -> Scheduler:
    """Let the source change, and the lake follow."""
    lake.write(records)
    return lake.catch_up(lake.config(maintenance={"enabled": False}))


@pytest.fixture
def config(lake: LakeHarness) -> Path:
    file = lake.folder / "shop.toml"
    file.write_text(CONFIG, encoding="utf-8")
    return file


def expire(mirror: Scheduler) -> None:
    """Merge files, and delete all snapshots but the newest one."""

    class Always(random.Random):
        def random(self) -> float:
            return 0.0

        def choice(self, values: Any) -> Any:
            return values[0]

    maintained(mirror, "orders", Always())


def test_stream_follows_the_history_exactly_over_restarts_and_maintenance(
    lake: LakeHarness, config: Path, tmp_path: Path
) -> None:
    mirror = write(lake, DEFINITION, *map(created, range(1, 5)))
    session, job = mirror.context.spark, SparkJob(tmp_path / "checkpoint")
    feed = spark_changes(session, config, "shop.orders")
    assert feed.history is not None
    assert sorted(row["id"] for row in feed.history.collect()) == [1, 2, 3, 4]
    write(lake, created(5), event("d", 106, before={"id": 1, "name": "new"}))
    job.run(feed)
    assert job.rows == [("DELETE", 1), ("INSERT", 5)]
    write(lake, created(7))
    write(lake, created(8))
    expire(mirror)
    # The checkpoint names a snapshot that no longer exists.
    job.run(feed)
    assert job.rows == [("DELETE", 1), ("INSERT", 5), ("INSERT", 7), ("INSERT", 8)]
    job.run(feed)
    write(lake, created(9))
    with pytest.raises(StreamingQueryException, match="no room"):
        job.run(feed, fail=True)
    write(lake, created(10))
    expire(mirror)
    # The interrupted batch has its old end, whose snapshot no longer exists either. The next run reads on from there.
    job.run(feed)
    assert ("INSERT", 9) in job.rows
    job.run(feed)
    assert job.rows == [("DELETE", 1), *[("INSERT", i) for i in (5, 7, 8, 9, 10)]]
    assert len(job.stored) == 4


def test_query_that_was_away_too_long_fails_and_skips_nothing(
    lake: LakeHarness, config: Path, tmp_path: Path
) -> None:
    mirror = write(lake, DEFINITION, created(1))
    feed, job = spark_changes(mirror.context.spark, config, "shop.orders"), SparkJob(tmp_path / "checkpoint")
    write(lake, created(2))
    changelog = mirror.context.lake.load("shop_changes", "orders")
    assert changelog is not None
    restated = Restatement("reread-1", 2).to_json()
    set_properties(changelog, {RESTATED_KEY: restated})
    expire(mirror)
    with pytest.raises(StreamingQueryException, match=CursorExpired.__name__):
        job.run(feed)
    assert job.rows == []


@pytest.mark.long
def test_query_with_other_columns_than_the_changelog_is_refused_until_it_is_loaded_again(
    lake: LakeHarness, config: Path, tmp_path: Path
) -> None:
    mirror = write(lake, DEFINITION, created(1))
    session, job = mirror.context.spark, SparkJob(tmp_path / "checkpoint")
    feed = spark_changes(session, config, "shop.orders")
    session.sql("ALTER TABLE lake.shop_changes.orders ADD COLUMN note string")
    write(lake, created(2))
    with pytest.raises(StreamingQueryException, match="other columns"):
        job.run(feed)
    again = spark_changes(session, config, "shop.orders", feed.cursor)
    assert "note" in again.changes.columns
    job.run(again)
    assert job.rows == [("INSERT", 2)]


def test_history_has_the_current_columns(lake: LakeHarness, config: Path) -> None:
    """Also of a snapshot that was made before they were renamed or added."""
    session = write(lake, DEFINITION, created(1)).context.spark
    for table in ("lake.shop.orders", "lake.shop_changes.orders"):
        session.sql(f"ALTER TABLE {table} RENAME COLUMN name TO title")
        session.sql(f"ALTER TABLE {table} ADD COLUMN note int")
    for start in ("mirror", "changelog"):
        history = spark_changes(session, config, "shop.orders", start).history
        assert history is not None
        row = history.collect()[0]
        assert (row["id"], row["title"], row["note"]) == (1, "new", None)
        assert "name" not in history.columns


def test_program_of_the_guide_keeps_history_and_changes(
    lake: LakeHarness, config: Path, tmp_path: Path
) -> None:
    """The program in docs/how-to/consume-changes.md; it reads what there is."""
    text = GUIDE.read_text(encoding="utf-8")
    program = next(b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "spark_changes" in b)
    program = program.replace("copy/", f"{tmp_path}/copy/").replace("shop.toml", str(config))
    program = program.replace('processingTime="10 seconds"', "availableNow=True")
    mirror = write(lake, DEFINITION, created(1), created(2))
    session = mirror.context.spark
    reads, runs = program.split("\n\n\n", 1)
    names: dict[str, Any] = {"spark": session}
    exec(reads, names)
    write(lake, created(3))
    exec(runs, names)
    names["query"].awaitTermination()
    assert session.read.parquet(f"{tmp_path}/copy/history").count() == 2
    assert [row["id"] for row in session.read.parquet(f"{tmp_path}/copy/changes/*").collect()] == [3]
