"""ALTER TABLE changes values without events on a real server: tables are read again unless the type holds them all."""

from dataclasses import dataclass

import pytest

from replicator.operations.status.read import read_status
from tests.support.mirror import HEALING_MIRROR, START_S, running
from tests.support.mirrored_database import MirroredDatabaseBuilder
from tests.support.rereads import await_rereads


@dataclass(frozen=True)
class Alter:
    """The type of a column, two values as SQL, and its next type, or another change of the table."""

    before: str
    values: tuple[str, str]
    after: str = ""
    change: str = ""

    def statement(self, table: str) -> str:
        return f"ALTER TABLE {table} {self.change or f'MODIFY v {self.after}'}"


CHANGED = {
    "labels": Alter("ENUM('a', 'b', 'c')", ("'a'", "'b'"), "ENUM('A', 'c')"),
    "members": Alter("SET('a', 'b', 'c')", ("'a,b'", "'c'"), "SET('c', 'b', 'a')"),
    "spelled": Alter("VARCHAR(20)", ("'RED'", "'green'"), "ENUM('red', 'green')"),
    "letters": Alter("VARCHAR(20)", ("'größe'", "'日本'"), "VARCHAR(20) CHARACTER SET latin1"),
    "documents": Alter("JSON", ("""'{"b": 1, "a": [1, 2]}'""", "'{}'"), "TEXT"),
    "decimals": Alter("FLOAT", ("1.25", "2.5"), "FLOAT(6, 1)"),
    "bits": Alter("BIT(8)", ("b'11111111'", "b'1'"), "BIT(4)"),
    "numbers": Alter("INT", ("1", "-20"), "VARCHAR(20)"),
    "rounded": Alter("DECIMAL(10, 2)", ("12.50", "-1.49"), "INT"),
    "moments": Alter("DATETIME(6)", ("'2024-02-29 23:59:59.500001'", "NULL"), "DATETIME"),
    "absent": Alter("INT", ("1", "NULL"), "INT NOT NULL DEFAULT 5"),
    "keyed": Alter("INT", ("1", "2"), "INT, MODIFY id VARCHAR(9)"),
    "converted": Alter("VARCHAR(20)", ("'größe'", "'日本'"), change="CONVERT TO CHARACTER SET latin1"),
    "zoned": Alter("DATETIME", ("'2024-02-29 12:00:00'", "NULL"), "TIMESTAMP NULL"),
    "numbered": Alter("ENUM('2', '4', '1')", ("'2'", "'1'"), "INT"),
    "counted": Alter("INT", ("5", "6"), change="ADD n INT AUTO_INCREMENT UNIQUE"),
    "computed": Alter(
        "INT", ("5", "6"), change="ADD twice INT DEFAULT (id * 2), ADD sum INT AS (id + 1) STORED"
    ),
}
"""Tables with values that the next type of their column lacks, or that MySQL converts."""
KEPT = {
    "more_labels": Alter("ENUM('a', 'b')", ("'a'", "'b'"), "ENUM('a', 'c', 'b')"),
    "more_letters": Alter("VARCHAR(20) CHARACTER SET latin1", ("'größe'", "'x'"), "VARCHAR(20)"),
    "larger": Alter("INT UNSIGNED", ("1", "4294967295"), "BIGINT"),
    "longer": Alter("VARCHAR(20)", ("'größe'", "'x'"), "TEXT"),
    "digits": Alter("DECIMAL(10, 2)", ("12.50", "-1.49"), "DECIMAL(14, 2)"),
    "required": Alter("INT", ("1", "-20"), "INT NOT NULL DEFAULT 5"),
}
TABLES = CHANGED | KEPT


@pytest.mark.fault(
    "An ALTER TABLE changes values, or gives rows values that no event contains: labels, letters, digits, defaults",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the table is read again",
)
@pytest.mark.long
def test_tables_with_values_that_a_new_type_lacks_are_read_again(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    create = [
        f"CREATE TABLE {table} (id INT PRIMARY KEY, v {alter.before}) DEFAULT CHARACTER SET utf8mb4"
        for table, alter in TABLES.items()
    ]
    insert = [
        f"INSERT INTO {table} VALUES (1, {alter.values[0]}), (2, {alter.values[1]})"
        for table, alter in TABLES.items()
    ]
    change = [alter.statement(table) for table, alter in TABLES.items()]
    mirrored = mirror_database(tables=0, seed_rows=False, extra=HEALING_MIRROR, prepare=create)
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        await_rereads(mirror, len(TABLES))
        mirrored.database.execute(*insert)
        mirrored.comparison.await_equal(mirror, START_S)
        mirrored.database.execute("SET SESSION sql_mode = '', time_zone = '+03:00'", *change)
        mirrored.database.execute(*(f"INSERT INTO {table} (id) VALUES (3)" for table in TABLES))
        mirrored.comparison.await_equal(mirror, START_S)
        found = read_status(mirrored.comparison.config).rereads
        assert {r.table.name for r in found if r.changed is not None} == set(CHANGED)
