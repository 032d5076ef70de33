"""The connector takes its initial snapshot again, and a table was emptied meanwhile: no event tells that."""

from collections.abc import Mapping

import pytest
import requests

from tests.e2e.test_events import stopped_connector
from tests.support import topics
from tests.support.mirror import FAST_MIRROR, START_S, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.rereads import await_rereads, changes, shown_rereads

TABLES = (
    "CREATE TABLE kept (id INT PRIMARY KEY, v INT)",
    "INSERT INTO kept VALUES (1, 1), (2, 2)",
    "CREATE TABLE emptied (id INT PRIMARY KEY, v INT)",
    "INSERT INTO emptied VALUES (1, 1), (2, 2), (3, 3)",
    "CREATE TABLE refilled (id INT PRIMARY KEY, v INT)",
    "INSERT INTO refilled VALUES (1, 1), (2, 2)",
)
HEALED = f'[bootstrap]\nby = "connector"\n[heal]\nmode = "auto"\nmin_interval = "1 second"\n{FAST_MIRROR}'


def repeat_snapshot(mirrored: MirroredDatabase, *statements: str, **settings: str) -> None:
    """Let the connector lose its offsets; meanwhile, execute statements whose events are never sent."""
    with stopped_connector(mirrored) as url:
        requests.delete(f"{url}/offsets", timeout=60).raise_for_status()
        mirrored.database.execute(*statements)
        configure(url, settings)


def events(mirrored: MirroredDatabase, table: str) -> int:
    database = mirrored.database
    return topics.ends(database.endpoints.bootstrap_servers, database.prefix)[mirrored.topic(table)]


def configure(url: str, settings: Mapping[str, str]) -> None:
    if settings:
        known = requests.get(f"{url}/config", timeout=30).json()
        wanted = known | {name.replace("__", "."): value for name, value in settings.items()}
        requests.put(f"{url}/config", json=wanted, timeout=60).raise_for_status()


@pytest.mark.fault(
    "The connector loses its offsets, and takes its snapshot again, after a table was emptied",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the mirror reads all tables again",
)
@pytest.mark.long
def test_table_that_is_empty_at_a_repeated_snapshot_is_read_again(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    """The mirror is stopped meanwhile. Rows that are inserted later come as events of their own."""
    mirrored = mirror_database(tables=0, seed_rows=False, extra=HEALED, prepare=TABLES)
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()
        repeat_snapshot(mirrored, "DELETE FROM emptied", "DELETE FROM refilled")
        until(lambda: events(mirrored, "kept") == 4, seconds=120, doing="the snapshot reads its rows")
        mirrored.database.execute("INSERT INTO refilled VALUES (2, 22), (5, 5)")
        until(lambda: events(mirrored, "refilled") == 4, seconds=120, doing="the connector sends them")
        mirror.start()
        assert_read_again(mirrored, mirror, {"emptied", "refilled", "kept"})


@pytest.mark.long
def test_all_tables_may_be_empty_at_a_repeated_snapshot(mirror_database: MirroredDatabaseBuilder) -> None:
    """Then the snapshot looks like one that was to read no rows."""
    mirrored = mirror_database(tables=0, seed_rows=False, extra=HEALED, prepare=TABLES)
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S)
        repeat_snapshot(mirrored, "DELETE FROM emptied", "DELETE FROM refilled", "DELETE FROM kept")
        assert_read_again(mirrored, mirror, {"emptied", "refilled", "kept"})


def assert_read_again(mirrored: MirroredDatabase, mirror: MirrorProcess, tables: set[str]) -> None:
    await_rereads(mirror, len(tables))
    mirrored.comparison.await_equal(mirror, START_S)
    assert mirror.stop() == 0, mirror.tail()
    assert changes(mirrored, "emptied", "h") == ["DELETE"] * 3
    read = {entry["name"]: entry["reason"] for entry in shown_rereads(mirrored)}
    assert set(read) == tables
    assert all("took its snapshot again" in reason for reason in read.values()), read


@pytest.mark.fault(
    "The connector loses its offsets, and is configured to read no rows (`snapshot.mode = no_data`)",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the mirror pauses the tables and reads them again",
)
@pytest.mark.long
def test_changes_that_no_event_has_are_read_if_the_connector_begins_again_without_rows(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=0, seed_rows=False, extra=HEALED, prepare=TABLES)
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S)
        lost = ("INSERT INTO emptied VALUES (9, 9)", "DELETE FROM kept WHERE id = 1")
        repeat_snapshot(mirrored, *lost, snapshot__mode="no_data")
        await_rereads(mirror, 3)
        mirrored.comparison.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()
