"""Repairs of the connector that a running mirror makes by itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
import requests

from replicator import failpoints
from replicator.batch import MirrorContext
from replicator.config import load
from replicator.lake.reading.reader import open_catalog
from replicator.lake.recoveries import Recoveries
from replicator.model.table import TableId
from replicator.operations.connector import register
from replicator.operations.stack import LocalStack
from replicator.operations.status.mirror_status import TableStatus
from replicator.operations.status.read import read_status
from replicator.recovery.connector_repair import ConnectorRepair
from replicator.sources.connector.connect import KafkaConnect
from replicator.sources.connector.settings import ONLY_CAPTURED, SKIP_STATEMENTS, connect_client
from replicator.verify.mirror_check import Wanted, verify
from replicator.verify.results import Verdict
from tests.support import topics
from tests.support.mirror import HEALING_MIRROR, START_S, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.rereads import command, shown_rereads

PREPARE = [
    "CREATE TABLE kept (id INT PRIMARY KEY, x INT)",
    "CREATE TABLE bad (id INT PRIMARY KEY, x INT)",
    "INSERT INTO kept VALUES (1, 1)",
    "INSERT INTO bad VALUES (1, 1)",
]

BROKEN_MERGE = [
    "CREATE TABLE m1 (id INT PRIMARY KEY, x INT) ENGINE = MyISAM",
    "CREATE TABLE mm (id INT PRIMARY KEY, x INT) ENGINE = MERGE UNION = (m1)",
    "DROP TABLE m1",
]


POINTS = ("after-repair-stop", "after-repair-record", "after-repair-put", "before-repair-restore")
"""The failpoints of a repair."""


class Properties:
    """The properties of the `_ops` namespace, without a lake."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}

    def namespace_properties(self, _namespace: str) -> dict[str, str]:
        return dict(self._values)

    def set_namespace_property(self, _namespace: str, key: str, value: str) -> None:
        self._values[key] = value


class Killed(Exception):  # noqa: N818 -- not a failure
    """The process ended at a failpoint."""


@contextmanager
def killed_at(point: str) -> Iterator[None]:
    def end(reached: str) -> None:
        if reached == point:
            raise Killed

    with failpoints.on_reach(end), pytest.raises(Killed):
        yield


def events(mirrored: MirroredDatabase, table: str) -> int:
    """Return how many events the topic of a table has."""
    ends = topics.ends(mirrored.database.endpoints.bootstrap_servers, mirrored.database.prefix)
    return ends.get(mirrored.topic(table), 0)


def complete(repair: ConnectorRepair) -> None:
    """Let a repair come to its end."""

    def is_done() -> bool:
        repair.step()
        return not repair.is_busy

    until(is_done, seconds=60, doing="the repair is done")


def a_client(mirrored: MirroredDatabase) -> KafkaConnect:
    client = connect_client(load(mirrored.config))
    assert client is not None
    return client


@pytest.mark.fault(
    "The mirror is killed at each failpoint while it lets the connector read all definitions again",
    area="Process",
    on="MySQL, Debezium, Kafka",
    outcome="the next start completes that; the connector has its former settings and no event is lost",
)
@pytest.mark.parametrize("format_", ["json", pytest.param("avro", marks=pytest.mark.long)])
def test_interrupted_repair_is_completed_by_the_next_process(
    mirror_database: MirroredDatabaseBuilder, local_stack: LocalStack, format_: str
) -> None:
    url = local_stack.endpoints.registry_url
    log = "" if format_ == "json" else f'format = "avro"\nregistry_url = "{url}"'
    mirrored = mirror_database(tables=0, seed_rows=False, prepare=PREPARE, log=log)
    client, name, database = a_client(mirrored), mirrored.database.prefix, mirrored.database
    until(lambda: events(mirrored, "bad") == 1, seconds=60, doing="the snapshot is taken")
    before = client.options(name)
    lake = cast("Any", Properties())
    recoveries = Recoveries(lake, "ops")
    context = cast("Any", SimpleNamespace(config=load(mirrored.config), lake=lake, recoveries=recoveries))
    for i, point in enumerate(POINTS):
        repair = ConnectorRepair(cast("MirrorContext", context))
        repair.load()
        repair.rebuild_history("a trial")
        assert repair.blocks(TableId(database.name, "kept"))
        with killed_at(point):
            complete(repair)
        database.execute(
            f"ALTER TABLE kept ADD COLUMN c{i} INT DEFAULT 7", f"INSERT INTO kept (id) VALUES ({i + 2})"
        )
        following = ConnectorRepair(cast("MirrorContext", context))
        following.load()
        assert following.is_busy
        complete(following)
        assert client.options(name) == before
        until(lambda: events(mirrored, "kept") == i + 2, seconds=60, doing="the event comes")  # noqa: B023


