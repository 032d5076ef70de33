"""Parse the Avro schema of a change event, untrusted and within limits, to its columns.

Connectors translate Kafka Connect's schemas to Avro; properties such as ``connect.name`` keep what Avro cannot express.
This module translates them back to Connect's form, which `connect_schema` also reads for JSON.
"""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from replicator.decode import connect_schema
from replicator.errors import DecodeError, UnsupportedChange
from replicator.model.document import DEEPEST, Document, is_deep, parse_json, shown
from replicator.model.events import METADATA_FIELDS, adjusted, may_be_adjusted
from replicator.model.table import Column
from replicator.model.types import STRING, TIMESTAMPTZ, Encoding
from replicator.schema.types import mysql as mapping

_MOST_PARTS: Final = 100_000
_LONGEST: Final = 1 << 31
UNREADABLE: Final = (
    ValueError,
    ArithmeticError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    MemoryError,
    RecursionError,
)
"""Exceptions that fastavro raises for invalid schemas and for bytes that do not fit their schema."""


def checked_schema(schema: Any) -> Any:
    """Parse an Avro schema (parsed JSON) with fastavro, if its records can be read within limits.

    Recursive types may be nested without limit, nested types multiply the number of values, and an array whose entries
    take no bytes may have any number of them. With such schemas fastavro would crash the process or never return.

    Raises:
        DecodeError: it is not an Avro schema, or exceeds these limits.
    """
    if is_deep(schema):
        raise DecodeError("Avro schema has too many levels")
    try:
        parsed = fastavro.parse_schema(schema)
    except (SchemaParseException, UnknownType, *UNREADABLE) as error:
        raise DecodeError(f"not an Avro schema: {shown(error)}") from None
    _Measure().size(parsed)
    return parsed


def read_record(schema: str, body: bytes) -> dict[str, Any]:
    """Read a record that was written with the Avro schema `schema`.

    Raises:
        DecodeError: the schema is not accepted, or the record cannot be read.
    """
    parsed = checked_schema(parse_json(schema))
    try:
        record = fastavro.schemaless_reader(io.BytesIO(body), parsed, None)
    except UNREADABLE as error:
        raise DecodeError(f"not Avro of its writer schema: {shown(error)}") from None
    if not isinstance(record, dict):
        raise DecodeError("not an event: the value is not an Avro record")
    return record


@dataclass(frozen=True, slots=True)
class _Size:
    """The size of a type's values: minimum bytes (`least`, 0 or 1), total number of values (`parts`), nesting depth."""

    least: int = 1
    parts: int = 1
    levels: int = 1


class _Measure:
    """Measure the types of a schema that fastavro has parsed."""

    def __init__(self) -> None:
        self._named: dict[str, _Size] = {"null": _Size(least=0)}

    def size(self, schema: Any, inside: tuple[str, ...] = ()) -> _Size:
        """Return the size of a type that is nested in the records `inside`.

        Raises:
            DecodeError: see `checked_schema`.
        """
        if isinstance(schema, str):
            if schema in inside:
                raise DecodeError(f"Avro type {schema} is recursive")
            return self._named.get(schema, _Size())
        if isinstance(schema, list):
            return replace(self._together(schema, inside), least=1)
        match kind := schema["type"]:
            case "record" | "error":
                name = schema["name"]
                _check_names([f["name"] for f in schema["fields"]])
                found = self._together([f["type"] for f in schema["fields"]], (*inside, name))
                return self._named.setdefault(name, found)
            case "array" | "map":
                entry = self.size(schema["items" if kind == "array" else "values"], inside)
                if kind == "array" and not entry.least:
                    raise DecodeError("Avro array has entries that take no bytes")
                return _Size(1, entry.parts + 1, entry.levels + 1)
            case "fixed":
                if type(schema["size"]) is not int or not 0 <= schema["size"] < _LONGEST:
                    raise DecodeError("Avro type fixed has an invalid size")
                return self._named.setdefault(schema["name"], _Size(min(schema["size"], 1)))
            case "enum":
                return _Size()
            case _:
                return self.size(kind, inside)

    def _together(self, schemas: Iterable[Any], inside: tuple[str, ...]) -> _Size:
        sizes = [self.size(schema, inside) for schema in schemas]
        found = _Size(
            max((s.least for s in sizes), default=0),
            1 + sum(s.parts for s in sizes),
            1 + max((s.levels for s in sizes), default=0),
        )
        if found.parts > _MOST_PARTS or found.levels > DEEPEST:
            raise DecodeError(f"Avro schema has more than {_MOST_PARTS} parts or {DEEPEST} levels")
        return found


