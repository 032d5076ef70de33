"""Which tables have to be defined before the first binary log, and how."""

from pathlib import Path

import pytest

from replicator.errors import BinlogError
from replicator.model.table import TableId
from replicator.operations.binlog.definitions import Definitions, from_file, needs, without_file
from replicator.sources.binlog.scan import scan
from tests.support.binlog_files import query, table_map, write_file

A, B = TableId("shop", "a"), TableId("shop", "b")
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


def definitions(
    tmp_path: Path, *events: bytes, source: dict[TableId, tuple[str, ...]] | None = None
) -> Definitions:
    found = needs(scan([write_file(tmp_path, 1, *events)]))
    return without_file(
        found, lambda table: table.database == "shop", lambda table: (source or {}).get(table, ())
    )


def test_tables_that_the_files_create_need_no_definition(tmp_path: Path) -> None:
    events = [
        query("CREATE TABLE a (id INT)"),
        table_map("a", ()),
        query("ALTER TABLE a ADD b INT"),
        table_map("a", ()),
    ]
    assert definitions(tmp_path, *events) == Definitions()


def test_tables_are_defined_from_the_names_in_their_rows(tmp_path: Path) -> None:
    found = definitions(
        tmp_path,
        table_map("a", ("id", "n")),
        query("ALTER TABLE a ADD m INT"),
        table_map("b", database="other"),
    )
    assert [table.table for table in found.described] == [A]
    assert found.sql({}) == [
        "CREATE TABLE `shop`.`a` (`id` INT NOT NULL, `n` INT NOT NULL, PRIMARY KEY (`id`))",
    ]


def test_rows_without_names_need_the_source_and_no_later_change(tmp_path: Path) -> None:
    source: dict[TableId, tuple[str, ...]] = {A: ("CREATE DATABASE shop", "CREATE TABLE `shop`.`a` (id INT)")}
    found = definitions(tmp_path, table_map("a", ()), source=source)
    assert found.statements == source[A]
    with pytest.raises(BinlogError, match=r"shop\.a was created before these files"):
        definitions(tmp_path, table_map("a", ()), query("DROP INDEX i ON a"), source=source)
    with pytest.raises(BinlogError, match=r"shop\.a was created before these files"):
        definitions(tmp_path, table_map("a", ()))


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
        definitions(tmp_path, query(statement), table_map("a", ("id", "n")))


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
