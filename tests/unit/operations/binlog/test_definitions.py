"""Which tables have to be defined before the first binary log, and how."""

from pathlib import Path

import pytest

from replicator.errors import BinlogError
from replicator.operations.binlog.definitions import Definitions, from_file, without_file
from replicator.sources.binlog.scan import scan
from tests.support.binlog_files import query, table_map, write_file

DUMP = """\
-- MySQL dump
SET @@GLOBAL.GTID_PURGED=/*!80000 '+'*/ 'u:1-7';
CREATE DATABASE /*!32312 IF NOT EXISTS*/ `shop` /*!40100 DEFAULT CHARACTER SET latin1 */;
USE `shop`;
DROP TABLE IF EXISTS `a`;
/*!40101 SET character_set_client = utf8 */;
CREATE TABLE `a` (`id` int NOT NULL COMMENT 'not; the end', PRIMARY KEY (`id`));
INSERT INTO `a` VALUES (1);
DELIMITER ;;
CREATE TRIGGER x BEFORE INSERT ON a FOR EACH ROW BEGIN SET NEW.id = 1; END ;;
CREATE VIEW v AS SELECT 1
"""


def definitions(tmp_path: Path, *events: bytes) -> Definitions:
    return without_file(scan([write_file(tmp_path, 1, *events)]), lambda table: table.database == "shop")


def test_tables_that_the_files_create_need_no_definition(tmp_path: Path) -> None:
    events = [
        query("CREATE TABLE a (id INT)"),
        table_map("a"),
        query("ALTER TABLE a ADD b INT"),
        table_map("a"),
    ]
    assert definitions(tmp_path, *events) == Definitions()


def test_tables_with_rows_before_any_statement_need_a_definition(tmp_path: Path) -> None:
    events = [table_map("a"), query("ALTER TABLE a ADD m INT"), table_map("b", database="other")]
    with pytest.raises(BinlogError, match=r"created before them: shop\.a$"):
        definitions(tmp_path, *events)


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE a ADD n INT",
        "RENAME TABLE a TO b",
        "CREATE UNIQUE INDEX i ON a (n)",
        "CREATE TABLE b LIKE a",
        "ALTER TABLE a RENAME TO b",
    ],
)
def test_a_change_before_any_row_needs_a_definition(tmp_path: Path, statement: str) -> None:
    with pytest.raises(BinlogError, match=r"created before them: shop\.a$"):
        definitions(tmp_path, query(statement), table_map("a"))


def test_from_file_takes_the_definitions_of_a_dump(tmp_path: Path) -> None:
    file = tmp_path / "dump.sql"
    file.write_text(DUMP)
    found = from_file(file, "shop")
    assert [statement.split("(")[0].strip() for statement in found.statements] == [
        "CREATE DATABASE /*!32312 IF NOT EXISTS*/ `shop` /*!40100 DEFAULT CHARACTER SET latin1 */",
        "USE `shop`",
        "CREATE TABLE `a`",
    ]
    assert found.fingerprint() != from_file(file, None).fingerprint()
