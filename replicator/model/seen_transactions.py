"""The transactions that one partition of a topic has sent, as far as a commit marker remembers them.

Positions cannot tell whether a transaction was sent before if the connector reads the binlog of another server since
then, or if a replica wrote transactions in another order than their origin. Their GTIDs can.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any, Final

from replicator.model.gtid import Transaction

WINDOW: Final = 1024
"""How many of an origin's last numbers are remembered one by one; lower ones count as seen.

A replica that does not preserve the order of commits writes a transaction at most ``replica_checkpoint_group`` (512 by
default) transactions later than its origin did. Source: MySQL's reference manual, "Replica Server Options".
"""

MOST_ORIGINS: Final = 16
"""Of how many origins transactions are remembered: of those that were seen last."""

MOST_INTERRUPTED: Final = 4
"""How many transactions that may have been interrupted are remembered."""


@dataclass(frozen=True, slots=True)
class SeenNumbers:
    """The numbers of one origin's transactions that were seen.

    Attributes:
        first: the number with which counting began; nothing is known of lower ones.
        last: the highest number.
        recent: a bit for each of the last `WINDOW` numbers; bit n is set if ``last - n`` was seen.
    """

    first: int
    last: int
    recent: int

    @classmethod
    def starting_with(cls, numbers: Collection[int]) -> "SeenNumbers":
        """Return that these numbers were seen; at least one."""
        first, last = min(numbers), max(numbers)
        return cls(first, last, _bits(numbers, last))

    def has(self, number: int) -> bool | None:
        """Return whether a transaction was seen; None if that is not known."""
        if number < self.first:
            return None
        if number > self.last:
            return False
        back = self.last - number
        return back >= WINDOW or bool(self.recent >> back & 1)

    def with_new(self, numbers: Collection[int]) -> "SeenNumbers | None":
        """Return the numbers together with those of new transactions; None if these show that numbers began again."""
        lowest = min(numbers)
        if lowest <= self.last - WINDOW or any(self.has(n) for n in numbers if n <= self.last):
            return None
        last = max((self.last, *numbers))
        shifted = self.recent << min(last - self.last, WINDOW)
        counted = [n for n in numbers if n >= self.first]
        return replace(self, last=last, recent=(shifted | _bits(counted, last)) & _MASK)


@dataclass(frozen=True, slots=True)
class SeenTransactions:
    """The transactions of all origins that were seen.

    Attributes:
        origins: (origin, numbers), the origin that was seen last at the end.
        interrupted: transactions that were the last ones in a binlog file: if another server's file followed, the
            connector may have been interrupted within them. Whether an event of them was seen is not known.
    """

    origins: tuple[tuple[str, SeenNumbers], ...] = ()
    interrupted: tuple[Transaction, ...] = ()

    def has(self, transaction: Transaction) -> bool | None:
        """Return whether a transaction was seen; None if that is not known."""
        found = self.of(transaction.origin)
        return None if found is None or transaction in self.interrupted else found.has(transaction.number)

    def of(self, origin: str) -> SeenNumbers | None:
        """Return the numbers of one origin; None if nothing is known of it."""
        return dict(self.origins).get(origin)

    def with_new(self, origin: str, numbers: Collection[int]) -> "SeenTransactions":
        """Return the transactions together with new ones of one origin, or with interrupted ones that came again."""
        again = {t.number for t in self.interrupted if t.origin == origin}.intersection(numbers)
        left = tuple(t for t in self.interrupted if t.origin != origin or t.number not in again)
        new = [n for n in numbers if n not in again] if again else numbers
        if not new:
            return replace(self, interrupted=left)
        known = self.of(origin)
        others = tuple(pair for pair in self.origins if pair[0] != origin)
        found = SeenNumbers.starting_with(new) if known is None else known.with_new(new)
        pairs = others if found is None else (*others, (origin, found))[-MOST_ORIGINS:]
        return SeenTransactions(pairs, left)

    def with_interrupted(self, *transactions: Transaction) -> "SeenTransactions":
        """Return that a file ended, or may have been left, after each of these transactions."""
        if not transactions:
            return self
        others = (t for t in self.interrupted if t not in transactions)
        return replace(self, interrupted=(*others, *transactions)[-MOST_INTERRUPTED:])

    def to_json(self) -> dict[str, Any]:
        origins = [
            {"origin": origin, "first": n.first, "last": n.last, "recent": f"{n.recent:x}"}
            for origin, n in self.origins
        ]
        return {"origins": origins, "interrupted": [str(t) for t in self.interrupted]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> "SeenTransactions":
        origins = (
            (v["origin"], SeenNumbers(v["first"], v["last"], int(v["recent"], 16))) for v in value["origins"]
        )
        interrupted = filter(None, map(Transaction.parse, value["interrupted"]))
        return cls(tuple(origins), tuple(interrupted))


_MASK: Final = (1 << WINDOW) - 1


def _bits(numbers: Collection[int], last: int) -> int:
    bits = 0
    for number in numbers:
        if last - number < WINDOW:
            bits |= 1 << last - number
    return bits
