"""Which tables a statement in the binlog changes."""

import pytest

from replicator.model.table import TableId
from replicator.schema.ddl.rows import changed_tables


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


def test_what_a_statement_calls_is_known() -> None:
    found = changed_tables("use `shop`; INSERT INTO a VALUES (F(1), `shop`.g (2), 'h(3)')")
    assert {"f", "g"} <= found.calls
    assert "h" not in found.calls
