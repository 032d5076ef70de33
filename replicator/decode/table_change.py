"""The source's own table definitions, from Debezium's schema-change topic → `TableSchema`.

JSON without schemas says nothing about types, so they come from here. The encodings are those that the connector
template sets up (connectors/): adaptive microsecond times, binary as base64. How decimals are written, events tell.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from replicator.errors import DecodeError
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema, respelt_labels
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
    LakeType,
    Wire,
    decimal_column,
)


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """How a table was defined from `position` on; `schema` is None where it was dropped there."""

    table: TableId
    position: SourcePosition
    ts_ms: int
    schema: TableSchema | None
    ddl: str | None = None


_PLAIN: Final[Mapping[str, LakeType]] = {
    "TINYINT": INT,
    "BOOL": INT,
    "BOOLEAN": INT,
    "SMALLINT": INT,
    "MEDIUMINT": INT,
    "INT": INT,
    "INTEGER": INT,
    "BIGINT": LONG,
    "YEAR": INT,
    "DOUBLE": DOUBLE,
    "DOUBLE PRECISION": DOUBLE,
    "REAL": DOUBLE,
    "TIMESTAMP": TIMESTAMPTZ,
    "TIME": LONG,
}
_BYTES: Final = frozenset({"BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"})
_DECIMALS: Final = frozenset({"DECIMAL", "DEC", "NUMERIC", "FIXED"})
_ATTRIBUTES: Final = re.compile(r"\s+(SIGNED|ZEROFILL|BINARY)\b")
_NUMBERS: Final = frozenset({"int", "long", "float", "double", "decimal"})
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_CLOCK: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)?")
_NOW: Final = "1970-01-01 00:00:00"
"""What connectors write for a default of CURRENT_TIMESTAMP or NOW(); the constant itself looks the same."""


def table_definitions(value: bytes) -> list[TableDefinition]:
    """The definitions in one record of the schema-change topic, with or without an embedded schema.

    Raises:
        DecodeError: the record is no schema change.
    """
    try:
        document = json.loads(value)
        record = document["payload"] if "payload" in document and "schema" in document else document
        source = record["source"]
        position = SourcePosition(
            source.get("file") or "",
            source.get("pos") or 0,
            0,
            source.get("server_id") or 0,
            source.get("gtid"),
        )
        _ = position.order  # a file name without a number would fail where nobody expects it
        changes = record.get("tableChanges") or []
        return [
            _definition(change, position, source.get("ts_ms") or 0, record.get("ddl")) for change in changes
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DecodeError(f"not a schema-change event: {error!r}") from error


def _definition(
    change: Mapping[str, Any], position: SourcePosition, ts_ms: int, ddl: str | None
) -> TableDefinition:
    table = table_id(change["id"])
    if change["type"] == "DROP" or change.get("table") is None:
        return TableDefinition(table, position, ts_ms, None, ddl)
    definition = change["table"]
    columns = sorted(definition["columns"], key=lambda c: c["position"])
    key = tuple(definition.get("primaryKeyColumnNames") or ())
    schema = TableSchema(tuple(_column(c) for c in columns), key).without_reserved()
    return TableDefinition(table, position, ts_ms, schema, ddl)


def table_id(text: str) -> TableId:
    """Read ``"shop"."orders"``, the form that table changes use; a rename lists old and new, the new counts.

    Raises:
        ValueError: the text is no table id.
    """
    parts = [part.replace('""', '"') for part in re.findall(r'"((?:[^"]|"")*)"', text)]
    if len(parts) < 2:
        raise ValueError(f"not a table id: {text}")
    return TableId(parts[-2], parts[-1])


def _column(column: Mapping[str, Any]) -> Column:
    lake_type, wire = column_types(str(column["typeName"]), column.get("length"), column.get("scale"))
    fill, unknown = _fill(column, lake_type)
    nullable = bool(column.get("optional", True))
    labels = [_unquoted(label) for label in column.get("enumValues") or ()]
    respelt = respelt_labels(labels) if column["typeName"].upper() == "ENUM" else ()
    return Column(column["name"], lake_type, wire, nullable, fill, unknown, respelt)


def _unquoted(label: str) -> str:
    return label[1:-1] if len(label) > 1 and label[0] == label[-1] == "'" else label


def _fill(column: Mapping[str, Any], lake_type: LakeType) -> tuple[str | None, bool]:
    """What rows that are already there get when the column is added; True: only the source knows.

    The default is a constant without its quotes. One that is calculated is null, with `hasDefaultValue` set.
    """
    if column.get("generated"):
        return None, True
    default = column.get("defaultValueExpression")
    if default is not None:
        constant = _constant(str(default), lake_type)
        return constant, constant is None
    if column.get("optional", True):
        return None, False
    if column.get("hasDefaultValue"):
        return None, True
    if column["typeName"].upper() == "ENUM":
        return _unquoted(str(column["enumValues"][0])), False
    implicit = "" if lake_type.name == "string" else "0" if lake_type.name in _NUMBERS else None
    return implicit, implicit is None


def _constant(default: str, lake_type: LakeType) -> str | None:
    """A default as text that the lake's type can take; None for one that is no constant of the type."""
    match lake_type.name:
        case "string":
            return default
        case "date" if _DAY.fullmatch(default):
            return default
        case "timestamp" if _CLOCK.fullmatch(default) and default != _NOW:
            return default
        case name if name in _NUMBERS:
            number = {"TRUE": "1", "FALSE": "0"}.get(default.upper(), default)
            return number if _NUMBER.fullmatch(number) else None
        case _:
            return None


def column_types(  # noqa: PLR0911 one return for each group of types
    type_name: str, length: int | None, scale: int | None
) -> tuple[LakeType, Wire]:
    """Lake type and wire encoding of a MySQL type such as ``BIGINT UNSIGNED``.

    What is not known is kept as text.
    """
    name = _ATTRIBUTES.sub("", type_name.upper().strip())
    unsigned = name.endswith(" UNSIGNED")
    base = name.removesuffix(" UNSIGNED")
    if base in ("INT", "INTEGER") and unsigned:
        return LONG, Wire.PLAIN
    if base == "BIGINT" and unsigned:
        return decimal_column(20, 0)
    if base in _PLAIN:
        return _PLAIN[base], Wire.PLAIN
    if base in _DECIMALS:
        return decimal_column(length or 10, scale or 0)
    if base in _BYTES:
        return BINARY, Wire.PLAIN
    match base:
        case "FLOAT":
            # FLOAT(25) and up is a DOUBLE in MySQL.
            return (DOUBLE if scale is None and (length or 0) > 24 else FLOAT), Wire.PLAIN
        case "DATE":
            return DATE, Wire.DAYS
        case "DATETIME":
            return TIMESTAMP, Wire.MICROS if (length or 0) > 3 else Wire.MILLIS
        case "BIT":
            return (BOOLEAN, Wire.PLAIN) if (length or 1) == 1 else (BINARY, Wire.BASE64_BITS)
        case _:
            return STRING, Wire.PLAIN
