"""Statements that Debezium understands otherwise than MySQL: the definitions are compared, and the tables healed."""

import pytest

from replicator.operations.status.read import read_status
from tests.support.encodings import ENCODINGS, Encoding
from tests.support.mirror import HEALING_MIRROR, START_S, running
from tests.support.mirrored_database import MirroredDatabaseBuilder
from tests.support.rereads import await_rereads
from tests.support.source import SourceDatabase

TEXT = "é€中🦊"
SHOW_KEYS = "SET GLOBAL show_gipk_in_create_table_and_information_schema = {}"
TABLES = (
    SHOW_KEYS.format("OFF"),
    "SET SESSION sql_generate_invisible_primary_key = ON",
    "CREATE TABLE latin (id INT PRIMARY KEY, a VARCHAR(20)) CHARACTER SET latin1",
    "CREATE TABLE likes (id INT PRIMARY KEY, a INT, b INT)",
    "CREATE TABLE other (id INT PRIMARY KEY, b INT, a INT)",
    "CREATE TABLE ticks (id INT PRIMARY KEY)",
    "CREATE TABLE early (a INT, b INT)",
    "INSERT INTO latin VALUES (1, 'é')",
    "INSERT INTO likes VALUES (1, 10, 20)",
)
MISREAD = (
    "ALTER TABLE latin DEFAULT CHARACTER SET utf8mb4",
    "ALTER TABLE latin ADD n VARCHAR(20)",
    f"INSERT INTO latin VALUES (2, 'é', '{TEXT}')",
    "CREATE TABLE collated (id INT PRIMARY KEY, t VARCHAR(20)) COLLATE latin1_bin",
    "INSERT INTO collated VALUES (1, 'é')",
    "CREATE TABLE IF NOT EXISTS likes LIKE other",
    "INSERT INTO likes VALUES (2, 10, 20)",
    "ALTER TABLE ticks ADD `a``b` INT",
    "INSERT INTO ticks VALUES (1, 2)",
)
HIDDEN_KEY = (
    "SET SESSION sql_generate_invisible_primary_key = ON",
    "ALTER TABLE early ADD c INT",
    "INSERT INTO early (a, b, c) VALUES (1, 2, 3)",
    "CREATE TABLE hidden (a INT, b INT)",
    "INSERT INTO hidden VALUES (1, 2)",
    "ALTER TABLE hidden MODIFY b INT FIRST",
    "INSERT INTO hidden (a, b) VALUES (5, 6)",
)


@pytest.mark.fault(
    "Debezium takes a statement for another definition than MySQL: a default character set, `IF NOT EXISTS`, an "
    "invisible primary key, a name with a backtick",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the definitions are compared; the connector reads them again, and then the tables are read again",
)
@pytest.mark.parametrize("encoding", ENCODINGS, ids=str)
@pytest.mark.long
def test_tables_whose_definition_the_connector_misreads_are_healed(
    mirror_database: MirroredDatabaseBuilder, source_database: SourceDatabase, encoding: Encoding
) -> None:
    mirrored = mirror_database(
        tables=0,
        seed_rows=False,
        prepare=TABLES,
        log=encoding.log(source_database),
        extra=HEALING_MIRROR,
    )
    database, compare = mirrored.database, mirrored.comparison
    try:
        with running(mirrored.config, mirrored.folder / "out.log") as mirror:
            await_rereads(mirror, 5)
            database.execute(*MISREAD)
            with database.connect() as connection, connection.cursor() as cursor:
                for statement in HIDDEN_KEY:
                    cursor.execute(statement)
            compare.await_equal(mirror, START_S)
            database.execute(
                f"INSERT INTO latin VALUES (3, 'é', '{TEXT}')",
                "INSERT INTO collated VALUES (2, 'é')",
                "INSERT INTO likes VALUES (3, 10, 20)",
                "INSERT INTO ticks VALUES (2, 2)",
                "INSERT INTO hidden (a, b) VALUES (7, 8)",
            )
            compare.await_equal(mirror, START_S)
            assert mirror.stop() == 0, mirror.tail()
    finally:
        database.execute(SHOW_KEYS.format("ON"))
    assert read_status(compare.config).paused == {}
    reasons = {
        (line["table"].rpartition(".")[2], "had another definition" in line["reason"])
        for line in mirror.lines()
        if line["event"] == "re-read done" and line["reason"] != "new table"
    }
    # The mirror does not take the definitions that the connector sends again for those of a lost offset.
    assert {name for name, differs in reasons if not differs} == set()
    assert {"latin", "likes", "ticks"} <= {name for name, _ in reasons}
    assert not {"other", "early"} & {name for name, _ in reasons}


@pytest.mark.fault(
    "A session in latin1 changes definitions, which the connector reads as UTF-8",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the definitions are compared; the connector reads them again, and then the tables are read again",
)
@pytest.mark.long
def test_definitions_of_a_session_in_latin1_are_read_from_the_source(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    prepare = ["CREATE TABLE fills (id INT PRIMARY KEY)", "CREATE TABLE mixed (id INT PRIMARY KEY)"]
    prepare += ["INSERT INTO fills VALUES (1)", "INSERT INTO mixed VALUES (1)"]
    mirrored = mirror_database(tables=0, seed_rows=False, prepare=prepare, extra=HEALING_MIRROR)
    database, compare = mirrored.database, mirrored.comparison
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        await_rereads(mirror, 2)
        with database.connect(charset="latin1") as connection, connection.cursor() as cursor:
            cursor.execute("ALTER TABLE fills ADD d VARCHAR(10) NOT NULL DEFAULT 'ü'")
            # These bytes are UTF-8 too, of another text.
            cursor.execute("ALTER TABLE mixed ADD d VARCHAR(10) NOT NULL DEFAULT 'Ã¼', ADD `größe` INT")
            cursor.execute("CREATE TABLE `tür` (id INT PRIMARY KEY, `größe` ENUM('ü', 'x'))")
        database.execute("INSERT INTO fills VALUES (2, 'ü')", "INSERT INTO mixed VALUES (2, 'ü', 3)")
        compare.await_equal(mirror, START_S)
        database.execute("INSERT INTO `tür` VALUES (1, 'ü')", "UPDATE fills SET d = 'ä'")
        compare.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()
    assert read_status(compare.config).paused == {}
