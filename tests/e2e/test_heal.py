"""Heal tables of a real mirror: read them again because the log cannot tell what their rows are."""

import pytest
import requests
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
)

from replicator.config import load
from replicator.lake.reading.reader import open_catalog
from replicator.lake.reading.table_metadata import newest_marker
from replicator.model.changelog import RowKind
from tests.support import topics
from tests.support.mirror import FAST_MIRROR, HEALING_MIRROR, START_S, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.rereads import await_rereads, changes, command, shown_rereads

DOCUMENT = '{"numbers": [1, 1.0, 0.00001, 1e20], "text": "a, b: c"}'
"""JSON that MySQL, the binlog and Java write in different forms."""


@pytest.mark.fault(
    "A session changes rows with `sql_log_bin = 0`",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="`replicator heal` applies the differences",
)
@pytest.mark.long
def test_heal_applies_changes_that_no_log_has(mirror_database: MirroredDatabaseBuilder) -> None:
    rows = ", ".join(f"({number}, 'label {number}')" for number in range(50))
    prepare = [
        "CREATE TABLE still (id INT PRIMARY KEY, label VARCHAR(30))",
        f"INSERT INTO still VALUES {rows}",
    ]
    mirrored = mirror_database(tables=2, extra=FAST_MIRROR, prepare=prepare)
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S)
        with mirrored.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_log_bin = 0")
            cursor.execute("DELETE FROM still WHERE id < 3")
            cursor.execute("UPDATE still SET label = 'not in the log' WHERE id BETWEEN 10 AND 13")
            cursor.execute("INSERT INTO still VALUES (100, 'not in the log')")
        assert set(mirrored.comparison.differences()) == {"still"}
        with mirrored.writers(1):
            report = command(mirrored, "heal", f"{mirrored.database.name}.still")
        assert [(r["phase"], r["changed"]) for r in report["rereads"]] == [("done", 8)]
        mirrored.comparison.await_equal(mirror, START_S)
        mirrored.assert_verified()
        assert mirror.stop() == 0, mirror.tail()
    mirrored.comparison.assert_changelogs()
    pairs = [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER] * 4
    assert changes(mirrored, "still", "h") == sorted([*[RowKind.DELETE] * 3, *pairs, RowKind.INSERT])


@pytest.mark.fault(
    "A topic becomes compacted",
    area="Log",
    on="MySQL, Debezium, Kafka",
    outcome="the table pauses; it is read again once the topic is not compacted",
    lost="the single changes in the changelog: it has the differences",
)
@pytest.mark.long
def test_table_whose_topic_was_compacted_is_read_again_once_it_is_not(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=2, extra=HEALING_MIRROR)
    mirror = MirrorProcess(mirrored.config, mirrored.folder / "out.log", ("--until-caught-up",))
    mirrored.database.execute("UPDATE t00 SET label = 'a' LIMIT 5")
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    set_cleanup(mirrored, "t00", "compact")
    mirrored.database.execute("UPDATE t00 SET label = 'b' LIMIT 5", "UPDATE t01 SET label = 'b' LIMIT 5")
    for _ in range(2):
        mirror.start()
        assert mirror.wait(START_S) == 1, mirror.tail()
        (paused,) = (line for line in mirror.lines() if line["event"] == "table paused")
        assert paused["reason"].startswith(f"the topic {mirrored.topic('t00')} is compacted")
        assert set(mirrored.comparison.differences()) == {"t00"}
    set_cleanup(mirrored, "t00", "delete")
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    assert mirrored.comparison.differences() == {}


