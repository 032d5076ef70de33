"""Parse change events in JSON to columns, with DuckDB's parser.

Each value of a row is read as a token: the text of the JSON value, so that a quoted number differs from a bare one. The
parser passes numbers with a fraction through a double, which keeps 15 digits of a decimal; numbers of columns with more
digits are therefore quoted before, with the prefix `BARE`.

An event that is not JSON does not spoil the others: they are parsed again without it.

Facts of the format: Debezium's MySQL connector documentation, "Data change events".
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from replicator.decode.decoding import Decoding, WriterSchema
from replicator.decode.json.duck import queried, queried_objects, texts_of
from replicator.decode.json.tokens import BARE, as_integers, is_quoted_before, is_text, unbare, wire_values
from replicator.decode.parsed import SOURCE_TYPES, ParsedEvents, ParsedRow, Sources, unflattened
from replicator.decode.transforms import is_blank
from replicator.decode.values import is_wide, wire_type
from replicator.errors import DecodeError
from replicator.model.batch_stats import UNKNOWN_SCHEMA
from replicator.model.common import hash_of
from replicator.model.table import Column, TableSchema

NO_SCHEMA: Final = 0
"""The schema id of events that carry no schema."""

SCHEMA_START: Final = '{"schema":'
"""The first bytes of events that carry their schema, as text."""

_PAYLOAD: Final = '"payload":'
_NOT_JSON: Final = "not JSON of the table's schema"
_ANY: Final = "JSON"
"""The type of a token."""

_TEXT: Final = "VARCHAR"
_NO_TEXT: Final = pa.scalar(None, pa.string())


def schema_prefix(value: bytes) -> str:
    """Return an event's text up to its payload, which is the same for all events of its schema.

    Raises:
        DecodeError: the event has no payload, or its schema is not in UTF-8.
    """
    schema, payload, _ = value.partition(_PAYLOAD.encode())
    if not payload:
        raise DecodeError("the event has no payload")
    try:
        return (schema + payload).decode()
    except UnicodeDecodeError:
        raise DecodeError("the event's schema is not in UTF-8") from None


def fingerprint(value: bytes) -> int:
    """Return the id of the schema in a JSON event: a hash of it, or `NO_SCHEMA`.

    The text up to the payload is the schema, byte by byte the same in all events of one schema. The key ``"payload":``
    cannot occur inside it, because quotes in labels and defaults are escaped.
    """
    if not value.startswith(SCHEMA_START.encode()):
        return NO_SCHEMA
    return _hash(value.partition(_PAYLOAD.encode())[0])


_hash = lru_cache(64)(hash_of)
"""Events of one schema follow each other."""


@dataclass(frozen=True, slots=True)
class JsonParser:
    """The `EventParser` of JSON; `flattened` events are rows and not envelopes; see `model.events`."""

    flattened: bool = False

    def schema_ids(self, values: pa.BinaryArray) -> pa.Int64Array:
        return pa.array(map(fingerprint, values.to_pylist()), pa.int64(), size=len(values))

    def belongs(self, values: pa.BinaryArray, writer_schema: WriterSchema) -> pa.BooleanArray:
        prefix = writer_schema.schema_prefix
        return pc.starts_with(values, prefix) if prefix else pc.invert(pc.starts_with(values, SCHEMA_START))

    def sources(self, values: pa.BinaryArray) -> Sources:
        prefix = "__source_" if self.flattened else ""
        fields = _source_structure(prefix)
        block = fields if self.flattened else {"source": fields}
        events, _ = _transformed(texts_of(_without_schema(values)), {**block, "payload": block})
        outer, inner = (
            _sources(event if self.flattened else pc.struct_field(event, "source"), prefix)
            for event in (events, pc.struct_field(events, "payload"))
        )
        return {name: pc.coalesce(outer[name], inner[name]) for name in outer}

    def parse(self, values: pa.BinaryArray, writer_schema: WriterSchema, decoding: Decoding) -> ParsedEvents:
        columns = writer_schema.schema.columns
        before = writer_schema.before_columns(for_changelog=decoding.for_changelog)
        texts = _with_quoted_numbers(texts_of(_payloads(values, writer_schema.schema_prefix)), columns)
        verdict = self.unreadable(writer_schema.schema, decoding)
        if self.flattened:
            return _flat_events(texts, columns, verdict)
        return _events(texts, columns, before, verdict)

    def unknown(self, values: pa.BinaryArray, decoding: Decoding) -> pa.StringArray:
        return pa.repeat(decoding.undecodable, len(values))

    def unreadable(self, schema: TableSchema, decoding: Decoding) -> str:
        # The encoding of decimals may have changed; then the batch must be examined again.
        doubtful = any(c.type.name == "decimal" or is_wide(c) for c in schema.columns)
        return UNKNOWN_SCHEMA if doubtful and decoding.undecodable == UNKNOWN_SCHEMA else _NOT_JSON


def _payloads(values: pa.BinaryArray, prefix: str) -> pa.BinaryArray:
    """Return events without their schema, which ends with `prefix`; the last byte closes schema and payload."""
    return pc.binary_slice(values, len(prefix.encode()), -1) if prefix else values


def _without_schema(values: pa.BinaryArray) -> pa.BinaryArray:
    """Return events without their schema, if all have the same: most of such an event is its schema."""
    first = values[0].as_py() if len(values) else None
    if not first or not first.startswith(SCHEMA_START.encode()):
        return values
    try:
        prefix = schema_prefix(first)
    except DecodeError:
        return values
    return _payloads(values, prefix) if pc.all(pc.starts_with(values, prefix)).as_py() else values


def _events(
    texts: pa.StringArray, columns: Sequence[Column], before_columns: Sequence[Column], verdict: str
) -> ParsedEvents:
    structure = {
        "before": _row_structure(before_columns),
        "after": _row_structure(columns),
        "source": _source_structure(),
        "op": _TEXT,
        "transaction": {"total_order": _ANY},
    }
    events, broken = _transformed(texts, structure)
    before, lost_before = _row(events.field("before"), before_columns)
    after, lost_after = _row(events.field("after"), columns)
    damaged = [broken, lost_before, lost_after]
    damaged += [_is_no_object(texts, row, name) for name, row in (("before", before), ("after", after))]
    return ParsedEvents(
        pc.struct_field(events, "op"),
        _sources(events.field("source")),
        as_integers(unbare(pc.struct_field(events, ["transaction", "total_order"])), pa.int64()),
        before,
        after,
        pc.if_else(reduce(pc.or_, damaged), verdict, _NO_TEXT),
    )


def _flat_events(texts: pa.StringArray, columns: Sequence[Column], verdict: str) -> ParsedEvents:
    prefix = "__source_"
    structure = {
        **_row_structure(columns),
        **_source_structure(prefix),
        "__op": _TEXT,
        "__deleted": _TEXT,
    }
    events, broken = _transformed(texts, structure)
    row, lost = _row(events, columns)
    op, deleted = (pc.struct_field(events, name) for name in ("__op", "__deleted"))
    error = pc.if_else(pc.or_(broken, lost), verdict, _NO_TEXT)
    return unflattened(op, deleted, _sources(events, prefix), row.values, error)


def _row_structure(columns: Sequence[Column]) -> dict[str, str]:
    # DuckDB has no struct without fields.
    return {c.written: _TEXT if is_text(c) else _ANY for c in columns if not is_blank(c)} or {"": _ANY}


def _source_structure(prefix: str = "") -> dict[str, str]:
    kinds = {name: _TEXT if pa.types.is_string(kind) else _ANY for name, kind in SOURCE_TYPES.items()}
    return {f"{prefix}{name}": kind for name, kind in kinds.items()}


def _with_quoted_numbers(texts: pa.StringArray, columns: Iterable[Column]) -> pa.StringArray:
    """Quote the numbers of columns whose digits a double does not hold, wherever a field has such a column's name.

    Only a field's name can match: inside a text, a quotation mark has a backslash before it.
    """
    for column in filter(is_quoted_before, columns):
        name = re.escape(json.dumps(column.written, ensure_ascii=False))
        pattern = rf"([{{,]\s*{name}\s*:\s*)(-?\d[-+.\deE]*)"
        texts = pc.replace_substring_regex(texts, pattern, rf'\1"{BARE}\2"')
    return texts


def _transformed(
    texts: pa.StringArray, structure: Mapping[str, Any]
) -> tuple[pa.StructArray, pa.BooleanArray]:
    """Return the fields of `structure` in each text, and whether a text is something else than a JSON object."""
    wanted = json.dumps(structure, ensure_ascii=False)
    found, _, objects = queried_objects("json_transform(text, ?)", texts, wanted)
    return found, pc.invert(objects)


def _row(image: pa.StructArray, columns: Sequence[Column]) -> tuple[ParsedRow, pa.BooleanArray]:
    """Return an image, and whether it has a value that cannot be read."""
    values, lost = {}, pa.repeat(pa.scalar(value=False), len(image))
    for column in columns:
        if is_blank(column):
            values[column.written] = pa.nulls(len(image), wire_type(column))
            continue
        tokens = pc.struct_field(image, column.written)
        values[column.written] = found = wire_values(tokens, column)
        lost = pc.or_(lost, pc.and_(pc.is_valid(tokens), pc.is_null(found)))
    return ParsedRow(pc.is_valid(image), values), lost


def _is_no_object(texts: pa.StringArray, row: ParsedRow, name: str) -> pa.BooleanArray:
    """Return whether an image is present and no object: the parser returns a row of nulls for it."""
    empty = reduce(pc.and_, [row.present, *map(pc.is_null, row.values.values())])
    if not pc.any(empty).as_py():
        return empty
    kinds = queried("json_type(text, ?)", pc.if_else(empty, texts, "{}"), f"$.{name}")
    return pc.fill_null(pc.not_equal(kinds, "OBJECT"), fill_value=False)


def _sources(block: pa.StructArray, prefix: str = "") -> Sources:
    found = {name: pc.struct_field(block, f"{prefix}{name}") for name in SOURCE_TYPES}
    return {
        name: values if pa.types.is_string(kind) else as_integers(unbare(values), kind)
        for (name, kind), values in zip(SOURCE_TYPES.items(), found.values(), strict=True)
    }
