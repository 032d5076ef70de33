"""Table definitions from the schema-change topic."""

import json
from typing import Any

import pytest

from replicator.decode.epochs import align
from replicator.decode.mapping import declared, kept_size, reconciled, stored
from replicator.decode.schema_book import SchemaBook
from replicator.decode.table_change import table_definitions, table_id
from replicator.errors import DecodeError, MissingSchema
from replicator.model.position import SourcePosition
from replicator.model.record import RawRecord
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
    LakeType,
    Wire,
    decimal,
)
from tests.oracle.events import ColumnSpec, Place, schema_change_event


@pytest.mark.parametrize(
    ("name", "length", "scale", "lake_type", "wire"),
    [
        ("TINYINT", 1, None, INT, Wire.PLAIN),
        ("TINYINT UNSIGNED", None, None, INT, Wire.PLAIN),
        ("BOOLEAN", None, None, INT, Wire.FLAG),
        ("SMALLINT UNSIGNED ZEROFILL", 5, None, INT, Wire.PLAIN),
        ("MEDIUMINT", None, None, INT, Wire.PLAIN),
        ("INT", 11, None, INT, Wire.PLAIN),
        ("integer", None, None, INT, Wire.PLAIN),
        ("INT UNSIGNED", None, None, LONG, Wire.PLAIN),
        ("INT UNSIGNED ZEROFILL", 10, None, LONG, Wire.PLAIN),
        ("BIGINT", None, None, LONG, Wire.PLAIN),
        ("BIGINT UNSIGNED", None, None, decimal(20, 0), Wire.UNSEEN_DECIMAL),
        ("YEAR", 4, None, INT, Wire.YEAR),
        ("DECIMAL", 12, 2, decimal(12, 2), Wire.UNSEEN_DECIMAL),
        ("DECIMAL UNSIGNED", 12, 2, decimal(12, 2), Wire.UNSEEN_DECIMAL),
        ("NUMERIC", None, None, decimal(10, 0), Wire.UNSEEN_DECIMAL),
        ("DECIMAL", 65, 30, STRING, Wire.UNSEEN_DECIMAL),
        ("FLOAT", None, None, FLOAT, Wire.PLAIN),
        ("FLOAT", 24, None, FLOAT, Wire.PLAIN),
        ("FLOAT", 53, None, DOUBLE, Wire.PLAIN),
        ("FLOAT", 7, 4, DOUBLE, Wire.PLAIN),
        ("DOUBLE", None, None, DOUBLE, Wire.PLAIN),
        ("DOUBLE PRECISION", None, None, DOUBLE, Wire.PLAIN),
        ("REAL", None, None, DOUBLE, Wire.PLAIN),
        ("BIT", 1, None, BOOLEAN, Wire.PLAIN),
        ("BIT", None, None, BOOLEAN, Wire.PLAIN),
        ("BIT", 17, None, BINARY, Wire.BASE64_BITS),
        ("DATE", None, None, DATE, Wire.DAYS),
        ("TIME", 6, None, LONG, Wire.PLAIN),
        ("DATETIME", None, None, TIMESTAMP, Wire.MILLIS),
        ("DATETIME", 3, None, TIMESTAMP, Wire.MILLIS),
        ("DATETIME", 4, None, TIMESTAMP, Wire.MICROS),
        ("TIMESTAMP", 6, None, TIMESTAMPTZ, Wire.PLAIN),
        ("CHAR", 3, None, STRING, Wire.PLAIN),
        ("VARCHAR", 200, None, STRING, Wire.PLAIN),
        ("LONGTEXT", None, None, STRING, Wire.PLAIN),
        ("ENUM", 1, None, STRING, Wire.PLAIN),
        ("SET", None, None, STRING, Wire.SET),
        ("JSON", None, None, STRING, Wire.PLAIN),
        ("BINARY", 16, None, BINARY, Wire.PLAIN),
        ("VARBINARY", 16, None, BINARY, Wire.PLAIN),
        ("MEDIUMBLOB", None, None, BINARY, Wire.PLAIN),
        ("GEOMETRY", None, None, BINARY, Wire.GEOMETRY),
        ("GEOMCOLLECTION", None, None, BINARY, Wire.GEOMETRY),
        ("VECTOR", 3, None, VECTOR, Wire.PLAIN),
        ("INT ZEROFILL", 6, None, LONG, Wire.PLAIN),
        ("SOMETHING NEW", None, None, STRING, Wire.PLAIN),
    ],
)
def test_types(name: str, length: int | None, scale: int | None, lake_type: LakeType, wire: Wire) -> None:
    assert stored(declared(name, length, scale)) == (lake_type, wire)


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
def test_sizes(name: str, length: int, scale: int | None, charset: str | None, size: int | None) -> None:
    assert kept_size(declared(name, length, scale, charset)) == size


