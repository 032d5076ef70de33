"""Every kind of event that the real connector sends: ad-hoc snapshots, compressed transactions, tables without a key,
schema changes as gh-ost makes them, recreated topics.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import requests
from confluent_kafka.admin import AdminClient

from replicator.config import load
from replicator.lake.reading.reader import open_catalog
from replicator.operations.connector import register
from replicator.operations.stack import LocalStack
from replicator.schema.evolution.steps import STEPS_KEY
from tests.support import topics
from tests.support.conformance import ConformancePage
from tests.support.mirror import FAST_MIRROR, START_S, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.source import SourceDatabase

TABLES = (
    "CREATE TABLE packed (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE cased (id VARCHAR(10) PRIMARY KEY, v INT)",
    "INSERT INTO cased VALUES ('a', 1), ('b', 2)",
    "CREATE TABLE uniq (a INT NOT NULL, b VARCHAR(10), UNIQUE KEY (a))",
    "INSERT INTO uniq VALUES (1, 'x'), (2, 'y')",
    "CREATE TABLE visits (page VARCHAR(10), n INT, at DATETIME(3), price DECIMAL(8, 2), ratio FLOAT)",
    "INSERT INTO visits VALUES ('a', 1, '2024-01-02 03:04:05.678', 1.50, 3.14)",
    "INSERT INTO visits SELECT * FROM visits",
    "INSERT INTO visits VALUES ('b', NULL, NULL, NULL, NULL)",
    "CREATE TABLE pages (page VARCHAR(10), n INT)",
    "CREATE TABLE emptied (id INT PRIMARY KEY)",
    "INSERT INTO emptied VALUES (1), (2)",
    "CREATE TABLE ghost (id INT PRIMARY KEY, v INT)",
    "INSERT INTO ghost VALUES (1, 1), (2, 2), (3, 3)",
    "CREATE TABLE altered (id INT PRIMARY KEY, v INT, w INT)",
    "INSERT INTO altered VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3)",
    "CREATE TABLE asked (id INT PRIMARY KEY AUTO_INCREMENT, v INT)",
    "INSERT INTO asked (v) VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12)",
    "CREATE TABLE anew (id INT PRIMARY KEY, v INT)",
    "INSERT INTO anew VALUES (1, 1), (2, 2), (3, 3)",
    "CREATE TABLE signals (id VARCHAR(64) PRIMARY KEY, type VARCHAR(32) NOT NULL, data VARCHAR(2048))",
    "GRANT INSERT, DELETE ON `{name}`.signals TO 'replicator'@'%'",
)
COMPRESSED = (
    "INSERT INTO packed VALUES (1, 1)",
    "INSERT INTO packed VALUES (2, 2)",
    "INSERT INTO packed VALUES (3, 3), (4, 4)",
    "UPDATE packed SET v = v + 1 WHERE id = 1",
    "UPDATE packed SET v = v + 1 WHERE id = 1",
    "UPDATE packed SET id = 9 WHERE id = 2",
    "DELETE FROM packed WHERE id = 3",
    "INSERT INTO packed VALUES (3, 33)",
    "INSERT INTO visits VALUES ('packed', 1, NULL, NULL, NULL)",
    "INSERT INTO visits VALUES ('packed', 2, NULL, NULL, NULL)",
    "DELETE FROM visits WHERE n = 2",
)
"""One transaction: 9 events of packed, 3 of visits, all at one position."""
GHOST = (
    "CREATE TABLE _ghost_gho LIKE ghost",
    "ALTER TABLE _ghost_gho ADD COLUMN w INT NOT NULL DEFAULT 5",
    "CREATE TABLE _ghost_ghc (id INT AUTO_INCREMENT PRIMARY KEY, hint VARCHAR(64), value VARCHAR(99))",
    "INSERT INTO _ghost_ghc (hint, value) VALUES ('state', 'GhostTableMigrated')",
    "INSERT INTO _ghost_gho (id, v) SELECT id, v FROM ghost",
    "UPDATE ghost SET v = 22 WHERE id = 2",
    "REPLACE INTO _ghost_gho (id, v) VALUES (2, 22)",
    "DELETE FROM ghost WHERE id = 3",
    "DELETE FROM _ghost_gho WHERE id = 3",
    "RENAME TABLE ghost TO _ghost_del, _ghost_gho TO ghost",
    "INSERT INTO ghost VALUES (4, 4, 4)",
    "UPDATE ghost SET w = 7 WHERE id = 1",
    "DROP TABLE _ghost_del",
    "DROP TABLE _ghost_ghc",
)
"""The statements with which gh-ost changes a table, including its cut-over."""
PERCONA = (
    "CREATE TABLE _altered_new LIKE altered",
    "ALTER TABLE _altered_new ADD COLUMN x VARCHAR(10) NOT NULL DEFAULT 'five', DROP COLUMN w, MODIFY v BIGINT",
    (
        "CREATE TRIGGER pt_osc_del AFTER DELETE ON altered FOR EACH ROW DELETE IGNORE FROM _altered_new"
        " WHERE _altered_new.id <=> OLD.id"
    ),
    (
        "CREATE TRIGGER pt_osc_upd AFTER UPDATE ON altered FOR EACH ROW BEGIN DELETE IGNORE FROM _altered_new"
        " WHERE !(OLD.id <=> NEW.id) AND _altered_new.id <=> OLD.id;"
        " REPLACE INTO _altered_new (id, v) VALUES (NEW.id, NEW.v); END"
    ),
    (
        "CREATE TRIGGER pt_osc_ins AFTER INSERT ON altered FOR EACH ROW"
        " REPLACE INTO _altered_new (id, v) VALUES (NEW.id, NEW.v)"
    ),
    "UPDATE altered SET v = 11 WHERE id = 1",
    "INSERT LOW_PRIORITY IGNORE INTO _altered_new (id, v) SELECT id, v FROM altered LOCK IN SHARE MODE",
    "UPDATE altered SET v = 22 WHERE id = 2",
    "DELETE FROM altered WHERE id = 3",
    "INSERT INTO altered VALUES (4, 4, 4)",
    "ANALYZE TABLE _altered_new",
    "RENAME TABLE altered TO _altered_old, _altered_new TO altered",
    "INSERT INTO altered VALUES (5, 5000000000, 'new')",
    "DROP TABLE IF EXISTS _altered_old",
    "DROP TRIGGER IF EXISTS pt_osc_del",
    "DROP TRIGGER IF EXISTS pt_osc_upd",
    "DROP TRIGGER IF EXISTS pt_osc_ins",
    "UPDATE altered SET x = 'six' WHERE id = 1",
)
"""The statements of pt-online-schema-change: triggers update the copy, which then replaces the original."""

CONFIG = (
    FAST_MIRROR
    + """
