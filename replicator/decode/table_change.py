"""The source's own table definitions, from Debezium's schema-change topic → `TableSchema`.

JSON without schemas says nothing about types, so they come from here. The encodings are those that the connector
template sets up (connectors/): adaptive microsecond times, binary as base64. How decimals are written, events tell.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from replicator.decode import mapping
from replicator.decode.ddl import column_moves, renamed_from
from replicator.errors import DecodeError
from replicator.model.lineage import TableDefinition
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema

_NUMBERS: Final = frozenset({"int", "long", "float", "double", "decimal"})
_WIDE: Final = ("DECIMAL", "DEC", "NUMERIC", "FIXED")
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TIME: Final = re.compile(r"(-?)(\d{1,3}):([0-5]\d):([0-5]\d)(?:\.(\d{1,6}))?")
_COMPUTED: Final = re.compile(r"\b(AS|DEFAULT)\s*\(", re.IGNORECASE)
"""What stands in the DDL of a column whose values are computed; definitions say nothing of it."""
_STRINGS: Final = re.compile(r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*\"""", re.DOTALL)
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
    except (ValueError, KeyError, TypeError) as error:
        raise DecodeError(f"not a schema-change event: {error!r}") from error
    return definitions_of(record)


def definitions_of(record: Mapping[str, Any]) -> list[TableDefinition]:
    """The definitions in a schema change that is parsed already. Raises DecodeError where it is none."""
    try:
        source = record["source"]
        position = SourcePosition(
            source.get("file") or "",
            source.get("pos") or 0,
            0,
            source.get("server_id") or 0,
            source.get("gtid"),
        )
        _ = position.order  # a file name without a number would fail where nobody expects it
        snapshot = str(source.get("snapshot") or "false").lower() not in ("false", "incremental")
        changes = record.get("tableChanges") or []
        return [
            definition
            for change in changes
            for definition in _definitions(
                change, position, source.get("ts_ms") or 0, record.get("ddl"), snapshot=snapshot
            )
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DecodeError(f"not a schema-change event: {error!r}") from error


def _definitions(
    change: Mapping[str, Any], position: SourcePosition, ts_ms: int, ddl: str | None, *, snapshot: bool
) -> list[TableDefinition]:
    """What one change says: of a table, and of its old name where it was renamed.

    Some connectors list both names, others have the new one only.
    """
    names = _table_ids(change["id"])
    table, old = names[-1], names[0] if len(names) > 1 else renamed_from(ddl, names[-1])
    gone = TableDefinition(old or table, position, ts_ms, None, snapshot=snapshot)
    if change["type"] == "DROP" or change.get("table") is None:
        return [gone] if old is None else [gone, replace(gone, table=table)]
    definition = change["table"]
    columns = sorted(definition["columns"], key=lambda c: c["position"])
    key = tuple(definition.get("primaryKeyColumnNames") or ())
    schema = TableSchema(tuple(_column(c, ddl or "") for c in columns), key).without_reserved()
    natives = {c.name: _native(d) for c, d in zip(schema.columns, columns, strict=True)}
    moves = column_moves(ddl, table) if change["type"] == "ALTER" else None
    found = TableDefinition(table, position, ts_ms, schema, moves, natives, old, snapshot)
    return [found] if old is None else [replace(gone, other_name=table), found]


def _native(column: Mapping[str, Any]) -> str:
    """The source's type as one text, such as ``DECIMAL(12, 2)``."""
    numbers = [str(n) for n in (column.get("length"), column.get("scale")) if n is not None]
    name, *attributes = str(column["typeName"]).split(" UNSIGNED")
    size = f"({', '.join(numbers)})" if numbers else ""
    return f"{name}{size}{' UNSIGNED' + ' '.join(attributes) if attributes else ''}"


def table_id(text: str) -> TableId:
    """Read ``"shop"."orders"``, the form that table changes use; a rename lists old and new, the new counts.

    Debezium leaves a name as it is, unquoted, that begins or ends with a quote itself.

    Raises:
        ValueError: the text is no table id.
    """
    return _table_ids(text)[-1]


def _table_ids(text: str) -> list[TableId]:
    """The table, or old and new name of one that was renamed."""
    for comma in re.finditer(",", text):
        try:
            return [_one_id(text[: comma.start()]), _one_id(text[comma.end() :])]
        except ValueError:
            continue
    return [_one_id(text)]


def _one_id(text: str) -> TableId:
    quoted = r'"((?:[^"]|"")*)"'
    if found := re.fullmatch(rf"{quoted}\.{quoted}", text, re.DOTALL):
        return TableId(*(part.replace('""', '"') for part in found.groups()))
    if found := re.fullmatch(rf'("[^.]*|.*")\.{quoted}', text, re.DOTALL):
        return TableId(found[1], found[2].replace('""', '"'))
    if found := re.fullmatch(rf'{quoted}\.(".*|.*")', text, re.DOTALL):
        return TableId(found[1].replace('""', '"'), found[2])
    raise ValueError(f"not a table id: {text}")


def _column(column: Mapping[str, Any], ddl: str) -> Column:
    length, scale = column.get("length"), column.get("scale")
    kind = mapping.declared(str(column["typeName"]), length, scale, column.get("charsetName"))
    lake_type, wire = mapping.stored(kind)
    labels = [_unquoted(label) for label in column.get("enumValues") or ()]
    fill, unknown = _fill(column, kind, lake_type.name, labels, ddl)
    return Column(
        column["name"],
        lake_type,
        wire,
        bool(column.get("optional", True)),
        fill,
        unknown,
        mapping.respelt_labels(labels),
        size=mapping.kept_size(kind),
    )


def _unquoted(label: str) -> str:
    """A label without its quotes; backslashes stay as the DDL has them."""
    if len(label) < 2 or label[0] != label[-1] or label[0] not in "'\"":
        return label
    return label[1:-1].replace(label[0] * 2, label[0])


def _fill(
    column: Mapping[str, Any], kind: mapping.Declared, lake: str, labels: Sequence[str], ddl: str
) -> tuple[str | None, bool]:
    """What rows that are already there get when the column is added; True: only the source knows.

    The default is the text of a literal without the quotes around it, as `ddl` has it.
    """
    if column.get("generated"):
        return None, True
    default = column.get("defaultValueExpression")
    if default is not None:
        constant = _constant(str(default), kind, lake)
        return constant, constant is None
    if (column.get("hasDefaultValue") and not column.get("optional", True)) or _is_computed(
        column["name"], ddl
    ):
        return None, True
    if column.get("optional", True):
        return None, False
    implicit = _implicit(kind, lake, labels)
    return implicit, implicit is None


def _is_computed(name: str, ddl: str) -> bool:
    """Whether `ddl` gives the column an expression, of which definitions say nothing."""
    quoted, bare = re.escape(name.replace("`", "``")), re.escape(name)
    bald = _STRINGS.sub(lambda m: "_" * len(m[0]), ddl)
    found = re.search(rf"(`{quoted}`|(?<![\w$`]){bare}(?![\w$`]))\s", bald, re.IGNORECASE)
    return found is not None and _COMPUTED.search(_clause(bald[found.end() :])) is not None


def _clause(text: str) -> str:
    """The text up to the first comma or closing parenthesis that is outside of parentheses."""
    depth, end = 0, len(text)
    for piece in re.finditer("[(),]", text):
        match piece[0]:
            case "(":
                depth += 1
            case ")" | "," if depth == 0:
                end = piece.start()
                break
            case ")":
                depth -= 1
    return text[:end]


def _implicit(kind: mapping.Declared, lake: str, labels: Sequence[str]) -> str | None:
    """What MySQL puts into a column that allows no NULL and has no default."""
    if kind.name == "ENUM":
        return mapping.unescaped(labels[0]).rstrip(" ")
    match lake:
        case "string" if kind.name == "JSON":
            return None
        case "string":
            return _wide("0", kind) if kind.name in _WIDE else ""
        case "boolean":
            return "false"
        case _ if lake in _NUMBERS:
            return "0"
        case "binary" if kind.name.startswith("VAR") or kind.name.endswith("BLOB"):
            return ""
        case _:
            return None


def _constant(default: str, kind: mapping.Declared, lake: str) -> str | None:
    """A default as text that the lake's type can take; None for one that is no constant of the type."""
    match lake:
        case "string":
            return (
                _wide(default, kind) if kind.name in _WIDE else mapping.unescaped(default.replace("''", "'"))
            )
        case "date" if _DAY.fullmatch(default):
            return default
        case "timestamp" if _CLOCK.fullmatch(default) and default != _NOW:
            return default
        case "boolean":
            return {"1": "true", "TRUE": "true", "0": "false", "FALSE": "false"}.get(default.upper())
        case "long" if kind.name == "TIME":
            return _microseconds(default)
        case "int" if kind.name == "YEAR" and len(default) != 4:
            return None
        case _ if lake in _NUMBERS:
            number = {"TRUE": "1", "FALSE": "0"}.get(default.upper(), default)
            return number if _NUMBER.fullmatch(number) else None
        case _:
            return None


def _wide(number: str, kind: mapping.Declared) -> str | None:
    """A decimal that the lake keeps as text, with all the digits that it has there."""
    return f"{Decimal(number):.{kind.scale or 0}f}" if _NUMBER.fullmatch(number) else None


def _microseconds(text: str) -> str | None:
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    sign, hours, minutes, seconds, fraction = found.groups()
    total = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * 1_000_000
    return f"{sign}{total + int((fraction or '').ljust(6, '0'))}"
