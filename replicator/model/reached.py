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

from replicator.model.commit import HighWater
from replicator.model.position import FILE_SHIFT, SourcePosition

MOST_MARKS: Final = 32
"""Of the events at one place so many of the first and of the last ones are remembered."""

MOST_ROWS: Final = 512
"""Of so many at least a part of their marks: of all rows that an event of MySQL's usual 8 KiB has."""

SHORT: Final = (1 << 24) - 1
"""That part."""
_BY_ROW: Final = -1
"""In place of how many were sent again: it began within a statement, so the numbers of the rows tell."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one event stands; names as in decoded frames."""

    hi: int
    lo: int
    ts_ms: int
    server_id: int
    gtid: str | None = None
    nth: int | None = None
    mark: int = 0


@dataclass(slots=True)
class Reached:
    """The furthest place, while events are looked at one by one. Fields as in `HighWater`."""

    last: Place
    latest_ms: int
    seen: int
    head: list[int]
    marks: list[int]
    plain: bool
    resent: int | None
    rows: dict[int, None]
    file: str | None = None

    @classmethod
    def at(cls, place: Place) -> "Reached":
        """After the first event of all."""
        return cls(place, place.ts_ms, 1, [place.mark], [place.mark], True, None, {place.mark & SHORT: None})

    @classmethod
    def of(cls, high: HighWater) -> "Reached":
        """After the batches before."""
        number, pos, row = high.position.order
        hi, lo = (number << FILE_SHIFT) + pos, row << 1 | high.kind
        place = Place(hi, lo, high.ts_ms, high.position.server_id, high.position.gtid, high.nth)
        marks = list(high.head), list(high.marks)
        rows = dict.fromkeys(high.rows or [mark & SHORT for mark in high.marks])
        return cls(place, high.ts_ms, high.seen, *marks, high.plain, high.resent, rows, high.position.file)

    def high_water(self) -> HighWater:
        """The same as a value to be kept."""
        last = self.last
        number, pos = last.hi >> FILE_SHIFT, last.hi & ((1 << FILE_SHIFT) - 1)
        file = self.file or f"binlog.{number:06d}"
        position = SourcePosition(file, pos, last.lo >> 1, last.server_id, last.gtid)
        marks = tuple(self.head), tuple(self.marks)
        rows = tuple(self.rows) if MOST_MARKS < self.seen == len(self.rows) else ()
        return HighWater(
            position, last.lo & 1, self.latest_ms, last.nth, self.seen, *marks, self.plain, self.resent, rows
        )

    def has(self, place: Place, places: Sequence[Place], i: int) -> bool:
        """Whether `place`, which is the `i`-th of `places`, was delivered before. Where not, it is the furthest now."""
        if self._is_new(place):
            self._go_to(place)
            return False
        if place.hi < self.last.hi:
            self.resent = _BY_ROW if self.plain else 0
            return True
        if place.nth is not None and self.last.nth is not None:
            repeated = place.nth <= self.last.nth
        elif self.resent is not None and self.resent != _BY_ROW:
            self.resent += 1
            repeated = self.resent <= self.seen
        elif self.plain and (place.lo > self.last.lo or self.resent == _BY_ROW):
            repeated = place.lo <= self.last.lo
        elif self.plain:
            repeated = self._is_row_again(places, i)
            self.resent = _BY_ROW if repeated else None
        else:
            self.resent = self._resent_from(places, i)
            repeated = self.resent is not None
        if not repeated:
            self._go_to(place)
        elif self.resent == self.seen or (self.resent == _BY_ROW and place.lo == self.last.lo):
            self.resent = None
        return repeated

    def _is_new(self, place: Place) -> bool:
        last = self.last
        if place.server_id != last.server_id or place.ts_ms > self.latest_ms or place.hi > last.hi:
            # Positions of two servers cannot be compared; after a fail-over nothing is taken for a duplicate.
            return True
        return place.hi < last.hi and is_later(place.gtid, last.gtid)

    def _go_to(self, place: Place) -> None:
        last = self.last
        if (place.hi, place.server_id) == (last.hi, last.server_id):
            self.plain = self.plain and place.lo > last.lo
            # Perhaps delivered again and not known for it. To count too few here may record one twice; to count too
            # many would drop a change where all is delivered from an earlier place.
            if self.plain or place.mark & SHORT not in self.rows:
                self._count(place)
        else:
            self.seen, self.head, self.marks, self.plain = 1, [place.mark], [place.mark], True
            self.rows = {place.mark & SHORT: None}
            if place.hi >> FILE_SHIFT != last.hi >> FILE_SHIFT:
                self.file = None
        self.resent = None
        self.latest_ms = max(self.latest_ms, place.ts_ms)
        self.last = place

    def _count(self, place: Place) -> None:
        self.seen += 1
        self.head = [*self.head, place.mark] if len(self.head) < MOST_MARKS else self.head
        self.marks = [*self.marks[1 - MOST_MARKS :], place.mark]
        if len(self.rows) < MOST_ROWS:
            self.rows[place.mark & SHORT] = None

    def _is_row_again(self, places: Sequence[Place], i: int) -> bool:
        """Whether the `i`-th event is delivered again. Rows only rose here so far; it does not come after the last."""
        coming = list(itertools.takewhile(self._is_there, itertools.islice(places, i, None)))
        # Each further run begins where the connector was killed again, or is another statement's.
        runs = _rising(coming)
        marks = [p.mark for p in runs[0]]
        if len(self.rows) == self.seen:
            rows, known = [mark & SHORT for mark in marks], list(self.rows)
            return any(known[n : n + len(rows)] == rows for n in range(self.seen))
        if places[i].lo >> 1 == 0:
            # A first row whose key changed has two events.
            return any(_agree(marks, self.head[n:]) for n in (0, 1))
        # Where the batch ends before the last one, nothing tells: to take a change for new does less harm.
        return any(run[-1].lo == self.last.lo and _agree(_from_end(run), self.marks[::-1]) for run in runs)

    def _is_there(self, place: Place) -> bool:
        here = (place.hi, place.server_id) == (self.last.hi, self.last.server_id)
        return here and place.lo <= self.last.lo

    def _resent_from(self, places: Sequence[Place], i: int) -> int | None:
        """How many events of this place are delivered again with the `i`-th, if it begins a repetition of them."""
        if places[i].mark not in self.marks and places[i].mark not in self.head[:2]:
            return None
        coming: list[int] = []
        for place in places[i : i + MOST_MARKS]:
            if (place.hi, place.server_id) != (self.last.hi, self.last.server_id):
                break
            coming.append(place.mark)
        for length in range(1, len(self.marks) + 1):
            if _repeats(coming, self.marks[-length:]):
                return self.seen - length + 1
        # A first row whose key changed has two events.
        return next((n + 1 for n in (0, 1) if _repeats(coming, self.head[n:])), None)


def _repeats(coming: Sequence[int], known: Sequence[int]) -> bool:
    return bool(known) and coming[: len(known)] == known


def _agree(marks: Sequence[int], known: Sequence[int]) -> bool:
    """Whether marks are the same as far as both go."""
    both = min(len(marks), len(known))
    return both > 0 and marks[:both] == known[:both]


def _rising(places: Sequence[Place]) -> list[list[Place]]:
    """Runs of events whose rows rise; at least one."""
    runs: list[list[Place]] = [[]]
    for place in places:
        if runs[-1] and place.lo <= runs[-1][-1].lo:
            runs.append([])
        runs[-1].append(place)
    return runs


def _from_end(run: Sequence[Place]) -> list[int]:
    return [place.mark for place in reversed(run)]


def is_later(gtid: str | None, than: str | None) -> bool:
    """Whether a transaction was committed after another one that was first committed on the same server."""
    if gtid is None or than is None:
        return False
    (source, _, number), (other, _, other_number) = gtid.rpartition(":"), than.rpartition(":")
    both = number.isdigit() and other_number.isdigit()
    return source == other and both and int(number) > int(other_number)