def _check_names(names: Sequence[Any]) -> None:
    """Check field names as Java's Avro library does, with which connectors write events.

    Raises:
        DecodeError: a name is invalid or repeated.
    """
    for name in names:
        if not isinstance(name, str) or not name.replace("_", "a").isalnum() or name[0].isdigit():
            raise DecodeError("Avro record has a field with an invalid name")
    if len(set(names)) < len(names):
        raise DecodeError("Avro record has two fields with the same name")


_PRIMITIVES: Final[Mapping[str, str]] = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "enum": "string",
    "fixed": "bytes",
    "record": "struct",
    "array": "array",
    "map": "map",
}
_NESTED: Final = frozenset({"struct", "array", "map"})
_NO_EVENT: Final = "the writer schema is not that of a Debezium change event"
_RENAME: Final = "rename one of them, or configure the connector to write JSON"


@dataclass(frozen=True, slots=True)
class Writer:
    """How events of one writer schema are read.

    Attributes:
        written: what determines the layout of the bytes, as Avro JSON.
        defaulted: nullable columns that have a default.
        flattened: whether events are rows and not envelopes; see `model.events`.
    """

    written: str
    defaulted: tuple[str, ...] = ()
    flattened: bool = False


def parse_writer_schema(text: str, *, flattened: bool = False) -> tuple[Writer, tuple[Column, ...]]:
    """Parse the writer schema `text` of events, and its columns.

    Raises:
        DecodeError: it is not the schema of a Debezium change event.
        UnsupportedChange: it is one, but its columns cannot be distinguished or read.
    """
    try:
        event = parse_json(text)
    except DecodeError as error:
        raise DecodeError(f"{_NO_EVENT}: {error.message}") from None
    try:
        named = _records(event)
        fields = {f["name"]: f for f in event["fields"]}
        row = [f for f in event["fields"] if f["name"] not in METADATA_FIELDS]
        if not flattened:
            row, _ = (_resolved(fields[name]["type"], named)["fields"] for name in ("after", "source"))
        if "connect.name" not in event:
            raise UnsupportedChange(
                "the writer schema lacks Kafka Connect's type names",
                "set the converter's connect.meta.data to true",
            )
        columns = tuple(_column(f, named) for f in row)
        defaulted = tuple(
            c.name for c, f in zip(columns, row, strict=True) if c.nullable and f.get("default") is not None
        )
        written = _bare(event)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DecodeError(_NO_EVENT) from None
    if not isinstance(written, dict) or written["type"] != "record":
        raise DecodeError(_NO_EVENT)
    checked_schema(written)
    _check_distinct(columns)
    mapping.check_columns(columns)
    return Writer(json.dumps(written), defaulted, flattened), columns


def key_names(text: str, columns: Iterable[Column]) -> tuple[str, ...]:
    """Return the names of the key columns from the Avro schema of a key.

    Raises:
        DecodeError: it is not the schema of a key.
    """
    by_written = {c.written: c.name for c in columns}
    try:
        fields = Document.parse(text).objects("fields", mapping.MOST_COLUMNS)
        names = [field.text("name", mapping.LONGEST_NAME) for field in fields]
    except DecodeError:
        raise DecodeError("the schema of the key is not a record of columns") from None
    return tuple(by_written.get(name, name) for name in names)


def source_names(columns: Sequence[Column], definitions: Sequence[Sequence[str]]) -> tuple[Column, ...]:
    """Return `columns` with their names in the source, if `definitions` determine them.

    `definitions` are the column names of schema versions; the first is the version of the events.

    Raises:
        UnsupportedChange: two columns of that version have the same name in Avro.
    """
    return tuple(c if c.source_known else _source_name(c, definitions) for c in columns)


def _source_name(column: Column, definitions: Sequence[Sequence[str]]) -> Column:
    for number, names in enumerate(definitions):
        if column.name in names:
            return replace(column, source_known=True)
        candidates = [name for name in names if adjusted(name) == column.name]
        if len(candidates) > 1 and number == 0:
            raise UnsupportedChange(
                f"columns {' and '.join(candidates)} have the same name in Avro, {column.name}", _RENAME
            )
        if len(candidates) == 1:
            return _named(column, candidates[0])
    return column


