"""Table definitions from the schema-change topic."""

import json
from typing import Any

import pytest

from replicator.errors import DecodeError
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId
from replicator.model.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMPTZ,
    VECTOR,
    Encoding,
    LakeType,
    decimal,
)
from replicator.schema.history.builder import build_history
from replicator.schema.history.declared import table_definitions, table_ids
from replicator.schema.history.versions import TableDefinition
from replicator.schema.types.mysql import declared, kept_size, reconciled, stored
from tests.oracle.events import ColumnSpec, Place, schema_change_event


@pytest.mark.parametrize(
    ("name", "length", "scale", "lake_type", "encoding"),
    [
        ("TINYINT", 1, None, INT, Encoding.PLAIN),
        ("TINYINT UNSIGNED", None, None, INT, Encoding.PLAIN),
        ("BOOLEAN", None, None, INT, Encoding.FLAG),
        ("SMALLINT UNSIGNED ZEROFILL", 5, None, INT, Encoding.PLAIN),
        ("MEDIUMINT", None, None, INT, Encoding.PLAIN),
        ("INT", 11, None, INT, Encoding.PLAIN),
        ("integer", None, None, INT, Encoding.PLAIN),
        ("INT UNSIGNED", None, None, LONG, Encoding.PLAIN),
        ("INT UNSIGNED ZEROFILL", 10, None, LONG, Encoding.PLAIN),
        ("BIGINT", None, None, LONG, Encoding.PLAIN),
        ("BIGINT UNSIGNED", None, None, decimal(20, 0), Encoding.UNSEEN_DECIMAL),
        ("YEAR", 4, None, INT, Encoding.YEAR),
        ("DECIMAL", 12, 2, decimal(12, 2), Encoding.UNSEEN_DECIMAL),
        ("DECIMAL UNSIGNED", 12, 2, decimal(12, 2), Encoding.UNSEEN_DECIMAL),
        ("NUMERIC", None, None, decimal(10, 0), Encoding.UNSEEN_DECIMAL),
        ("DECIMAL", 65, 30, STRING, Encoding.UNSEEN_DECIMAL),
        ("FLOAT", None, None, FLOAT, Encoding.PLAIN),
        ("FLOAT", 24, None, FLOAT, Encoding.PLAIN),
        ("FLOAT", 53, None, DOUBLE, Encoding.PLAIN),
        ("FLOAT", 7, 4, DOUBLE, Encoding.PLAIN),
        ("DOUBLE", None, None, DOUBLE, Encoding.PLAIN),
        ("DOUBLE PRECISION", None, None, DOUBLE, Encoding.PLAIN),
        ("REAL", None, None, DOUBLE, Encoding.PLAIN),
        ("BIT", 1, None, BOOLEAN, Encoding.PLAIN),
        ("BIT", None, None, BOOLEAN, Encoding.PLAIN),
        ("BIT", 17, None, BINARY, Encoding.BASE64_BITS),
        ("DATE", None, None, DATE, Encoding.DAYS),
        ("TIME", 6, None, LONG, Encoding.PLAIN),
        ("DATETIME", None, None, TIMESTAMP, Encoding.MILLIS),
        ("DATETIME", 3, None, TIMESTAMP, Encoding.MILLIS),
        ("DATETIME", 4, None, TIMESTAMP, Encoding.MICROS),
        ("TIMESTAMP", 6, None, TIMESTAMPTZ, Encoding.PLAIN),
        ("CHAR", 3, None, STRING, Encoding.PLAIN),
        ("VARCHAR", 200, None, STRING, Encoding.PLAIN),
        ("LONGTEXT", None, None, STRING, Encoding.PLAIN),
        ("ENUM", 1, None, STRING, Encoding.PLAIN),
        ("SET", None, None, STRING, Encoding.SET),
        ("JSON", None, None, STRING, Encoding.PLAIN),
        ("BINARY", 16, None, BINARY, Encoding.PLAIN),
        ("VARBINARY", 16, None, BINARY, Encoding.PLAIN),
        ("MEDIUMBLOB", None, None, BINARY, Encoding.PLAIN),
        ("GEOMETRY", None, None, BINARY, Encoding.GEOMETRY),
        ("GEOMCOLLECTION", None, None, BINARY, Encoding.GEOMETRY),
        ("VECTOR", 3, None, VECTOR, Encoding.PLAIN),
        ("INT ZEROFILL", 6, None, LONG, Encoding.PLAIN),
        ("SOMETHING NEW", None, None, STRING, Encoding.PLAIN),
    ],
)
def test_column_definition_has_lake_type_and_encoding(
    name: str, length: int | None, scale: int | None, lake_type: LakeType, encoding: Encoding
) -> None:
    assert stored(declared(name, length, scale)) == (lake_type, encoding)


