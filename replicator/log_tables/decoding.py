"""Decode records to rows of a log table: on the driver, or in Spark's Python workers. Pure: no lake, no log.

An event that cannot be read, or has a value that its column cannot hold, is bad: it has a reason instead of a row.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from replicator.arrow_types import arrow_type
from replicator.config.log_tables import TEXT_COLUMN, LogFormat, LogPolicy
from replicator.decode.records import values_of
from replicator.log_tables import avro_events, json_events
from replicator.log_tables.avro_events import Writers
from replicator.log_tables.lines import parse_csv, parse_text
from replicator.log_tables.parsed import ParsedEvents, Values
from replicator.log_tables.texts import converted, json_text
from replicator.model.shapes import MOST_FIELDS, Path, Shape, lacking, merged, paths, unfit_name, unknown
from replicator.model.types import STRING, LakeType

_NO_TEXT: Final = pa.scalar(None, pa.string())
_SHOWN: Final = 5
_EACH: Final = 20
"""Up to this number of fields without a column, the reason names the one that an event has."""

BAD: Final = pa.schema(
    [
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("raw_key", pa.binary()),
        ("raw_value", pa.binary()),
        ("bad", pa.string()),
    ]
)
"""Bad events, as the quarantine takes them."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """Decoded records.

    Attributes:
        rows: those of good events, with the columns of the table.
        bad: the others; see `BAD`.
        unknown: the fields that are no columns, if the policy must know them.
        writers: the ids of writer schemas that must be looked up before the records can be decoded.
    """

    rows: pa.Table
    bad: pa.Table
    unknown: Shape = field(default_factory=dict)
    writers: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class LogDecoding:
    """How the records of a log table are decoded. It can be pickled.

    Attributes:
        shape: the columns of the table that come from events.
        record: column → what of the record it has, and its type.
        nested: whether nested records become columns of structs when they are learnt.
        writers: the writer schemas of events in Avro.
    """

    format: LogFormat
    policy: LogPolicy
    shape: Shape
    record: Mapping[str, LakeType]
    nested: bool = True
    delimiter: str = ","
    writers: Writers = field(default_factory=dict)

    def decode(self, records: pa.Table) -> Decoded:
        """Decode records: partition, offset, timestamp (ms), key, value, and headers if they are wanted."""
        values = values_of(records)
        if unread := self.unread_writers(values):
            # Without the columns of records: those of the table may have the same names.
            return Decoded(records.slice(0, 0).select([]), BAD.empty_table(), writers=unread)
        parsed = self._parse(values)
        found = self.unknown(values, parsed)
        columns, reason = self._columns(parsed, len(values))
        reason = self._refused(values, found, reason)
        is_bad = pc.is_valid(reason)
        rows = pa.table({**columns, **self._record_columns(records)})
        if not pc.any(is_bad).as_py():
            return Decoded(rows, BAD.empty_table(), found)
        bad = pa.table(
            [
                *(records.column(name) for name in ("partition", "offset", "timestamp", "key", "value")),
                reason,
            ],
            schema=BAD,
        )
        return Decoded(rows.filter(pc.invert(is_bad)), bad.filter(is_bad), found)

    def unknown(self, values: pa.BinaryArray, parsed: ParsedEvents | None = None) -> Shape:
        """Return the fields that are no columns; none if they are left out. `parsed` are the others, if known."""
        if self.policy == "discard":
            return {}
        if self.format == "avro":
            return lacking(self.shape, avro_events.shape_in(values, self.writers, nested=self.nested))
        if self.format != "json":
            return {}
        if parsed is not None:
            values = values.filter(json_events.may_have_others(values, parsed))
        return json_events.unknown_fields(values, self.shape, nested=self.nested) if len(values) else {}

    def unread_writers(self, values: pa.BinaryArray) -> frozenset[int]:
        """Return the ids of writer schemas of events that are not known."""
        return avro_events.unread_writers(values, self.writers) if self.format == "avro" else frozenset()

    def new_columns(self, found: Shape) -> Shape:
        """Return those of the unknown fields that can be columns."""
        return fitting(found, self.shape, {*self.record})

    def _parse(self, values: pa.BinaryArray) -> ParsedEvents:
        match self.format:
            case "csv":
                return parse_csv(values, self.shape, self.delimiter)
            case "text":
                return parse_text(values)
            case "avro":
                return avro_events.parse(values, self.shape, self.writers)
            case _:
                return json_events.parse(values, self.shape)

    def _columns(self, parsed: ParsedEvents, count: int) -> tuple[dict[str, pa.Array], pa.StringArray]:
        """Return the columns of events, and why events are bad; null if they are not."""
        reason = pc.if_else(parsed.broken, pa.scalar(parsed.verdict), _NO_TEXT)
        for path, wrong in parsed.misplaced.items():
            reason = pc.coalesce(
                reason, pc.if_else(wrong, pa.scalar(f"{shown(path)} is not a record"), _NO_TEXT)
            )
        columns, reasons = {}, [reason]
        for name, kind in self.shape.items():
            columns[name] = _column(parsed.fields.get(name), kind, (name,), count, reasons)
        return columns, pc.coalesce(*reasons)

    def _refused(self, values: pa.BinaryArray, found: Shape, reason: pa.StringArray) -> pa.StringArray:
        """Add why events with unknown fields are bad."""
        refused = list(unknown(self.shape, found))
        if self.policy == "evolve":
            addable = merged(self.shape, self.new_columns(found))
            refused = list(unknown(addable, found))
        if not refused or self.policy == "freeze":
            return reason
        for places in [[path] for path in refused] if len(refused) <= _EACH else [refused]:
            has = self._having(values, places)
            why = f"{shown(places[0])} is no column of the table"
            why = why if len(places) == 1 else "it has fields that are no columns of the table"
            reason = pc.coalesce(reason, pc.if_else(has, pa.scalar(why), _NO_TEXT))
        return reason

    def _having(self, values: pa.BinaryArray, places: Sequence[Path]) -> pa.BooleanArray:
        if self.format == "avro":
            return avro_events.having(values, self.writers, places)
        return json_events.having(values, places)

    def _record_columns(self, records: pa.Table) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, kind in self.record.items():
            values = records.column(name.removeprefix("kafka_"))
            if name == "kafka_headers":
                found[name] = _headers(values)
            elif kind.name == "timestamptz":
                found[name] = values.cast(pa.timestamp("ms", "UTC")).cast(arrow_type(kind))
            else:
                found[name] = values.cast(arrow_type(kind))
        return found


def shown(path: Path) -> str:
    """Return the place of a field as text."""
    return ".".join(path)


def listed(places: Iterable[Path]) -> str:
    """Return places of fields as text, the first few of them."""
    names = [shown(path) for path in places]
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def fitting(found: Shape, known: Shape, taken: set[str]) -> Shape:
    """Return the fields that can be columns beside the known ones, and beside columns with the names `taken`."""
    room = MOST_FIELDS - sum(1 for _ in paths(known))
    result: dict[str, LakeType | Shape] = {}
    for name, kind in found.items():
        others = {**dict.fromkeys(taken), **known, **result}
        if unfit_name(name, others) is not None or name in taken:
            continue
        inside = known.get(name, {})
        column = kind
        if not isinstance(kind, LakeType):
            column = fitting(kind, {} if isinstance(inside, LakeType) else inside, set())
        size = 1 if isinstance(column, LakeType) else sum(1 for _ in paths(column))
        if 0 < size <= room:
            room -= size
            result[name] = column
    return result


def first_shape(decoding: LogDecoding, found: Shape, event_time: str | None, declared: Shape) -> Shape:
    """Return the columns of a new table: the declared ones, and those learnt from its first events."""
    if decoding.format == "text":
        return {TEXT_COLUMN: STRING}
    shape = merged(declared, decoding.new_columns(found)) if decoding.policy == "evolve" else declared
    if event_time is None or event_time in decoding.record or event_time in declared:
        return shape
    return {**shape, event_time: LakeType("timestamptz")}


def _column(
    values: Values | None, kind: LakeType | Shape, path: Path, count: int, reasons: list[pa.StringArray]
) -> pa.Array:
    """Return a column, and add to `reasons` which events have a value that it cannot hold."""
    if isinstance(kind, LakeType):
        if values is None or isinstance(values, tuple):
            return pa.nulls(count, arrow_type(kind))
        found = converted(values, kind) if pa.types.is_string(values.type) else values
        lost = pc.and_(pc.is_valid(values), pc.is_null(found))
        if pc.any(lost).as_py():
            reasons.append(pc.if_else(lost, pa.scalar(f"{shown(path)} is no {kind}"), _NO_TEXT))
        return found
    present, inner = values if isinstance(values, tuple) else (pa.array([False] * count), {})
    fields = {name: _column(inner.get(name), k, (*path, name), count, reasons) for name, k in kind.items()}
    return pa.StructArray.from_arrays(list(fields.values()), names=list(fields), mask=pc.invert(present))


def newest_ms(rows: pa.Table, event_time: str | None) -> int | None:
    """Return the newest time of an event, milliseconds since the epoch; None if there is none."""
    if event_time is None or event_time not in rows.column_names:
        return None
    found = pc.max(rows.column(event_time))
    if not found.is_valid:
        return None
    unit = 86_400_000 if pa.types.is_date(found.type) else 1
    return int(found.cast(pa.int32() if unit > 1 else pa.int64()).as_py()) * unit // (1 if unit > 1 else 1000)


def _headers(headers: pa.ChunkedArray) -> pa.StringArray:
    """Return the headers of records as JSON: a list of keys and values; a value that is no text is in base64."""
    found = ([_header(header) for header in entry or ()] for entry in headers.to_pylist())
    return pa.array([json_text(entry) if entry else None for entry in found], pa.string())


def _header(header: Mapping[str, Any]) -> dict[str, Any]:
    value = header["value"]
    try:
        return {"key": header["key"], "value": None if value is None else value.decode()}
    except UnicodeDecodeError:
        return {"key": header["key"], "base64": base64.b64encode(value).decode()}
