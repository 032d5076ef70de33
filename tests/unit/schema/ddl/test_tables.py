"""The names of tables and columns in DDL statements."""

import pytest

from replicator.model.table import TableId
from replicator.schema.ddl.effects import ColumnMoves
from replicator.schema.ddl.records import RecordStatements
from replicator.schema.ddl.tables import column_moves, computed_columns, parse

T = TableId("shop", "t")


@pytest.mark.parametrize(
    ("ddl", "renamed", "dropped"),
    [
        ("ALTER TABLE t RENAME COLUMN a TO b", {"a": "b"}, ()),
        ("alter table `shop`.`t` rename column a to b, rename column b to a", {"a": "b", "b": "a"}, ()),
        ("ALTER TABLE t CHANGE a b INT NOT NULL DEFAULT 5 AFTER c, DROP d", {"a": "b"}, ("d",)),
        (
            "ALTER TABLE t CHANGE COLUMN `a b` `c``d` ENUM('x,y','it''s','a\\'b') COMMENT 'drop x'",
            {"a b": "c`d"},
            (),
        ),
        ("ALTER TABLE t DROP COLUMN a, ADD COLUMN a VARCHAR(10) FIRST", {}, ("a",)),
        ("ALTER TABLE t DROP a, ADD (a INT, b DECIMAL(10,2) DEFAULT '1,2')", {}, ("a",)),
        (
            "ALTER TABLE t DROP PRIMARY KEY, DROP INDEX i, DROP KEY k, DROP FOREIGN KEY f, DROP CHECK c",
            {},
            (),
        ),
        (
            "ALTER TABLE t DROP CONSTRAINT c, DROP PARTITION p0, DROP `key`, DROP COLUMN `primary`",
            {},
            ("key", "primary"),
        ),
        ("ALTER TABLE t RENAME INDEX a TO b, RENAME KEY c TO d, MODIFY e BIGINT AFTER f", {}, ()),
        ("/* why */ ALTER /*!50001 ONLINE */ TABLE t -- a comment\n # another\n DROP x", {}, ("x",)),
        ("ALTER TABLE t /*!80000 DROP COLUMN y */", {}, ("y",)),
        ("ALTER TABLE t ALGORITHM=INPLACE, LOCK=NONE, DROP COLUMN x", {}, ("x",)),
        ("ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", {}, ()),
        ('ALTER TABLE "shop"."t" RENAME COLUMN "a" TO "b""c"', {"a": 'b"c'}, ()),
        ("ALTER TABLE shop . t DROP größe;", {}, ("größe",)),
        ("ALTER TABLE old RENAME TO t, DROP COLUMN a", {}, ("a",)),
        ("ALTER TABLE t RENAME AS other, CHANGE a b INT", {"a": "b"}, ()),
        ("USE shop; ALTER TABLE T DROP a", {}, ("a",)),
        ("ALTER TABLE IF EXISTS t DROP COLUMN IF EXISTS a, CHANGE IF EXISTS b c INT", {"b": "c"}, ("a",)),
        ("ALTER TABLE t ADD CONSTRAINT c CHECK (a > 0 AND b IN ('x', 'DROP y')), ADD INDEX (a, b)", {}, ()),
        ("ALTER TABLE t CHANGE a A INT", {"a": "A"}, ()),
        ("ALTER TABLE t /*Migration: don't*/ RENAME COLUMN a TO b", {"a": "b"}, ()),
        ("ALTER TABLE t /*M!100000 DROP a,*/ DROP b", {}, ("b",)),
        ("ALTER TABLE t ALTER d SET DEFAULT 1-- don't\n, RENAME COLUMN a TO b", {"a": "b"}, ()),
        ("ALTER TABLE t DROP \u0131ndex", {}, ("\u0131ndex",)),
        # As Debezium shortens a statement that ends with an executable comment.
        ("ALTER TABLE t /*! RENAME COLUMN a TO b", {"a": "b"}, ()),
    ],
)
def test_column_moves_lists_renamed_and_dropped_columns(
    ddl: str, renamed: dict[str, str], dropped: tuple[str, ...]
) -> None:
    assert column_moves(parse(ddl), T) == ColumnMoves(tuple(renamed.items()), dropped)