[[table]]
name = "{name}.pages"
keyless = "changelog"
"""
)


def transaction(database: SourceDatabase, *statements: str, compressed: bool = False) -> None:
    with database.connect(autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute(f"SET SESSION binlog_transaction_compression = {'ON' if compressed else 'OFF'}")
        for statement in statements:
            cursor.execute(statement)
        connection.commit()


def lake_rows(mirrored: MirroredDatabase, table: str, *, changes: bool = False) -> list[dict[str, Any]]:
    lake = load(mirrored.config).lake
    with open_catalog(lake) as catalog:
        name = (lake.changes_namespace if changes else lake.namespace, table)
        return (
            list(catalog.load_table(name).scan().to_arrow().to_pylist()) if catalog.table_exists(name) else []
        )


def recorded_steps(mirrored: MirroredDatabase, table: str) -> str:
    lake = load(mirrored.config).lake
    with open_catalog(lake) as catalog:
        return catalog.load_table((lake.changes_namespace, table)).properties.get(STEPS_KEY, "")


def tables(mirrored: MirroredDatabase, *, changes: bool = False) -> set[str]:
    lake = load(mirrored.config).lake
    namespace = lake.changes_namespace if changes else lake.namespace
    with open_catalog(lake) as catalog:
        return {name for _, name in catalog.list_tables(namespace)}


MIRRORED = {"packed", "cased", "uniq", "visits", "ghost", "altered", "asked", "anew", "emptied"}
UNMIRRORED = {"signals", "pages"}


def differences(mirrored: MirroredDatabase) -> dict[str, str]:
    """Return what `Comparison.differences` returns, without the tables that are not mirrored."""
    return mirrored.comparison.differences(besides=UNMIRRORED)


def await_reads(mirrored: MirroredDatabase, kind: str, count: int) -> None:
    """Wait until the changelog of `asked` has `count` rows that a snapshot read, besides the first 12."""
    until(
        lambda: (
            sum(r["_change"]["op"] == "r" for r in lake_rows(mirrored, "asked", changes=True)) >= 12 + count
        ),
        seconds=120,
        doing=f"a snapshot: {kind}",
    )


def signal(mirrored: MirroredDatabase, number: int, kind: str) -> None:
    data = json.dumps({"data-collections": [f"{mirrored.database.name}.asked"], "type": kind})
    mirrored.database.execute(f"INSERT INTO signals VALUES ('s{number}', 'execute-snapshot', '{data}')")


@contextmanager
def stopped_connector(mirrored: MirroredDatabase) -> Iterator[str]:
    """Stop the connector during the block, and provide its address."""
    url = f"{mirrored.database.endpoints.connect_url}/connectors/{mirrored.database.prefix}"
    requests.put(f"{url}/stop", timeout=30).raise_for_status()
    until(
        lambda: requests.get(f"{url}/status", timeout=30).json()["connector"]["state"] == "STOPPED",
        seconds=60,
        doing="the connector stops",
    )
    yield url
    requests.put(f"{url}/resume", timeout=30).raise_for_status()


def delete_topic(stack: LocalStack, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": stack.endpoints.bootstrap_servers})
    admin.delete_topics([topic])[topic].result(30)
    until(lambda: topic not in admin.list_topics(timeout=20).topics, seconds=60, doing="the topic goes")


def mirror_signalled_database(mirror_database: MirroredDatabaseBuilder, log: str = "") -> MirroredDatabase:
    return mirror_database(
        log=log,
        tables=0,
        seed_rows=False,
        prepare=TABLES,
        source='signal_table = "{name}.signals"',
        extra=CONFIG,
    )


def kinds(mirrored: MirroredDatabase, table: str) -> dict[str, int]:
    return dict(Counter(r["_change"]["kind"] for r in lake_rows(mirrored, table, changes=True)))


ONCE = ("same", "each once")
READ_AGAIN = ("same", "rows read, as inserts with op r")
SEEN = {
    "insert, update, delete": ONCE,
    "update of a key, in letter case only too": ONCE,
    "TRUNCATE": ONCE,
    "initial snapshot": READ_AGAIN,
    "incremental snapshot": READ_AGAIN,
    "blocking snapshot": READ_AGAIN,
    "table with a unique key and no primary key": ONCE,
    "table without a key": ONCE,
    'table without a key, keyless = "changelog"': ("none", "each once"),
    "table changed by gh-ost's way, cut-over included": ONCE,
    "table changed by pt-online-schema-change's way, cut-over included": ONCE,
    "helper tables of gh-ost and pt-online-schema-change, signal table": ("none", "none"),
}
READ_BY_MIRROR = ("same", "differences, as changes with op h")
AGAIN = {
    "recreated topic, with a snapshot": READ_BY_MIRROR,
    "recreated topic, without a snapshot": READ_BY_MIRROR,
}
ANEW = {
    "compressed transaction, with numbered events": ONCE,
    "repeated initial snapshot": READ_BY_MIRROR,
    "heartbeats, transaction topic": ("none", "none"),
    "row images that leave columns out": ("the connector stops", "the connector stops"),
}


def record(conformance: ConformancePage, seen: Mapping[str, tuple[str, str]]) -> None:
    """Record on the page what the test asserted."""
    with conformance.part("Event kinds", rows=list(seen)) as part:
        for row, outcomes in seen.items():
            for column, outcome in zip(("Mirror", "Changelog"), outcomes, strict=True):
                part.record(row, column, outcome)


def test_mirror_equals_the_source_after_events_of_every_kind(
    mirror_database: MirroredDatabaseBuilder, conformance: ConformancePage
) -> None:
    mirrored = mirror_signalled_database(mirror_database)
    database = mirrored.database
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S, besides=UNMIRRORED)
        # Compressed, it would need numbered events, which the connector of the other test sends.
        transaction(database, *COMPRESSED)
        database.execute(
            "UPDATE cased SET id = 'A' WHERE id = 'a'",
            "UPDATE cased SET v = 3 WHERE id = 'B'",
            "UPDATE uniq SET a = 5 WHERE a = 1",
            "DELETE FROM uniq WHERE a = 2",
            "INSERT INTO visits SELECT * FROM visits WHERE page = 'a'",
            "UPDATE visits SET n = 2 WHERE page = 'a' LIMIT 1",
            "DELETE FROM visits WHERE page = 'a' AND n = 1 LIMIT 1",
            "INSERT INTO pages VALUES ('p', 1), ('p', 1)",
            "DELETE FROM pages LIMIT 1",
            "TRUNCATE emptied",
            "INSERT INTO emptied VALUES (3)",
            *GHOST,
            *PERCONA,
        )
        mirrored.comparison.await_equal(mirror, START_S, besides=UNMIRRORED)
        signal(mirrored, 1, "incremental")
        for number in range(24):
            database.execute(f"UPDATE asked SET v = v + 100 WHERE id = {1 + number % 12}")
        database.execute("DELETE FROM asked WHERE id = 12")
        await_reads(mirrored, "incremental", 1)
        signal(mirrored, 2, "blocking")
        database.execute("UPDATE asked SET v = v + 1 WHERE id = 1")
        await_reads(mirrored, "blocking", 11)
        with stopped_connector(mirrored):
            # Its next blocking snapshot sends DROP and CREATE of the table, as an initial one does.
            database.execute("UPDATE asked SET v = v + 1 WHERE id = 2")
        signal(mirrored, 3, "blocking")
        database.execute("UPDATE asked SET v = v + 1 WHERE id = 3")
        await_reads(mirrored, "blocking, after a restart of the connector", 22)
        assert "recreated" not in recorded_steps(mirrored, "asked")
        mirrored.comparison.await_equal(mirror, START_S, besides=UNMIRRORED)
        assert mirror.stop() == 0, mirror.tail()
    assert tables(mirrored) == MIRRORED
    assert {row["id"] for row in lake_rows(mirrored, "cased")} == {"A", "b"}
    updates = {"UPDATE_BEFORE": 1, "UPDATE_AFTER": 1}
    assert kinds(mirrored, "packed") == {"INSERT": 6, "DELETE": 2, "UPDATE_BEFORE": 2, "UPDATE_AFTER": 2}
    assert kinds(mirrored, "cased") == {"INSERT": 3, "DELETE": 1} | updates
    assert kinds(mirrored, "uniq") == {"INSERT": 3, "DELETE": 2}
    assert kinds(mirrored, "visits") == {"INSERT": 3 + 2 + 2, "DELETE": 2} | updates
    assert kinds(mirrored, "pages") == {"INSERT": 2, "DELETE": 1}
    assert kinds(mirrored, "emptied") == {"INSERT": 3, "TRUNCATE": 1}
    assert kinds(mirrored, "ghost") == {"INSERT": 4, "DELETE": 1, "UPDATE_BEFORE": 2, "UPDATE_AFTER": 2}
    assert kinds(mirrored, "altered") == {"INSERT": 5, "DELETE": 1, "UPDATE_BEFORE": 3, "UPDATE_AFTER": 3}
    for helper in ("signals", "_ghost_gho", "_altered_new", "_altered_old"):
        assert lake_rows(mirrored, helper, changes=True) == []
    paused = [line for line in mirror.lines() if line.get("event") == "table paused"]
    assert paused == []
    record(conformance, SEEN)


@pytest.mark.fault(
    "A topic is deleted and recreated",
    area="Log",
    on="MySQL, Debezium, Kafka",
    outcome="the table is read again from the source",
    lost="the single changes in the changelog: it has the differences",
)
@pytest.mark.long
def test_tables_of_recreated_topics_are_read_again(
    mirror_database: MirroredDatabaseBuilder, conformance: ConformancePage
) -> None:
    """Whether or not a snapshot follows."""
    mirrored = mirror_signalled_database(mirror_database)
    stack, database = mirrored.database.stack, mirrored.database
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S, besides=UNMIRRORED)
        assert mirror.stop() == 0, mirror.tail()
    let_heal(mirrored)
    with stopped_connector(mirrored) as url:
        delete_topic(stack, mirrored.topic("anew"))
        delete_topic(stack, mirrored.topic("ghost"))
        requests.delete(f"{url}/offsets", timeout=60).raise_for_status()
        database.execute(
            "DELETE FROM anew WHERE id = 2",
            "INSERT INTO anew VALUES (7, 7)",
            "DELETE FROM ghost WHERE id = 1",
        )
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S, besides=UNMIRRORED)
        with stopped_connector(mirrored):
            delete_topic(stack, mirrored.topic("anew"))
        database.execute("INSERT INTO anew VALUES (8, 8)", "INSERT INTO uniq VALUES (8, '8')")
        mirrored.comparison.await_equal(mirror, START_S, besides=UNMIRRORED)
        assert mirror.stop() == 0, mirror.tail()
    reasons = [line["reason"] for line in mirror.lines() if line.get("event") == "table paused"]
    assert any("took its snapshot again" in reason for reason in reasons)
    assert {row["id"] for row in lake_rows(mirrored, "anew")} == {1, 3, 7, 8}
    record(conformance, AGAIN)


def let_heal(mirrored: MirroredDatabase) -> None:
    """Let the mirror read tables again by itself."""
    text = mirrored.config.read_text()
    auto = text.replace('mode = "ask"', 'mode = "auto"\nmin_interval = "1 second"')
    assert auto != text
    mirrored.config.write_text(auto)


@pytest.mark.fault(
    "The connector loses its offsets, and reads all tables again, after rows were deleted",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the mirror reads all tables again",
)
@pytest.mark.long
def test_repeated_snapshot_removes_rows_deleted_before_it(
    mirror_database: MirroredDatabaseBuilder, conformance: ConformancePage
) -> None:
    """Rows that were deleted before the connector repeats its snapshot are removed: the tables are read again.

    This connector numbers the events of each transaction.
    """
    mirrored = mirror_signalled_database(mirror_database, "transactions = true")
    database = mirrored.database
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S, besides=UNMIRRORED)
        transaction(database, *COMPRESSED, compressed=True)
        mirrored.comparison.await_equal(mirror, START_S, besides=UNMIRRORED)
        assert kinds(mirrored, "packed") == {"INSERT": 6, "DELETE": 2, "UPDATE_BEFORE": 2, "UPDATE_AFTER": 2}
        with stopped_connector(mirrored) as url:
            # As if it was killed before its snapshot ended: its events are in the topics, and it has no offsets.
            requests.delete(f"{url}/offsets", timeout=60).raise_for_status()
            database.execute("DELETE FROM asked WHERE id < 4", "DELETE FROM visits WHERE page = 'a' LIMIT 1")
        assert mirror.stop() == 0, mirror.tail()
        let_heal(mirrored)
        mirror.start()
        register(load(mirrored.config))
        mirrored.comparison.await_equal(mirror, START_S, besides=UNMIRRORED)
        assert mirror.stop() == 0, mirror.tail()
    assert tables(mirrored) == MIRRORED
    assert tables(mirrored, changes=True) == MIRRORED
    for kind in (f"{database.prefix}.transaction", f"__debezium-heartbeat.{database.prefix}"):
        assert topics.ends(database.endpoints.bootstrap_servers, kind)[kind] > 0
    assert_partial_images_stop_the_connector(mirrored)
    record(conformance, ANEW)


def assert_partial_images_stop_the_connector(mirrored: MirroredDatabase) -> None:
    """Assert that no event without all columns is written: its missing values would be read as NULL."""
    database = mirrored.database
    before = topics.ends(database.endpoints.bootstrap_servers, database.prefix)
    transaction(
        database,
        "SET SESSION binlog_row_image = 'MINIMAL'",
        "UPDATE packed SET v = v + 1",
        "DELETE FROM uniq",
    )
    url = f"{database.endpoints.connect_url}/connectors/{database.prefix}/status"
    until(
        lambda: [task["state"] for task in requests.get(url, timeout=30).json()["tasks"]] == ["FAILED"],
        seconds=120,
        doing="the connector stops",
    )
    after = topics.ends(database.endpoints.bootstrap_servers, database.prefix)
    rows = [mirrored.topic(table) for table in ("packed", "uniq")]
    assert [after[topic] for topic in rows] == [before[topic] for topic in rows]
