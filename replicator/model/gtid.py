"""Sets of MySQL's global transaction identifiers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

NO_GTIDS = "ffffffff-ffff-ffff-ffff-ffffffffffff:1"
"""A set of transactions that no server has. With an empty set, the connector's binlog client fails (Debezium 3.6.1)."""

BLOCK = 1_000_000
"""The members of a replication group share one origin, and each reserves this many numbers for itself at a time
(``group_replication_gtid_assignment_block_size``). Source: MySQL's reference manual, "GTIDs and Group Replication"."""

_MOST_DIGITS = 19
_INTERVAL = re.compile(r"(\d+)(?:-(\d+))?")


@dataclass(frozen=True, slots=True)
class Transaction:
    """A GTID, divided: `origin` is the server that committed it first, with a tag if it has one."""

    origin: str
    number: int

    def __str__(self) -> str:
        return f"{self.origin}:{self.number}"

    @property
    def line(self) -> tuple[str, int]:
        """Origin and block: transactions with the same ones are numbered in the order of their commits."""
        return self.origin, (self.number - 1) // BLOCK

    @classmethod
    def parse(cls, gtid: str | None) -> "Transaction | None":
        """Return the parts of a GTID; None if there is none, or it is not a GTID."""
        origin, _, number = (gtid or "").rpartition(":")
        is_number = number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS
        return cls(origin, int(number)) if origin and is_number else None


@dataclass(frozen=True, slots=True)
class GtidSet:
    """A GTID set: for each source (``uuid`` or ``uuid:tag``) its intervals of transaction numbers, both ends included.

    Intervals are sorted, and neither overlap nor touch.
    """

    intervals: Mapping[str, tuple[tuple[int, int], ...]]

    @classmethod
    def parse(cls, text: str) -> "GtidSet":
        """Read a set as MySQL writes it, for instance ``uuid:1-5:7,uuid:tag:1-3``.

        Raises:
            ValueError: the text is not a GTID set.
        """
        found: dict[str, list[tuple[int, int]]] = {}
        for part in filter(None, (part.strip() for part in text.split(","))):
            uuid, *rest = (word.strip() for word in part.lower().split(":"))
            source = uuid
            for word in rest:
                if match := _INTERVAL.fullmatch(word):
                    first = int(match[1])
                    found.setdefault(source, []).append((first, int(match[2] or first)))
                elif re.fullmatch(r"[a-z_]\w*", word):
                    source = f"{uuid}:{word}"
                else:
                    raise ValueError(f"not a GTID set: {part[:100]!r}")
            if not rest:
                raise ValueError(f"not a GTID set: {part[:100]!r}")
        return cls({source: _merged(intervals) for source, intervals in found.items()})

    def __str__(self) -> str:
        """Return the set as MySQL writes it."""
        return ",".join(
            ":".join([source, *(str(a) if a == b else f"{a}-{b}" for a, b in intervals)])
            for source, intervals in sorted(self.intervals.items())
        )

    def below(self, source: str, number: int) -> "GtidSet":
        """Return the set without those transactions of one source that have this number or a higher one."""
        kept = [
            (first, min(last, number - 1)) for first, last in self.intervals.get(source, ()) if first < number
        ]
        others = {s: found for s, found in self.intervals.items() if s != source}
        return GtidSet({**others, source: tuple(kept)} if kept else others)

    def next_number(self, source: str) -> int:
        """Return the number after the highest one of a source; 1 if it has none."""
        return max((last + 1 for _, last in self.intervals.get(source, ())), default=1)

    def __contains__(self, transaction: Transaction) -> bool:
        """Return whether the set has a transaction."""
        known = self.intervals.get(transaction.origin.lower(), ())
        return any(first <= transaction.number <= last for first, last in known)

    def lacking(self, other: "GtidSet") -> int:
        """Return the number of transactions of `other` that this set lacks."""
        return sum(
            _uncovered(interval, self.intervals.get(source, ()))
            for source, intervals in other.intervals.items()
            for interval in intervals
        )


def _merged(intervals: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(intervals):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def _uncovered(interval: tuple[int, int], by: tuple[tuple[int, int], ...]) -> int:
    first, last = interval
    covered = sum(max(0, min(last, end) - max(first, begin) + 1) for begin, end in by)
    return last - first + 1 - covered
