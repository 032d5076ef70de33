"""The definition in the source against the one in the log: only what makes events wrong is a difference."""

from dataclasses import replace

import pytest

from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableSchema
from replicator.model.types import INT, STRING
from replicator.schema.history.comparison import SourceColumn, SourceDefinition, differences
from replicator.schema.history.versions import SchemaVersion
from replicator.schema.types.native import NativeType

SOURCE = SourceDefinition(
    (
        SourceColumn("id", NativeType("INT"), Column("id", INT, nullable=False)),
        SourceColumn("name", NativeType("VARCHAR", 20, charset="UTF8MB4"), Column("name", STRING)),
    ),
    ("id",),
    frozenset({frozenset({"id"})}),
)


def known(columns: dict[str, str] | None = None, key: tuple[str, ...] = ("id",)) -> SchemaVersion:
    """Return a version of the log: column → type; the first one is not NULL."""
    types = columns or {"id": "INT", "name": "VARCHAR(20) CHARACTER SET utf8mb4"}
    made = tuple(
        Column(name, STRING if "CHAR" in kind else INT, nullable=number > 0)
        for number, (name, kind) in enumerate(types.items())
    )
    return SchemaVersion(
        1, SourcePosition("b.000001", 4), 1, TableSchema(made, key), {}, source_types=types, event_key=key
    )


def with_type(kind: NativeType, column: Column | None = None) -> SourceDefinition:
    """Return the source's definition with another type of `name`."""
    changed = SourceColumn("name", kind, column or Column("name", INT))
    return replace(SOURCE, columns=(SOURCE.columns[0], changed))


@pytest.mark.parametrize("charset", ["latin1", "koi8r", "ascii"])
def test_another_character_set_is_a_difference(charset: str) -> None:
    found = differences(SOURCE, known({"id": "INT", "name": f"VARCHAR(20) CHARACTER SET {charset}"}))
    assert found == (f"column name is text in utf8mb4, and not text in {charset}",)


@pytest.mark.parametrize(
    "kind",
    [
        "VARCHAR(20)",
        "VARCHAR(9) CHARACTER SET utf8",
        "TEXT CHARACTER SET utf8mb3",
        "CHAR(4) CHARACTER SET utf8mb4",
    ],
)
def test_text_whose_bytes_are_read_alike_is_no_difference(kind: str) -> None:
    assert differences(SOURCE, known({"id": "INT", "name": kind})) == ()


@pytest.mark.parametrize(
    ("source", "log"),
    [
        (NativeType("TINYINT", unsigned=True), "TINYINT"),
        (NativeType("TINYINT"), "TINYINT UNSIGNED"),
        (NativeType("BIGINT"), "INT"),
        (NativeType("BINARY", 5), "BINARY(4)"),
        (NativeType("BINARY", 5), "VARBINARY(5)"),
        (NativeType("DECIMAL", 10, 2), "DECIMAL(10, 3)"),
        (NativeType("DATETIME", 6), "DATETIME(3)"),
        (NativeType("BIT", 9), "BIT(5)"),
        (NativeType("ENUM", labels=("a", "b")), "ENUM('b', 'a')"),
        (NativeType("ENUM", labels=("ü",)), "ENUM('�')"),
        (NativeType("SET", labels=("a", "b")), "SET('a')"),
        (NativeType("JSON"), "YEAR"),
    ],
)
def test_a_type_with_other_values_is_a_difference(source: NativeType, log: str) -> None:
    assert differences(with_type(source), known({"id": "INT", "name": log}))


@pytest.mark.parametrize(
    ("source", "log"),
    [
        (NativeType("TINYINT", unsigned=False), "BOOLEAN"),
        (NativeType("INT", unsigned=True), "INT4 UNSIGNED"),
        (NativeType("INT", unsigned=True), "INT ZEROFILL"),
        (NativeType("BIGINT", unsigned=True), "SERIAL"),
        (NativeType("DECIMAL", 10, 0), "DEC"),
        (NativeType("DECIMAL", 5, 0), "NUMERIC(5)"),
        (NativeType("BIT", 1), "BIT"),
        (NativeType("BINARY", 4), "CHAR(4) CHARACTER SET binary"),
        (NativeType("VARBINARY", 4), "VARCHAR(4) CHARACTER SET binary"),
        (NativeType("BLOB"), "LONG VARBINARY"),
        (NativeType("DATETIME", 3), "DATETIME"),
        (NativeType("GEOMETRYCOLLECTION"), "GEOMCOLLECTION"),
        (NativeType("TIMESTAMP", 6), "TIMESTAMP"),
        (NativeType("ENUM", labels=("it's", "b")), "ENUM('it''s', 'b')"),
    ],
)
def test_another_spelling_of_a_type_is_no_difference(source: NativeType, log: str) -> None:
    assert differences(with_type(source), known({"id": "INT", "name": log})) == ()


def test_null_is_a_difference_only_if_the_connector_would_write_another_value() -> None:
    not_null = replace(SOURCE.columns[1], column=replace(SOURCE.columns[1].column, nullable=False))
    assert differences(replace(SOURCE, columns=(SOURCE.columns[0], not_null)), known()) == ()
    version = known()
    strict = replace(version.schema, columns=(version.schema.columns[0], not_null.column))
    assert differences(SOURCE, replace(version, schema=strict)) == ("column name may be NULL",)


@pytest.mark.parametrize(
    ("default", "fill", "differs"),
    [("Ã¼", "ü", True), ("ü", "ü", False), ("?ü", "🦊ü", False), ("ü", None, False), (None, "ü", False)],
)
def test_another_default_is_a_difference(default: str | None, fill: str | None, *, differs: bool) -> None:
    column, version = replace(SOURCE.columns[1], default=default), known()
    filled = replace(version.schema.columns[1], fill=fill)
    schema = replace(version.schema, columns=(version.schema.columns[0], filled))
    found = differences(replace(SOURCE, columns=(SOURCE.columns[0], column)), replace(version, schema=schema))
    assert bool(found) is differs


def test_another_key_is_a_difference() -> None:
    assert differences(SOURCE, known(key=())) == ("its primary key is (id), and not ()",)
    assert differences(replace(SOURCE, primary=(), unique=frozenset()), known()) == (
        "(id) is not a unique key",
    )


def test_a_unique_key_may_be_the_key_of_a_table_without_a_primary_key() -> None:
    assert differences(replace(SOURCE, primary=()), known()) == ()
    assert differences(replace(SOURCE, primary=()), known(key=())) == ()