@pytest.mark.parametrize(
    ("carried", "defined", "found"),
    [
        # BOOLEAN in the DDL, which events cannot tell from BIT(1).
        ((BOOLEAN, Wire.PLAIN), (INT, Wire.FLAG), (INT, Wire.FLAG)),
        ((BOOLEAN, Wire.PLAIN), (BOOLEAN, Wire.PLAIN), (BOOLEAN, Wire.PLAIN)),
        # REAL in the DDL.
        ((FLOAT, Wire.PLAIN), (DOUBLE, Wire.PLAIN), (DOUBLE, Wire.PLAIN)),
        ((STRING, Wire.PLAIN), (BINARY, Wire.LATIN1), (BINARY, Wire.LATIN1)),
        # Bytes that the connector was told to write as base64.
        ((STRING, Wire.PLAIN), (BINARY, Wire.PLAIN), (BINARY, Wire.PLAIN)),
        # Decimals that it was told to write as text.
        ((STRING, Wire.PLAIN), (decimal(9, 2), Wire.UNSEEN_DECIMAL), (STRING, Wire.PLAIN)),
        ((LONG, Wire.PLAIN), (INT, Wire.PLAIN), (LONG, Wire.PLAIN)),
    ],
)
def test_an_event_s_schema_beside_the_definition(carried: Any, defined: Any, found: Any) -> None:
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
        # Text is what it says.
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
        # A calculated one: DEFAULT (1 + 1).
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
def test_what_old_rows_get(column: dict[str, Any], fill: str | None, unknown: bool) -> None:
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
def test_what_only_the_ddl_says(ddl: str, column: dict[str, Any], fill: str | None, unknown: bool) -> None:
    found = definition(ddl=ddl, **column)
    assert (found.fill, found.fill_unknown) == (fill, unknown)


def test_columns_stand_in_their_order() -> None:
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


def test_with_an_embedded_schema() -> None:
    text = schema_change_event(Place(3, 50), "t", [ColumnSpec("id", "int")], ["id"], kind="CREATE")
    wrapped = b'{"schema":{"type":"struct"},"payload":' + text + b"}"
    assert table_definitions(wrapped) == table_definitions(text)


@pytest.mark.parametrize("names", ['"shop"."bills"', '"shop"."orders","shop"."bills"'])
def test_renamed(names: str) -> None:
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


def test_drop_and_records_without_tables() -> None:
    (found,) = table_definitions(schema_change_event(Place(3, 50), "t", [], [], kind="DROP"))
    assert found.schema is None
    record = {"source": {"file": "b.000001", "pos": 4}, "ddl": "SET x=1", "tableChanges": []}
    assert table_definitions(json.dumps(record).encode()) == []


@pytest.mark.parametrize(
    "text", [b"no json", b"[]", b"{}", b'{"source":{"file":"odd"},"tableChanges":[]}', b"\xff"]
)
def test_what_is_no_schema_change(text: bytes) -> None:
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
def test_table_ids(text: str, table: TableId) -> None:
    assert table_id(text) == table


