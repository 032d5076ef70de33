"""Read the source's position of archived events, without decoding their rows.

The position is in the source block of an event in JSON or Avro, or in the metadata fields of a flattened event. A
tombstone has no position, and neither has an event that cannot be read.
"""

import io
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final

import fastavro
from pydantic import AfterValidator, Field, WrapSerializer

from replicator.model.position import FILE_SHIFT, MOST_POS, binlog_number, checked_name

_SOURCE: Final = '"source":'
_FIELDS: Final = ("file", "pos", "row", "ts_ms", "gtid", "snapshot")
_FLAT: Final = "__source_"
_MAGIC: Final = b"\x00"
_HEADER_BYTES: Final = 5
_DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class EventPosition:
    """Where and when the source made the change of one event.

    Attributes:
        key: file number and offset in the binlog, packed as in `PackedPosition`.
        file, pos, row: the position.
        ts_ms: source time, milliseconds since the epoch; 0 if the event has none.
        gtid: the transaction's GTID; None if the source has no GTIDs, and for rows of a snapshot.
        snapshot: how Debezium marks a row of a snapshot, such as ``first`` or ``true``; empty for other events.
    """

    key: int
    file: str
    pos: int
    row: int
    ts_ms: int
    gtid: str | None
    snapshot: str = ""


class PositionReader:
    """Reads the positions of an archive's events; `schema` returns the writer schema (Avro, as JSON) of an id."""

    def __init__(self, schema: Callable[[int], str | None] = lambda _: None) -> None:
        self._schema = schema
        self._projections: dict[int, tuple[Any, Any] | None] = {}

    def read(self, value: bytes | None) -> EventPosition | None:
        """Return the position of an event; None if it has none."""
        if not value:
            return None
        block = self._avro_block(value) if value.startswith(_MAGIC) else _json_block(value)
        return None if block is None else _position(block)

    def _avro_block(self, value: bytes) -> Mapping[str, Any] | None:
        projection = self._projection(int.from_bytes(value[1:_HEADER_BYTES], "big"))
        if projection is None:
            return None
        stream = io.BytesIO(value)
        stream.seek(_HEADER_BYTES)
        try:
            record: Any = fastavro.schemaless_reader(stream, *projection)
        except Exception:  # noqa: BLE001 - fastavro raises anything for bytes that are not Avro
            return None
        return _block_of(record)

    def _projection(self, writer: int) -> tuple[Any, Any] | None:
        """Return the writer schema, and the part of it that has the position; None if there is no such part."""
        if writer not in self._projections:
            text = self._schema(writer)
            if text is None:
                return None  # It may be added later.
            try:
                self._projections[writer] = _projection(json.loads(text))
            except Exception:  # noqa: BLE001 - as above, for schemas
                self._projections[writer] = None
        return self._projections[writer]


def _projection(schema: Any) -> tuple[Any, Any] | None:
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return None
    fields = [f for f in schema["fields"] if f["name"] == "source" or f["name"].startswith(_FLAT)]
    if not fields:
        return None
    reduced = {**schema, "fields": [_reduced(field) for field in fields]}
    return fastavro.parse_schema(schema), fastavro.parse_schema(reduced)


def _reduced(field: dict[str, Any]) -> dict[str, Any]:
    kind = field["type"]
    if not isinstance(kind, dict) or kind.get("type") != "record":
        return field
    return {**field, "type": {**kind, "fields": [f for f in kind["fields"] if f["name"] in _FIELDS]}}


def _json_block(value: bytes) -> Mapping[str, Any] | None:
    """Return the source block. Only this block is parsed: a row may be a hundred times as large.

    The key's text occurs in a string only with escaped quotes, so the last occurrence is the block, unless another
    object of this name follows it. Then the event is parsed as a whole.
    """
    try:
        text = value.decode()
        at = text.rfind(_SOURCE)
        if at >= 0:
            at += len(_SOURCE)
            while text[at].isspace():
                at += 1
            block, _ = _DECODER.raw_decode(text, at)
            if isinstance(block, dict) and "file" in block and "pos" in block:
                return block
        elif _FLAT not in text and '"source"' not in text:
            return None
        return _block_of(json.loads(text))
    except (ValueError, IndexError, RecursionError):
        return None


