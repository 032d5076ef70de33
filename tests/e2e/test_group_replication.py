"""A replication group whose members share one origin of GTIDs, with a block of numbers each."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from replicator.config import load
from replicator.operations.connector import register
from replicator.operations.stack import Endpoints
from tests.e2e.test_events import lake_rows, stopped_connector
from tests.support.mirror import FAST_MIRROR, START_S, running
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.replica import execute
from tests.support.replication_group import replication_group
from tests.support.source import SourceDatabase

TABLES = (
    "CREATE TABLE orders (id INT PRIMARY KEY, v INT)",
    "INSERT INTO orders VALUES (1, 1), (2, 2)",
)


@pytest.fixture
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Endpoints]]:
    with replication_group(tmp_path_factory.mktemp("group")) as members:
        yield members


@pytest.fixture
def members(
    group: Sequence[Endpoints], source_database: SourceDatabase, monkeypatch: pytest.MonkeyPatch
) -> list[SourceDatabase]:
    """Provide the test's database as each member has it."""
    monkeypatch.setenv("REPLICATOR_TEST_PASSWORD", group[0].mysql_password)
    found = [replace(source_database, server=server) for server in group]
    replace(found[0], name="mysql").execute(f"CREATE DATABASE `{source_database.name}` CHARACTER SET utf8mb4")
    return found


def take_turns(members: Sequence[SourceDatabase], first: int, column: str = "") -> None:
    """Let each member insert rows, and update rows of the others, in one order that all of them have."""
    for number in range(first, first + 20):
        member, other = members[number % len(members)], members[(number + 1) % len(members)]
        more = (f", {column}", f", {number}") if column else ("", "")
        member.execute(f"INSERT INTO orders (id, v{more[0]}) VALUES ({number}, 0{more[1]})")
        caught_up(other, member)
        other.execute(f"UPDATE orders SET v = v + 1000 WHERE id = {number}")
        caught_up(member, other)


def caught_up(member: SourceDatabase, other: SourceDatabase) -> None:
    """Wait until a member has all transactions of another one."""
    (gtids,) = other.rows("SELECT @@GLOBAL.gtid_executed")[0]
    assert member.rows(f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', 60)") == [(0,)]


def fail_over(mirrored: MirroredDatabase, group: Sequence[Endpoints]) -> None:
    """Let the connector continue at the second member, once the first one has left the group."""
    execute(group[0], "STOP GROUP_REPLICATION")
    there, here = (f"{server.mysql_host}:{server.mysql_port}" for server in group[:2])
    text = mirrored.config.read_text()
    assert there in text
    register(load(mirrored.configured("second.toml", text.replace(there, here))))


@pytest.mark.long
@pytest.mark.fault(
    "Members of a replication group change and alter a table by turns, and the one that is read leaves the group",
    area="Source",
    on="MySQL with Group Replication, Debezium, Kafka",
    outcome="the mirror continues",
)
def test_no_change_of_a_replication_group_is_lost_or_repeated(
    group: Sequence[Endpoints], members: list[SourceDatabase], tmp_path: Path
) -> None:
    mirrored = MirroredDatabaseBuilder(members[0], tmp_path)(
        tables=0, seed_rows=False, extra=FAST_MIRROR, prepare=TABLES
    )
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S)
        take_turns(members, 100)
        # The second member has the higher numbers, and the first one alters the table last.
        for member, column in zip(reversed(members), ("w", "x"), strict=True):
            member.execute(f"ALTER TABLE orders ADD COLUMN {column} INT NOT NULL DEFAULT 5")
            take_turns(members, 200 if column == "w" else 300, column)
        with stopped_connector(mirrored):
            take_turns(members, 400, "x")
        mirrored.comparison.await_equal(mirror, START_S)
        fail_over(mirrored, group)
        second = MirroredDatabase(members[1], [], mirrored.config, mirrored.folder)
        take_turns(members[1:], 500, "x")
        members[1].execute("ALTER TABLE orders DROP COLUMN w")
        take_turns(members[1:], 600, "x")
        second.comparison.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()
    assert not [line for line in mirror.lines() if line.get("event") == "table paused"]
    kinds = Counter(
        (row["id"], row["_change"]["kind"]) for row in lake_rows(mirrored, "orders", changes=True)
    )
    ids = [1, 2, *(first + i for first in range(100, 700, 100) for i in range(20))]
    assert kinds == {
        **{(number, "INSERT"): 1 for number in ids},
        **{(number, kind): 1 for number in ids[2:] for kind in ("UPDATE_BEFORE", "UPDATE_AFTER")},
    }