def test_table_that_is_set_aside_has_no_events_until_it_is_taken_in_again(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=0, seed_rows=False, prepare=PREPARE)
    client, name, database = a_client(mirrored), mirrored.database.prefix, mirrored.database
    until(lambda: events(mirrored, "bad") == 1, seconds=60, doing="the snapshot is taken")
    before, bad = client.options(name), TableId(database.name, "bad")
    lake = cast("Any", Properties())
    context = cast(
        "Any",
        SimpleNamespace(config=load(mirrored.config), lake=lake, recoveries=Recoveries(lake, "ops")),
    )
    repair = ConnectorRepair(cast("MirrorContext", context))
    repair.load()
    repair.without_table(bad)
    assert repair.blocks(bad)
    complete(repair)
    database.execute("INSERT INTO bad VALUES (2, 2)", "INSERT INTO kept VALUES (2, 2)")
    until(lambda: events(mirrored, "kept") == 2, seconds=60, doing="the other table goes on")
    # Another process learns it from the settings of the connector.
    following = ConnectorRepair(cast("MirrorContext", context))
    following.load()
    assert following.blocks(TableId(database.name, "kept"))
    following.step()
    assert following.blocks(bad)
    assert not following.blocks(TableId(database.name, "kept"))
    following.with_table(bad)
    complete(following)
    assert not following.blocks(bad)
    assert client.options(name) == before
    database.execute("INSERT INTO bad VALUES (3, 3)")
    until(lambda: events(mirrored, "bad") == 2, seconds=60, doing="the table is taken in again")


