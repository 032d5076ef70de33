"""Recognizes redelivered events: events of one partition that were delivered before.

At-least-once delivery repeats a suffix of the log in order. So a redelivered event lies at or before the furthest
position seen, and its source time is not later than the latest one seen. Both must hold: if the binlogs of the source
were reset and are numbered from one again, positions are small but time advances, and losing a change is worse than
recording it twice.

Positions of two servers cannot be compared, and after a fail-over they are those of another server. So the transactions
that were seen are remembered by their GTIDs (`SeenTransactions`), and membership decides, if it is known; this is also
right for transactions of several origins in one log, and for a replica that does not preserve their order. Otherwise an
event is new if its GTID shows a later transaction than the furthest one.

The transaction that a fail-over may have interrupted is new if it continues on another server: in another file, or, if
its positions are lower than the furthest one or a replay has come past that one, in a binlog in which the source has no
such position. It is unknown which of its events were delivered, so `resumed` tells the first one.

Several events may share one position: the numbered rows of a statement, the delete and the create of a key update, or,
if the source compresses its transactions (binlog_transaction_compression), all events of a transaction, in which each
statement numbers its rows from zero. At the furthest position, events are therefore classified by the first of these
rules that applies. Equal content alone never makes an event a repeated one, because a compressed transaction may
contain it twice.

1. A row after the last one is new, if rows were ascending so far: the last one is the greatest that was sent.
2. By transaction order, if the connector numbers the events of a transaction (provide.transaction.metadata): an event
   is repeated if its number is not greater than that of the furthest event.
3. By count or by row number, while a replay of all events at the position is known to be in progress, because it began
   at an earlier position, or because the position is not that of a compressed transaction.
4. An event whose content no event at the position had is new, and the transaction is compressed. A limited number of
   row hashes is kept, so this is known of the first row of a statement, and of any event if there were few.
5. If the position is not that of a compressed transaction, all others are repeated: one position has each row once.
   If that is only assumed, because the source cannot be asked and `log.transactions` is off, an event of which rule 4
   says that it is compressed nevertheless raises `TransactionsNotNumbered`.
6. Otherwise nothing tells a repeated event from a second equal change. `TransactionsNotNumbered` is raised.
"""

from dataclasses import dataclass, field
from typing import Final, Protocol

from replicator.errors import TransactionInterrupted, TransactionsNotNumbered
from replicator.model.commit_marker import HighWater
from replicator.model.gtid import Transaction
from replicator.model.position import PackedPosition, SourcePosition
from replicator.model.seen_transactions import SeenTransactions


class Binlog(Protocol):
    """What the source's binlog has at the positions of events; it may ask the source."""

    @property
    def must_answer(self) -> bool:
        """Whether it must be known of events that may have been sent again from which server's binlog they are.

        Otherwise, unless the source tells, they are taken to be from one.
        """

    def may_be_compressed(self, position: SourcePosition) -> bool | None:
        """Return whether a compressed transaction is, or may be, at a position.

        None is the assumption that none is.
        """

    def has_both(self, event: SourcePosition, later: SourcePosition, *, waits: bool = True) -> bool | None:
        """Return whether `later` is in the transaction of `event`; None if the source does not have `event`.

        Raises:
            SourceError: the source does not answer, it `must_answer`, and the caller `waits`. Otherwise, that is None
                too.
        """


MAX_ROW_HASHES: Final = 32
"""Maximum number of row hashes kept of the first, and also of the last events at a position."""

