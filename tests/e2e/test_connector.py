"""Failures of the connector and of the servers while a mirror runs, and the recovery from them."""

import time
from pathlib import Path
from typing import Any

import pymysql
import pytest
import requests

from replicator.config import load
from replicator.operations.connector import register
from replicator.operations.stack import Part
from replicator.sources.connector.settings import connector_config
from tests.support.mirror import FAST_MIRROR, START_S, Comparison, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.rereads import shown_status
from tests.support.source import SourceDatabase

FRESH_S = 20
"""Maximum seconds until a change is in the lake after MySQL is available again."""


def change(mirrored: MirroredDatabase, number: int) -> None:
    mirrored.database.execute(f"INSERT INTO seen VALUES ({number})")


def fresh_after(mirrored: MirroredDatabase, mirror: MirrorProcess, number: int, seconds: float) -> float:
    """Insert a row, and return the seconds until the lake contains it."""
    began = time.monotonic()
    change(mirrored, number)
    until(lambda: not mirrored.comparison.differences({"seen"}), seconds=seconds, doing=mirror.tail())
    return time.monotonic() - began


def line(mirror: MirrorProcess, event: str, **fields: str) -> dict[str, Any]:
    """Wait for a log line with this event and these fields, and return the newest one."""
    wanted = {"event": event, **fields}.items()
    found: dict[str, Any] = until(
        lambda: next((x for x in reversed(mirror.lines()) if wanted <= x.items()), None),
        seconds=60,
        doing=f"{event}\n{mirror.tail()}",
    )
    return found


def ask(mirrored: MirroredDatabase, method: str, path: str) -> Any:
    url = f"{mirrored.database.endpoints.connect_url}/connectors/{mirrored.database.prefix}{path}"
    answer = requests.request(method, url, timeout=30)
    answer.raise_for_status()
    return answer.json() if answer.content else None


def is_stopped(status: dict[str, Any]) -> bool:
    """Whether the connector and its task have stopped: Kafka Connect reports the connector first."""
    return status["connector"]["state"] == "STOPPED" and not status["tasks"]


@pytest.fixture
def mirrored(mirror_database: MirroredDatabaseBuilder) -> MirroredDatabase:
    return mirror_database(
        tables=1,
        extra=FAST_MIRROR,
        seed_rows=False,
        prepare=["CREATE TABLE {name}.seen (id INT PRIMARY KEY)"],
    )


@pytest.mark.fault(
    "MySQL is restarted, and killed",
    area="Servers",
    on="MySQL, Debezium, Kafka",
    outcome="the connector is restarted; new changes arrive soon after",
)
def test_mirror_applies_new_changes_soon_after_mysql_was_restarted_or_killed(
    mirrored: MirroredDatabase,
) -> None:
    stack = mirrored.database.stack
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        fresh_after(mirrored, mirror, 1, START_S)
        stack.restart("mysql")
        took = [fresh_after(mirrored, mirror, 2, 120)]
        gone = line(mirror, "a server does not answer", server="MySQL")
        assert gone["reason"]
        line(mirror, "a server answers again", server="MySQL")
        stack.kill("mysql")
        stack.restart("mysql")
        took.append(fresh_after(mirrored, mirror, 3, 120))
        assert max(took) < FRESH_S, f"{took}\n{mirror.tail()}"
        assert mirror.stop() == 0


@pytest.mark.fault(
    "The connector's user is locked, so that its task fails",
    area="Servers",
    on="MySQL, Debezium, Kafka",
    outcome="the reason is shown; the task is restarted until it runs",
)
@pytest.mark.long
def test_failed_connector_task_is_restarted_and_its_reason_is_logged(mirrored: MirroredDatabase) -> None:
    """The connector's user is locked while MySQL restarts, for longer than the connector's own retries last."""
    database = mirrored.database
    at = database.endpoints
    user = f"`{database.name[:30]}`@`%`"
    database.execute(
        f"CREATE USER {user} IDENTIFIED BY '{at.mysql_password}'",
        f"GRANT SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES ON *.* TO {user}",
    )
    try:
        text = mirrored.config.read_text()
        mirrored.config.write_text(
            text.replace(f"mysql://{at.mysql_user}@", f"mysql://{database.name[:30]}@")
        )
        register(load(mirrored.config))
        with running(mirrored.config, mirrored.folder / "out.log") as mirror:
            fresh_after(mirrored, mirror, 1, START_S)
            database.execute(f"ALTER USER {user} ACCOUNT LOCK")
            database.stack.restart("mysql")
            failed = line(mirror, "the connector failed")
            assert "locked" in failed["reason"]
            assert failed["next"]
            assert at.mysql_password not in mirror.tail(1 << 20)
            # Between two restarts, whose intervals grow.
            until(
                lambda: "locked" in (shown_status(mirrored)["connector"]["reason"] or ""),
                seconds=120,
                doing="status",
            )
            database.execute(f"ALTER USER {user} ACCOUNT UNLOCK")
            fresh_after(mirrored, mirror, 2, 120)
            line(mirror, "restarting the connector")
            line(mirror, "the connector is running again")
    finally:
        database.execute(f"DROP USER {user}")