@pytest.mark.fault(
    "A statement that Debezium cannot parse, in a database that is not mirrored, or in a session with another SQL mode",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the connector skips it; the definitions are compared with the source",
)
@pytest.mark.fault(
    "A MERGE table lacks its underlying tables, so that the connector cannot read definitions",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the connector leaves that table out, and it is paused; others continue",
)
@pytest.mark.fault(
    "A session writes row events that are not complete (`binlog_row_image = MINIMAL` or `NOBLOB`)",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the connector leaves the table out until it is past them; the table is read again, others continue",
)
def test_connector_that_failed_for_one_statement_or_one_table_is_brought_back(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    prepare = [
        *PREPARE,
        "CREATE TABLE docs (id INT PRIMARY KEY, t TEXT, x INT)",
        "INSERT INTO docs VALUES (1, 'a', 1)",
    ]
    mirrored = mirror_database(tables=0, seed_rows=False, prepare=prepare, extra=HEALING_MIRROR)
    client, name, compare = a_client(mirrored), mirrored.database.prefix, mirrored.comparison
    # As it was registered by an earlier version.
    settings = {k: v for k, v in (client.options(name) or {}).items() if k not in SKIP_STATEMENTS}
    client.put(name, settings)
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        mirrored.database.execute(
            f"CREATE DATABASE {name}_other",
            f"CREATE TABLE {name}_other.links (id INT PRIMARY KEY, url VARCHAR(300))",
            f"DROP DATABASE {name}_other",
            "INSERT INTO kept VALUES (2, 2)",
        )
        compare.await_equal(mirror, START_S)
        mirrored.database.execute(*BROKEN_MERGE)
        session(mirrored, "SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE bad SET x = 2")
        session(mirrored, "SET SESSION binlog_row_image = 'NOBLOB'", "UPDATE docs SET x = 2")
        mirrored.database.execute("UPDATE kept SET x = 3", "INSERT INTO bad VALUES (7, 7)")
        # To take the tables in again, the connector reads all definitions.
        until(lambda: f"{name}.mm" in left_out(mirror), seconds=START_S, doing="the MERGE table is left out")
        mirrored.database.execute("DROP TABLE mm")
        compare.await_equal(mirror, START_S)
        mirrored.database.execute("UPDATE kept SET x = 4", "UPDATE bad SET x = 4", "UPDATE docs SET t = 'b'")
        compare.await_equal(mirror, START_S)
        given = dict(client.options(name) or {})
        assert given.items() >= (SKIP_STATEMENTS | ONLY_CAPTURED).items()
        assert given["snapshot.mode"] == settings["snapshot.mode"]
        read = [entry["name"] for entry in shown_rereads(mirrored) if entry["reason"] != "new table"]
        assert "kept" not in read
        assert mirror.stop() == 0, mirror.tail()
    assert left_out(mirror) == {f"{name}.bad", f"{name}.docs", f"{name}.mm"}


@pytest.mark.fault(
    "A session with `ALLOW_INVALID_DATES` writes a date such as 2024-02-31, in any database of the server",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the connector skips the value; the tables that changed meanwhile are read again",
)
@pytest.mark.long
def test_connector_that_cannot_read_a_date_skips_it_and_changed_tables_are_read_again(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    dates = ["CREATE TABLE dates (id INT PRIMARY KEY, d DATE, t DATETIME(3) NOT NULL)"]
    mirrored = mirror_database(tables=0, seed_rows=False, prepare=[*PREPARE, *dates], extra=HEALING_MIRROR)
    client, name, compare = a_client(mirrored), mirrored.database.prefix, mirrored.comparison
    usual = client.options(name)

    def is_restored() -> bool:
        return client.options(
            name
        ) == usual and "the connector skips values that it cannot read" in events_logged(mirror)

    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        session(
            mirrored,
            "SET SESSION sql_mode = 'ALLOW_INVALID_DATES'",
            "INSERT INTO dates VALUES (1, '2024-02-31', '2023-04-31 10:00:00.5'), (2, '2024-02-29', '2024-01-01')",
            # While the connector skips what it cannot read, it also leaves out events of a type that it does not know.
            "ALTER TABLE bad ADD f FLOAT4",
            "INSERT INTO bad VALUES (2, 2, 1.5)",
        )
        until(is_restored, seconds=START_S, doing="the connector has its usual settings")
        compare.await_equal(mirror, START_S, besides=["dates"])
        mirrored.database.execute(
            "INSERT INTO kept VALUES (2, 2)", "INSERT INTO dates VALUES (3, NULL, '2024-01-01')"
        )
        compare.await_equal(mirror, START_S, besides=["dates"])
        report = verify(load(mirrored.config), Wanted(may_be_resumed=False))
        assert {table.verdict for table in report.tables} == {Verdict.EQUAL}
        read = {entry["name"] for entry in shown_rereads(mirrored) if entry["reason"] != "new table"}
        assert read == {"bad", "dates"}
        assert mirror.stop() == 0, mirror.tail()
    with open_catalog(load(mirrored.config).lake) as catalog:
        rows = (
            catalog.load_table((load(mirrored.config).lake.namespace, "dates")).scan().to_arrow().to_pylist()
        )
    # MySQL computes with these dates as if they were later ones.
    found = {row["id"]: (row["d"], row["t"]) for row in rows}
    assert [str(value) for value in found[1]] == ["2024-03-02", "2023-05-01 10:00:00.500000"]


def events_logged(mirror: MirrorProcess) -> set[str]:
    return {line["event"] for line in mirror.lines()}


@pytest.mark.fault(
    "A session with ANSI_QUOTES alters, renames or drops a table, which Debezium cannot parse",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the table is read under its new name; under the former one it is paused, until the source has it again",
)
@pytest.mark.long
def test_table_is_read_under_its_new_name_if_the_statement_was_skipped(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=0, seed_rows=False, prepare=PREPARE, extra=HEALING_MIRROR)
    name, compare = mirrored.database.prefix, mirrored.comparison
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        session(
            mirrored,
            "SET SESSION sql_mode = 'ANSI_QUOTES'",
            'DROP TABLE "bad"',
            'ALTER TABLE "kept" ADD "y" INT',
            "INSERT INTO kept VALUES (2, 2, 2)",
            'RENAME TABLE "kept" TO "kept2"',
            "INSERT INTO kept2 VALUES (3, 3, 3)",
        )
        compare.await_equal(mirror, START_S)
        gone = {f"{name}.bad", f"{name}.kept"}
        until(lambda: paused(mirrored) == gone, seconds=START_S, doing="the former tables are paused")
        assert left_out(mirror) == {f"{name}.kept", f"{name}.kept2"}
        mirrored.database.execute(PREPARE[1], "INSERT INTO bad VALUES (5, 5)")
        compare.await_equal(mirror, START_S)
        until(lambda: paused(mirrored) == gone - {f"{name}.bad"}, seconds=START_S, doing="one goes on")
        assert mirror.stop() == 0, mirror.tail()


@pytest.mark.fault(
    "The connector cannot send the events of a table, twice within an hour",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the table is read again after the first one, and pauses after the second until `replicator heal`",
)
@pytest.mark.long
def test_table_whose_events_fail_again_within_an_hour_pauses_until_it_is_healed(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=0, seed_rows=False, prepare=PREPARE, extra=HEALING_MIRROR)
    compare, execute = mirrored.comparison, mirrored.database.execute

    def status() -> TableStatus:
        return next(t for t in read_status(compare.config).tables if t.table.endswith(".bad"))

    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        # Debezium does not know the type if it reads it in a statement.
        execute("ALTER TABLE bad ADD f FLOAT4 DEFAULT 3.5", "INSERT INTO bad VALUES (2, 2, 1.5)")
        compare.await_equal(mirror, START_S)
        execute("ALTER TABLE bad ADD g FLOAT4", "INSERT INTO bad VALUES (3, 3, 2.5, 3.5)")
        until(lambda: status().state == "paused", seconds=START_S, doing="the table pauses")
        execute("INSERT INTO bad VALUES (4, 4, 4.5, 5.5)", "INSERT INTO kept VALUES (2, 2)")
        compare.await_equal(mirror, START_S, besides=["bad"])
        found = status()
        assert found.state == "paused"
        assert "Failed to properly convert data value" in (found.reason or "")
        step = (found.next_step or "").partition("; then run: replicator ")[2]
        command(mirrored, *step.split())
        compare.await_equal(mirror, START_S)
        execute("INSERT INTO bad VALUES (5, 5, 6.5, 7.5)")
        compare.await_equal(mirror, START_S)
        assert status().state == "current"
        assert mirror.stop() == 0, mirror.tail()


def paused(mirrored: MirroredDatabase) -> set[str]:
    return {str(t.table) for t in read_status(load(mirrored.config)).tables if t.state == "paused"}


def left_out(mirror: MirrorProcess) -> set[str]:
    return {line["table"] for line in mirror.lines() if line["event"] == "the connector leaves a table out"}


def session(mirrored: MirroredDatabase, *statements: str) -> None:
    with mirrored.database.connect() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


@pytest.mark.fault(
    "`log.topic_prefix` is changed, and the new connector begins later than the last one ended",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="all tables are read again",
    lost="the single changes in the changelog: it has the differences",
)
@pytest.mark.long
def test_changes_before_a_connector_with_another_prefix_began_are_read_from_the_source(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=0, seed_rows=False, prepare=PREPARE, extra=HEALING_MIRROR)
    client, name, compare = a_client(mirrored), mirrored.database.prefix, mirrored.comparison
    mirror = MirrorProcess(mirrored.config, mirrored.folder / "out.log", ("--until-caught-up",))
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    client.stop(name)
    client.await_stopped(name)
    mirrored.database.execute("UPDATE bad SET x = 9", "DELETE FROM kept")
    text = mirrored.config.read_text().replace(f'topic_prefix = "{name}"', f'topic_prefix = "{name}-2"')
    mirrored.config.write_text(text)
    register(load(mirrored.config))
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    assert compare.differences() == {}
    mirrored.database.execute("UPDATE bad SET x = 10")
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    assert compare.differences() == {}
    assert not [line for line in mirror.lines() if line["event"] == "table paused"]


def test_broken_merge_table_of_another_database_does_not_keep_the_connector_from_starting(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    other = "{name}_other"
    merge = [
        f"CREATE DATABASE `{other}`",
        f"CREATE TABLE `{other}`.m1 (id INT PRIMARY KEY) ENGINE = MyISAM",
        f"CREATE TABLE `{other}`.mm (id INT PRIMARY KEY) ENGINE = MERGE UNION = (`{other}`.m1)",
        f"DROP TABLE `{other}`.m1",
    ]
    mirrored = mirror_database(tables=0, seed_rows=False, prepare=[*PREPARE, *merge])
    try:
        until(lambda: events(mirrored, "bad") == 1, seconds=60, doing="the snapshot is taken")
    finally:
        mirrored.database.execute(f"DROP DATABASE `{mirrored.database.name}_other`")


@pytest.mark.fault(
    "The Kafka Connect worker is killed after the first statement behind the committed offset, which renames a column",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the connector starts again, and skips the statement, which its definitions contain",
)
def test_connector_starts_again_if_its_history_is_ahead_of_its_offset(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=0, seed_rows=False, prepare=PREPARE)
    client, name = a_client(mirrored), mirrored.database.prefix
    until(lambda: events(mirrored, "bad") == 1, seconds=60, doing="the snapshot is taken")
    client.stop(name)
    client.await_stopped(name)
    offsets = f"{client.url}/connectors/{name}/offsets"
    before = requests.get(offsets, timeout=60).json()
    client.resume(name)
    mirrored.database.execute(
        "ALTER TABLE kept RENAME COLUMN x TO y", "INSERT INTO kept (id, y) VALUES (2, 2)"
    )
    until(lambda: events(mirrored, "kept") == 2, seconds=60, doing="the event comes")
    client.stop(name)
    client.await_stopped(name)
    # As if the worker had been killed before it committed an offset.
    requests.patch(offsets, json=before, timeout=60).raise_for_status()
    client.resume(name)
    until(lambda: events(mirrored, "kept") == 3, seconds=60, doing="the event comes again")
    mirrored.database.execute("INSERT INTO kept (id, y) VALUES (3, 3)")
    until(lambda: events(mirrored, "kept") == 4, seconds=60, doing="later events come")
    state = client.state(name)
    assert state is not None
    assert state.summary == "RUNNING"