_BY_ROW: Final = -1
"""Value of `replayed_count` for a replay whose events are identified by row number; it may begin inside a statement."""


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

    def is_of_other_transaction(self, other: "EventPosition") -> bool:
        """Return whether the events have different GTIDs; false if one has none."""
        return self.gtid is not None and other.gtid is not None and self.gtid != other.gtid

    def may_be_of_other_server(self, previous: "EventPosition") -> bool:
        """Return whether the event may be in another server's binlog than the event before it."""
        return (
            self.packed.file_number != previous.packed.file_number
            or self.position_key < previous.position_key
        )

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
        assumed_plain: whether events at the last position were dropped under the assumption that it is not that of a
            compressed transaction.
        binlog: asked only if nothing else tells whether an event is repeated.
        file: name of the binlog file of `last`, if known.
        resumed: the first event of an interrupted transaction that may have been delivered before, as it has another
            position now.
    """

    last: EventPosition
    latest_ms: int
    event_count: int
    first_hashes: list[int]
    last_hashes: list[int]
    rows_ascending: bool
    replayed_count: int | None
    binlog: Binlog
    assumed_plain: bool = False
    file: str | None = None
    transactions: SeenTransactions = field(default_factory=SeenTransactions)
    resumed: EventPosition | None = None
    _is_own_replay: bool = False
    _begins_batch: bool = False

    @classmethod
    def starting_at(cls, event: EventPosition, binlog: Binlog) -> "RedeliveryDetector":
        """Return the state after the first event of a partition."""
        return cls(
            last=event,
            latest_ms=event.ts_ms,
            event_count=1,
            first_hashes=[event.row_hash],
            last_hashes=[event.row_hash],
            rows_ascending=True,
            replayed_count=None,
            binlog=binlog,
            transactions=_with_event(SeenTransactions(), event),
        )

    @classmethod
    def from_high_water(cls, high: HighWater, binlog: Binlog) -> "RedeliveryDetector":
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
            binlog=binlog,
            assumed_plain=high.assumed_plain,
            file=position.file,
            transactions=high.transactions,
            _begins_batch=True,
        )

    def high_water(self) -> HighWater:
        """Return the state as a value for the commit marker."""
        last = self.last
        return HighWater(
            position=self._position(),
            kind=last.packed.kind,
            ts_ms=self.latest_ms,
            tx_order=last.tx_order,
            event_count=self.event_count,
            first_hashes=tuple(self.first_hashes),
            last_hashes=tuple(self.last_hashes),
            rows_ascending=self.rows_ascending,
            replayed_count=self.replayed_count,
            assumed_plain=self.assumed_plain,
            transactions=self.transactions,
        )

    def observe(self, event: EventPosition) -> bool:
        """Advance to `event` if it is new. Return whether it was delivered before.

        Events must be observed in offset order.

        Raises:
            TransactionsNotNumbered: nothing tells whether it was.
            SourceError: the source does not answer.
            TransactionInterrupted: the binlogs of two servers have the transaction at nearly the same positions, or
                nothing tells which transaction was interrupted when another server became the source.
        """
        is_repeated = self._observe(event)
        self._begins_batch = False
        return is_repeated

    def _observe(self, event: EventPosition) -> bool:
        if self._is_later(event):
            self._advance_to(event)
            return False
        if event.position_key < self.last.position_key:
            # If the replay reaches the last position, it contains all events there.
            self.replayed_count = _BY_ROW if self.rows_ascending else 0
            return True
        if event.position_key > self.last.position_key:
            self._note_other_server(event)  # Its transaction was seen, on another one.
            return True
        if event.is_of_other_transaction(self.last):
            return True
        repeated = self._observe_at_last_position(event)
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
        if event.gtid is not None and event.gtid == last.gtid and self._is_on_other_server(event):
            self.resumed = self.resumed or event
            return True
        if event.is_of_other_transaction(last):
            if (seen := self._was_seen(event)) is not None:
                return not seen
            if self._may_be_interrupted(event):
                if event.position_key < last.position_key:
                    return False
                self._check_resumes(event)
                self.resumed = self.resumed or event
                return True
        # Positions of two servers cannot be compared: after a failover, no event counts as redelivered.
        if event.server_id != last.server_id:
            return True
        if event.position_key < last.position_key:
            return is_later_transaction(event.gtid, last.gtid)
        return event.position_key > last.position_key

    def _is_on_other_server(self, event: EventPosition) -> bool:
        """Return whether `event`, of the furthest transaction, is in another server's binlog than the furthest event.

        No transaction is in two files. If positions go back within one, the connector has restarted, and the source
        tells whether it continues in the same binlog.

        Raises:
            SourceError: the source does not answer.
            TransactionInterrupted: the source has neither event, so nothing tells it.
        """
        last = self.last
        if event.packed.file_number != last.packed.file_number:
            return True
        if event.position_key == last.position_key:
            return False
        if event.position_key > last.position_key:
            return self._may_be_interrupted(last) or self._has_skipped_furthest(event)
        if self._is_own_replay:
            return False
        at = event.packed.unpack(self.file, event.server_id, event.gtid)
        has_both = self.binlog.has_both(at, self._position())
        if has_both is None and self.binlog.must_answer:
            raise interrupted(at)
        self._is_own_replay = has_both is not False
        return not self._is_own_replay

    def _has_skipped_furthest(self, event: EventPosition) -> bool:
        """Return whether the connector came to `event` past the furthest position, because it reads another binlog.

        In the same binlog, a replay reaches the furthest event before `event`. A connector that restarted within the
        transaction may have sent no other event again; then the first event of a batch shows it, and the source is
        asked, but need not answer. If the source has neither event after a replay, they count as those of two servers.

        Raises:
            SourceError: the source does not answer.
        """
        is_replay = self.replayed_count is not None
        if not (is_replay or self._begins_batch):
            return False
        at = event.packed.unpack(self.file, event.server_id, event.gtid)
        is_skipped = lacks_first(self.binlog, self._position(), at, waits=is_replay)
        return (is_replay and self.binlog.must_answer) if is_skipped is None else is_skipped

    def _may_be_interrupted(self, event: EventPosition) -> bool:
        """Return whether a fail-over may have interrupted the connector within the event's transaction."""
        return Transaction.parse(event.gtid) in self.transactions.interrupted

    def _check_resumes(self, event: EventPosition) -> None:
        """Check that `event`, behind the furthest one, is of the transaction that the last fail-over interrupted.

        Then transactions between them were sent by this server alone, in another order. Otherwise, the transaction was
        the last one in an earlier file. If it was sent as a whole, its changes must not be applied after later ones.

        Raises:
            TransactionInterrupted: it is another transaction.
        """
        newest = self.transactions.interrupted[-1]
        if (
            event.packed.file_number != self.last.packed.file_number
            or Transaction.parse(event.gtid) != newest
        ):
            raise interrupted(event.packed.unpack(self.file, event.server_id, event.gtid))

    def _was_seen(self, event: EventPosition) -> bool | None:
        transaction = Transaction.parse(event.gtid)
        return None if transaction is None else self.transactions.has(transaction)

    def _observe_at_last_position(self, event: EventPosition) -> bool:
        """Return whether `event`, at the last position, is repeated; update the count of replayed events."""
        if self.rows_ascending and event.row_key > self.last.row_key:
            # Numbers cannot tell this: a connector that was killed within a statement numbers the rest from one again.
            return False
        if event.gtid is not None and self.replayed_count == _BY_ROW and self._has_new_content(event):
            raise interrupted(event.packed.unpack(self.file, event.server_id, event.gtid))
        if event.tx_order is not None and self.last.tx_order is not None:
            return event.tx_order <= self.last.tx_order
        if self.replayed_count is not None and self.replayed_count != _BY_ROW:
            self.replayed_count += 1
            return self.replayed_count <= self.event_count
        if self.replayed_count == _BY_ROW and not self.assumed_plain:
            return True
        if self._has_new_content(event):
            if self.assumed_plain:
                raise self._not_numbered(event)
            return False
        if self.replayed_count is None:
            self._begin_replay(event)
        return True

    def _begin_replay(self, event: EventPosition) -> None:
        """Begin a replay within the last position.

        Raises:
            TransactionsNotNumbered: `event` may be a second equal change of a compressed transaction.
        """
        compressed = True if not self.rows_ascending else self.binlog.may_be_compressed(self._position())
        if compressed:
            raise self._not_numbered(event)
        self.assumed_plain = self.assumed_plain or compressed is None
        self.replayed_count = _BY_ROW

    def _not_numbered(self, event: EventPosition) -> TransactionsNotNumbered:
        return TransactionsNotNumbered(
            f"changes at {event.packed.unpack(self.file, event.server_id, event.gtid)} may be equal ones of one"
            " transaction, or may have been sent again",
            "set log.transactions = true, and run: replicator connect; then read the table again: replicator heal"
            " DATABASE.TABLE",
        )

    def _has_new_content(self, event: EventPosition) -> bool:
        """Return whether no event at the last position was equal to `event`, as far as that is known.

        `event` is not after the last row.
        """
        first, last = self.first_hashes, self.last_hashes
        if (
            event.row_hash in first
            or event.row_hash in last
            or len(first) < min(self.event_count, MAX_ROW_HASHES)
        ):
            return False
        # Among ascending rows, row 0 can only be one of the first.
        return self.event_count <= 2 * MAX_ROW_HASHES or (self.rows_ascending and event.packed.row == 0)

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
            self._count(event)
        else:
            self.event_count, self.rows_ascending, self.assumed_plain = 1, True, False
            self.first_hashes, self.last_hashes = [event.row_hash], [event.row_hash]
            if event.packed.file_number != last.packed.file_number:
                self.file = None
        self._remember_transaction(event)
        self.replayed_count, self._is_own_replay = None, False
        self.latest_ms = max(self.latest_ms, event.ts_ms)
        self.last = event

    def _remember_transaction(self, event: EventPosition) -> None:
        last = self.last
        if last.gtid is not None and not event.is_of_other_transaction(last):
            return
        if event.may_be_of_other_server(last):
            self._note_interrupted()
        self.transactions = _with_event(self.transactions, event)

    def _note_interrupted(self) -> None:
        ended = Transaction.parse(self.last.gtid)
        if ended is not None:
            self.transactions = self.transactions.with_interrupted(ended)

    def _note_other_server(self, event: EventPosition) -> None:
        """Note that the connector reads another server, which may send the rest of the furthest transaction later.

        In another file, that is known when the transaction continues. In a file with the same number, the furthest
        event may be in this server's binlog itself: then its server does not preserve the order of commits, and `event`
        may be of the transaction that was interrupted.

        Raises:
            TransactionInterrupted: that is so.
        """
        last = self.last
        if last.gtid is None or self._may_be_interrupted(last):
            return
        if event.packed.file_number != last.packed.file_number:
            return
        if self.binlog.has_both(self._position(), self._position()) is True:
            raise interrupted(event.packed.unpack(self.file, event.server_id, event.gtid))
        self._note_interrupted()

    def _count(self, event: EventPosition) -> None:
        """Count one more event at the last position, and keep its hash."""
        # Markers of a rebuilt or reread table have no hashes of the first events.
        if len(self.first_hashes) == self.event_count < MAX_ROW_HASHES:
            self.first_hashes.append(event.row_hash)
        self.event_count += 1
        self.last_hashes = [*self.last_hashes, event.row_hash][-MAX_ROW_HASHES:]

    def _position(self) -> SourcePosition:
        """Return the last position."""
        return self.last.packed.unpack(self.file, self.last.server_id, self.last.gtid)


