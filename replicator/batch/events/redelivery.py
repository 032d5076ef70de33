"""Recognizes redelivered events: events of one partition that were delivered before.

At-least-once delivery repeats a suffix of the log in order. So a redelivered event lies at or before the furthest
position seen, and its source time is not later than the latest one seen. Both must hold: if the binlogs of the source
were reset and are numbered from one again, positions are small but time advances, and losing a change is worse than
recording it twice.

Positions of two servers cannot be compared, and after a fail-over they are those of another server. So the transactions
that were seen are remembered by their GTIDs (`SeenTransactions`), and membership decides, if it is known; this is also
right for transactions of several origins in one log, and for a replica that does not preserve their order. Otherwise an
event is new if its GTID shows a later transaction than the furthest one.

A fail-over may interrupt the connector within a transaction. Then the new server sends the rest of it, or all of it.
`TransactionInterrupted` is raised, because nothing tells which events came again or are missing, if

- the furthest transaction continues in another file, which no transaction of one server does;
- events came again, and then something new comes, but the furthest event did not come again in between: a replay of one
  server would reach it, so another server's file has the same number, or another order of transactions;
- the last transaction of an earlier file comes again at a higher position than the furthest one.

Several events may share one position: the numbered rows of a statement, the delete and the create of a key update, or,
if the source compresses its transactions (binlog_transaction_compression), all events of a transaction, in which each
statement numbers its rows from zero. At the furthest position, events are therefore classified by the first of these
rules that applies:

1. A row after the last one is new, if rows were ascending so far: the last one is the greatest that was sent.
2. If the connector numbers the events of a transaction (provide.transaction.metadata), an event is repeated if its
   number is not greater than that of the furthest event.
3. If events came again, and not yet the furthest one, it is repeated: so far, its position has only rows that ascend.
4. If the position is, or may be, that of a compressed transaction, nothing tells a repeated event from that of a later
   statement. `TransactionsNotNumbered` is raised.
5. Otherwise the event is repeated: one position has each row once.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from replicator.errors import TransactionInterrupted, TransactionsNotNumbered
from replicator.model.commit_marker import HighWater
from replicator.model.gtid import Transaction
from replicator.model.position import PackedPosition, SourcePosition
from replicator.model.seen_transactions import SeenTransactions

MayBeCompressed = Callable[[SourcePosition], bool]
"""Return whether a compressed transaction is, or may be, at a position.