def _named(column: Column, name: str) -> Column:
    """Return `column` with the name `name` in the source."""
    written = column.written
    if name == written:
        return replace(column, source_known=True)
    return replace(column, name=name, renamed_from=written, source=name, source_known=True)


def _check_distinct(columns: Sequence[Column]) -> None:
    seen: dict[str, str] = {}
    for c in columns:
        if c.name in seen:
            raise UnsupportedChange(
                f"fields {seen[c.name]} and {c.written} have the same column name, {c.name}", _RENAME
            )
        seen[c.name] = c.written


def _column(field: Mapping[str, Any], named: Mapping[str, Any]) -> Column:
    connect = _connect_field(field, named)
    column = replace(connect_schema.column(Document(connect)), source=None)
    encoding = column.encoding
    if encoding in (Encoding.UNSEEN_DECIMAL, Encoding.EITHER_DECIMAL):
        encoding = Encoding.BASE64_DECIMAL
    elif column.type == TIMESTAMPTZ and connect["type"] == "string":
        encoding = Encoding.INSTANT_TEXT
    elif column.type == STRING and connect["type"] in _NESTED:
        encoding = Encoding.NESTED
    column = replace(column, encoding=encoding)
    if (name := connect_schema.source_name(Document(connect))) is None:
        return replace(column, source_known=not may_be_adjusted(column.name))
    return _named(column, name)


def _connect_field(field: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Translate an Avro field to Kafka Connect's JSON form.

    Raises:
        UnsupportedChange: the field is a union of several types.
    """
    branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
    values = [branch for branch in branches if branch != "null"]
    if len(values) != 1:
        raise UnsupportedChange(
            f"column {field['name']} is a union of several types",
            "configure the connector to write one type for each column",
        )
    kind = _resolved(values[0], named)
    kind = kind if isinstance(kind, dict) else {"type": kind}
    return {
        "field": field["name"],
        "type": kind.get("connect.type") or _PRIMITIVES[kind["type"]],
        "optional": len(values) < len(branches),
        "name": kind.get("connect.name"),
        "parameters": kind.get("connect.parameters", {}),
    }


def _records(schema: Any, space: str = "") -> dict[str, Any]:
    """Return full name → definition of every named type in an Avro schema."""
    if isinstance(schema, list):
        return {name: found for part in schema for name, found in _records(part, space).items()}
    if not isinstance(schema, dict):
        return {}
    if isinstance(schema.get("type"), dict | list):
        return _records(schema["type"], space)
    found: dict[str, Any] = {}
    if "name" in schema and schema["type"] in ("record", "enum", "fixed"):
        space = schema.get("namespace", space)
        found[f"{space}.{schema['name']}"] = schema
        found.setdefault(schema["name"], schema)
    for field in schema.get("fields", ()):
        found |= _records(field["type"], space)
    return found | _records(schema.get("items"), space) | _records(schema.get("values"), space)


def _resolved(kind: Any, named: Mapping[str, Any]) -> Any:
    """Return the definition of a type: the named type itself, and of a union with null the other branch."""
    if isinstance(kind, list):
        (kind,) = (branch for branch in kind if branch != "null")
    if isinstance(kind, dict) and isinstance(kind["type"], dict):
        kind = kind["type"]
    return named.get(kind, kind) if isinstance(kind, str) else kind


def _name(schema: Mapping[str, Any]) -> dict[str, str]:
    return {part: schema[part] for part in ("name", "namespace") if part in schema}


def _bare(schema: Any) -> Any:
    """Return a schema without properties, defaults and logical types, which determines only the layout of bytes."""
    if isinstance(schema, list):
        return [_bare(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    if isinstance(schema["type"], dict | list):
        return _bare(schema["type"])
    if schema["type"] in _PRIMITIVES and not schema.keys() & {"name", "items", "values"}:
        return schema["type"]
    bare = {"type": schema["type"], **_name(schema)}
    bare |= {part: schema[part] for part in ("symbols", "size") if part in schema}
    bare |= {part: _bare(schema[part]) for part in ("items", "values") if part in schema}
    if "fields" in schema:
        bare["fields"] = [{"name": f["name"], "type": _bare(f["type"])} for f in schema["fields"]]
    return bare
