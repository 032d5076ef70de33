"""What DDL statements do to the keys of a table."""

import pytest

from replicator.model.table import TableId
from replicator.schema.ddl.effects import KeyChange, KeyDefinition
from replicator.schema.ddl.keys import index_statements, key_change
from replicator.schema.ddl.tables import parse

T = TableId("shop", "t")


def key(name: str | None, *columns: str, first: str | None = None) -> KeyDefinition:
    return KeyDefinition(name, first or columns[0], frozenset(columns))


def plain(name: str | None, first: str | None) -> KeyDefinition:
    return KeyDefinition(name, first, None)


@pytest.mark.parametrize(
    ("elements", "added"),
    [
        ("a INT, b INT", []),
        ("a INT NOT NULL PRIMARY KEY", [key("primary", "a")]),
        ("a INT KEY, b INT UNIQUE, c INT UNIQUE KEY", [key("primary", "a"), key(None, "b"), key(None, "c")]),
        ("a SERIAL, b INT NOT NULL SERIAL DEFAULT VALUE", [key(None, "a"), key(None, "b")]),
        ("`A` INT, B INT, PRIMARY KEY USING BTREE (`A`, b DESC)", [key("primary", "a", "b")]),
        ("a INT, UNIQUE (a)", [key(None, "a")]),
        ("a INT, UNIQUE KEY `Uk` (`a`) USING HASH COMMENT 'UNIQUE (b)'", [key("uk", "a")]),
        ("a INT, CONSTRAINT c UNIQUE INDEX (a), CONSTRAINT UNIQUE (a)", [key("c", "a"), key(None, "a")]),
        ("a INT, CONSTRAINT c UNIQUE KEY k USING BTREE (a)", [key("k", "a")]),
        ("a INT, CONSTRAINT `primary` PRIMARY KEY (a)", [key("primary", "a")]),
        ("a TEXT, UNIQUE u (a(10), b)", [key("u", "a", "b", first="a")]),
        ("a INT, UNIQUE u ((a + 1), b), UNIQUE v (a, (b))", [plain("u", None), plain("v", "a")]),
        (
            "a INT, KEY k (a), INDEX (a), FULLTEXT KEY f (a)",
            [plain("k", "a"), plain(None, "a"), plain("f", "a")],
        ),
        ("a INT, CONSTRAINT f FOREIGN KEY k (a) REFERENCES s (a), CHECK (a > 0), CONSTRAINT CHECK (a)", []),
        (
            "a INT COMMENT 'PRIMARY KEY', b INT AS (JSON_KEYS(a)) UNIQUE, c INT REFERENCES serial (x)",
            [key(None, "b")],
        ),
        ("`unique` INT, `key` INT, `serial` INT DEFAULT (a)", []),
        ("...", []),
        ("", []),
    ],
)
def test_key_change_of_create_table_has_the_keys_that_it_defines(
    elements: str, added: list[KeyDefinition]
) -> None:
    for head in ("CREATE TABLE t", "CREATE TABLE IF NOT EXISTS `shop`.`t`"):
        found = key_change(parse(f"{head} ({elements}) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"), T)
        assert found == KeyChange(created=True, added=tuple(added))


@pytest.mark.parametrize(
    ("specs", "change"),
    [
        ("ADD x INT, ENGINE=InnoDB, RENAME COLUMN a TO b, DROP COLUMN c, DROP d, DROP CHECK e", KeyChange()),
        ("DROP INDEX `Uk`, DROP KEY k", KeyChange(dropped=("uk", "k"))),
        ("DROP PRIMARY KEY, DROP CONSTRAINT c, DROP FOREIGN KEY f", KeyChange(dropped=("primary", "c"))),
        ("DROP INDEX IF EXISTS a", KeyChange(dropped=("a",))),
        ("RENAME INDEX a TO B, RENAME KEY `c` TO d", KeyChange(renamed=(("a", "b"), ("c", "d")))),
        ("ADD UNIQUE uk2 (b), DROP KEY uk", KeyChange(dropped=("uk",), added=(key("uk2", "b"),))),
        ("ADD CONSTRAINT PRIMARY KEY (a, b)", KeyChange(added=(key("primary", "a", "b", first="a"),))),
        ("ADD COLUMN (a INT UNIQUE, KEY k (a))", KeyChange(added=(key(None, "a"), plain("k", "a")))),
        (
            "MODIFY a INT UNIQUE FIRST, CHANGE b c INT KEY",
            KeyChange(added=(key(None, "a"), key("primary", "c"))),
        ),
        ("ADD a INT AFTER serial, ADD b INT AFTER `key`", KeyChange()),
        ("RENAME TO u, ADD UNIQUE (a)", KeyChange(added=(key(None, "a"),))),
        ("DROP", KeyChange()),
        ("DROP INDEX, RENAME INDEX a", KeyChange()),
    ],
)
def test_key_change_of_alter_table_has_dropped_renamed_and_added_keys(specs: str, change: KeyChange) -> None:
    assert key_change(parse(f"ALTER TABLE t {specs}"), T) == change
    assert not key_change(parse(f"ALTER TABLE other {specs.replace(' u,', ' v,')}"), T)


@pytest.mark.parametrize(
    ("ddl", "change"),
    [
        ("DROP INDEX uk ON t", KeyChange(dropped=("uk",))),
        ("DROP INDEX `PRIMARY` ON `shop`.`t` LOCK=NONE", KeyChange(dropped=("primary",))),
        (
            "CREATE UNIQUE INDEX Uk USING BTREE ON t (a, b)",
            KeyChange(added=(key("uk", "a", "b", first="a"),)),
        ),
        # As Debezium 3.6 writes it.
        ("UNIQUE INDEX uk ON t (a)", KeyChange(added=(key("uk", "a"),))),
        ("CREATE INDEX k ON t (a)", KeyChange(added=(plain("k", "a"),))),
        ("CREATE FULLTEXT INDEX k ON t (a)", KeyChange(added=(plain("k", "a"),))),
    ],
)
def test_key_change_of_index_statements(ddl: str, change: KeyChange) -> None:
    assert key_change(parse(ddl), T) == change
    assert list(index_statements(parse(ddl), "shop")) == [(T, change)]
    assert not key_change(parse(ddl), TableId("shop", "u"))
