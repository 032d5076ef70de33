"""What is recorded of a re-read: the request with its progress, and the state of the staging table."""

import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Final

from pydantic import AfterValidator, BeforeValidator, PlainSerializer

from replicator.model.common import now_ms
from replicator.model.recorded import Record, records_in
from replicator.model.table import TableId

REREAD_KEY: Final = "replicator.reread."
"""Prefix of the properties of the `_ops` namespace that each contain the newest re-read of a table."""
DONE_KEY: Final = "replicator.reread-done"
"""Property of a mirror and a changelog: id of the newest request whose rows the table has."""
STATE_KEY: Final = "replicator.reread"
"""Property of a staging table: its `StagingState`."""

_MOST_SPANS: Final = 5
"""Number of spans of a key in a request at most; see `Request.MOST`."""
_PREFIX: Final = 8
"""Number of bytes of a BINARY key that count in a span."""
_LEAST, _MOST, _MOST_UNSIGNED = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1
"""Ends of spans beyond which no integer key is."""
_WIDEST: Final = 255
"""Maximum width of a BINARY column."""


class Phase(StrEnum):
    """The phases of a re-read, in order."""

    REQUESTED = "requested"
    READING = "reading"
    CATCHING_UP = "catching up"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class KeySpan:
    """Values of the first key column, both ends included, and about how many rows have them.

    Of bytes, the first eight count, as a number with the first byte first.
    """

    low: int
    high: int
    rows: int


@dataclass(frozen=True, slots=True)
class Narrowed:
    """The part of a table that is read again: rows whose first key column, an integer or BINARY, is in some spans.

    Attributes:
        column: the name of the column in the source.
        spans: in ascending order; they do not overlap.
        width: the length of its values in bytes, of BINARY; None for an integer.
    """

    column: str
    spans: Annotated[
        tuple[KeySpan, ...],
        BeforeValidator(lambda found: tuple(KeySpan(*span) for span in found)),
        PlainSerializer(lambda spans: [[span.low, span.high, span.rows] for span in spans]),
    ]
    width: int | None = None

    def condition(self, column: str) -> str:
        """Return the condition in the SQL of MySQL and Spark; `column` is the column in SQL."""
        return " OR ".join(
            f"{column} BETWEEN {self._literal(span.low, 0)} AND {self._literal(span.high, 0xFF)}"
            for span in self.spans
        )

    @property
    def is_everything(self) -> bool:
        """Whether a span has all values that the column can have."""
        return any(
            span.high >= _MOST_UNSIGNED or (span.low <= _LEAST and span.high >= _MOST)
            for span in self.spans
            if span.low <= 0
        )

    def describe(self) -> str:
        """Return the condition for people, without bounds that no value is beyond."""
        return " OR ".join(self._described(span) for span in self.spans)

    def _described(self, span: KeySpan) -> str:
        if self.width is None and span.low <= _LEAST:
            return f"{self.column} <= {span.high}"
        if self.width is None and span.high in (_MOST, _MOST_UNSIGNED):
            return f"{self.column} >= {span.low}"
        return Narrowed(self.column, (span,), self.width).condition(self.column)

    def _literal(self, end: int, rest: int) -> str:
        """Return an end of a span in SQL; bytes after the first eight are `rest`."""
        if self.width is None:
            return str(end)
        octets = end.to_bytes(_PREFIX, "big")[: self.width]
        return f"X'{octets.hex().upper()}{bytes([rest]).hex().upper() * (self.width - len(octets))}'"

    @classmethod
    def to(cls, column: str, spans: Sequence[KeySpan], width: int | None = None) -> "Narrowed":
        """Return the spans, but at most as many as a request can contain: joined are those with the smallest gaps."""
        joined: list[KeySpan] = []
        for span in sorted(spans, key=lambda span: span.low):
            if joined and span.low <= joined[-1].high + 1:
                before = joined.pop()
                span = KeySpan(before.low, max(before.high, span.high), before.rows + span.rows)  # noqa: PLW2901
            joined.append(span)
        while len(joined) > _MOST_SPANS:
            gaps = [after.low - before.high for before, after in itertools.pairwise(joined)]
            at = gaps.index(min(gaps))
            before, after = joined[at : at + 2]
            joined[at : at + 2] = [KeySpan(before.low, after.high, before.rows + after.rows)]
        return cls(column, tuple(joined), width)


