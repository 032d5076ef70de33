"""Statements that change rows: of which tables, and which do so without row events."""

import pytest

from replicator.model.table import TableId
from replicator.schema.ddl.dml import changed_tables
from replicator.schema.ddl.rows import unlogged_changes
from replicator.schema.ddl.tables import parse


def tables(*names: str) -> frozenset[TableId]:
    return frozenset(TableId(*name.split(".")) for name in names)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("use `shop`; INSERT INTO a VALUES (1, 's;t')", tables("shop.a")),
        ("use `shop`; insert low_priority ignore a set x = 1", tables("shop.a")),
        ("use `shop`; /* app */ REPLACE INTO `b` VALUES (9)", tables("shop.b")),
        ("INSERT INTO shop.`c``d` SELECT * FROM other.x", frozenset({TableId("shop", "c`d")})),
        ("use `shop`; UPDATE LOW_PRIORITY IGNORE a AS x SET x.v = (SELECT 1)", tables("shop.a")),
        ("use `shop`; DELETE QUICK FROM a WHERE id IN (SELECT id FROM b)", tables("shop.a")),
        ("use `shop`; DELETE FROM other.a AS x LIMIT 1", tables("other.a")),
        ("use `shop`; LOAD DATA LOCAL INFILE '/tmp/x' IGNORE INTO TABLE `a` (@x)", tables("shop.a")),
        ("use `shop`; CREATE TABLE IF NOT EXISTS c AS SELECT * FROM a", tables("shop.c")),
    ],
)
def test_a_statement_of_one_table_names_it(text: str, wanted: frozenset[TableId]) -> None:
    assert changed_tables(text).tables == wanted
    assert not changed_tables(text).databases


@pytest.mark.parametrize(
    "text",
    [
        "use `shop`; UPDATE a JOIN b ON a.id = b.id SET a.v = 1",
        "use `shop`; UPDATE a, b SET a.v = 1 WHERE a.id = b.id",
        "use `shop`; DELETE a, b FROM a JOIN b USING (id)",
        "use `shop`; DELETE FROM a, b USING a JOIN b ON a.id = b.id",
        "use `shop`; WITH x AS (SELECT id FROM a) DELETE FROM b WHERE id IN (SELECT id FROM x)",
    ],
)
def test_a_statement_of_several_tables_may_change_each_of_them(text: str) -> None:
    found = changed_tables(text)
    assert found.may_have(TableId("shop", "a"))
    assert found.may_have(TableId("Shop", "B"))
    assert not found.may_have(TableId("shop", "c"))
    assert not found.may_have(TableId("other", "a"))


@pytest.mark.parametrize(
    "text",
    ["use `shop`; SELECT `shop`.`f`(1)", "use `shop`; DO f(500)", "use `shop`; INSERT INTO 'odd' VALUES (1)"],
)
def test_a_statement_that_does_not_tell_its_tables_may_change_all_of_its_database(text: str) -> None:
    assert changed_tables(text).databases == {"shop"}
    assert changed_tables(text).may_have(TableId("shop", "any"))


@pytest.mark.parametrize(
    "text",
    [
        "BEGIN",
        "",
        "use `shop`",
        "use `shop`; TRUNCATE TABLE c",
        "use `shop`; ALTER TABLE c ADD x INT DEFAULT (1)",
        "use `shop`; CREATE TABLE `c` (`select` INT COMMENT 'select') START TRANSACTION",
        "use `shop`; CREATE TEMPORARY TABLE c SELECT * FROM a",
        "use `shop`; CREATE VIEW c AS SELECT * FROM a",
        "use `shop`; CREATE TRIGGER t BEFORE INSERT ON a FOR EACH ROW INSERT INTO b VALUES (1)",
        "use `shop`; CREATE PROCEDURE p() BEGIN INSERT INTO b VALUES (1); DELETE FROM a; END",
        "use `shop`; DROP TABLE a",
        "use `shop`; GRANT INSERT ON a TO b",
        "SAVEPOINT `x`",
    ],
)
def test_other_statements_change_no_rows(text: str) -> None:
    assert not changed_tables(text)


T, OTHER = TableId("shop", "t"), TableId("shop", "x")


def found(ddl: str) -> dict[TableId, str]:
    return dict(unlogged_changes(parse(ddl), "shop"))