@pytest.mark.parametrize(
    "ddl",
    [
        None,
        "",
        ";",
        "CREATE TABLE t (a INT)",
        "ALTER TABLE other DROP a",
        "ALTER TABLE elsewhere.t DROP a",
        "ALTER DATABASE t DEFAULT CHARACTER SET utf8",
        "RENAME TABLE a TO t",
        "ALTER TABLE",
        "ALTER TABLE 't' DROP a",
        "DROP TABLE t",
        "ALTER TABLE other RENAME INDEX t TO u",
    ],
)
def test_column_moves_is_none_when_the_statement_alters_another_table(ddl: str | None) -> None:
    assert column_moves(parse(ddl), T) is None


@pytest.mark.parametrize(
    ("ddl", "old"),
    [
        ("RENAME TABLE a TO t", "a"),
        ("rename tables `x`.`y` TO z, `shop`.`a b` to `shop`.`t`", "a b"),
        ("RENAME TABLE t TO _t_del, _t_gho TO t", "_t_gho"),
        ("RENAME TABLE t TO tmp, b TO t, tmp TO b", "b"),
        ("RENAME TABLE a TO tmp, tmp TO t", "a"),
        ("ALTER TABLE a ADD x INT, RENAME TO t", "a"),
        ("ALTER TABLE a RENAME t", "a"),
        ("ALTER TABLE a RENAME AS shop.t, DROP COLUMN b", "a"),
        ("RENAME TABLE t TO tmp, tmp TO t", None),
        ("RENAME TABLE t TO other", None),
        ("RENAME TABLE elsewhere.a TO elsewhere.t", None),
        ("ALTER TABLE t RENAME COLUMN a TO t", None),
        ("RENAME USER a TO t", None),
        ("RENAME TABLE a", None),
        (None, None),
    ],
)
def test_renamed_from_returns_the_old_name_of_a_table(ddl: str | None, old: str | None) -> None:
    assert RecordStatements(ddl).renamed_from(T) == (None if old is None else TableId("shop", old))


@pytest.mark.parametrize(
    ("ddl", "names"),
    [
        (
            "ALTER TABLE t ADD x INT AS (id * 2) STORED, ADD COLUMN y INT DEFAULT (1), ADD z INT DEFAULT 1",
            "x y",
        ),
        ("ALTER TABLE t ADD IF NOT EXISTS x INT GENERATED ALWAYS AS(1), ADD y INT", "x"),
        ("ALTER TABLE t ADD (x INT, y DECIMAL(9, 2) NOT NULL DEFAULT (1)), ADD z INT AS (x )", "y z"),
        ("ALTER TABLE t CHANGE a `X` INT AS (1), MODIFY COLUMN y INT DEFAULT (2), MODIFY z INT", "x y"),
        ("ALTER TABLE t ADD x INT /* DEFAULT (1) */ COMMENT 'AS (1)'", ""),
        ("ALTER TABLE t ADD x INT DEFAULT/**/(1)", "x"),
        ("ALTER TABLE t ADD INDEX ((CAST(x AS (y)))), ADD CHECK (x > DEFAULT (x)), DROP z", ""),
        ("CREATE TABLE IF NOT EXISTS s.t (x INT, y INT AS (x + 1), KEY (x)) PARTITION BY KEY (x)", "y"),
        ("CREATE TABLE t (x INT) AS (SELECT 1 x)", ""),
        ("CREATE TABLE t LIKE s", ""),
        ("CREATE VIEW t AS (SELECT 1)", ""),
        ("ALTER TABLE t ADD", ""),
        (None, ""),
    ],
)
def test_computed_columns_returns_columns_with_expressions(ddl: str | None, names: str) -> None:
    assert computed_columns(parse(ddl)) == frozenset(names.split())
