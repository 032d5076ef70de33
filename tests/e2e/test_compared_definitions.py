"""Definitions in MySQL against those that the connector sends: no difference is found where there is none."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from replicator.config import load
from replicator.decode.schemas.histories import SchemaHistories
from replicator.model.table import TableId
from replicator.schema.history.comparison import differences
from replicator.schema.history.declared import table_definitions
from replicator.sources.mysql.connection import connect
from replicator.sources.mysql.definitions import read_definitions
from tests.support import topics
from tests.support.mirror import START_S, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.source import SourceDatabase
from tests.workload.column_types import TABLES

SPELT = (
    "id INT PRIMARY KEY, a SERIAL, b BOOL, c BOOLEAN NOT NULL, d DEC, e NUMERIC(5), f FIXED(7, 2), g INT4 UNSIGNED, "
    "h MIDDLEINT, i REAL, j DOUBLE PRECISION, k FLOAT(30), l FLOAT(7, 3), m NATIONAL VARCHAR(10), n NCHAR(5), o LONG, "
    "p LONG VARBINARY, r CHARACTER VARYING(20), s INT(5) ZEROFILL, t YEAR(4), u TEXT(100)"
)
"""Other names of types."""
UNDERSTOOD = (
    "CREATE TABLE keys1 (a INT, b INT NOT NULL, UNIQUE KEY x (b))",
    "CREATE UNIQUE INDEX i1 ON keys1 (a)",
    "DROP INDEX x ON keys1",
    "CREATE TABLE keys2 (a INT UNIQUE KEY NOT NULL, b INT NOT NULL, PRIMARY KEY (b))",
    "CREATE TABLE keys3 (a INT, b INT)",
    "ALTER TABLE keys3 ADD PRIMARY KEY (b, a)",
    "CREATE TABLE keys4 (a INT PRIMARY KEY)",
    "ALTER TABLE keys4 DROP PRIMARY KEY",
    "CREATE TABLE keys5 (A INT, b INT, PRIMARY KEY (`a`, B))",
    "ALTER TABLE keys5 MODIFY a BIGINT, CHANGE b Bb INT UNSIGNED",
    f"CREATE TABLE spelt ({SPELT})",
    "CREATE TABLE moved (id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL, s INT AS (a + 1) STORED, i INT)",
    "ALTER TABLE moved ADD z INT FIRST, ADD (y INT, x VARCHAR(4)), DROP COLUMN i",
    "ALTER TABLE moved ALTER COLUMN z SET DEFAULT 4, RENAME COLUMN y TO yy, MODIFY x VARCHAR(5) AFTER id",
    "CREATE TABLE latin (id INT PRIMARY KEY, a VARCHAR(10), b TEXT COLLATE koi8r_bin) DEFAULT CHARSET = latin1",
    "ALTER TABLE latin ADD c VARCHAR(9), ADD d CHAR(3) CHARACTER SET binary, ADD e ENUM('ü', 'it''s')",
    "CREATE TABLE alike LIKE moved",
    "CREATE TABLE named (id INT PRIMARY KEY, `da.sh-x` INT, `sp ace` INT, `ünï` INT, `'q'` INT)",
    "CREATE TABLE before1 (id INT PRIMARY KEY, a INT)",
    "RENAME TABLE before1 TO after1",
    "CREATE TABLE before1 (x INT)",
    "ALTER TABLE after1 RENAME TO last1, ADD c TEXT",
)


@pytest.fixture
def creations(source_database: SourceDatabase) -> list[str]:
    """Return statements that create the tables which the server has the types for."""
    known = (
        replace(table, cases=tuple(c for c in table.cases if source_database.has_version(c.since)))
        for table in TABLES
    )
    return ["SET SESSION sql_mode = 'NO_ENGINE_SUBSTITUTION'", *(table.create() for table in known)]


def test_no_definition_of_a_snapshot_or_of_the_stream_differs(
    mirror_database: MirroredDatabaseBuilder, creations: list[str]
) -> None:
    before = [statement.replace("CREATE TABLE ", "CREATE TABLE first_") for statement in creations]
    mirrored = mirror_database(tables=0, seed_rows=False, prepare=before, log="schemas = false")
    mirrored.database.execute(*creations, *UNDERSTOOD, "CREATE TABLE done (id INT PRIMARY KEY)")
    done = TableId(mirrored.database.name, "done")
    until(
        lambda: sent_definitions(mirrored).is_defined(done), seconds=START_S, doing="the definitions are sent"
    )
    assert dict(found_differences(mirrored)) == {}


def sent_definitions(mirrored: MirroredDatabase) -> SchemaHistories:
    histories = SchemaHistories()
    servers, topic = mirrored.database.endpoints.bootstrap_servers, mirrored.database.prefix
    if topic in topics.ends(servers, topic):
        for record in topics.records(servers, topic):
            histories.apply(table_definitions(record.value() or b""))
    return histories


def found_differences(mirrored: MirroredDatabase) -> Iterator[tuple[str, tuple[str, ...]]]:
    histories, database = sent_definitions(mirrored), mirrored.database
    tables = {TableId(database.name, str(name)) for (name,) in database.rows("SHOW TABLES")}
    with connect(load(mirrored.config).source) as connection:
        definitions = read_definitions(connection, tables)
    assert definitions.keys() == tables
    for table, definition in definitions.items():
        if found := differences(definition, histories.history(table).versions[-1]):
            yield table.name, found
