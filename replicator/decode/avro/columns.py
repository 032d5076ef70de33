"""Read Avro records of one schema to Arrow columns, all records at once.

Where a field begins depends on the fields before it. A `Cursor` has the position in each record, and numpy reads a
field of all records before the next field. Only nested values such as arrays, which few columns have, are read one by
one, by fastavro.

A record that does not fit the schema does not disturb the others: its position remains at its end.
"""

import base64
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replicator.decode.avro.schema import UNREADABLE
from replicator.decode.values import cast_values

Wanted: TypeAlias = Mapping[str, Any] | pa.DataType
"""What is read of a value: fields of a record (name → `Wanted`), or all of it; nested values become JSON text."""

Longs = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

_PADDING: Final = 16
"""Bytes after the data, so that a number can be read at any position before its length is known."""

_MORE: Final = 0x80
"""The bit of a byte of a number that says that there are further bytes."""

_SHORT: Final = np.array([(n >> 1) ^ -(n & 1) for n in range(_MORE)], np.int64)
"""Numbers of one byte."""

_ZERO: Final = np.uint64(0)
_ONE: Final = np.uint64(1)
_EVERY_MORE: Final = np.uint64(0x8080808080808080)
_FOLDS: Final = tuple(
    (np.uint64(shift), np.uint64(low), np.uint64(high))
    for shift, low, high in (
        (1, 0x007F007F007F007F, 0x7F007F007F007F00),
        (2, 0x00003FFF00003FFF, 0x3FFF00003FFF0000),
        (4, 0x000000000FFFFFFF, 0x0FFFFFFF00000000),
    )
)
"""Steps that remove the highest bit of each of eight bytes."""

_SIMPLE: Final = ("null", "boolean", "int", "long", "float", "double", "string", "bytes")
_RANGES: Final = {"int": (-(1 << 31), (1 << 31) - 1), "long": (-(1 << 63), (1 << 63) - 1)}
_FLOATS: Final = {"float": (np.uint32, np.float32, 4), "double": (np.uint64, np.float64, 8)}
"""Unsigned type, own type and number of bytes."""


class Cursor:
    """The positions in some records, in the order of their bytes. No position is ever behind the end of its record.

    Attributes:
        data: the bytes of all records, padded.
        pos, end: the position in each record, and the end of each.
        bad: which records do not fit the schema.
    """

    def __init__(self, data: Any, words: Any, pos: Longs, end: Longs) -> None:
        self.data, self.pos, self.end = data, pos, end
        self.bad: Mask = np.zeros(len(pos), np.bool_)
        self._words = words

    @classmethod
    def of(cls, values: pa.BinaryArray) -> "Cursor":
        """Return a cursor at the beginning of each value; none may be null."""
        _, offsets, content = values.buffers()
        bounds = np.zeros(1, np.int64)
        if len(values):
            part = slice(values.offset, values.offset + len(values) + 1)
            bounds = np.frombuffer(offsets, np.int32)[part].astype(np.int64)
        first, last = int(bounds[0]), int(bounds[-1])
        data = np.zeros(last - first + _PADDING, np.uint8)
        if last > first:
            data[:-_PADDING] = np.frombuffer(content, np.uint8)[first:last]
        words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
        bounds = bounds - first
        return cls(data, words, bounds[:-1].copy(), bounds[1:])

    def __len__(self) -> int:
        return len(self.pos)

    def part(self, rows: Longs) -> "Cursor":
        """Return a cursor for the records with these indices, which are sorted."""
        return Cursor(self.data, self._words, self.pos[rows], self.end[rows])

    def resume(self, part: "Cursor", rows: Longs) -> None:
        """Continue behind what `part`, the cursor of the records with these indices, has read."""
        self.pos[rows] = part.pos
        self.bad[rows] |= part.bad

    def fail(self, bad: Mask) -> None:
        """Note that records do not fit the schema."""
        if bad.any():
            self.bad |= bad
            self.pos = np.where(bad, self.end, self.pos)

    def words(self) -> Any:
        """Return the next eight bytes as unsigned little-endian numbers, without advancing."""
        return self._words[self.pos]

    def advance(self, lengths: Any) -> None:
        """Advance by some bytes; records with fewer bytes, or with a negative number, do not fit."""
        over = (lengths > self.end - self.pos) | (lengths < 0)
        self.pos = self.pos + lengths
        self.fail(over)

    def longs(self) -> Longs:
        """Read an int or a long of each record."""
        first = self.data[self.pos]
        if first.max(initial=0) < _MORE:
            self.advance(1)
            return np.asarray(_SHORT[first])
        words = self.words()
        stop = ~words & _EVERY_MORE
        # The highest bit of the last byte; 0 if there are more than eight bytes.
        last = stop & (_ZERO - stop)
        raw = words & ((last << _ONE) - _ONE)
        for shift, low, high in _FOLDS:
            raw = (raw & low) | ((raw & high) >> shift)
        lengths = (np.frexp(last.astype(np.float64))[1] >> 3).astype(np.int64)
        if (rows := np.flatnonzero(last == 0)).size:
            ninth, tenth = (self.data[self.pos[rows] + i].astype(np.uint64) for i in (8, 9))
            more = ninth >= _MORE
            raw[rows] |= (ninth & np.uint64(_MORE - 1)) << np.uint64(56)
            raw[rows] |= np.where(more, tenth << np.uint64(63), _ZERO)
            lengths[rows] = np.where(more, 10, 9)
            self.bad[rows] |= more & (tenth > 1)
        self.advance(lengths)
        return np.asarray(((raw >> _ONE) ^ (_ZERO - (raw & _ONE))).view(np.int64))

    def spans(self) -> tuple[Longs, Longs]:
        """Read the length of a text of each record, and advance behind it; return where the texts begin and end."""
        return self.fixed(self.longs())

    def fixed(self, lengths: Any) -> tuple[Longs, Longs]:
        """Advance behind texts of these lengths; return where they begin and end."""
        start = self.pos
        self.advance(lengths)
        return np.where(self.bad, self.pos, start), self.pos

    def texts(self, spans: tuple[Longs, Longs]) -> pa.BinaryArray:
        """Return the bytes of spans, which are in the order of the data: as every second part of it."""
        count = len(spans[0])
        if not count:
            return pa.array([], pa.binary())
        offsets = np.empty(2 * count, np.int32)
        offsets[0::2], offsets[1::2] = spans
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.data)]
        parts = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
        return parts.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def arrow_type(wanted: Wanted) -> pa.DataType:
    """Return the Arrow type in which `wanted` is returned."""
    if isinstance(wanted, Mapping):
        return pa.struct([pa.field(name, arrow_type(part)) for name, part in wanted.items()])
    return wanted


