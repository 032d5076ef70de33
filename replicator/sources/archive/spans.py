"""Read the positions of many events at once, for the index of an archive.

`SourceColumns` reads the source blocks of all events to columns, as for the lake. Of an event that it does not read,
`PositionReader` reads the position, or finds that it has none.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import reduce
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from replicator.model.position import FILE_SHIFT, MOST_POS, binlog_number
from replicator.sources.archive.positions import EventPosition, PositionReader, SourceSpan
from replicator.sources.kafka.schema_registry import WriterSchemas

SourceColumns = Callable[[pa.BinaryArray, WriterSchemas], Mapping[str, pa.Array]]
"""Returns fields of the source blocks of events: `file`, `pos`, `ts_ms` and `gtid`; null if it cannot read them."""

_AT_ONCE: Final = 50_000
_GTID: Final = "^(?P<source>.+):(?P<number>[0-9]{1,18})$"


def no_columns(values: pa.BinaryArray, _: WriterSchemas) -> Mapping[str, pa.Array]:
    """Return no source block of any event, so that each one is read by itself."""
    kinds = {"file": pa.string(), "pos": pa.int64(), "ts_ms": pa.int64(), "gtid": pa.string()}
    return {name: pa.nulls(len(values), kind) for name, kind in kinds.items()}


class SpanReader:
    """Reads the span of the positions of events; `schemas` are those that events in Avro were written with."""

    def __init__(self, columns: SourceColumns, schemas: WriterSchemas) -> None:
        self._columns = columns
        self._schemas = schemas
        self._positions = PositionReader(schemas.schema)

    def read(self, values: pa.ChunkedArray) -> SourceSpan | None:
        """Return the span of some events; None if no event has a position."""
        parts = (
            chunk.slice(start, _AT_ONCE)
            for chunk in values.chunks
            for start in range(0, len(chunk), _AT_ONCE)
        )
        return SourceSpan.of(chain.from_iterable(map(self._bounds, parts)))

    def _bounds(self, values: pa.BinaryArray) -> Iterator[EventPosition | None]:
        """Yield positions that have the span of all events."""
        values = values.drop_null()
        found = self._columns(values, self._schemas)
        is_known = _is_known(found)
        unknown = values.filter(pc.invert(is_known))
        yield from map(self._positions.read, unknown.to_pylist())
        known = pa.table({name: found[name] for name in ("file", "pos", "ts_ms", "gtid")}).filter(is_known)
        if known.num_rows:
            yield from _extremes(known)


def _is_known(found: Mapping[str, pa.Array]) -> pa.BooleanArray:
    """Return of which events the position is read; the span is at least that of `PositionReader`."""
    names = [name for name in found["file"].unique().to_pylist() if name is not None and _is_file(name)]
    pos, ts_ms = found["pos"], found["ts_ms"]
    conditions = (
        pc.is_in(found["file"], pa.array(names, pa.string())),
        pc.greater_equal(pos, 0),
        pc.less_equal(pos, MOST_POS),
        pc.greater_equal(ts_ms, 0),
    )
    return pc.fill_null(reduce(pc.and_, conditions), fill_value=False)


def _is_file(name: str) -> bool:
    try:
        binlog_number(name)
    except ValueError:
        return False
    return True


def _extremes(known: pa.Table) -> list[EventPosition]:
    """Return the lowest and the highest position of each file, and of each source of transactions."""
    ranges = [(name, side) for name in ("pos", "ts_ms") for side in ("min", "max")]
    places = [
        _position(row["file"], row[f"pos_{side}"], row[f"ts_ms_{side}"])
        for row in known.group_by("file").aggregate(ranges).to_pylist()
        for side in ("min", "max")
    ]
    return places + [replace(places[0], gtid=gtid) for gtid in _gtids(known.column("gtid"))]


def _position(file: str, pos: int, ts_ms: int) -> EventPosition:
    return EventPosition((binlog_number(file) << FILE_SHIFT) + pos, file, pos, 0, ts_ms, None)


def _gtids(found: pa.ChunkedArray) -> list[str]:
    """Return the first and the last transaction of each source, and GTIDs of any other form."""
    distinct = found.unique().drop_null()
    parts = pc.extract_regex(distinct, _GTID)
    numbers = pc.struct_field(parts, "number").cast(pa.int64())
    sources = pa.table({"source": pc.struct_field(parts, "source"), "number": numbers}).drop_null()
    rows: list[dict[str, Any]] = (
        sources.group_by("source").aggregate([("number", "min"), ("number", "max")]).to_pylist()
    )
    others: list[str] = distinct.filter(pc.is_null(parts)).to_pylist()
    return [f"{row['source']}:{row[side]}" for row in rows for side in ("number_min", "number_max")] + others
