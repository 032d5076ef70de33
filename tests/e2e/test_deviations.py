"""Changes that the events of a real source do not show: rolled back XA transactions, and statements without rows."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pymysql.err import OperationalError

from replicator.sources.binlog.deviations import DeviationKind
from tests.support.mirror import HEALING_MIRROR, START_S, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.rereads import command, shown_rereads
from tests.support.source import small_statement_cache

TABLES = (
    "CREATE TABLE a (id INT PRIMARY KEY, v VARCHAR(30))",
    "CREATE TABLE b (id INT PRIMARY KEY, v VARCHAR(30))",
    "CREATE TABLE c (id INT PRIMARY KEY, a INT, FOREIGN KEY (a) REFERENCES a (id) ON DELETE CASCADE)",
    "INSERT INTO a VALUES (1, 'one'), (2, 'two'), (3, 'three')",
    "INSERT INTO b VALUES (1, 'one'), (2, 'two')",
    "INSERT INTO c VALUES (1, 1), (2, 2)",
)
ROLLED_BACK = "a prepared XA transaction was rolled back"
STATED = "a statement was logged without its rows"


@pytest.fixture
def mirrored(mirror_database: MirroredDatabaseBuilder) -> MirroredDatabase:
    return mirror_database(tables=0, seed_rows=False, extra=HEALING_MIRROR, prepare=TABLES)


def session(mirrored: MirroredDatabase, *statements: str) -> None:
    with mirrored.database.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def prepared(name: str, *statements: str) -> tuple[str, ...]:
    return (f"XA START '{name}'", *statements, f"XA END '{name}'", f"XA PREPARE '{name}'")


def pauses(mirror: MirrorProcess) -> list[tuple[str, str]]:
    lines = [line for line in mirror.lines() if line["event"] == "table paused"]
    return [(line["table"].rpartition(".")[2], line["reason"].partition(": ")[2]) for line in lines]


def paused_for(mirror: MirrorProcess, reason: str) -> set[str]:
    return {table for table, told in pauses(mirror) if told.startswith(f"{reason}, at ")}


@pytest.mark.fault(
    "A prepared XA transaction is rolled back, or is committed later",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="its tables are read again if it is rolled back; other re-reads wait for its outcome",
)
@pytest.mark.long
def test_prepared_transactions_end_as_in_the_source(mirrored: MirroredDatabase) -> None:
    compare = mirrored.comparison
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        session(mirrored, *prepared("x", "INSERT INTO a VALUES (9, 'phantom')", "UPDATE b SET v = 'phantom'"))
        until(
            lambda: set(compare.differences()) == {"a", "b"}, seconds=START_S, doing="the events are applied"
        )
        session(mirrored, "XA ROLLBACK 'x'")
        compare.await_equal(mirror, START_S)
        assert paused_for(mirror, ROLLED_BACK) == {"a", "b"}
        session(mirrored, *prepared("y", "INSERT INTO a VALUES (10, 'early')"))
        until(lambda: set(compare.differences()) == {"a"}, seconds=START_S, doing="the event is applied")
        with ThreadPoolExecutor(1) as pool:
            heal: Any = pool.submit(command, mirrored, "heal", f"{mirrored.database.name}.a")
            waits = "a prepared XA transaction has changed rows of it"
            until(
                lambda: waits in [r["problem"] for r in shown_rereads(mirrored)],
                seconds=START_S,
                doing="the re-read waits for the outcome",
            )
            session(mirrored, "XA COMMIT 'y'")
            assert [r["phase"] for r in heal.result(START_S)["rereads"]] == ["done"]
        compare.await_equal(mirror, START_S)
        assert len(pauses(mirror)) == 2
        assert mirror.stop() == 0, mirror.tail()


@pytest.mark.fault(
    "A session changes rows with `binlog_format = STATEMENT`, also while the mirror is stopped",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the tables that the statement may have changed are read again",
)
@pytest.mark.long
def test_statements_without_rows_are_found_also_after_a_restart(mirrored: MirroredDatabase) -> None:
    compare = mirrored.comparison
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        session(
            mirrored,
            "SET SESSION binlog_format = STATEMENT",
            "DELETE FROM a WHERE id = 1",
            "INSERT INTO b VALUES (3, 'stated')",
        )
        until(
            lambda: paused_for(mirror, STATED) == {"a", "b", "c"}, seconds=START_S, doing="the tables pause"
        )
        compare.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()
    session(mirrored, "SET SESSION binlog_format = MIXED", "UPDATE b SET v = 'mixed'")
    assert set(compare.differences()) == {"b"}
    with running(mirrored.config, mirrored.folder / "again.log") as mirror:
        compare.await_equal(mirror, START_S)
        assert paused_for(mirror, STATED) == {"b"}
        assert mirror.stop() == 0, mirror.tail()


@pytest.mark.fault(
    "A session changes rows with `binlog_row_value_options = PARTIAL_JSON`, of tables without JSON too",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the tables are read again",
)
@pytest.mark.fault(
    "The server cannot write changes of a MyISAM table to the binlog, which has an incident instead",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="all tables are read again",
)
@pytest.mark.fault(
    "A session in latin1 creates a table with umlauts, in any database",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the binlog is watched on",
)
@pytest.mark.long
def test_what_the_connector_skips_is_seen_in_the_binlog(mirror_database: MirroredDatabaseBuilder) -> None:
    prepare = (
        TABLES[0],
        "INSERT INTO a VALUES (1, 'one'), (2, 'two')",
        "CREATE TABLE j (id INT PRIMARY KEY, d JSON)",
        "CREATE TABLE m (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT) ENGINE = MyISAM",
        """INSERT INTO j VALUES (1, '{"a": 1, "b": "xxxxxxxxxxxxxxxxxxxxxx"}')""",
    )
    mirrored = mirror_database(tables=0, seed_rows=False, extra=HEALING_MIRROR, prepare=prepare)
    compare = mirrored.comparison
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        with mirrored.database.connect(charset="latin1") as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE other_size (id INT PRIMARY KEY COMMENT 'größe')")
            cursor.execute("DROP TABLE other_size")
        session(
            mirrored,
            "SET SESSION binlog_row_value_options = 'PARTIAL_JSON'",
            "UPDATE a SET v = 'partial' WHERE id = 2",
            "UPDATE j SET d = JSON_SET(d, '$.a', 2)",
        )
        compare.await_equal(mirror, START_S)
        assert paused_for(mirror, str(DeviationKind.PARTIAL)) == {"a", "j"}
        with (
            small_statement_cache(mirrored.database),
            pytest.raises(OperationalError, match="max_binlog_stmt_cache"),
        ):
            session(mirrored, f"INSERT INTO m (v) VALUES {', '.join(['(REPEAT(0, 3000))'] * 9)}")
        assert mirrored.database.rows("SELECT COUNT(*) > 0 FROM m") == [(1,)]
        compare.await_equal(mirror, START_S)
        assert "m" in paused_for(mirror, str(DeviationKind.LOST))
        mirrored.assert_verified()
        assert mirror.stop() == 0, mirror.tail()
