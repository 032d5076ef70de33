"""ALTER TABLE changes values without events on a real server: tables with values that do not fit are read again."""

import pytest

from replicator.operations.status.read import read_status
from tests.support.mirror import HEALING_MIRROR, START_S, running
from tests.support.mirrored_database import MirroredDatabaseBuilder
from tests.support.rereads import await_rereads

CHANGED = {
    "labels": ("ENUM('a', 'b', 'c')", "'a'), (2, 'b", "ENUM('A', 'c')"),
    "members": ("SET('a', 'b', 'c')", "'a,b'), (2, 'c", "SET('c', 'b', 'a')"),
    "spelled": ("VARCHAR(20)", "'RED'), (2, 'green", "ENUM('red', 'green')"),
    "letters": ("VARCHAR(20)", "'größe'), (2, '日本", "VARCHAR(20) CHARACTER SET latin1"),
    "documents": ("JSON", """'{"b": 1, "a": [1, 2]}'), (2, '{}""", "TEXT"),
    "decimals": ("FLOAT", "'1.25'), (2, '2.5", "FLOAT(6, 1)"),
    "bits": ("BIT(8)", "b'11111111'), (2, b'1", "BIT(4)"),
    "converted": ("VARCHAR(20)", "'größe'), (2, '日本", None),
}
"""Table → type of its column, values before, and the type that cannot have them; None: the statement is another one."""
KEPT = {
    "more_labels": ("ENUM('a', 'b')", "'a'), (2, 'b", "ENUM('a', 'c', 'b')"),
    "more_letters": ("VARCHAR(20) CHARACTER SET latin1", "'größe'), (2, 'x", "VARCHAR(20)"),
}
TABLES = CHANGED | KEPT


@pytest.mark.fault(
    "An ALTER TABLE changes values: labels, members, letters, documents, digits",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the table is read again",
)
def test_tables_with_values_that_a_new_type_lacks_are_read_again(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    create = [
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v {before}) DEFAULT CHARACTER SET utf8mb4"
        for table, (before, _, _) in TABLES.items()
    ]
    mirrored = mirror_database(tables=0, seed_rows=False, extra=HEALING_MIRROR, prepare=create)
    database = mirrored.database
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        await_rereads(mirror, len(TABLES))
        database.execute(
            *(f"INSERT INTO {table} VALUES (1, {values}')" for table, (_, values, _) in TABLES.items())
        )
        mirrored.comparison.await_equal(mirror, START_S)
        alter = [
            f"ALTER TABLE {table} MODIFY v {after}"
            for table, (_, _, after) in TABLES.items()
            if after is not None
        ]
        database.execute(
            "SET SESSION sql_mode = ''", *alter, "ALTER TABLE converted CONVERT TO CHARACTER SET latin1"
        )
        database.execute(*(f"INSERT INTO {table} VALUES (3, NULL)" for table in TABLES))
        mirrored.comparison.await_equal(mirror, START_S)
        found = read_status(mirrored.comparison.config).rereads
        assert {r.table.name for r in found if r.changed is not None} == set(CHANGED)