def lacks_first(binlog: Binlog, first: SourcePosition, later: SourcePosition, *, waits: bool) -> bool | None:
    """Return whether the source has `later`, but not in a transaction with `first`; None if it has neither.

    Raises:
        SourceError: see `Binlog.has_both`.
    """
    has_both = binlog.has_both(first, later, waits=waits)
    if has_both is not None:
        return not has_both
    return True if binlog.has_both(later, later, waits=waits) else None


def interrupted(position: SourcePosition) -> TransactionInterrupted:
    """Return that the log does not tell which events of the transaction at a position were delivered before."""
    return TransactionInterrupted(
        f"the transaction at {position} was interrupted when another server became the source: its events may have been"
        " sent twice, or not at all",
        "read the table again: replicator heal DATABASE.TABLE",
    )


def is_later_transaction(gtid: str | None, than: str | None) -> bool:
    """Return whether one transaction was committed after another that was first committed on the same server."""
    own, other = Transaction.parse(gtid), Transaction.parse(than)
    return own is not None and other is not None and own.origin == other.origin and own.number > other.number


def _with_event(transactions: SeenTransactions, event: EventPosition) -> SeenTransactions:
    own = Transaction.parse(event.gtid)
    return transactions if own is None else transactions.with_new(own.origin, [own.number])
