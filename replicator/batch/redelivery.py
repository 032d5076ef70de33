"""How far one partition has come in the source's log, and which events are duplicates: delivered before.

At-least-once delivery repeats a suffix of the log in order, so on one partition a repeated event lies at or before the
furthest position seen, and is not later in source time. Both must hold: where the source's binlogs were reset and count
from one again, positions are small but the time goes on, and dropping a change would be worse than recording one twice.
Nor is an event repeated whose GTID says that its transaction is later than the furthest one: after a fail-over the
positions are another server's.

Several events may stand at one place of the file: the rows of a statement, which are numbered, and the delete and the
create of a key update. Where the source compresses its transactions (binlog_transaction_compression) all events of a
transaction do, and each statement counts its rows from zero. So at the furthest place itself an event that does not
come after the last one is a repeated one only if its content, told by a hash, is that of an event which stands there.
Of very many events there not all hashes are kept: where rows were in order so far, an unknown one is repeated if the
last one follows in the same batch. Where they were not, it takes a repetition of all the events or of a suffix of
them. A connector with provide.transaction.metadata numbers the events of a transaction, and that decides.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from replicator.model.commit_marker import HighWater
from replicator.model.position import PackedPosition

MAX_ROW_HASHES: Final = 32
"""Number of the first and of the last events at a position whose hashes are kept."""

MAX_SHORT_HASHES: Final = 512
"""Maximum number of 24-bit row hashes kept per position; covers all rows of a usual binlog event of 8 KiB."""

SHORT: Final = (1 << 24) - 1
"""That part."""
_BY_ROW: Final = -1
"""In place of how many were sent again: it began within a statement, so the numbers of the rows tell."""


@dataclass(frozen=True, slots=True)
class EventPosition:
    """Where one event stands; names as in decoded frames."""

    position_key: int
    row_key: int
    ts_ms: int
    server_id: int
    gtid: str | None = None
    tx_order: int | None = None
    row_hash: int = 0

    @property
    def packed(self) -> PackedPosition:
        """The position as a value."""
        return PackedPosition(self.position_key, self.row_key)


@dataclass(slots=True)
class RedeliveryDetector:
    """The furthest place, while events are looked at one by one. Fields as in `HighWater`."""

    last: EventPosition
    latest_ms: int
    event_count: int
    first_hashes: list[int]
    last_hashes: list[int]
    rows_ascending: bool
    replayed_count: int | None
    short_hashes: dict[int, None]
    file: str | None = None

    @classmethod
    def at(cls, place: EventPosition) -> "RedeliveryDetector":
        """After the first event of all."""
        return cls(
            place,
            place.ts_ms,
            1,
            [place.row_hash],
            [place.row_hash],
            True,
            None,
            {place.row_hash & SHORT: None},
        )

    @classmethod
    def of(cls, high: HighWater) -> "RedeliveryDetector":
        """After the batches before."""
        packed, position = PackedPosition.pack(high.position, high.kind), high.position
        place = EventPosition(
            packed.position_key,
            packed.row_key,
            high.ts_ms,
            position.server_id,
            position.gtid,
            high.tx_order,
        )
        marks = list(high.first_hashes), list(high.last_hashes)
        rows = dict.fromkeys(high.short_hashes or [row_hash & SHORT for row_hash in high.last_hashes])
        return cls(
            place,
            high.ts_ms,
            high.event_count,
            *marks,
            high.rows_ascending,
            high.replayed_count,
            rows,
            high.position.file,
        )

    def high_water(self) -> HighWater:
        """The same as a value to be kept."""
        last = self.last
        position = last.packed.unpack(self.file, last.server_id, last.gtid)
        marks = tuple(self.first_hashes), tuple(self.last_hashes)
        rows = tuple(self.short_hashes) if MAX_ROW_HASHES < self.event_count == len(self.short_hashes) else ()
        return HighWater(
            position,
            last.packed.kind,
            self.latest_ms,
            last.tx_order,
            self.event_count,
            *marks,
            self.rows_ascending,
            self.replayed_count,
            rows,
        )

    def has(self, place: EventPosition, places: Sequence[EventPosition], i: int) -> bool:
        """Whether `place`, which is the `i`-th of `places`, was delivered before. Where not, it is the furthest now."""
        if self._is_new(place):
            self._go_to(place)
            return False
        if place.position_key < self.last.position_key:
            self.replayed_count = _BY_ROW if self.rows_ascending else 0
            return True
        if place.tx_order is not None and self.last.tx_order is not None:
            repeated = place.tx_order <= self.last.tx_order
        elif self.replayed_count is not None and self.replayed_count != _BY_ROW:
            self.replayed_count += 1
            repeated = self.replayed_count <= self.event_count
        elif self.rows_ascending and (place.row_key > self.last.row_key or self.replayed_count == _BY_ROW):
            repeated = place.row_key <= self.last.row_key
        elif self.rows_ascending:
            repeated = self._is_row_again(places, i)
            self.replayed_count = _BY_ROW if repeated else None
        else:
            self.replayed_count = self._resent_from(places, i)
            repeated = self.replayed_count is not None
        if not repeated:
            self._go_to(place)
        elif self.replayed_count == self.event_count or (
            self.replayed_count == _BY_ROW and place.row_key == self.last.row_key
        ):
            self.replayed_count = None
        return repeated

    def _is_new(self, place: EventPosition) -> bool:
        last = self.last
        if (
            place.server_id != last.server_id
            or place.ts_ms > self.latest_ms
            or place.position_key > last.position_key
        ):
            # Positions of two servers cannot be compared; after a fail-over nothing is taken for a duplicate.
            return True
        return place.position_key < last.position_key and is_later(place.gtid, last.gtid)

    def _go_to(self, place: EventPosition) -> None:
        last = self.last
        if (place.position_key, place.server_id) == (last.position_key, last.server_id):
            self.rows_ascending = self.rows_ascending and place.row_key > last.row_key
            # Perhaps delivered again and not known for it. To count too few here may record one twice; to count too
            # many would drop a change where all is delivered from an earlier place.
            if self.rows_ascending or place.row_hash & SHORT not in self.short_hashes:
                self._count(place)
        else:
            self.event_count, self.first_hashes, self.last_hashes, self.rows_ascending = (
                1,
                [place.row_hash],
                [place.row_hash],
                True,
            )
            self.short_hashes = {place.row_hash & SHORT: None}
            if place.packed.file_number != last.packed.file_number:
                self.file = None
        self.replayed_count = None
        self.latest_ms = max(self.latest_ms, place.ts_ms)
        self.last = place

    def _count(self, place: EventPosition) -> None:
        self.event_count += 1
        self.first_hashes = (
            [*self.first_hashes, place.row_hash]
            if len(self.first_hashes) < MAX_ROW_HASHES
            else self.first_hashes
        )
        self.last_hashes = [*self.last_hashes[1 - MAX_ROW_HASHES :], place.row_hash]
        if len(self.short_hashes) < MAX_SHORT_HASHES:
            self.short_hashes[place.row_hash & SHORT] = None

    def _is_row_again(self, places: Sequence[EventPosition], i: int) -> bool:
        """Whether the `i`-th event is delivered again. Rows only rose here so far; it does not come after the last."""
        coming = list(itertools.takewhile(self._is_there, itertools.islice(places, i, None)))
        # Each further run begins where the connector was killed again, or is another statement's.
        runs = _rising(coming)
        marks = [p.row_hash for p in runs[0]]
        if len(self.short_hashes) == self.event_count:
            rows, known = [row_hash & SHORT for row_hash in marks], list(self.short_hashes)
            return any(known[n : n + len(rows)] == rows for n in range(self.event_count))
        if places[i].packed.row == 0:
            # A first row whose key changed has two events.
            return any(_agree(marks, self.first_hashes[n:]) for n in (0, 1))
        # Where the batch ends before the last one, nothing tells: to take a change for new does less harm.
        return any(
            run[-1].row_key == self.last.row_key and _agree(_from_end(run), self.last_hashes[::-1])
            for run in runs
        )

    def _is_there(self, place: EventPosition) -> bool:
        here = (place.position_key, place.server_id) == (self.last.position_key, self.last.server_id)
        return here and place.row_key <= self.last.row_key

    def _resent_from(self, places: Sequence[EventPosition], i: int) -> int | None:
        """How many events of this place are delivered again with the `i`-th, if it begins a repetition of them."""
        if places[i].row_hash not in self.last_hashes and places[i].row_hash not in self.first_hashes[:2]:
            return None
        coming: list[int] = []
        for place in places[i : i + MAX_ROW_HASHES]:
            if (place.position_key, place.server_id) != (self.last.position_key, self.last.server_id):
                break
            coming.append(place.row_hash)
        for length in range(1, len(self.last_hashes) + 1):
            if _repeats(coming, self.last_hashes[-length:]):
                return self.event_count - length + 1
        # A first row whose key changed has two events.
        return next((n + 1 for n in (0, 1) if _repeats(coming, self.first_hashes[n:])), None)


def _repeats(coming: Sequence[int], known: Sequence[int]) -> bool:
    return bool(known) and coming[: len(known)] == known


def _agree(marks: Sequence[int], known: Sequence[int]) -> bool:
    """Whether marks are the same as far as both go."""
    both = min(len(marks), len(known))
    return both > 0 and marks[:both] == known[:both]


def _rising(places: Sequence[EventPosition]) -> list[list[EventPosition]]:
    """Runs of events whose rows rise; at least one."""
    runs: list[list[EventPosition]] = [[]]
    for place in places:
        if runs[-1] and place.row_key <= runs[-1][-1].row_key:
            runs.append([])
        runs[-1].append(place)
    return runs


def _from_end(run: Sequence[EventPosition]) -> list[int]:
    return [place.row_hash for place in reversed(run)]


def is_later(gtid: str | None, than: str | None) -> bool:
    """Whether a transaction was committed after another one that was first committed on the same server."""
    if gtid is None or than is None:
        return False
    (source, _, number), (other, _, other_number) = gtid.rpartition(":"), than.rpartition(":")
    both = number.isdigit() and other_number.isdigit()
    return source == other and both and int(number) > int(other_number)
