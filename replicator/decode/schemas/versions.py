"""Assign events to the versions of their table's schema: the rules of `schema.history.order` for arrays of events."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replicator.model.common import hash_of
from replicator.model.gtid import BLOCK
from replicator.model.position import FILE_SHIFT, LAST_MS, MOST_POS, binlog_number
from replicator.schema.history.order import CLOCK_MS, Boundary, VersionStart

_GTID: Final = r"^(?P<origin>.+):(?P<number>\d{1,18})$"
Mask = np.ndarray[Any, np.dtype[np.bool_]]
Longs = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Places:
    """Where in the binlog some events are, as arrays of one length.

    Attributes:
        is_known: whether the event has a valid position and time.
        key: the position key (see `PackedPosition`); 0 without a valid one.
        row: index of the row in the event.
        ts_ms: source time, milliseconds since the epoch; 0 if unknown.
        server_id: 0 for a row of an initial snapshot.
        origin: origin of the GTID, with its tag; null without a GTID.
        number: number of the GTID; 0 without one.
    """

    is_known: Mask
    key: Longs
    row: Longs
    ts_ms: Longs
    server_id: Longs
    origin: pa.StringArray
    number: Longs

    @classmethod
    def of(cls, source: Mapping[str, pa.Array]) -> "Places":
        """Return the places of events from their source blocks (see `ParsedEvents.source`)."""
        files = _file_numbers(source["file"])
        pos, row, ts_ms, server = (_longs(source[name]) for name in ("pos", "row", "ts_ms", "server_id"))
        known = (files >= 0) & source["pos"].is_valid().to_numpy(zero_copy_only=False)
        known &= (pos >= 0) & (pos <= MOST_POS) & (ts_ms >= 0) & (ts_ms <= LAST_MS)
        # The rows of a transaction have the same one.
        gtids = source["gtid"].dictionary_encode()
        gtid = pc.extract_regex(gtids.dictionary, _GTID)
        return cls(
            known,
            np.where(known, (files << FILE_SHIFT) + pos, 0),
            row,
            ts_ms,
            server,
            pc.struct_field(gtid, "origin").take(gtids.indices),
            _longs(pc.struct_field(gtid, "number").take(gtids.indices)),
        )

    @property
    def is_row(self) -> Mask:
        """Whether the event is a row of an initial snapshot; only they have no server id."""
        return np.equal(self.server_id, 0)

    def origin_hashes(self) -> Longs:
        """Return a hash of each origin; 0 without one."""
        found = self.origin.dictionary_encode()
        hashes = [hash_of(text.encode()) for text in found.dictionary.to_pylist()]
        return _longs(pa.array(hashes, pa.int64()).take(found.indices))


def is_past(places: Places, starts: tuple[VersionStart, ...]) -> Mask:
    """Return whether events belong to one of the versions with these beginnings; false without a position."""
    past = np.zeros(len(places.key), np.bool_)
    for start in starts:
        past |= _is_past(places, start)
    return places.is_known & past


def is_in_range(places: Places, first: Boundary | None, end: Boundary | None) -> Mask:
    """Return whether events lie in a range of versions; false without a position.

    None is the beginning or the end of all versions.
    """
    inside = places.is_known.copy()
    if first is not None:
        inside &= is_past(places, first.starts)
    if end is not None:
        inside &= ~is_past(places, end.starts)
    return inside


def _is_past(places: Places, start: VersionStart) -> Mask:
    own, here = start.transaction, places.key >= start.key
    rows = here & ~np.isin(places.key, list(start.read_before))
    if own is None:
        return np.where(places.is_row, rows, here)
    origin, block = own.line
    first = block * BLOCK + 1
    same_line = pc.fill_null(pc.equal(places.origin, origin), False).to_numpy(zero_copy_only=False)
    same_line = same_line & (places.number >= first) & (places.number < first + BLOCK)
    apart = (places.ts_ms > 0) & (start.ts_ms > 0) & (np.abs(places.ts_ms - start.ts_ms) > CLOCK_MS)
    has_gtid = places.origin.is_valid().to_numpy(zero_copy_only=False)
    return np.select(
        [places.is_row, same_line, has_gtid & apart],
        [rows, places.number >= own.number, places.ts_ms > start.ts_ms],
        here,
    )


def _longs(values: pa.Array) -> Longs:
    return np.asarray(values.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))


def _file_numbers(files: pa.StringArray) -> Longs:
    """Return the numbers of binlog files; -1 for a name without one."""
    found = files.dictionary_encode()
    numbers = pa.array([_file_number(name) for name in found.dictionary.to_pylist()], pa.int64())
    return np.asarray(numbers.take(found.indices).fill_null(-1).to_numpy(zero_copy_only=False))


def _file_number(name: str) -> int:
    try:
        return binlog_number(name)
    except ValueError:
        return -1
