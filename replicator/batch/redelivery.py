"""Recognizes redelivered events: events of one partition that were delivered before.

At-least-once delivery repeats a suffix of the log in order. So a redelivered event lies at or before the furthest
position seen, and its source time is not later than the latest one seen. Both must hold: if the binlogs of the source
were reset and are numbered from one again, positions are small but time advances, and losing a change is worse than
recording it twice. For the same reason an event is new if its GTID shows a later transaction than the furthest one:
after a fail-over, positions are those of another server. If the connector was interrupted within the furthest
transaction, the other server sends that again: the numbers of its events tell which of them are new.

Several events may share one position: the numbered rows of a statement, the delete and the create of a key update, or,
if the source compresses its transactions (binlog_transaction_compression), all events of a transaction, in which each
statement numbers its rows from zero. At the furthest position, events are therefore classified by the first of these
rules that applies:

1. By transaction order, if the connector numbers the events of a transaction (provide.transaction.metadata): an event
   is repeated if its number is not greater than that of the furthest event.
2. By count, while a replay of all events at the position is in progress: the next `event_count` events are repeated.
3. By row number, if rows were ascending so far: a row after the last one is new; all others are repeated while a replay
   is in progress.
4. By content, otherwise: an event is repeated if its row hash, with those of the events that follow, equals a part of
   the hashes seen at the position. Only a limited number of hashes is kept. If rows were ascending, an event without a
   known hash is repeated if the last event follows in the same batch; if they were not, only a repetition of all events
   or of a suffix counts.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from replicator.model.commit_marker import HighWater
from replicator.model.position import PackedPosition

MAX_ROW_HASHES: Final = 32
"""Maximum number of row hashes kept of the first, and also of the last events at a position."""

MAX_SHORT_HASHES: Final = 512
"""Maximum number of 24-bit row hashes kept per position; enough for the rows of a usual binlog event of 8 KiB."""

_SHORT_HASH_MASK: Final = (1 << 24) - 1

_BY_ROW: Final = -1
"""Value of `replayed_count` for a replay whose events are identified by row number; it may begin inside a statement."""


def short_hash(row_hash: int) -> int:
    """Return the lowest 24 bits of a row hash."""
    return row_hash & _SHORT_HASH_MASK


@dataclass(frozen=True, slots=True)
class EventPosition:
    """The position of one event, and what distinguishes it from others there; names as in the decoded frame."""

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

    @property
    def short_hash(self) -> int:
        """The lowest 24 bits of the row hash."""
        return short_hash(self.row_hash)

    def shares_position(self, other: "EventPosition") -> bool:
        """Return whether both events have the same binlog file and offset on the same server."""
        return (self.position_key, self.server_id) == (other.position_key, other.server_id)


@dataclass(slots=True)
class RedeliveryDetector:
    """The state of one partition while its events are observed one by one. Most fields are those of `HighWater`.

    Attributes:
        last: the furthest event.
        latest_ms: the latest source time seen, milliseconds since the epoch.
        replayed_count: None if no replay of the events at the last position is known; the number of them that were
            sent again so far; or `_BY_ROW`.
        short_hashes: an ordered set.
        file: name of the binlog file of `last`, if known.
    """

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
    def starting_at(cls, event: EventPosition) -> "RedeliveryDetector":
        """Return the state after the first event of a partition."""
        return cls(
            last=event,
            latest_ms=event.ts_ms,
            event_count=1,
            first_hashes=[event.row_hash],
            last_hashes=[event.row_hash],
            rows_ascending=True,
            replayed_count=None,
            short_hashes={event.short_hash: None},
        )

    @classmethod
    def from_high_water(cls, high: HighWater) -> "RedeliveryDetector":
        """Return the state after earlier batches."""
        packed, position = PackedPosition.pack(high.position, high.kind), high.position
        last = EventPosition(
            packed.position_key,
            packed.row_key,
            high.ts_ms,
            position.server_id,
            position.gtid,
            high.tx_order,
        )
        return cls(
            last=last,
            latest_ms=high.ts_ms,
            event_count=high.event_count,
            first_hashes=list(high.first_hashes),
            last_hashes=list(high.last_hashes),
            rows_ascending=high.rows_ascending,
            replayed_count=high.replayed_count,
            short_hashes=dict.fromkeys(high.short_hashes or map(short_hash, high.last_hashes)),
            file=position.file,
        )

    def high_water(self) -> HighWater:
        """Return the state as a value for the commit marker."""
        last = self.last
        # `last_hashes` holds all of few events; an incomplete set of short hashes is not kept.
        complete = MAX_ROW_HASHES < self.event_count == len(self.short_hashes)
        return HighWater(
            position=last.packed.unpack(self.file, last.server_id, last.gtid),
            kind=last.packed.kind,
            ts_ms=self.latest_ms,
            tx_order=last.tx_order,
            event_count=self.event_count,
            first_hashes=tuple(self.first_hashes),
            last_hashes=tuple(self.last_hashes),
            rows_ascending=self.rows_ascending,
            replayed_count=self.replayed_count,
            short_hashes=tuple(self.short_hashes) if complete else (),
        )

    def observe(self, events: Sequence[EventPosition], i: int) -> bool:
        """Advance to `events[i]` if it is new. Return whether it was delivered before.

        Events must be observed in offset order. Those after the `i`-th are used to recognize a replay.
        """
        event = events[i]
        if self._is_later(event):
            self._advance_to(event)
            return False
        if event.position_key < self.last.position_key:
            # If the replay reaches the last position, it contains all events there.
            self.replayed_count = _BY_ROW if self.rows_ascending else 0
            return True
        repeated = self._observe_at_last_position(events, i)
        if not repeated:
            self._advance_to(event)
        elif self._has_replay_ended(event):
            self.replayed_count = None
        return repeated

    def _is_later(self, event: EventPosition) -> bool:
        """Return whether an event is new because of its server, time, position or transaction."""
        last = self.last
        if event.ts_ms > self.latest_ms:
            return True
        if event.gtid is not None and event.gtid == last.gtid:
            if event.tx_order is not None and last.tx_order is not None:
                return event.tx_order > last.tx_order
            # No transaction is in two files: the connector was interrupted within it, and continues on another server.
            # Without numbers it is unknown which of its events were delivered: a repeated one does less harm.
            if event.packed.file_number != last.packed.file_number:
                return True
        # Positions of two servers cannot be compared: after a failover, no event counts as redelivered.
        if event.server_id != last.server_id:
            return True
        if event.position_key < last.position_key:
            return is_later_transaction(event.gtid, last.gtid)
        return event.position_key > last.position_key

    def _observe_at_last_position(self, events: Sequence[EventPosition], i: int) -> bool:
        """Return whether `events[i]`, at the last position, is repeated; update the count of replayed events."""
        event = events[i]
        if event.tx_order is not None and self.last.tx_order is not None:
            return event.tx_order <= self.last.tx_order
        if self.replayed_count is not None and self.replayed_count != _BY_ROW:
            self.replayed_count += 1
            return self.replayed_count <= self.event_count
        if not self.rows_ascending:
            self.replayed_count = self._replayed_count_from(events, i)
            return self.replayed_count is not None
        if event.row_key > self.last.row_key or self.replayed_count == _BY_ROW:
            return event.row_key <= self.last.row_key
        repeated = self._repeats_ascending_rows(events, i)
        self.replayed_count = _BY_ROW if repeated else None
        return repeated

    def _has_replay_ended(self, event: EventPosition) -> bool:
        """Return whether `event`, a repeated one at the last position, is the last of a replay."""
        if self.replayed_count == _BY_ROW:
            return event.row_key == self.last.row_key
        return self.replayed_count == self.event_count

    def _advance_to(self, event: EventPosition) -> None:
        """Make `event` the furthest event."""
        last = self.last
        if event.shares_position(last):
            self.rows_ascending = self.rows_ascending and event.row_key > last.row_key
            # The event may be a redelivered one that was not recognized. Counting too few events may record a change
            # twice; counting too many would drop a change if everything is redelivered from an earlier position.
            if self.rows_ascending or event.short_hash not in self.short_hashes:
                self._count(event)
        else:
            self.event_count, self.rows_ascending = 1, True
            self.first_hashes, self.last_hashes = [event.row_hash], [event.row_hash]
            self.short_hashes = {event.short_hash: None}
            if event.packed.file_number != last.packed.file_number:
                self.file = None
        self.replayed_count = None
        self.latest_ms = max(self.latest_ms, event.ts_ms)
        self.last = event

    def _count(self, event: EventPosition) -> None:
        """Count one more event at the last position, and keep its hash."""
        self.event_count += 1
        if len(self.first_hashes) < MAX_ROW_HASHES:
            self.first_hashes.append(event.row_hash)
        self.last_hashes = [*self.last_hashes, event.row_hash][-MAX_ROW_HASHES:]
        if len(self.short_hashes) < MAX_SHORT_HASHES:
            self.short_hashes[event.short_hash] = None

    def _repeats_ascending_rows(self, events: Sequence[EventPosition], i: int) -> bool:
        """Return whether a replay begins with `events[i]`, which is not after the last row; rows ascended so far."""
        upcoming = list(itertools.takewhile(self._is_at_last_position, itertools.islice(events, i, None)))
        # Each further run begins where the connector was killed again, or belongs to another statement.
        runs = _ascending_runs(upcoming)
        hashes = [event.row_hash for event in runs[0]]
        if len(self.short_hashes) == self.event_count:
            wanted, known = [short_hash(h) for h in hashes], list(self.short_hashes)
            return any(known[n : n + len(wanted)] == wanted for n in range(self.event_count))
        if events[i].packed.row == 0:
            # A first row with a changed key has two events.
            return any(_have_common_prefix(hashes, self.first_hashes[n:]) for n in (0, 1))
        # If the batch ends before the last row, nothing is known: applying a change twice does less harm.
        known_from_end = self.last_hashes[::-1]
        return any(
            run[-1].row_key == self.last.row_key
            and _have_common_prefix([event.row_hash for event in reversed(run)], known_from_end)
            for run in runs
        )

    def _is_at_last_position(self, event: EventPosition) -> bool:
        return event.shares_position(self.last) and event.row_key <= self.last.row_key

    def _replayed_count_from(self, events: Sequence[EventPosition], i: int) -> int | None:
        """Return the number of replayed events up to `events[i]`, if a replay begins with it; None if none does."""
        if events[i].row_hash not in self.last_hashes and events[i].row_hash not in self.first_hashes[:2]:
            return None
        candidates = itertools.takewhile(self.last.shares_position, events[i : i + MAX_ROW_HASHES])
        upcoming = [event.row_hash for event in candidates]
        for length in range(1, len(self.last_hashes) + 1):
            if _starts_with(upcoming, self.last_hashes[-length:]):
                return self.event_count - length + 1
        # A first row with a changed key has two events.
        return next((n + 1 for n in (0, 1) if _starts_with(upcoming, self.first_hashes[n:])), None)


def _starts_with(hashes: Sequence[int], prefix: Sequence[int]) -> bool:
    return bool(prefix) and hashes[: len(prefix)] == prefix


def _have_common_prefix(hashes: Sequence[int], known: Sequence[int]) -> bool:
    """Return whether the shorter list is not empty and is the beginning of the other."""
    length = min(len(hashes), len(known))
    return length > 0 and hashes[:length] == known[:length]


def _ascending_runs(events: Sequence[EventPosition]) -> list[list[EventPosition]]:
    """Split events into runs of ascending rows; at least one run."""
    runs: list[list[EventPosition]] = [[]]
    for event in events:
        if runs[-1] and event.row_key <= runs[-1][-1].row_key:
            runs.append([])
        runs[-1].append(event)
    return runs


def is_later_transaction(gtid: str | None, than: str | None) -> bool:
    """Return whether one transaction was committed after another that was first committed on the same server."""
    if gtid is None or than is None:
        return False
    (source, _, number), (other_source, _, other_number) = gtid.rpartition(":"), than.rpartition(":")
    numbered = number.isdigit() and other_number.isdigit()
    return source == other_source and numbered and int(number) > int(other_number)