@pytest.mark.fault(
    "Kafka, and then Kafka Connect, does not answer",
    area="Servers",
    on="MySQL, Debezium, Kafka",
    outcome="logged within eight seconds; the mirror waits, and continues",
)
@pytest.mark.long
def test_unavailable_servers_are_logged_within_eight_seconds(mirrored: MirroredDatabase) -> None:
    stack = mirrored.database.stack
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        fresh_after(mirrored, mirror, 1, START_S)
        stops: list[tuple[Part, str, dict[str, str]]] = [
            ("kafka", "a server does not answer", {"server": "Kafka"}),
            ("connect", "the connector is not running", {}),
        ]
        for part, event, fields in stops:
            began = time.monotonic()
            stack.kill(part)
            line(mirror, event, **fields)
            assert time.monotonic() - began < 8, mirror.tail()
            stack.restart(part)
        line(mirror, "a server answers again", server="Kafka")
        line(mirror, "the connector is running again")
        fresh_after(mirrored, mirror, 2, 120)
        assert mirror.stop() == 0


@pytest.mark.long
def test_run_until_caught_up_ends_only_when_the_mirror_is_current_with_the_source(
    mirrored: MirroredDatabase,
) -> None:
    """The last transactions change no mirrored table; then the connector stops, and the run reports that."""
    change(mirrored, 1)
    with (
        pymysql.connect(
            host=mirrored.database.endpoints.mysql_host,
            port=mirrored.database.endpoints.mysql_port,
            user="root",
            password=mirrored.database.endpoints.mysql_root_password,
        ) as connection,
        connection.cursor() as cursor,
    ):
        elsewhere = f"{mirrored.database.name}_not"
        cursor.execute(f"CREATE DATABASE {elsewhere}")
        cursor.execute(f"CREATE TABLE {elsewhere}.t (id INT)")
        cursor.execute(f"DROP DATABASE {elsewhere}")
    mirror = MirrorProcess(mirrored.config, mirrored.folder / "out.log", ("--until-caught-up",))
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    assert mirrored.comparison.differences() == {}
    found = shown_status(mirrored)
    assert {table["state"] for table in found["tables"]} == {"current"}
    assert found["connector"]["state"] == "RUNNING"
    assert (found["empty"], found["unread"]) == ([f"{mirrored.database.name}.{mirrored.tables[0].name}"], [])

    ask(mirrored, "PUT", "/stop")
    until(lambda: is_stopped(ask(mirrored, "GET", "/status")), seconds=60, doing="a stop")
    change(mirrored, 2)
    found = shown_status(mirrored)
    assert {table["state"] for table in found["tables"]} == {"behind"}
    assert all("STOPPED" in table["reason"] and table["next_step"] for table in found["tables"])
    mirror.start()
    assert mirror.wait(START_S) == 1, mirror.tail()
    assert "is STOPPED" in mirror.tail()
    assert "next:" in mirror.tail()

    ask(mirrored, "PUT", "/resume")
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    assert mirrored.comparison.differences() == {}


@pytest.mark.fault(
    "A table is altered during the connector's first snapshot",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the connector repeats its snapshot",
)
@pytest.mark.long
def test_ddl_during_the_initial_snapshot_does_not_stop_the_connector(
    source_database: SourceDatabase, tmp_path: Path
) -> None:
    database = source_database
    database.execute(
        "CREATE TABLE a_first (id INT PRIMARY KEY, filler CHAR(200))",
        "CREATE TABLE later (id INT PRIMARY KEY)",
        "INSERT INTO later VALUES (1), (2)",
    )
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET SESSION cte_max_recursion_depth = 1000000")
        cursor.execute(
            "INSERT INTO a_first WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)"
            " SELECT i, REPEAT('x', 200) FROM n"
        )
    config = tmp_path / "mirror.toml"
    config.write_text(database.config_text(tmp_path, FAST_MIRROR))
    settings = connector_config(load(config))
    url = f"{database.endpoints.connect_url}/connectors/{database.prefix}"
    requests.put(f"{url}/config", json=settings, timeout=60).raise_for_status()
    log = database.stack.log("connect")
    until(
        lambda: f"Exporting data from table '{database.name}.a_first'" in log.read_text(errors="replace"),
        seconds=120,
        doing="the snapshot",
    )
    database.execute(
        "ALTER TABLE later ADD COLUMN added INT NOT NULL DEFAULT 7", "INSERT INTO later VALUES (3, 3)"
    )
    mirror = MirrorProcess(config, tmp_path / "out.log", ("--until-caught-up",))
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    assert Comparison.of(database, config).differences() == {}
    assert "Table definition has changed" in log.read_text(errors="replace"), (
        "the snapshot was too fast for the DDL"
    )