class TestSchemaBook:
    """Which schemas events may have, by what definitions say."""

    TABLE = TableId("shop", "t")
    FIRST = (ColumnSpec("id", "int", False),)
    SECOND = (*FIRST, ColumnSpec("extra", "int", False, "7"))

    def book(self, *places: tuple[Place, tuple[ColumnSpec, ...]]) -> SchemaBook:
        book = SchemaBook()
        book.add_schema_changes(
            RawRecord("p", 0, i, 0, None, schema_change_event(place, "t", columns, ["id"], kind="ALTER"))
            for i, (place, columns) in enumerate(places)
        )
        return book

    def spans(self, book: SchemaBook, since: SourcePosition | None = None) -> list[tuple[Any, Any, int]]:
        return [(e.first, e.end, len(e.schema.columns)) for e in book.epochs(self.TABLE, since)]

    def test_what_is_no_schema_change_is_handed_back(self) -> None:
        values = (
            b"garbage{",
            None,
            schema_change_event(Place(1, 5), "t", self.FIRST, ["id"], kind="CREATE"),
            b"{}",
        )
        book, records = SchemaBook(), [RawRecord("p", 0, i, 7, b"k", value) for i, value in enumerate(values)]
        bad = book.add_schema_changes(records)
        assert [b.record for b in bad] == [records[0], records[3]]
        assert all("not a schema-change event" in b.reason for b in bad)
        assert self.spans(book) == [(None, None, 1)]

    def test_nothing_known(self) -> None:
        with pytest.raises(MissingSchema):
            SchemaBook().epochs(self.TABLE, None)

    def test_one_definition_holds_always(self) -> None:
        assert self.spans(self.book((Place(1, 5), self.FIRST))) == [(None, None, 1)]

    def test_an_alter_makes_two_epochs(self) -> None:
        book = self.book((Place(1, 5), self.FIRST), (Place(1, 90), self.SECOND))
        at = (1 << 40) + 90
        assert self.spans(book) == [(None, at, 1), (at, None, 2)]
        assert self.spans(book, SourcePosition("b.000001", 89)) == [(None, at, 1), (at, None, 2)]
        # What lies behind the alter needs the newer one only.
        assert self.spans(book, SourcePosition("b.000001", 90)) == [(None, None, 2)]

    def test_repeats_and_equal_definitions_change_nothing(self) -> None:
        known = (Place(1, 5), self.FIRST), (Place(1, 9), self.FIRST), (Place(1, 90), self.SECOND)
        assert self.spans(self.book(*known, *known)) == self.spans(self.book(*known))
        assert len(self.spans(self.book(*known))) == 2

    def test_columns_filled_later_are_part_of_earlier_schemas_too(self) -> None:
        book = self.book((Place(1, 5), self.FIRST), (Place(1, 90), self.SECOND))
        line, epochs = book.line(self.TABLE), book.epochs(self.TABLE, None)
        extra = epochs[1].schema.column("extra")
        assert extra is not None
        assert extra.fill == "7"
        assert align(line, epochs, 0, 1).frame.column("extra") == extra
        # Events of the first version alone know nothing of it.
        assert align(line, epochs, 0, 0).frame.names == ("id",)

    def test_a_snapshot_drops_tables_in_words_only(self) -> None:
        book = SchemaBook()
        first, again = (
            schema_change_event(place, "t", self.FIRST, ["id"], kind="CREATE")
            for place in (Place(1, 5), Place(1, 90))
        )
        gone = schema_change_event(Place(1, 90), "t", (), [], kind="DROP")
        in_words = [v.replace(b'"snapshot": "false"', b'"snapshot": "true"') for v in (gone, again)]
        book.add_schema_changes(RawRecord("p", 0, i, 0, None, v) for i, v in enumerate([first, *in_words]))
        assert not any(v.anew for v in book.line(self.TABLE).versions)
        book.add_schema_changes(RawRecord("p", 0, i, 0, None, v) for i, v in enumerate([gone, again]))
        assert [v.anew for v in book.line(self.TABLE).versions][-1]