Raises SourceUnavailable if it is not known yet; try again later.
"""


@dataclass(frozen=True, slots=True)
class EventPosition:
    """The position of one event, and what distinguishes it from others there; names as in the decoded frame."""

    position_key: int
    row_key: int
    ts_ms: int
    server_id: int
    gtid: str | None = None
    tx_order: int | None = None

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
        may_be_compressed: asked only if nothing else tells whether an event is repeated.
        file: name of the binlog file of `last`, if known.
    """

    last: EventPosition
    latest_ms: int
    may_be_compressed: MayBeCompressed
    rows_ascending: bool = True
    is_replay: bool = False
    file: str | None = None
    transactions: SeenTransactions = field(default_factory=SeenTransactions)

    @classmethod
    def starting_at(cls, event: EventPosition, may_be_compressed: MayBeCompressed) -> "RedeliveryDetector":
        """Return the state after the first event of a partition."""
        transactions = _with_event(SeenTransactions(), event)
        return cls(event, event.ts_ms, may_be_compressed, transactions=transactions)

    @classmethod
    def from_high_water(cls, high: HighWater, may_be_compressed: MayBeCompressed) -> "RedeliveryDetector":
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
            may_be_compressed=may_be_compressed,
            rows_ascending=high.rows_ascending,
            is_replay=high.is_replay,
            file=position.file,
            transactions=high.transactions,
        )

    def high_water(self) -> HighWater:
        """Return the state as a value for the commit marker."""
        return HighWater(
            position=self.last.packed.unpack(self.file, self.last.server_id, self.last.gtid),
            kind=self.last.packed.kind,
            ts_ms=self.latest_ms,
            tx_order=self.last.tx_order,
            rows_ascending=self.rows_ascending,
            is_replay=self.is_replay,
            transactions=self.transactions,
        )

    def observe(self, event: EventPosition) -> bool:
        """Advance to `event` if it is new. Return whether it was delivered before.

        Events must be observed in offset order.

        Raises:
            TransactionsNotNumbered: nothing tells whether it was.
            TransactionInterrupted: events are missing, or nothing tells whether they are, because another server became
                the source.
            SourceUnavailable: it is not known yet whether the transaction is compressed.
        """
        if self._continues_in_other_file(event):
            raise _interrupted(self._at(event))
        if not self._is_new(event):
            self.is_replay = not self._is_furthest(event)
            return True
        if self.is_replay and None not in (event.gtid, self.last.gtid):
            raise _interrupted(self._at(event))
        self._advance_to(event)
        return False

    def _continues_in_other_file(self, event: EventPosition) -> bool:
        """Return whether an event of the furthest transaction is in another file, so in another server's binlog."""
        return (
            event.gtid is not None
            and event.gtid == self.last.gtid
            and event.packed.file_number != self.last.packed.file_number
        )

    def _is_new(self, event: EventPosition) -> bool:
        """Return whether an event is new because of its time, transaction, server or position."""
        last = self.last
        if event.ts_ms > self.latest_ms:
            return True
        if event.is_of_other_transaction(last) and (transaction := Transaction.parse(event.gtid)) is not None:
            if (seen := self.transactions.has(transaction)) is not None:
                return not seen
            if transaction in self.transactions.interrupted:
                if event.position_key >= last.position_key:
                    raise _interrupted(self._at(event))
                return False
        # Positions of two servers cannot be compared: after a failover, no event counts as redelivered.
        if event.server_id != last.server_id:
            return True
        if event.position_key == last.position_key:
            return not event.is_of_other_transaction(last) and self._is_new_at_last_position(event)
        return event.position_key > last.position_key or is_later_transaction(event.gtid, last.gtid)

    def _is_new_at_last_position(self, event: EventPosition) -> bool:
        if self.rows_ascending and event.row_key > self.last.row_key:
            # Numbers cannot tell this: a connector that was killed within a statement numbers the rest from one again.
            return True
        if event.tx_order is not None and self.last.tx_order is not None:
            return event.tx_order > self.last.tx_order
        if self.rows_ascending and self.is_replay:
            return False
        if not self.rows_ascending or self.may_be_compressed(self._at(self.last)):
            raise TransactionsNotNumbered(
                f"changes at {self._at(event)} may be those of several statements of a compressed transaction, or may"
                " have been sent again",
                "set log.transactions = true, and run: replicator connect; then read the table again: replicator heal"
                " DATABASE.TABLE",
            )
        return False

    def _is_furthest(self, event: EventPosition) -> bool:
        """Return whether an event that came again is the furthest one."""
        last = self.last
        is_same = event.shares_position(last) and event.row_key == last.row_key and event.gtid == last.gtid
        return is_same and (self.rows_ascending or event.tx_order == last.tx_order)

    def _advance_to(self, event: EventPosition) -> None:
        """Make `event` the furthest event."""
        last = self.last
        if event.shares_position(last):
            self.rows_ascending = self.rows_ascending and event.row_key > last.row_key
        else:
            self.rows_ascending = True
            if event.packed.file_number != last.packed.file_number:
                self.file = None
        if last.gtid is None or event.is_of_other_transaction(last):
            ended = Transaction.parse(last.gtid)
            if ended is not None and event.may_be_of_other_server(last):
                self.transactions = self.transactions.with_interrupted(ended)
            self.transactions = _with_event(self.transactions, event)
        self.is_replay = False
        self.latest_ms = max(self.latest_ms, event.ts_ms)
        self.last = event

    def _at(self, event: EventPosition) -> SourcePosition:
        is_same_file = event.packed.file_number == self.last.packed.file_number
        return event.packed.unpack(self.file if is_same_file else None, event.server_id, event.gtid)


def _interrupted(position: SourcePosition) -> TransactionInterrupted:
    return TransactionInterrupted(
        f"the transaction at {position}, or one before it, was interrupted when another server became the source: its"
        " events may have been sent twice, or not at all",
        "read the table again: replicator heal DATABASE.TABLE",
    )


def is_later_transaction(gtid: str | None, than: str | None) -> bool:
    """Return whether one transaction was committed after another that was first committed on the same server."""
    own, other = Transaction.parse(gtid), Transaction.parse(than)
    return own is not None and other is not None and own.origin == other.origin and own.number > other.number


def _with_event(transactions: SeenTransactions, event: EventPosition) -> SeenTransactions:
    own = Transaction.parse(event.gtid)
    return transactions if own is None else transactions.with_new(own.origin, [own.number])
