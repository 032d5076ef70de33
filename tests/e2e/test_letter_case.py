"""A source that ignores the letter case of table names."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from replicator.operations.stack import Endpoints
from tests.support.mirror import HEALING_MIRROR, START_S, running, until
from tests.support.mirrored_database import MirroredDatabaseBuilder
from tests.support.replica import mysql_server


@pytest.fixture
def mirror_database(
    builder_on: Callable[[Endpoints], MirroredDatabaseBuilder], tmp_path: Path
) -> Iterator[MirroredDatabaseBuilder]:
    """Use a server with the names of tables in lower case."""
    with mysql_server(tmp_path / "folding", "--lower-case-table-names=1", "--server-id=7") as stack:
        yield builder_on(stack.endpoints)


@pytest.mark.fault(
    "A table is created with upper-case letters on a server with `lower_case_table_names = 1`",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the table is mirrored by the spelling that its topic has",
)
@pytest.mark.long
def test_table_that_is_created_with_upper_case_letters_gets_its_changes(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=1, extra=HEALING_MIRROR)
    execute = mirrored.database.execute
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S)
        columns = "(id INT PRIMARY KEY, label VARCHAR(20))"
        execute(f"CREATE TABLE WeirdName {columns}", f"CREATE TABLE `Weird.Name` {columns}")
        for name in ("WeirdName", "Weird.Name"):
            execute(f"INSERT INTO `{name}` VALUES (1, 'first')")

        def has(name: str, *rows: tuple[int, str]) -> bool:
            found = mirrored.lake_rows(name)
            return found is not None and [(row["id"], row["label"]) for row in found] == list(rows)

        for name in ("WeirdName", "Weird.Name"):
            until(partial(has, name, (1, "first")), seconds=START_S, doing=f"{name} is read")
            execute(f"UPDATE `{name}` SET label = 'changed'", f"INSERT INTO `{name.lower()}` VALUES (2, 'b')")
            wanted = partial(has, name, (1, "changed"), (2, "b"))
            until(wanted, seconds=START_S, doing=f"{name} gets its changes")
        assert mirror.stop() == 0, mirror.tail()