@pytest.mark.parametrize(
    ("name", "length", "scale", "charset", "size"),
    [
        ("DECIMAL", 65, 30, None, 30),
        ("DECIMAL", 39, None, None, 0),
        ("DECIMAL", 12, 2, None, None),
        ("CHAR", 6, None, "binary", 6),
        ("VARCHAR", 6, None, "binary", None),
        ("CHAR", 6, None, "latin1", None),
    ],
)
def test_kept_size_is_the_scale_of_a_wide_decimal_or_the_length_of_a_binary_char(
    name: str, length: int, scale: int | None, charset: str | None, size: int | None
) -> None:
    assert kept_size(declared(name, length, scale, charset)) == size


@pytest.mark.parametrize(
    ("carried", "defined", "found"),
    [
        # BOOLEAN in the DDL, which events do not distinguish from BIT(1).
        ((BOOLEAN, Encoding.PLAIN), (INT, Encoding.FLAG), (INT, Encoding.FLAG)),
        ((BOOLEAN, Encoding.PLAIN), (BOOLEAN, Encoding.PLAIN), (BOOLEAN, Encoding.PLAIN)),
        # REAL in the DDL.
        ((FLOAT, Encoding.PLAIN), (DOUBLE, Encoding.PLAIN), (DOUBLE, Encoding.PLAIN)),
        ((STRING, Encoding.PLAIN), (BINARY, Encoding.LATIN1), (BINARY, Encoding.LATIN1)),
        # Bytes that the connector is configured to write as base64.
        ((STRING, Encoding.PLAIN), (BINARY, Encoding.PLAIN), (BINARY, Encoding.PLAIN)),
        # Decimals that the connector is configured to write as text.
        ((STRING, Encoding.PLAIN), (decimal(9, 2), Encoding.UNSEEN_DECIMAL), (STRING, Encoding.PLAIN)),
        ((LONG, Encoding.PLAIN), (INT, Encoding.PLAIN), (LONG, Encoding.PLAIN)),
    ],
)
def test_reconciled_combines_event_schema_and_definition(carried: Any, defined: Any, found: Any) -> None:
    assert reconciled(carried, defined) == found


def definition(ddl: str | None = None, **column: Any) -> Column:
    described = {"name": "x", "typeName": "INT", "position": 1, "optional": True, "enumValues": []} | column
    table = {"primaryKeyColumnNames": ["x"], "columns": [described]}
    record = {
        "source": {"file": "b.000001", "pos": 4},
        "ddl": ddl,
        "tableChanges": [{"type": "ALTER", "id": '"d"."t"', "table": table}],
    }
    (found,) = table_definitions(json.dumps(record).encode())
    assert found.schema is not None
    return found.schema.columns[0]


