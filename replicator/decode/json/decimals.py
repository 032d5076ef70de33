"""Detect the encoding of decimals in the JSON events of each table from sample events, and remember it.

Kafka Connect's JSON has two encodings, which no schema identifies: a number (``decimal.format=NUMERIC``) or, by
default, the bytes of the unscaled value in base64. With ``decimal.handling.mode=string`` Debezium writes the number as
text. A quoted value may be ambiguous: ``"1234"`` is a number and also base64 of three bytes. So one encoding is
determined for all events of a schema, from unambiguous values.

- Events with schemas: a quoted value is base64, any other a number; text would have another schema.
- Events without schemas: a value that is not a number is base64, a quoted one that is not base64 is text. If all quoted
  values are ambiguous, which is improbable for base64 of several values, they are taken as text.

If all values are numbers of few digits (`Encoding.NUMBER`), a later text is an unreadable value. Otherwise numbers and
their text are read alike (`Encoding.PLAIN`).

If both encodings occur, each value is decoded by its own (`Encoding.EITHER_DECIMAL`). While all
values are null, the encoding remains open (`Encoding.UNSEEN_DECIMAL`). The first value after that causes the whole
batch to be examined again, and so does a value that cannot be read because the connector's settings were changed.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa

from replicator.decode.decoding import WriterSchema
from replicator.decode.json.parser import NO_SCHEMA, fingerprint
from replicator.decode.records import Records
from replicator.errors import DecodeError
from replicator.model.document import Document
from replicator.model.table import Column, TableSchema
from replicator.model.types import DOUBLE_DIGITS, Encoding

NUMBER: Final = r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?"
_IMAGES: Final = ("before", "after")
_DECISIVE: Final = pa.schema([("kind", pa.string()), ("value", pa.binary())])


def undecided(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return the columns whose encoding is not yet known."""
    return tuple(c for c in columns if c.encoding is Encoding.UNSEEN_DECIMAL)


def decimal_encoding_of(
    values: Iterable[bytes], columns: Sequence[Column], *, with_schema: bool, flattened: bool = False
) -> Encoding | None:
    """Return the encoding of `columns` in change events as the log has them; None if no value shows it."""
    names = [c.written for c in columns]
    seen = {
        _kind(found)
        for value in values
        for found in _decimals(value, names, with_schema, flattened)
        if found is not None
    }
    number, text = "number" in seen, "text" in seen
    base64 = bool(seen & {"base64", "text", "both"}) if with_schema else "base64" in seen and not text
    if base64:
        return Encoding.EITHER_DECIMAL if number else Encoding.BASE64_DECIMAL
    if seen == {"number"}:
        return Encoding.NUMBER
    return Encoding.PLAIN if seen else None


def combined(known: Encoding, found: Encoding) -> Encoding:
    """Return the encoding of a log in which both occur."""
    if known is found:
        return found
    return Encoding.PLAIN if {known, found} == {Encoding.PLAIN, Encoding.NUMBER} else Encoding.EITHER_DECIMAL


def with_encoding(schema: TableSchema, encoding: Encoding) -> TableSchema:
    """Return `schema` with `encoding` for the columns whose encoding is not yet known.

    Numbers with more digits than a double has are read as plain values.
    """
    columns = undecided(schema.columns)
    if encoding is not Encoding.NUMBER:
        return schema.with_wire([c.name for c in columns], encoding)
    short = [c.name for c in columns if c.type.name == "decimal" and c.type.precision <= DOUBLE_DIGITS]
    others = [c.name for c in columns if c.name not in short]
    return schema.with_wire(short, encoding).with_wire(others, Encoding.PLAIN)


def _decimals(value: bytes, names: Sequence[str], with_schema: bool, flattened: bool) -> list[Any]:
    try:
        document = Document.parse(value)
        event = document.object("payload") if with_schema else document
    except DecodeError:
        return []
    images = [event.fields] if flattened else [event.get(name) for name in _IMAGES]
    return [image.get(name) for image in images if isinstance(image, Mapping) for name in names]


def _kind(value: Any) -> str:
    if not isinstance(value, str):
        return "number"
    if not re.fullmatch(NUMBER, value):
        return "base64"
    return "text" if len(value) % 4 or "." in value or "-" in value else "both"


def decisive_events(
    records: Records, columns: Sequence[Column], schema_id: int, *, flattened: bool = False
) -> list[bytes]:
    """Return events of a schema that show the encoding of `columns`: one for each kind of value in the records."""
    summary = partial(_first_of_each_kind, tuple(columns), schema_id, flattened)
    found = records.summarized(summary, _DECISIVE)
    return list({row["kind"]: row["value"] for row in found.to_pylist()}.values())


def _first_of_each_kind(
    columns: Sequence[Column], schema_id: int, flattened: bool, records: pa.Table
) -> pa.Table:
    """Return the columns kind and value: the first event with each kind of value, among those of a schema."""
    names, found = [c.written for c in columns], dict[str, bytes]()
    for value in records.column("value").to_pylist():
        if fingerprint(value) == schema_id:
            for number in _decimals(value, names, schema_id != NO_SCHEMA, flattened):
                if number is not None:
                    found.setdefault(_kind(number), value)
    return pa.table({"kind": list(found), "value": list(found.values())}, schema=_DECISIVE)


def undecided_in(writer_schemas: Iterable[WriterSchema]) -> tuple[Column, ...]:
    """Return the columns whose encoding is not yet known in any of the schemas."""
    return tuple({c.written: c for e in writer_schemas for c in undecided(e.schema.columns)}.values())
