"""The Avro schema of a change event → `TableSchema`, and what Spark reads the event with.

Connectors write Kafka Connect's schemas in Avro's form: what Avro has no word for stands in properties such as
``connect.name``. They are translated back into Connect's form here, which `event_schema` reads for JSON too.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from replicator.decode import event_schema
from replicator.errors import DecodeError, UnsupportedChange
from replicator.model.flat import MARKS
from replicator.model.source_block import SOURCE_FIELDS
from replicator.model.table import Column
from replicator.model.types import STRING, TIMESTAMPTZ, Wire

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
_IMAGES: Final = ("before", "after")
_SOURCE: Final = dict(SOURCE_FIELDS)
_TRANSACTION: Final[Mapping[str, str]] = {"total_order": "long"}
_SOURCE_NAME: Final = "__debezium.source.column.name"
"""Parameter of a column whose name had to be changed for Avro: its name in the source."""
_RENAME: Final = "rename one of them, or let the connector write JSON"


@dataclass(frozen=True, slots=True)
class Writer:
    """How events of one writer schema are read.

    Attributes:
        written: the schema that they were written with, as Avro JSON.
        wanted: the part of it that is read.
        defaulted: columns that may be null and have a default all the same.
        marks: the fields of a flattened event that are no columns; None for an envelope.
    """

    written: str
    wanted: str
    defaulted: tuple[str, ...] = ()
    marks: tuple[str, ...] | None = None


def writer_schema(text: str, *, flattened: bool = False) -> tuple[Writer, tuple[Column, ...]]:
    """How to read events written with the Avro schema `text`, and their columns.

    Raises:
        DecodeError: it is not the schema of a Debezium change event.
        UnsupportedChange: it is, but its columns cannot be told apart or read.
    """
    try:
        event = json.loads(text)
        named = _records(event)
        fields = {f["name"]: f for f in event["fields"]}
        row = [f for f in event["fields"] if f["name"] not in MARKS]
        if not flattened:
            row = _resolved(fields["after"]["type"], named)["fields"]
        if "connect.name" not in event:
            raise UnsupportedChange(
                "the writer schema lacks Connect's names of types",
                "set the converter's connect.meta.data to true",
            )
        columns = tuple(_column(f, named) for f in row)
        defaulted = tuple(
            c.name for c, f in zip(columns, row, strict=True) if c.nullable and f.get("default") is not None
        )
        written = _bare(event)
        wanted = written if flattened else _wanted(event, fields, named)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DecodeError("the writer schema is not that of a Debezium change event") from None
    _check_distinct(columns)
    marks = tuple(sorted(MARKS & fields.keys())) if flattened else None
    return Writer(json.dumps(written), json.dumps(wanted), defaulted, marks), columns


def _wanted(
    envelope: Mapping[str, Any], fields: Mapping[str, Any], named: Mapping[str, Any]
) -> dict[str, Any]:
    """The part of an envelope that is read."""
    source = _part(_resolved(fields["source"]["type"], named), _SOURCE)
    wanted = [
        *({"name": n, "type": _bare(fields[n]["type"])} for n in (*_IMAGES, "op") if n in fields),
        {"name": "source", "type": source},
    ]
    transaction = _resolved(fields["transaction"]["type"], named) if "transaction" in fields else None
    if not isinstance(transaction, dict) or transaction.get("type") != "record":
        transaction = {"type": "record", "name": "block", "namespace": "event", "fields": []}
    transaction = _part(transaction, _TRANSACTION)
    wanted.append({"name": "transaction", "type": ["null", transaction], "default": None})
    return {"type": "record", **_name(envelope), "fields": wanted}


def key_names(text: str, columns: Iterable[Column]) -> tuple[str, ...]:
    """The names of the key's columns, out of the Avro schema of a key. Raises DecodeError where it is none."""
    by_written = {c.written: c.name for c in columns}
    try:
        names = [str(f["name"]) for f in json.loads(text)["fields"]]
    except (ValueError, KeyError, TypeError):
        raise DecodeError("the schema of the key is no record of columns") from None
    return tuple(by_written.get(name, name) for name in names)