class Reader:
    """Reads values of types of one schema, which fastavro has parsed and `checked_schema` has accepted."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema
        self._types = schema["__named_schemas"] | {name: {"type": name} for name in _SIMPLE}

    def records(self, cursor: Cursor, wanted: Mapping[str, Wanted]) -> pa.StructArray:
        """Read whole records of the schema; null for those that do not fit it."""
        found: Any = self._record(self._schema, cursor, wanted)
        cursor.fail(cursor.pos != cursor.end)
        if not cursor.bad.any():
            return found
        return found.take(pa.array(np.arange(len(cursor)), mask=cursor.bad))

    def _read(self, kind: Any, cursor: Cursor, wanted: Wanted | None) -> pa.Array | None:
        """Read a value of each record, and return what is wanted of it; None if nothing is."""
        if isinstance(kind, list):
            return self._union(kind, cursor, wanted)
        if isinstance(kind, str):
            kind = self._types[kind]
        match kind["type"]:
            case "record" | "error" if wanted is None or isinstance(wanted, Mapping):
                return self._record(kind, cursor, wanted)
            case "record" | "error" | "array" | "map":
                return _cast(self._one_by_one(kind, cursor, wanted), cursor, wanted)
            case str():
                return _cast(_simple(kind, cursor, is_wanted=wanted is not None), cursor, wanted)
            case nested:
                return self._read(nested, cursor, wanted)

    def _union(self, kinds: Sequence[Any], cursor: Cursor, wanted: Wanted | None) -> pa.Array | None:
        branches = cursor.longs()
        usual = int(branches[0]) if len(branches) else 0
        if 0 <= usual < len(kinds) and (branches == usual).all():
            return self._read(kinds[usual], cursor, wanted)
        cursor.fail((branches < 0) | (branches >= len(kinds)))
        parts, order = [], []
        for number, kind in enumerate(kinds):
            if (rows := np.flatnonzero(branches == number)).size:
                part = cursor.part(rows)
                found = self._read(kind, part, wanted)
                cursor.resume(part, rows)
                parts.append(found)
                order.append(rows)
        return None if wanted is None else scattered(parts, order, len(cursor), wanted)

    def _record(
        self, kind: Mapping[str, Any], cursor: Cursor, wanted: Mapping[str, Wanted] | None
    ) -> pa.StructArray | None:
        parts = {} if wanted is None else wanted
        found = {f["name"]: self._read(f["type"], cursor, parts.get(f["name"])) for f in kind["fields"]}
        if wanted is None:
            return None
        nothing = {
            name: pa.nulls(len(cursor), arrow_type(part)) for name, part in parts.items() if name not in found
        }
        found |= nothing
        return pa.StructArray.from_arrays([found[name] for name in parts], fields=list(arrow_type(parts)))

    def _one_by_one(self, kind: Any, cursor: Cursor, wanted: Wanted | None) -> pa.Array | None:
        """Read nested values as lists, if they are wanted as such, or as JSON text."""
        marks = {"__fastavro_parsed": True, "__named_schemas": self._schema["__named_schemas"]}
        schema = marks | {"type": "record", "name": "", "fields": [{"name": "value", "type": kind}]}
        found: list[Any] = []
        is_list = isinstance(wanted, pa.ListType)
        pos, data, bad = cursor.pos.copy(), cursor.data.data, np.zeros(len(cursor), np.bool_)
        for i, (start, end) in enumerate(zip(pos.tolist(), cursor.end.tolist(), strict=True)):
            stream = io.BytesIO(data[start:end])
            try:
                record: Any = fastavro.schemaless_reader(stream, schema, None)
                found.append(record["value"] if is_list or wanted is None else _json(record["value"]))
            except UNREADABLE:
                found.append(None)
                bad[i] = True
            pos[i] = start + stream.tell()
        cursor.pos = pos
        cursor.fail(bad)
        if wanted is None:
            return None
        try:
            return pa.array(found, wanted if is_list else pa.string())
        except (pa.ArrowException, TypeError):
            return pa.array(["" if value is None else _json(value) for value in found], pa.string())


def _json(value: Any) -> str:
    """Return nested values as JSON text; bytes are base64, as in JSON events."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_base64)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _simple(kind: Mapping[str, Any], cursor: Cursor, *, is_wanted: bool) -> pa.Array | None:
    """Read a value of a type that is not nested."""
    match kind["type"]:
        case "null":
            found = pa.nulls(len(cursor))
        case "boolean":
            flags = cursor.data[cursor.pos]
            cursor.advance(1)
            cursor.fail(flags > 1)
            found = pa.array(flags == 1)
        case "float" | "double" as name:
            whole, kept, size = _FLOATS[name]
            words = cursor.words().astype(whole)
            cursor.advance(size)
            found = pa.array(words.view(kept))
        case "int" | "long" | "enum" as name:
            numbers = cursor.longs()
            least, most = (0, len(kind["symbols"]) - 1) if name == "enum" else _RANGES[name]
            cursor.fail((numbers < least) | (numbers > most))
            found = pa.array(numbers)
            if name == "enum":
                found = pa.array(kind["symbols"], pa.string()).take(pa.array(numbers, mask=cursor.bad))
        case name:
            spans = cursor.fixed(kind["size"]) if name == "fixed" else cursor.spans()
            found = cursor.texts(spans) if is_wanted else None
            found = _cast(found, cursor, pa.string() if name == "string" else pa.binary())
    return found if is_wanted else None


def _cast(values: pa.Array | None, cursor: Cursor, wanted: Wanted | None) -> pa.Array | None:
    """Convert values to the type that is wanted; a record with a value that it cannot hold does not fit."""
    if values is None or wanted is None:
        return None
    kind = arrow_type(wanted)
    if values.type == kind:
        return values
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), kind)
    found = cast_values(values, kind)
    # What follows the value is read all the same, to know whether the record fits.
    cursor.bad |= pc.and_(values.is_valid(), found.is_null()).to_numpy(zero_copy_only=False)
    return found


def scattered(parts: Sequence[pa.Array], order: Sequence[Longs], count: int, wanted: Wanted) -> pa.Array:
    """Return an array of `count` values from parts of it, and their indices; null elsewhere."""
    if not parts:
        return pa.nulls(count, arrow_type(wanted))
    at, rows = np.zeros(count, np.int64), np.concatenate(order)
    at[rows] = np.arange(len(rows))
    missing = np.ones(count, np.bool_)
    missing[rows] = False
    values = parts[0] if len(parts) == 1 else pa.concat_arrays(parts)
    return values.take(pa.array(at, mask=missing))
