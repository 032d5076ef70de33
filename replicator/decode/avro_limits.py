"""Untrusted Avro schemas and records, read within limits."""

import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from replicator.errors import DecodeError
from replicator.model.document import DEEPEST, is_deep, parse_json, shown

_MOST_PARTS: Final = 100_000
_UNREADABLE: Final = (
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
    except (SchemaParseException, UnknownType, *_UNREADABLE) as error:
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
    except _UNREADABLE as error:
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
    """Check field names as Java's Avro reader does, with which Spark reads events.

    Raises:
        DecodeError: a name is invalid or repeated.
    """
    for name in names:
        if not isinstance(name, str) or not name.replace("_", "a").isalnum() or name[0].isdigit():
            raise DecodeError("Avro record has a field with an invalid name")
    if len(set(names)) < len(names):
        raise DecodeError("Avro record has two fields with the same name")
