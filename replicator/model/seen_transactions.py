"""The transactions that one partition of a topic has sent, as far as a commit marker remembers them.

Positions cannot tell whether a transaction was sent before if the connector reads the binlog of another server since
then, or if a replica wrote transactions in another order than their origin. Their GTIDs can.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, PlainSerializer

from replicator.model.gtid import Transaction
from replicator.model.recorded import Long, Part

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
    """The numbers of one origin's transactions that were seen, all of one block (`gtid.BLOCK`).

    Attributes:
        first: the number with which counting began; nothing is known of lower ones.
        last: the highest number.
        recent: a bit for each of the last `WINDOW` numbers; bit n is set if ``last - n`` was seen.
    """

    first: Long
    last: Long
    recent: Annotated[int, Field(ge=0, lt=1 << WINDOW)]

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


def _origins(values: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, SeenNumbers], ...]:
    return tuple((v["origin"], SeenNumbers(v["first"], v["last"], int(v["recent"], 16))) for v in values)


def _origin_values(origins: Sequence[tuple[str, SeenNumbers]]) -> list[dict[str, Any]]:
    return [
        {"origin": origin, "first": n.first, "last": n.last, "recent": f"{n.recent:x}"}
        for origin, n in origins
    ]


def _transactions(gtids: Sequence[str]) -> tuple[Transaction, ...]:
    return tuple(filter(None, map(Transaction.parse, gtids)))


@dataclass(frozen=True, slots=True)
class SeenTransactions(Part):
    """The transactions of all origins that were seen.

    Attributes:
        origins: (origin, numbers), those that were seen last at the end. An origin may have several blocks.
        interrupted: transactions that were the last ones in a binlog file: if another server's file followed, the
            connector may have been interrupted within them. Whether an event of them was seen is not known.
    """

    WHAT = "the transactions of a commit marker"
    origins: Annotated[
        tuple[tuple[str, SeenNumbers], ...], BeforeValidator(_origins), PlainSerializer(_origin_values)
    ] = ()
    interrupted: Annotated[
        tuple[Transaction, ...],
        BeforeValidator(_transactions),
        PlainSerializer(lambda found: list(map(str, found))),
    ] = ()

    def has(self, transaction: Transaction) -> bool | None:
        """Return whether a transaction was seen; None if that is not known."""
        found = self.of(transaction)
        return None if found is None or transaction in self.interrupted else found.has(transaction.number)

    def of(self, transaction: Transaction) -> SeenNumbers | None:
        """Return the numbers of a transaction's origin and block; None if nothing is known of them."""
        return next((n for origin, n in self.origins if _line(origin, n) == transaction.line), None)

    def with_new(self, origin: str, numbers: Collection[int]) -> "SeenTransactions":
        """Return the transactions together with new ones of one origin, or with interrupted ones that came again."""
        again = {t.number for t in self.interrupted if t.origin == origin}.intersection(numbers)
        left = tuple(t for t in self.interrupted if t.origin != origin or t.number not in again)
        new = [n for n in numbers if n not in again] if again else numbers
        lines: dict[tuple[str, int], list[int]] = {}
        for number in new:
            lines.setdefault(Transaction(origin, number).line, []).append(number)
        pairs = self.origins
        for line, own in lines.items():
            pairs = _with_line(pairs, line, own)
        return SeenTransactions(pairs, left)

    def with_interrupted(self, *transactions: Transaction) -> "SeenTransactions":
        """Return that a file ended, or may have been left, after each of these transactions."""
        if not transactions:
            return self
        others = (t for t in self.interrupted if t not in transactions)
        return replace(self, interrupted=(*others, *transactions)[-MOST_INTERRUPTED:])


_MASK: Final = (1 << WINDOW) - 1


def _with_line(
    pairs: tuple[tuple[str, SeenNumbers], ...], line: tuple[str, int], numbers: Collection[int]
) -> tuple[tuple[str, SeenNumbers], ...]:
    """Return the numbers of all origins together with new ones of one origin and block."""
    known = next((n for origin, n in pairs if _line(origin, n) == line), None)
    others = tuple(pair for pair in pairs if _line(*pair) != line)
    found = SeenNumbers.starting_with(numbers) if known is None else known.with_new(numbers)
    return others if found is None else (*others, (line[0], found))[-MOST_ORIGINS:]


def _line(origin: str, numbers: SeenNumbers) -> tuple[str, int]:
    return Transaction(origin, numbers.last).line


def _bits(numbers: Collection[int], last: int) -> int:
    bits = 0
    for number in numbers:
        if last - number < WINDOW:
            bits |= 1 << last - number
    return bits