def _block_of(event: Any) -> Mapping[str, Any] | None:
    if isinstance(event, dict) and event.keys() == {"schema", "payload"}:
        event = event["payload"]
    if not isinstance(event, dict):
        return None
    source = event.get("source")
    if isinstance(source, dict) and "file" in source and "pos" in source:
        return source
    flat = {name: event.get(f"{_FLAT}{name}") for name in _FIELDS}
    return flat if flat["file"] is not None and flat["pos"] is not None else None


def _position(block: Mapping[str, Any]) -> EventPosition | None:
    file, pos, row, ts_ms, gtid, snapshot = (block.get(name) for name in _FIELDS)
    number = _file_number(file) if isinstance(file, str) else None
    if number is None or type(pos) is not int or not 0 <= pos <= MOST_POS:
        return None
    return EventPosition(
        key=(number << FILE_SHIFT) + pos,
        file=str(file),
        pos=pos,
        row=row if type(row) is int and row >= 0 else 0,
        ts_ms=ts_ms if type(ts_ms) is int and ts_ms >= 0 else 0,
        gtid=gtid if isinstance(gtid, str) and gtid else None,
        snapshot=snapshot if isinstance(snapshot, str) and snapshot != "false" else "",
    )


@lru_cache(256)
def _file_number(file: str) -> int | None:
    try:
        return binlog_number(file)
    except ValueError:
        return None


def _ascending(pair: tuple[int, int]) -> tuple[int, int]:
    if pair[0] > pair[1]:
        raise ValueError(f"{pair[0]} is above {pair[1]}")
    return pair


Number = Annotated[int, Field(ge=0)]
BinlogName = Annotated[str, AfterValidator(checked_name)]
Interval = Annotated[tuple[Number, Number], AfterValidator(_ascending)]


@dataclass(frozen=True, slots=True)
class SourceSpan:
    """The positions, times and transactions of several events, as lowest and highest; order in the log is irrelevant.

    Attributes:
        first, last: lowest and highest position, as file and offset.
        times: lowest and highest source time, milliseconds since the epoch.
        gtids: source of transactions (``uuid`` or ``uuid:tag``) → lowest and highest number. The numbers between them
            need not all occur.
    """

    first: tuple[BinlogName, Number]
    last: tuple[BinlogName, Number]
    times: Interval
    gtids: Annotated[
        Mapping[str, Interval], WrapSerializer(lambda value, write: write(dict(sorted(value.items()))))
    ]

    @property
    def last_key(self) -> int:
        """The highest position, packed as in `PackedPosition`."""
        return (binlog_number(self.last[0]) << FILE_SHIFT) + self.last[1]

    def may_have(self, gtid: str) -> bool:
        """Return whether an event of this transaction may be among the events."""
        source, _, number = gtid.lower().rpartition(":")
        first, last = self.gtids.get(source, (1, 0))
        return number.isdecimal() and first <= int(number) <= last

    @classmethod
    def of(cls, positions: Iterable[EventPosition | None]) -> "SourceSpan | None":
        """Return the span of these positions; None if there is none."""
        known = [position for position in positions if position is not None]
        if not known:
            return None
        low, high = min(known, key=_key), max(known, key=_key)
        times = [position.ts_ms for position in known]
        gtids: dict[str, tuple[int, int]] = {}
        for gtid in {position.gtid for position in known}:
            source, _, text = (gtid or "").lower().rpartition(":")
            if source and text.isdecimal():
                number = int(text)
                first, last = gtids.get(source, (number, number))
                gtids[source] = min(first, number), max(last, number)
        return cls((low.file, low.pos), (high.file, high.pos), (min(times), max(times)), gtids)


def _key(position: EventPosition) -> int:
    return position.key