def adjusted(name: str) -> str:
    """`name` as Debezium changes it where it is none that Avro allows (field.name.adjustment.mode=avro)."""
    letters = [c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name]
    if letters and letters[0].isdigit():
        letters[0] = "_"
    return "".join(letters)


def source_names(columns: Sequence[Column], names: Sequence[str]) -> tuple[Column, ...]:
    """`columns` under their names in the source, which are `names`, where Avro's are adjusted ones.

    Raises:
        UnsupportedChange: two columns of the source have the same name in Avro.
    """
    given = {c.name for c in columns}
    by_adjusted: dict[str, list[str]] = {}
    for name in names:
        if name not in given:
            by_adjusted.setdefault(adjusted(name), []).append(name)
    known = set(names)
    found = []
    for c in columns:
        candidates = [] if c.name in known else by_adjusted.get(c.name, [])
        if len(candidates) > 1:
            raise UnsupportedChange(
                f"the columns {' and '.join(candidates)} are both {c.name} in Avro", _RENAME
            )
        found.append(replace(c, name=candidates[0], renamed_from=c.written) if candidates else c)
    return tuple(found)


def _check_distinct(columns: Sequence[Column]) -> None:
    seen: dict[str, str] = {}
    for c in columns:
        if c.name in seen:
            raise UnsupportedChange(
                f"the fields {seen[c.name]} and {c.written} are both of the column {c.name}", _RENAME
            )
        seen[c.name] = c.written


def _column(field: Mapping[str, Any], named: Mapping[str, Any]) -> Column:
    connect = _connect_field(field, named)
    column = event_schema.column(connect)
    wire = column.wire
    if wire in (Wire.UNSEEN_DECIMAL, Wire.EITHER_DECIMAL):
        wire = Wire.BASE64_DECIMAL
    elif column.type == TIMESTAMPTZ and connect["type"] == "string":
        wire = Wire.INSTANT_TEXT
    elif column.type == STRING and connect["type"] in _NESTED:
        wire = Wire.NESTED
    name = connect["parameters"].get(_SOURCE_NAME, column.name)
    if not isinstance(name, str):
        raise TypeError("a column's name is text")
    if name != column.name:
        return replace(column, name=name, wire=wire, renamed_from=column.name)
    return replace(column, wire=wire)


def _connect_field(field: Mapping[str, Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """An Avro field in Kafka Connect's JSON form."""
    branches = field["type"] if isinstance(field["type"], list) else [field["type"]]
    values = [branch for branch in branches if branch != "null"]
    if len(values) != 1:
        raise UnsupportedChange(
            f"column {field['name']} may be of several types",
            "let the connector write one type for each column",
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
    """Full name → definition of every named type in an Avro schema."""
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
    """A type itself, without null beside it and not just its name."""
    if isinstance(kind, list):
        (kind,) = (branch for branch in kind if branch != "null")
    if isinstance(kind, dict) and isinstance(kind["type"], dict):
        kind = kind["type"]
    return named.get(kind, kind) if isinstance(kind, str) else kind


def _name(schema: Mapping[str, Any]) -> dict[str, str]:
    return {part: schema[part] for part in ("name", "namespace") if part in schema}


def _bare(schema: Any) -> Any:
    """A schema without properties, defaults and logical types: how bytes are laid out, and nothing else."""
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


def _part(record: Mapping[str, Any], names: Mapping[str, str]) -> Any:
    """A record with some of its fields (name → type); those that it does not have are null."""
    bare = _bare(record)
    there = {f["name"]: f for f in bare["fields"]}
    absent = {name: {"name": name, "type": ["null", kind], "default": None} for name, kind in names.items()}
    return bare | {"fields": [there.get(name, absent[name]) for name in names]}
