"""Foreign keys that change rows of other tables without events, on a real server that does that."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replicator.operations.stack import Endpoints
from replicator.operations.status.read import read_status
from tests.support.mirror import COMMAND, HEALING_MIRROR, START_S, MirrorProcess, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.replica import mysql_server

TABLES = (
    "CREATE TABLE parents (id INT PRIMARY KEY, v INT)",
    (
        "CREATE TABLE children (id INT PRIMARY KEY, parent INT, "
        "FOREIGN KEY (parent) REFERENCES parents (id) ON DELETE CASCADE ON UPDATE CASCADE)"
    ),
    (
        "CREATE TABLE toys (id INT PRIMARY KEY, child INT, "
        "FOREIGN KEY (child) REFERENCES children (id) ON DELETE SET NULL)"
    ),
    (
        "CREATE TABLE places (id INT PRIMARY KEY, above INT, "
        "FOREIGN KEY (above) REFERENCES places (id) ON DELETE CASCADE)"
    ),
    "CREATE TABLE pets (id INT PRIMARY KEY, parent INT, FOREIGN KEY (parent) REFERENCES parents (id))",
    "INSERT INTO parents VALUES (1, 1), (2, 2), (3, 3), (4, 4), (5, 5)",
    "INSERT INTO children VALUES (10, 1), (20, 2), (30, 3), (40, 4), (50, 5)",
    "INSERT INTO toys VALUES (100, 10), (200, 20), (300, 30), (400, 40)",
    "INSERT INTO places VALUES (1, NULL), (2, 1), (3, 2), (4, NULL)",
    "INSERT INTO pets VALUES (1, 5)",
)
TOLD = "a foreign key may have changed rows without events"


@pytest.fixture
def mirror_database(
    builder_on: Callable[[Endpoints], MirroredDatabaseBuilder], tmp_path: Path
) -> Iterator[MirroredDatabaseBuilder]:
    """Use a server whose foreign keys change rows as before MySQL 9.6."""
    with mysql_server(tmp_path / "native", "--loose-innodb-native-foreign-keys=ON") as stack:
        yield builder_on(stack.endpoints)


def paused(mirror: MirrorProcess) -> set[str]:
    return {line["table"].rpartition(".")[2] for line in mirror.lines() if line["event"] == "table paused"}


@pytest.mark.fault(
    "Foreign keys delete or change rows without events, at any depth, also while the mirror is stopped",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome='the child tables are read again; with `cascades = "warn"`, the log and their state tell them',
    lost="the single changes in the changelog: it has the differences",
)
@pytest.mark.long
def test_children_of_changed_parents_are_read_again(mirror_database: MirroredDatabaseBuilder) -> None:
    mirrored = mirror_database(tables=0, seed_rows=False, extra=HEALING_MIRROR, prepare=TABLES)
    database, compare = mirrored.database, mirrored.comparison
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        database.execute(
            "INSERT INTO parents VALUES (6, 6)", "UPDATE pets SET parent = 6", "DELETE FROM pets"
        )
        compare.await_equal(mirror, START_S)
        assert paused(mirror) == set()
        database.execute("DELETE FROM parents WHERE id = 1", "DELETE FROM places WHERE id = 1")
        compare.await_equal(mirror, START_S)
        assert paused(mirror) == {"children", "toys", "places"}
        assert mirror.stop() == 0, mirror.tail()
    database.execute(
        "UPDATE parents SET id = 9 WHERE id = 2",
        "XA START 'x'",
        "DELETE FROM parents WHERE id = 3",
        "XA END 'x'",
        "XA PREPARE 'x'",
        "XA COMMIT 'x'",
    )
    assert {"children", "toys"} <= set(compare.differences())
    with running(mirrored.config, mirrored.folder / "again.log") as mirror:
        compare.await_equal(mirror, START_S)
        assert paused(mirror) == {"children", "toys"}
        assert mirror.stop() == 0, mirror.tail()
    assert_told_only(mirrored)


def assert_told_only(mirrored: MirroredDatabase) -> None:
    """If the configuration says so, the tables are told, and keep their rows."""
    text = mirrored.config.read_text().replace("[log]", 'cascades = "warn"\n[log]')
    with running(mirrored.configured("told.toml", text), mirrored.folder / "told.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S)
        mirrored.database.execute("DELETE FROM parents WHERE id = 4")
        until(
            lambda: (
                {line["table"].rpartition(".")[2] for line in mirror.lines() if line["event"] == TOLD}
                == {"children", "toys"}
            ),
            seconds=START_S,
            doing="the tables are told",
        )
        until(
            lambda: set(mirrored.comparison.differences()) == {"children", "toys"},
            seconds=START_S,
            doing="the delete is applied",
        )
        assert paused(mirror) == set()
        until(lambda: doubtful(mirrored) == {"children", "toys"}, seconds=60, doing="their state says so")
        names = [f"{mirrored.database.name}.{table}" for table in ("children", "toys")]
        # It ends with an error, because it has found differences.
        subprocess.run(
            [COMMAND, "verify", *names, "--repair", "-c", str(mirror.config)],
            check=False,
            capture_output=True,
        )
        until(lambda: doubtful(mirrored) == set(), seconds=START_S, doing="all rows are repaired")
        assert mirrored.comparison.differences() == {}
        assert mirror.stop() == 0, mirror.tail()


def doubtful(mirrored: MirroredDatabase) -> set[str]:
    """Return the tables whose rows may differ, as their state says."""
    tables = read_status(mirrored.comparison.config).tables
    return {table.table.rpartition(".")[2] for table in tables if table.state == "may differ"}