@pytest.mark.long
def test_table_whose_topic_gets_partitions_pauses_and_waits_for_the_connector(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=2, extra=HEALING_MIRROR)
    mirrored.database.execute("UPDATE t00 SET label = 'a' LIMIT 5")
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S)
        add_partitions(mirrored, "t00", 3)
        mirrored.database.execute("UPDATE t00 SET label = 'b'", "UPDATE t01 SET label = 'b' LIMIT 5")
        waits = ("reading", "the connector may still write with fewer than 3 partitions")
        until(
            lambda: waits in [(r["phase"], r["problem"]) for r in shown_rereads(mirrored)],
            seconds=START_S,
            doing="the re-read waits for the connector's producer",
        )
        (paused,) = (line for line in mirror.lines() if line["event"] == "table paused")
        assert paused["reason"].startswith(
            f"the topic {mirrored.topic('t00')} has 3 partitions and had 1 before"
        )
        mirrored.comparison.await_equal(mirror, START_S, {"t00"})
        assert mirror.stop() == 0, mirror.tail()


def add_partitions(mirrored: MirroredDatabase, table: str, count: int) -> None:
    """Let the topic of a table have `count` partitions."""
    client = AdminClient({"bootstrap.servers": mirrored.database.endpoints.bootstrap_servers})
    for future in client.create_partitions([NewPartitions(mirrored.topic(table), count)]).values():
        future.result(timeout=60)


def set_cleanup(mirrored: MirroredDatabase, table: str, policy: str) -> None:
    """Set the cleanup policy of a table's topic."""
    setting = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, mirrored.topic(table), incremental_configs=[setting])
    client = AdminClient({"bootstrap.servers": mirrored.database.endpoints.bootstrap_servers})
    for future in client.incremental_alter_configs([topic]).values():
        future.result(timeout=60)


def ends(mirrored: MirroredDatabase, table: str) -> int:
    """Return the offset of the next event of a table that the lake lacks."""
    lake = mirrored.comparison.config.lake
    with open_catalog(lake) as catalog:
        marker = newest_marker(catalog.load_table((lake.namespace, table)))
    assert marker is not None
    return marker.next_offset(mirrored.topic(table), 0) or 0


def await_events(mirrored: MirroredDatabase, table: str, count: int) -> None:
    """Wait until the topic of a table has, or had, a number of events."""
    servers, topic = mirrored.database.endpoints.bootstrap_servers, mirrored.topic(table)
    until(
        lambda: topics.ends(servers, mirrored.database.prefix).get(topic, 0) >= count,
        seconds=START_S,
        doing="events are in the topic",
    )


def delete_events(mirrored: MirroredDatabase, table: str, *, older_than: int) -> None:
    """Delete the events before an offset from the topic of a table, once it has them."""
    servers, topic = mirrored.database.endpoints.bootstrap_servers, mirrored.topic(table)
    await_events(mirrored, table, older_than)
    # Without a reference to the client, its answers would never arrive.
    client = AdminClient({"bootstrap.servers": servers})
    for future in client.delete_records([TopicPartition(topic, 0, older_than)]).values():
        future.result(timeout=60)


def roll_back(mirrored: MirroredDatabase, table: str) -> None:
    """Roll a mirror back to its first snapshot."""
    config = load(mirrored.config)
    with open_catalog(config.lake) as catalog:
        mirror = catalog.load_table((config.lake.namespace, table))
        first, *later = mirror.snapshots()
        assert later
        mirror.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()