def prefix_of(value: bytes) -> int:
    """Return the number that stands for bytes in a `KeySpan`."""
    return int.from_bytes(value[:_PREFIX].ljust(_PREFIX, b"\0"), "big")


def _possible(found: Narrowed | None) -> Narrowed | None:
    """Return the part of a table, if it can be one."""
    if found is not None:
        least = _LEAST if found.width is None else 0
        known = all(least <= span.low <= span.high <= _MOST_UNSIGNED for span in found.spans)
        if not known or not found.spans or (found.width is not None and not 1 <= found.width <= _WIDEST):
            raise ValueError("invalid spans of keys")
    return found


@dataclass(frozen=True, slots=True)
class Request(Record):
    """A table that is to be read again, and how far that is.

    It is a property of the `_ops` namespace, described in schemas/reread-v1.json.

    Attributes:
        id: identifies the request; the staging table of another request is discarded.
        reason: why the table is read again.
        requested_ms: milliseconds since the epoch.
        rows: number of rows read so far.
        estimated: the source's estimate of the table's rows.
        ended_ms: when it was done or failed; None before.
        changed: number of rows of the mirror that differed from the source; None before it is done, and if the table is
            new.
        problem: why it failed, or what it waits for.
        held: whether no events are applied to the table meanwhile, because it was paused.
        max_rows: the table is not read if it has more rows; None for no limit.
        narrowed: the part of the table that is read and compared; None for all of it.
    """

    WHAT = "the request to read a table again"
    CUT = ("reason", "problem")
    MOST = 190
    id: str
    table: TableId
    reason: str
    requested_ms: int
    phase: Phase = Phase.REQUESTED
    rows: int = 0
    estimated: int = 0
    ended_ms: int | None = None
    changed: int | None = None
    problem: str | None = None
    held: bool = False
    max_rows: int | None = None
    narrowed: Annotated[Narrowed | None, AfterValidator(_possible)] = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing is left to do."""
        return self.phase in (Phase.DONE, Phase.FAILED)

    def covers(self, part: Narrowed | None) -> bool:
        """Return whether the request reads at least a part of the table; None is all of it."""
        return self.narrowed is None or self.narrowed == part


def new_request(
    table: TableId, reason: str, max_rows: int | None = None, narrowed: Narrowed | None = None
) -> Request:
    """Return a request to read a table again, as of now."""
    return Request(uuid.uuid4().hex[:12], table, reason, now_ms(), max_rows=max_rows, narrowed=narrowed)


def requests_in(properties: Mapping[str, str]) -> list[Request]:
    """Return the requests in the properties of the `_ops` namespace that this version can read, by table."""
    found = records_in(properties, REREAD_KEY, Request.from_json).values()
    return sorted(found, key=lambda request: request.table)


@dataclass(frozen=True, slots=True)
class StagingState(Record):
    """How far a staging table is filled. It is written with each part, in the same commit.

    Attributes:
        request: id of the request.
        fingerprint: of the source table's columns and key when reading began.
        last: the greatest key when reading began; None for a table that is read as a whole, or is empty.
        after: the greatest key that was read.
        rows: number of rows that were read.
        complete: whether all rows were read.
        file, pos, gtids: the end of the source's binlog after that.
        watermark_ms: the source's time then, milliseconds since the epoch.
        until: partition → offset: the staging table must contain all earlier events; None if not known yet.
        since: partition → offset: all rows were read after all earlier events; None if that is not known.
    """

    WHAT = "the state of a staging table"
    request: str
    fingerprint: str
    last: tuple[str, ...] | None
    after: tuple[str, ...] | None = None
    rows: int = 0
    complete: bool = False
    file: str = ""
    pos: int = 0
    gtids: str | None = None
    watermark_ms: int | None = None
    until: Mapping[int, int] | None = None
    since: Mapping[int, int] | None = None

    def advanced(self, after: tuple[str, ...] | None, rows: int) -> "StagingState":
        """Return the state after `rows` more rows, up to the key `after`."""
        return replace(self, after=after, rows=self.rows + rows)