@pytest.mark.parametrize(
    ("column", "fill", "unknown"),
    [
        ({}, None, False),
        ({"optional": False}, "0", False),
        ({"optional": False, "typeName": "VARCHAR"}, "", False),
        ({"optional": False, "typeName": "DATE"}, None, True),
        ({"optional": False, "typeName": "ENUM", "enumValues": ["'a, b'", "'c'"]}, "a, b", False),
        ({"hasDefaultValue": True, "defaultValueExpression": "7"}, "7", False),
        ({"hasDefaultValue": True, "defaultValueExpression": None}, None, False),
        (
            {
                "optional": False,
                "hasDefaultValue": True,
                "defaultValueExpression": "it's",
                "typeName": "VARCHAR",
            },
            "it's",
            False,
        ),
        (
            {"hasDefaultValue": True, "defaultValueExpression": "CURRENT_TIMESTAMP", "typeName": "DATETIME"},
            None,
            True,
        ),
        ({"generated": True}, None, True),
        # Connectors write this for CURRENT_TIMESTAMP and NOW().
        ({"defaultValueExpression": "1970-01-01 00:00:00", "typeName": "DATETIME", "length": 6}, None, True),
        ({"defaultValueExpression": "LOCALTIMESTAMP(6)", "typeName": "DATETIME"}, None, True),
        (
            {"defaultValueExpression": "2000-01-01 00:00:00", "typeName": "DATETIME"},
            "2000-01-01 00:00:00",
            False,
        ),
        ({"defaultValueExpression": "1970-01-01", "typeName": "DATE"}, "1970-01-01", False),
        # A default of a text column is a literal.
        ({"defaultValueExpression": "n/a (none)", "typeName": "VARCHAR"}, "n/a (none)", False),
        ({"defaultValueExpression": "NOW", "typeName": "CHAR"}, "NOW", False),
        ({"defaultValueExpression": "now()", "typeName": "TEXT"}, "now()", False),
        ({"defaultValueExpression": "CURRENT_TIMESTAMP", "typeName": "ENUM"}, "CURRENT_TIMESTAMP", False),
        (
            {"defaultValueExpression": "1970-01-01 00:00:00", "typeName": "VARCHAR"},
            "1970-01-01 00:00:00",
            False,
        ),
        ({"defaultValueExpression": "", "typeName": "VARCHAR"}, "", False),
        # A computed default: DEFAULT (1 + 1).
        ({"optional": False, "hasDefaultValue": True, "defaultValueExpression": None}, None, True),
        ({"optional": False, "hasDefaultValue": False, "defaultValueExpression": None}, "0", False),
        ({"defaultValueExpression": "-1.50", "typeName": "DECIMAL", "length": 5, "scale": 2}, "-1.50", False),
        ({"defaultValueExpression": "TRUE"}, "1", False),
        ({"defaultValueExpression": "0x1F"}, None, True),
        # As connectors write the text of a literal.
        (
            {"defaultValueExpression": "it''s \"x\" \\\\ `b`", "typeName": "VARCHAR"},
            'it\'s "x" \\ `b`',
            False,
        ),
        ({"defaultValueExpression": "it\\'s", "typeName": "VARCHAR"}, "it's", False),
        ({"defaultValueExpression": "it''s", "typeName": "ENUM"}, "it's", False),
        ({"defaultValueExpression": "a\\nb", "typeName": "VARCHAR"}, "a\nb", False),
        ({"optional": False, "typeName": "ENUM", "enumValues": ["'it''s'"]}, "it's", False),
        ({"optional": False, "typeName": "DECIMAL", "length": 60, "scale": 3}, "0.000", False),
        (
            {"defaultValueExpression": "1.5", "typeName": "DECIMAL", "length": 60, "scale": 3},
            "1.500",
            False,
        ),
        # MySQL rounds half away from zero.
        (
            {"defaultValueExpression": "1.005", "typeName": "DECIMAL", "length": 60, "scale": 2},
            "1.01",
            False,
        ),
        (
            {"defaultValueExpression": "-2.5", "typeName": "DECIMAL", "length": 60, "scale": 0},
            "-3",
            False,
        ),
        (
            {"defaultValueExpression": "-0.001", "typeName": "DECIMAL", "length": 60, "scale": 2},
            "0.00",
            False,
        ),
        (
            {"defaultValueExpression": "9" * 65, "typeName": "DECIMAL", "length": 65, "scale": 0},
            "9" * 65,
            False,
        ),
        # A CHAR has no trailing spaces.
        ({"defaultValueExpression": " ", "typeName": "CHAR", "length": 1}, "", False),
        ({"defaultValueExpression": " a ", "typeName": "NATIONAL CHAR", "length": 5}, " a", False),
        ({"defaultValueExpression": " a ", "typeName": "VARCHAR", "length": 5}, " a ", False),
        # Labels are stored as they are declared, and those of a SET in the declared order.
        (
            {"defaultValueExpression": "new", "typeName": "ENUM", "enumValues": ["'New'", "'Old'"]},
            "New",
            False,
        ),
        ({"defaultValueExpression": "a", "typeName": "ENUM", "enumValues": ["'A'", "'a'"]}, "a", False),
        ({"defaultValueExpression": "é", "typeName": "ENUM", "enumValues": ["'e'", "'a'"]}, None, True),
        ({"defaultValueExpression": "b,A", "typeName": "SET", "enumValues": ["'a'", "'b'"]}, "a,b", False),
        ({"defaultValueExpression": "", "typeName": "SET", "enumValues": ["'a'", "'b'"]}, "", False),
        ({"defaultValueExpression": "a,é", "typeName": "SET", "enumValues": ["'a'", "'e'"]}, None, True),
        # A session in latin1 wrote it.
        ({"defaultValueExpression": "\ufffd", "typeName": "VARCHAR", "length": 9}, None, True),
        ({"defaultValueExpression": "ü", "typeName": "VARCHAR", "length": 9}, "ü", False),
        # The source numbers existing rows.
        ({"optional": False, "autoIncremented": True}, None, True),
        ({"optional": False, "typeName": "SERIAL"}, None, True),
        ({"defaultValueExpression": "1", "typeName": "BIT", "length": 1}, "true", False),
        ({"optional": False, "typeName": "BIT", "length": 1}, "false", False),
        ({"defaultValueExpression": "TRUE", "typeName": "BOOLEAN"}, "1", False),
        ({"defaultValueExpression": "-12:34:56.5", "typeName": "TIME"}, "-45296500000", False),
        ({"defaultValueExpression": "12", "typeName": "TIME"}, None, True),
        ({"defaultValueExpression": "24", "typeName": "YEAR"}, None, True),
        ({"defaultValueExpression": "2024", "typeName": "YEAR"}, "2024", False),
        ({"defaultValueExpression": "00ff", "typeName": "VARBINARY", "length": 9}, None, True),
        ({"optional": False, "typeName": "VARBINARY", "length": 9}, "", False),
        ({"optional": False, "typeName": "BINARY", "length": 9}, None, True),
        ({"optional": False, "typeName": "JSON"}, None, True),
        ({"defaultValueExpression": "1+1"}, None, True),
    ],
)
def test_definition_has_the_fill_of_existing_rows(
    column: dict[str, Any], fill: str | None, unknown: bool
) -> None:
    found = definition(**column)
    assert (found.fill, found.fill_unknown) == (fill, unknown)


