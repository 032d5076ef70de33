"""Scans the change events of one partition for redelivered ones, and determines its high-water mark.

If positions only ascend and no transaction was seen before, as it is unless a connector was restarted or the source
compresses transactions, no event is redelivered. That is visible from the arrays as a whole; otherwise the events are
observed one by one.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from replicator.batch.events.event_details import EventDetails, Longs
from replicator.batch.events.redelivery import EventPosition, MayBeCompressed, RedeliveryDetector
from replicator.model.batch_stats import DuplicateRange
from replicator.model.commit_marker import HighWater
from replicator.model.gtid import BLOCK, Transaction
from replicator.model.position import FILE_SHIFT, PackedPosition
from replicator.model.seen_transactions import SeenTransactions

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PartitionScan:
    """The change events of one partition, in offset order, without snapshot rows and bad events.

    Attributes:
        events: column → values: offset, position_key, row_key, ts_ms, server_id, gtid_origin, gtid_number.
        before: the high-water mark before these events.
        may_be_compressed: see `RedeliveryDetector`.
    """

    partition: int
    events: Mapping[str, Longs]
    before: HighWater | None
    details: EventDetails
    may_be_compressed: MayBeCompressed

    def run(self) -> tuple[Flags, HighWater | None]:
        """Return which events were delivered before, and the high-water mark after them; None if there are none at all.

        Raises:
            TransactionsNotNumbered, TransactionInterrupted: nothing tells whether an event was.
            SourceUnavailable: see `MayBeCompressed`.
        """
        none_repeated = np.zeros(len(self.events["offset"]), dtype=bool)
        if not len(none_repeated):
            return none_repeated, self.before
        if self._is_all_new():
            return none_repeated, self._after_new_events()
        return self._observe_each()

    def _is_all_new(self) -> bool:
        """Return whether all events are visibly new: from one server, and at ascending positions after `before`."""
        position_key, row_key, servers = (self.events[n] for n in ("position_key", "row_key", "server_id"))
        ascending = (position_key[1:] > position_key[:-1]) | (
            (position_key[1:] == position_key[:-1]) & (row_key[1:] > row_key[:-1])
        )
        return (
            bool((servers == servers[0]).all() and ascending.all())
            and self._begins_after_high_water()
            and self._has_new_transactions()
        )

    def _has_new_transactions(self) -> bool:
        """Return whether all transactions are of one origin, each in one file, and none was seen before."""
        origins, numbers = self.events["gtid_origin"], self._transaction_numbers()
        if not numbers.any():
            return True
        if self._has_transaction_in_two_files():
            return False
        last = self._last_transaction()
        if last is None or (origins != origins[0]).any() or len(np.unique(numbers)) < len(numbers):
            return False
        known = SeenTransactions() if self.before is None else self.before.transactions
        if self._continues_in_other_file(Transaction(last.origin, int(numbers[0]))):
            return False
        begun, older = self._begun_transactions(last.origin), list[Transaction]()
        for origin, seen in known.origins:
            if origin == last.origin:
                in_block = (begun - 1) // BLOCK == (seen.last - 1) // BLOCK
                below = begun[in_block & (begun <= seen.last)]
                older += [Transaction(origin, number) for number in below.tolist()]
        return not any(known.has(transaction) or transaction in known.interrupted for transaction in older)

    def _has_transaction_in_two_files(self) -> bool:
        """Return whether a transaction continues in another file, as it does on another server only."""
        files, numbers = self.events["position_key"] >> FILE_SHIFT, self.events["gtid_number"]
        return bool(((files[1:] != files[:-1]) & (numbers[1:] == numbers[:-1]) & (numbers[1:] != 0)).any())

    def _continues_in_other_file(self, first: Transaction) -> bool:
        """Return whether the events continue the transaction of `before` on another server."""
        if self.before is None or self._previous_transaction() != first:
            return False
        before = PackedPosition.pack(self.before.position)
        return bool(before.file_number != self.events["position_key"][0] >> FILE_SHIFT)

    def _transaction_numbers(self) -> Longs:
        """Return the numbers of the transactions in their order; 0 stands for events without a GTID."""
        numbers = self.events["gtid_number"]
        found: Longs = numbers[np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))]
        return found

    def _begun_transactions(self, origin: str) -> Longs:
        """Return the numbers of the transactions, all of `origin`, without one that continues that of `before`."""
        numbers = self._transaction_numbers()
        return (
            numbers[1:] if self._previous_transaction() == Transaction(origin, int(numbers[0])) else numbers
        )

    def _previous_transaction(self) -> Transaction | None:
        """Return the transaction of `before`; None if there is none, or if it has no GTID."""
        return None if self.before is None else Transaction.parse(self.before.position.gtid)

    def _last_transaction(self) -> Transaction | None:
        """Return the transaction of the last event; None if it has none, or its GTID would have to be fetched."""
        return Transaction.parse(self.details.known(self.partition, int(self.events["offset"][-1])).gtid)

    def _begins_after_high_water(self) -> bool:
        high = self.before
        if high is None:
            return True
        if high.is_replay:
            return False
        if high.position.server_id != self.events["server_id"][0]:
            return True
        first = PackedPosition(int(self.events["position_key"][0]), int(self.events["row_key"][0]))
        last = PackedPosition.pack(high.position, high.kind)
        # At the furthest position itself, the row number decides only if rows were ascending.
        return first > last if high.rows_ascending else first.position_key > last.position_key

    def _after_new_events(self) -> HighWater:
        """Return the high-water mark after events that are all new."""
        events, high = self.events, self.before
        offset, position_key, row_key, server_id = (
            int(events[name][-1]) for name in ("offset", "position_key", "row_key", "server_id")
        )
        packed = PackedPosition(position_key, row_key)
        return HighWater(
            position=self.details.position(self.partition, offset, packed, server_id),
            kind=packed.kind,
            ts_ms=max(int(events["ts_ms"].max()), 0 if high is None else high.ts_ms),
            tx_order=self.details.known(self.partition, offset).tx_order,
            transactions=self._transactions_with_new(),
        )

    def _transactions_with_new(self) -> SeenTransactions:
        before = SeenTransactions() if self.before is None else self.before.transactions
        last = self._last_transaction()
        if last is None:
            return before
        begun = self._begun_transactions(last.origin).tolist()
        # A transaction that `before` interrupted begins again; one that ends a file of these events has not.
        return before.with_new(last.origin, begun).with_interrupted(*self._ended_in_files(last.origin))

    def _ended_in_files(self, origin: str) -> list[Transaction]:
        """Return the transactions, all of `origin`, after which another file begins."""
        files, numbers = self.events["position_key"] >> FILE_SHIFT, self.events["gtid_number"]
        last_rows = np.flatnonzero(files[1:] != files[:-1])
        ended = [Transaction(origin, number) for number in numbers[last_rows].tolist()]
        previous = self._previous_transaction()
        if self.before is not None and previous not in (None, Transaction(origin, int(numbers[0]))):
            before = PackedPosition.pack(self.before.position)
            if before.file_number != files[0] or before.position_key > self.events["position_key"][0]:
                ended.insert(0, previous)
        return ended

    def _observe_each(self) -> tuple[Flags, HighWater | None]:
        """Observe the events one by one."""
        names = ("position_key", "row_key", "ts_ms", "server_id")
        columns = (self.events[name].tolist() for name in names)
        details = self.details.fetched(self.partition, self.events["offset"])
        events = [EventPosition(*row, *more) for *row, more in zip(*columns, details, strict=True)]
        repeated = np.zeros(len(events), dtype=bool)
        if self.before is None:
            detector, start = RedeliveryDetector.starting_at(events[0], self.may_be_compressed), 1
        else:
            detector, start = RedeliveryDetector.from_high_water(self.before, self.may_be_compressed), 0
        for i in range(start, len(events)):
            repeated[i] = detector.observe(events[i])
        return repeated, detector.high_water()


def duplicate_ranges(partition: int, offsets: Longs, repeated: Flags) -> list[DuplicateRange]:
    """Return the runs of neighbouring redelivered events among a partition's events, in offset order."""
    edges = np.flatnonzero(np.diff(repeated.astype(np.int8), prepend=0, append=0))
    return [
        DuplicateRange(partition, int(offsets[start]), int(offsets[end - 1]))
        for start, end in zip(edges[::2], edges[1::2], strict=True)
    ]