@pytest.mark.parametrize(
    "specification",
    [
        "TRUNCATE PARTITION p0",
        "TRUNCATE PARTITION ALL",
        "DROP PARTITION p0, p1",
        "REORGANIZE PARTITION p0, p1 INTO (PARTITION p0 VALUES IN (1, 3))",
        "DISCARD TABLESPACE",
        "IMPORT TABLESPACE",
        "DISCARD PARTITION p0, p1 TABLESPACE",
        "IMPORT PARTITION ALL TABLESPACE",
        "MODIFY COLUMN s INT GENERATED ALWAYS AS (id + 1) STORED",
        "MODIFY s INT AS (id + 1)",
        "CHANGE s s2 INT AS (id + 1) VIRTUAL",
    ],
)
@pytest.mark.parametrize(
    "head", ["ALTER TABLE t ", "ALTER TABLE `shop`.`t` ", "alter /* , */ table shop.T -- x\n"]
)
def test_statements_that_change_rows_are_described(head: str, specification: str) -> None:
    (found_table, text), *more = found(head + specification).items()
    assert str(found_table).casefold() == "shop.t"
    assert text.casefold() == f"ALTER TABLE t {specification}".casefold()
    assert more == []


@pytest.mark.parametrize(
    "ddl",
    [
        "ALTER TABLE t ADD PARTITION (PARTITION p9 VALUES LESS THAN (90))",
        "ALTER TABLE t REORGANIZE PARTITION p0 INTO (PARTITION n0 VALUES LESS THAN (5))",
        "ALTER TABLE t REORGANIZE PARTITION",
        "ALTER TABLE t COALESCE PARTITION 2",
        "ALTER TABLE t REMOVE PARTITIONING",
        "ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 4",
        "ALTER TABLE t REBUILD PARTITION p0",
        "ALTER TABLE t OPTIMIZE PARTITION p0",
        "ALTER TABLE t ANALYZE PARTITION p0",
        "ALTER TABLE t CHECK PARTITION p0",
        "ALTER TABLE t REPAIR PARTITION ALL",
        "ALTER TABLE t DROP `PARTITION`, DROP COLUMN `tablespace`",
        "ALTER TABLE t COMMENT 'TRUNCATE PARTITION p0', ADD COLUMN `discard` INT COMMENT 'DISCARD TABLESPACE'",
        "ALTER TABLE t MODIFY s INT DEFAULT (CAST(id AS CHAR(3)))",
        "ALTER TABLE t MODIFY s INT COMMENT 'AS (id + 1)', ADD COLUMN g INT AS (id + 1) STORED",
        "ALTER TABLE t ALTER COLUMN s SET DEFAULT (id + 1), DROP INDEX a, RENAME TO u",
        "ALTER TABLESPACE ts DROP DATAFILE 'a'",
        "TRUNCATE TABLE t",
        "DROP TABLE t",
        "/* ALTER TABLE t TRUNCATE PARTITION p0 */ CREATE TABLE t (id INT)",
        "-- ALTER TABLE t TRUNCATE PARTITION p0",
        "",
    ],
)
def test_other_statements_change_no_rows_without_events(ddl: str) -> None:
    assert found(ddl) == {}


@pytest.mark.parametrize(
    ("ddl", "other"),
    [
        ("ALTER TABLE t EXCHANGE PARTITION p0 WITH TABLE x", OTHER),
        ("ALTER TABLE t EXCHANGE PARTITION `p0` WITH TABLE `x` WITHOUT VALIDATION", OTHER),
        ("ALTER TABLE `shop`.t EXCHANGE PARTITION p0 WITH TABLE `old`.`a``b`", TableId("old", "a`b")),
    ],
)
def test_exchange_of_a_partition_changes_both_tables(ddl: str, other: TableId) -> None:
    result = found(ddl)
    assert set(result) == {T, other}
    assert result[T] == result[other]


def test_all_statements_and_specifications_are_searched() -> None:
    script = (
        "ALTER TABLE t ALGORITHM = INPLACE, LOCK = NONE, /*!50100 TRUNCATE PARTITION p0 */;"
        "ALTER TABLE x ADD c INT, CHANGE COLUMN g g INT AS (c + 1) STORED COMMENT ', DROP PARTITION p', DROP COLUMN d;"
        "ALTER TABLE other.t DROP PARTITION p1; ALTER TABLE t DROP PARTITION p2"
    )
    assert found(script) == {
        T: "ALTER TABLE t TRUNCATE PARTITION p0",
        OTHER: "ALTER TABLE x CHANGE COLUMN g g INT AS (c + 1) STORED COMMENT '…'",
        TableId("other", "t"): "ALTER TABLE t DROP PARTITION p1",
    }