@pytest.mark.parametrize(
    ("ddl", "column", "fill", "unknown"),
    [
        # Definitions do not say that a column is computed.
        ("ALTER TABLE t ADD x INT AS (id * 2) STORED", {}, None, True),
        ("ALTER TABLE t ADD x CHAR(9) NOT NULL DEFAULT (UUID())", {"optional": False}, None, True),
        ("ALTER TABLE t ADD x INT NOT NULL", {"optional": False}, "0", False),
        ("ALTER TABLE t ADD `x` INT NOT NULL, ADD y INT AS (x + 1)", {"optional": False}, "0", False),
        (
            "ALTER TABLE t ADD y SET('x (', ',') DEFAULT (1), ADD X INT NOT NULL",
            {"optional": False},
            "0",
            False,
        ),
        ("ALTER TABLE t ADD (y INT, x DECIMAL(9, 2) NOT NULL DEFAULT (1))", {"optional": False}, None, True),
    ],
)
def test_definition_has_an_unknown_fill_when_the_ddl_computes_the_column(
    ddl: str, column: dict[str, Any], fill: str | None, unknown: bool
) -> None:
    found = definition(ddl=ddl, **column)
    assert (found.fill, found.fill_unknown) == (fill, unknown)


def test_table_definitions_order_columns_by_position() -> None:
    columns = [ColumnSpec("b", "int"), ColumnSpec("a", "varchar", False)]
    text = schema_change_event(Place(3, 50), "t", columns, ["a"], kind="CREATE")
    document = json.loads(text)
    document["tableChanges"][0]["table"]["columns"].reverse()
    (found,) = table_definitions(json.dumps(document).encode())
    assert found.table == TableId("shop", "t")
    assert found.position == SourcePosition("mysql-bin.000003", 50)
    assert found.schema is not None
    assert found.schema.names == ("b", "a")
    assert found.schema.key == ("a",)
    assert not found.schema.columns[1].nullable


def defined(kind: str, ddl: str, columns: list[ColumnSpec], key: list[str]) -> TableDefinition:
    text = schema_change_event(Place(3, 50), "t", columns, key, kind=kind, ddl=ddl)
    return table_definitions(text)[-1]


@pytest.mark.parametrize(("declared", "key"), [("id", "ID"), ("ID", "ID"), ("other", "other")])
def test_key_has_the_letter_case_of_its_column(declared: str, key: str) -> None:
    found = defined("ALTER", "ALTER TABLE t MODIFY ID INT", [ColumnSpec("ID", "int")], [declared])
    assert found.schema is not None
    assert found.schema.key == (key,)