@pytest.mark.fault(
    "A mirror is rolled back",
    area="Lake",
    on="MySQL, Debezium, Kafka",
    outcome="the table is read again from the source; its changelog gets the single changes",
)
@pytest.mark.fault(
    "Kafka deletes events that the lake lacks",
    area="Log",
    on="MySQL, Debezium, Kafka",
    outcome="the table is read again from the source",
    lost="the single changes in the changelog: it has the differences",
)
@pytest.mark.long
def test_tables_whose_events_were_deleted_are_read_again_without_a_command(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    prepare = [
        "CREATE TABLE notes (id INT PRIMARY KEY, text VARCHAR(20))",
        "CREATE TABLE log (text VARCHAR(20), size INT)",
        "INSERT INTO notes VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')",
        "INSERT INTO log VALUES ('a', 1), ('a', 1), ('b', NULL)",
    ]
    # The last key is one of an earlier version, and has no effect.
    extra = HEALING_MIRROR.replace("[heal]", '[heal]\nmax_binlog = "2 GB"')
    mirrored = mirror_database(tables=1, extra=extra, prepare=prepare)
    mirror = MirrorProcess(mirrored.config, mirrored.folder / "out.log", ("--until-caught-up",))
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    mirrored.database.execute(
        "INSERT INTO notes VALUES (5, 'seen'), (6, 'seen')",
        "INSERT INTO log VALUES ('c', 3), ('c', 3)",
        "UPDATE t00 SET label = 'seen' LIMIT 5",
    )
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    mirrored.database.execute(
        "INSERT INTO notes VALUES (7, 'lost')",
        "UPDATE notes SET text = 'lost' WHERE id < 4",
        "ALTER TABLE notes ADD COLUMN more INT DEFAULT 7",
        "UPDATE notes SET more = 8 WHERE id > 5",
        "DELETE FROM notes WHERE id = 4",
        "INSERT INTO log VALUES ('c', 3)",
        "DELETE FROM log WHERE text = 'a' LIMIT 1",
    )
    delete_events(mirrored, "notes", older_than=ends(mirrored, "notes") + 6)
    delete_events(mirrored, "log", older_than=ends(mirrored, "log") + 2)
    roll_back(mirrored, "t00")
    with running(mirrored.config, mirrored.folder / "out.log") as mirror, mirrored.writers(1):
        mirrored.comparison.await_equal(mirror, START_S, besides=["t00"])
        mirrored.database.execute("UPDATE notes SET text = 'after' WHERE id = 1")
        mirrored.comparison.await_equal(mirror, START_S, besides=["t00"])
        assert mirror.stop() == 0, mirror.tail()
    mirror = MirrorProcess(mirrored.config, mirrored.folder / "out.log", ("--until-caught-up",))
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    assert mirrored.comparison.differences() == {}
    reasons = {request["name"]: request["reason"] for request in shown_rereads(mirrored)}
    assert "was rolled back or replaced" in reasons["t00"]
    assert "new table" not in (reasons["notes"], reasons["log"])
    assert [bool(changes(mirrored, table, "h")) for table in ("notes", "log", "t00")] == [True, True, False]
    mirrored.comparison.assert_changelogs(besides=["notes", "log"])
    assert [len(changes(mirrored, "notes", op)) for op in "cud"] == [2, 2, 0]


@pytest.mark.fault(
    "MySQL deletes binary logs that the connector needs",
    area="Log",
    on="MySQL, Debezium, Kafka",
    outcome="the connector begins again; all tables are read again from the source",
    lost="the single changes in the changelog: it has the differences",
)
def test_a_mirror_that_was_down_longer_than_all_logs_are_kept_is_exact_again(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=3, extra=HEALING_MIRROR)
    mirror = MirrorProcess(mirrored.config, mirrored.folder / "out.log", ("--until-caught-up",))
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    connector = f"{mirrored.database.endpoints.connect_url}/connectors/{mirrored.database.prefix}"
    requests.put(f"{connector}/stop", timeout=60).raise_for_status()
    mirrored.database.execute(
        "UPDATE t00 SET label = 'lost' LIMIT 9",
        "DELETE FROM t02 LIMIT 2",
        "ALTER TABLE t01 ADD COLUMN meanwhile VARCHAR(9) DEFAULT 'gone'",
        "UPDATE t01 SET meanwhile = 'new' LIMIT 3",
        "FLUSH BINARY LOGS",
    )
    newest = mirrored.database.rows("SHOW BINARY LOGS")[-1][0]
    mirrored.database.execute(f"PURGE BINARY LOGS TO '{newest}'")
    requests.put(f"{connector}/resume", timeout=60).raise_for_status()
    with running(mirrored.config, mirrored.folder / "again.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S)
        mirrored.database.execute("UPDATE t00 SET label = 'after' LIMIT 9", "DELETE FROM t01 LIMIT 1")
        mirrored.comparison.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()


@pytest.mark.fault(
    "A session changes rows of a table without a key with `sql_log_bin = 0`",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the table pauses at the next event of such a row, and is read again",
)
@pytest.mark.long
def test_a_table_without_a_key_is_read_again(mirror_database: MirroredDatabaseBuilder) -> None:
    prepare = [
        "CREATE TABLE log (at DATETIME(3), text VARCHAR(20), size DECIMAL(9, 3), doc JSON)",
        f"INSERT INTO log VALUES ('2024-01-01 00:00:00.123', 'a', 1.5, '{DOCUMENT}')",
        "INSERT INTO log SELECT * FROM log",
        f"INSERT INTO log VALUES (NULL, NULL, NULL, NULL), (NULL, 'b', 2, '{DOCUMENT}')",
    ]
    mirrored = mirror_database(tables=1, extra=HEALING_MIRROR, prepare=prepare)
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        await_rereads(mirror, 2)
        mirrored.database.execute(
            "DELETE FROM log WHERE text = 'a' LIMIT 1",
            f"INSERT INTO log VALUES (NULL, 'c', 3, '{DOCUMENT}')",
        )
        mirrored.comparison.await_equal(mirror, START_S)
        with mirrored.database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_log_bin = 0")
            silent = f"(NULL, 'b', 2, '{DOCUMENT}'), (NULL, 'silent', 4, '[0.0001]')"
            cursor.execute(f"INSERT INTO log VALUES {silent}")
            cursor.execute("DELETE FROM log WHERE text = 'c'")
        # Its row is not in the mirror, so the table pauses and is read again.
        mirrored.database.execute("DELETE FROM log WHERE text = 'silent'")
        await_rereads(mirror, 3)
        mirrored.comparison.await_equal(mirror, START_S)
        mirrored.database.execute("UPDATE log SET size = 9 WHERE text = 'b'")
        mirrored.comparison.await_equal(mirror, START_S)
        mirrored.assert_verified()
        assert mirror.stop() == 0, mirror.tail()
    assert changes(mirrored, "log", "h") == [RowKind.DELETE, RowKind.INSERT]


@pytest.mark.fault(
    "A table is renamed, changed on, and read again: its changelog has events of two topics, and differences",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="changelog rows in the order of `commit` and `offset` end at the source's rows",
)
@pytest.mark.long
def test_changelog_of_a_renamed_table_that_is_read_again_has_one_certain_order(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    prepare = [
        "CREATE TABLE moved (id INT PRIMARY KEY, label VARCHAR(30))",
        "INSERT INTO moved VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    ]
    mirrored = mirror_database(tables=0, seed_rows=False, extra=FAST_MIRROR, prepare=prepare)
    database = mirrored.database
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        database.execute(*(f"UPDATE moved SET label = 'before {n}'" for n in range(5)))
        mirrored.comparison.await_equal(mirror, START_S)
        # The offsets of the topic of the new name begin at 0.
        database.execute(
            "ALTER TABLE moved RENAME TO gone_on",
            "UPDATE gone_on SET label = 'after'",
            "DELETE FROM gone_on WHERE id = 1",
            "INSERT INTO gone_on VALUES (1, 'again')",
        )
        mirrored.comparison.await_equal(mirror, START_S)
        with database.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET SESSION sql_log_bin = 0")
            cursor.execute("DELETE FROM gone_on WHERE id = 2")
            cursor.execute("UPDATE gone_on SET label = 'not in the log' WHERE id = 3")
        command(mirrored, "heal", f"{database.name}.gone_on")
        database.execute("INSERT INTO gone_on VALUES (2, 'last')", "UPDATE gone_on SET label = 'last'")
        mirrored.comparison.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()
    assert mirrored.comparison.assert_changelogs() > 20