@pytest.mark.parametrize(
    ("kind", "ddl", "optional", "weak"),
    [
        ("CREATE", "CREATE TABLE t (id SERIAL NULL)", True, True),
        ("CREATE", "CREATE TABLE t (id SERIAL)", False, False),
        ("CREATE", "CREATE TABLE t (id INT PRIMARY KEY)", True, False),
        ("CREATE", "CREATE TABLE t (id INT UNIQUE)", True, True),
        # The statement is not understood.
        ("CREATE", "CREATE TABLE t (...)", False, False),
        ("CREATE", "CREATE TABLE t (...)", True, True),
        # The keys before the first definition are unknown.
        ("ALTER", "ALTER TABLE t MODIFY id INT", True, False),
        ("ALTER", "ALTER TABLE t ADD PRIMARY KEY (id), MODIFY id INT", True, False),
        ("ALTER", "ALTER TABLE t DROP PRIMARY KEY, ADD id INT UNIQUE", True, False),
        ("ALTER", "ALTER TABLE t DROP INDEX uk", False, True),
    ],
)
def test_key_is_weak_when_its_columns_do_not_identify_rows(
    kind: str, ddl: str, optional: bool, weak: bool
) -> None:
    (version,) = build_history([defined(kind, ddl, [ColumnSpec("id", "int", optional)], ["id"])]).versions
    assert (version.weak_key, version.schema.key == ()) == (weak, weak)
    assert version.event_key == ("id",)


def keys_after(*steps: tuple[str, str, str, bool]) -> list[tuple[str, ...]]:
    """Return the keys of the versions after `steps`: (kind, statement, the only key column, whether it is optional)."""
    columns = {name: ColumnSpec(name, "int") for _, _, name, _ in steps}
    definitions = []
    for i, (kind, ddl, name, optional) in enumerate(steps):
        own = [ColumnSpec(n, "int", optional) if n == name else c for n, c in columns.items()]
        text = schema_change_event(Place(3, 50 + i), "t", own, [name], kind=kind, ddl=ddl)
        definitions += table_definitions(text)
    return [v.schema.key for v in build_history(definitions).versions]


def test_nullable_key_does_not_identify_rows() -> None:
    create, weak = (
        ("CREATE", "CREATE TABLE t (...)", "id", False),
        ("CREATE", "CREATE TABLE t (...)", "id", True),
    )
    again, other = ("ALTER", "ALTER TABLE t MODIFY id INT", "id", True), ("ALTER", "", "x", True)
    assert keys_after(create, again) == [("id",), ("id",)]
    assert keys_after(weak, ("ALTER", "ALTER TABLE t MODIFY a INT, COMMENT 'x'", "id", True)) == [()]
    assert keys_after(weak, ("ALTER", "ALTER TABLE t ADD PRIMARY KEY (id)", "id", False)) == [(), ("id",)]
    assert keys_after(create, other) == [("id",), ()]
    # The key before the first definition is unknown.
    assert keys_after(again) == [("id",)]


@pytest.mark.parametrize("names", ['"shop"."bills"', '"shop"."orders","shop"."bills"'])
def test_table_definitions_of_a_rename_drop_the_old_name(names: str) -> None:
    text = schema_change_event(
        Place(1, 300), "bills", [ColumnSpec("id", "int", False)], ["id"], kind="ALTER", old_name="orders"
    )
    event = json.loads(text)
    event["tableChanges"][0]["id"] = names
    gone, found = table_definitions(json.dumps(event).encode())
    orders, bills = TableId("shop", "orders"), TableId("shop", "bills")
    assert (gone.table, gone.schema, gone.other_name) == (orders, None, bills)
    assert (found.table, found.other_name) == (bills, orders)
    assert found.schema is not None


@pytest.mark.parametrize(
    "text", [b"no json", b"[]", b"{}", b'{"source":{"file":"odd"},"tableChanges":[]}', b"\xff"]
)
def test_table_definitions_refuse_a_record_that_is_not_a_schema_change(text: bytes) -> None:
    with pytest.raises(DecodeError):
        table_definitions(text)


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ('"shop"."orders"', TableId("shop", "orders")),
        ('"my.shop"."a ""b"""', TableId("my.shop", 'a "b"')),
        ('"shop"."old","shop"."new"', TableId("shop", "new")),
        ('"shop"."a, ""b"".c"', TableId("shop", 'a, "b".c')),
        ('my.ü `b` "q"."in. there"', TableId('my.ü `b` "q"', "in. there")),
        ('"shop".te"', TableId("shop", 'te"')),
        ('"shop"."te', TableId("shop", '"te')),
    ],
)
def test_table_ids_parses_quoted_and_unquoted_names(text: str, table: TableId) -> None:
    assert table_ids(text)[-1] == table
