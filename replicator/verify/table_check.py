"""Check one table: checksums of chunks, then the rows of chunks that differ.

Both sides read at the same time. Memory is bounded by the number of chunks, and by the rows that are compared at once.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replicator.model.reread import KeySpan, Narrowed, prefix_of
from replicator.verify.chunks import (
    BucketChunks,
    ChosenKeys,
    Chunks,
    ChunkSums,
    KeyRange,
    RangeChunks,
    keys_between,
)
from replicator.verify.compared_table import ComparedTable
from replicator.verify.lake_rows import Checksum, Row, hash_rows
from replicator.verify.lake_side import LakeSide
from replicator.verify.later_changes import LaterChanges
from replicator.verify.ordered_keys import Key, key_as_text, key_text
from replicator.verify.progress import Part
from replicator.verify.results import (
    ChunkResult,
    Kind,
    RowDifference,
    SchemaFinding,
    Severity,
    TableResult,
    Verdict,
)
from replicator.verify.row_comparison import RowComparison, rows_of
from replicator.verify.source_side import SourceSide

_BUCKET_ROWS: Final = 500
"""Rows of a bucket."""
_RANGES_AT_ONCE: Final = 500
"""Ranges that are compared before their result is recorded; usually ten million rows."""
_ROWS_AT_ONCE: Final = 200_000
_BYTES_AT_ONCE: Final = 64_000_000
"""Rows of the source, and their estimated size, that are compared one by one at once, at most."""
_PREFIX_DIGITS: Final = 16
"""Hexadecimal digits of the bytes that count in a span."""
_MOST_BUCKETS: Final = 50_000
ALL: Final = KeyRange(None, None)


@dataclass(frozen=True, slots=True)
class Limits:
    """How a table is checked.

    Attributes:
        rows_per_second: maximum number of rows per second whose checksums the source computes; None is no limit.
        differences: maximum number of differing rows that are reported for each table.
        sample: the share of the chunks that is checked, 0 to 1; 1 checks all.
        seed: chooses the sample.
        connections: number of connections to the source.
        rows: about how many rows are checked at most, of a table that is divided by ranges; None checks all.
    """

    rows_per_second: int | None = None
    differences: int = 10_000
    sample: float = 1.0
    seed: int = 0
    connections: int = 1
    rows: int | None = None


OnRows = Callable[[int, int], None]
"""Called with the number of rows of the source that were checked, and the estimated number."""


@dataclass(slots=True)
class TableCheck:
    """Checks one table.

    Attributes:
        later: the changes that the mirror has and the source's transaction may not have seen.
        schema: what was found about the columns.
        within: the keys that are checked, of a table that is divided by ranges.
        changed: if given, only these keys are checked.
        on_rows: called during the check.
        on_part: called after each part of the ranges.
        throttle: called before the source is asked, with the number of rows that it has read; it may wait.
    """

    table: ComparedTable
    source: SourceSide
    lake: LakeSide
    later: LaterChanges
    limits: Limits = Limits()
    schema: Sequence[SchemaFinding] = ()
    within: KeyRange = ALL
    changed: pa.Table | None = None
    on_rows: OnRows = lambda *_: None
    on_part: Callable[[Part], None] = lambda _: None
    throttle: Callable[[int], object] = lambda _: None
    _fetched: int = field(default=0, init=False)
    _lake_rows: int = field(default=0, init=False)
    _spans: list[KeySpan] = field(default_factory=list, init=False)
    _complete: bool = field(default=True, init=False)
    _asked_rows: int = field(default=0, init=False)
    _upto: Key | None = field(default=None, init=False)

    def run(self) -> TableResult:
        """Check the table.

        Raises:
            LakeError, SchemaError: as `LakeSide.add_checksums`.
            SourceError: the source does not answer.
        """
        began = time.monotonic()
        self.throttle(0)
        if self.changed is not None:
            by, (chunks, differences) = "keys", self._by_keys(self.changed)
        elif self.table.ranges:
            by, (chunks, differences) = "ranges", self._by_ranges()
        else:
            by, (chunks, differences) = "buckets", self._by_buckets()
        counts = {kind: sum(d.kind is kind for d in differences) for kind in Kind}
        wrong = any(f.severity is Severity.DIFFERENT for f in self.schema)
        verdict = Verdict.DIFFERENT if differences or wrong else Verdict.EQUAL
        reason = None
        unsure = bool(differences) and not self.table.key and bool(self.later.unsure.any())
        if unsure and not wrong:
            verdict = Verdict.UNDECIDED
            reason = (
                "rows changed in the moment in which the check began, and there is no key to identify them"
            )
        return TableResult(
            table=self.table.name,
            verdict=verdict,
            reason=reason,
            source_rows=sum(c.source_rows for c in chunks),
            lake_rows=sum(c.lake_rows for c in chunks),
            by=by,
            chunks=chunks,
            counts={kind: count for kind, count in counts.items() if count},
            complete=self._complete,
            rows=differences,
            schema=self.schema,
            fetched=self._fetched,
            later=self.later.count,
            is_sampled=self.limits.sample < 1 and bool(self.table.ranges),
            excluded=self.table.excluded,
            masked=self.table.masked,
            seconds=time.monotonic() - began,
            narrowed=self._narrowed,
            passing=reason is not None,
            upto=_texts(self._upto) or (),
        )

    @property
    def _rows_at_once(self) -> int:
        return max(1, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE // self.table.source.bytes_per_row))

    def _by_ranges(self) -> tuple[list[ChunkResult], list[RowDifference]]:
        ranges = self._sampled(self._first_ranges())
        chunks, found = list[ChunkResult](), list[RowDifference]()
        for start in range(0, len(ranges), _RANGES_AT_ONCE):
            part = ranges[start : start + _RANGES_AT_ONCE]
            results, known, fetched = self._compare_ranges(part), len(found), self._fetched
            differing = [pair for pair in zip(part, results, strict=True) if not pair[1].equal]
            self._spans += self._spans_of(differing)
            if self._complete:
                self._add_differences(found, differing)
            chunks += results
            last, rows = _texts(part[-1].upto), tuple(found[known:])
            fetched = self._fetched - fetched
            fingerprint = self.table.source.fingerprint
            self.on_part(Part(fingerprint, last, tuple(results), rows, self._complete, fetched))
        return chunks, found

    def _first_ranges(self) -> list[KeyRange]:
        """Return the ranges that are checked: all, or the first ones with about as many rows as are wanted."""
        size = self.source.chunk_rows(self.within)
        ranges = self.source.ranges(self.within, size)
        if self.limits.rows is None:
            return list(ranges)
        found = list(islice(ranges, max(1, self.limits.rows // size)))
        if next(ranges, None) is not None:
            self._upto = found[-1].upto
        return found

    def _spans_of(self, differing: Sequence[tuple[KeyRange, ChunkResult]]) -> Iterator[KeySpan]:
        """Yield the values of the first column of ranges that differ, if it is in the mirror's key."""
        first = self.table.ranges[0]
        if first not in self.table.key:
            return
        is_signed = first.width is None and not first.is_unsigned
        least, greatest = (-(1 << 63), (1 << 63) - 1) if is_signed else (0, (1 << 64) - 1)
        for chunk, result in differing:
            low = least if chunk.after is None else _number(chunk.after[0])
            high = greatest if chunk.upto is None else _number(chunk.upto[0])
            yield KeySpan(low, high, result.source_rows)

    def _spans_of_rows(self, rows: Sequence[RowDifference]) -> Iterator[KeySpan]:
        """Yield the values of the first column of single rows, if tables are read again by it."""
        first = self.table.ranges[0] if self.table.ranges else None
        if first is None or first not in self.table.key:
            return
        for row in rows:
            text = row.key[first.source] or "0"
            value = int(text) if first.width is None else prefix_of(bytes.fromhex(text[:_PREFIX_DIGITS]))
            yield KeySpan(value, value, 1)

    @property
    def _narrowed(self) -> Narrowed | None:
        """The part of the table in which rows differ; None if that is unknown."""
        if not self._spans:
            return None
        first = self.table.ranges[0]
        return Narrowed.to(first.source, self._spans, first.width)

    def _by_keys(self, changed: pa.Table) -> tuple[list[ChunkResult], list[RowDifference]]:
        """Compare the rows of some keys."""
        found, began = list[RowDifference](), time.monotonic()
        for start in range(0, changed.num_rows, self._rows_at_once):
            some = changed.slice(start, self._rows_at_once)
            chosen = ChosenKeys(self.table, np.sort(hash_rows(some, self.table.key)))
            within = self._around(some)
            if not self._add(found, chosen, self.source.rows_with(rows_of(some, self.table.key)), within):
                break
            self.on_rows(min(start + self._rows_at_once, changed.num_rows), changed.num_rows)
        self._spans += self._spans_of_rows(found)
        seconds = time.monotonic() - began
        return [ChunkResult(None, None, self._fetched, self._lake_rows, not found, seconds)], found

    def _around(self, keys: pa.Table) -> KeyRange | None:
        """Return the smallest range with all `keys`, so that only its files are read; None if keys have no range."""
        first = self.table.ranges[0] if self.table.ranges else None
        if first is None or first.width is not None or first.lake not in keys.schema.names:
            return None
        values = keys.column(first.lake)
        return keys_between(self.table, int(pc.min(values).as_py()), int(pc.max(values).as_py()))

    def _add_differences(
        self, found: list[RowDifference], differing: Sequence[tuple[KeyRange, ChunkResult]]
    ) -> None:
        """Add the rows of some ranges that differ, until there are too many."""
        counts = {number: result.source_rows for number, (_, result) in enumerate(differing)}
        for group in _grouped(counts, self._rows_at_once):
            ranges = tuple(differing[number][0] for number in group)
            rows = chain.from_iterable(map(self.source.rows, ranges))
            if not self._add(found, RangeChunks(self.table, ranges), rows, hull(ranges)):
                return

    def _sampled(self, ranges: list[KeyRange]) -> list[KeyRange]:
        if self.limits.sample >= 1:
            return ranges
        count = max(1, round(len(ranges) * self.limits.sample))
        chosen = random.Random(self.limits.seed).sample(range(len(ranges)), count)  # noqa: S311 - no secret
        return [ranges[number] for number in sorted(chosen)]

    def _compare_ranges(self, ranges: Sequence[KeyRange]) -> list[ChunkResult]:
        """Compare the checksums of ranges."""
        chunks = RangeChunks(self.table, tuple(ranges))
        sums = ChunkSums(len(ranges), distinct=self.table.is_distinct)
        theirs, rows = list[tuple[Checksum, float]](), 0
        with self._reading(chunks, sums, hull(ranges)) as reading:
            for found, seconds in self._checksums(ranges, reading):
                theirs.append((found, seconds))
                rows += found.rows
                self.on_rows(rows, max(rows, self.table.source.rows))
        self.later.undo(chunks, sums)
        return [
            _result(r, found, sums[number], seconds)
            for number, (r, (found, seconds)) in enumerate(zip(ranges, theirs, strict=True))
        ]

    @contextmanager
    def _reading(self, chunks: Chunks, sums: ChunkSums, within: KeyRange | None) -> "Iterator[Future[int]]":
        """Add the checksums of the lake in another thread, until the end of the block."""
        with ThreadPoolExecutor(1, "lake") as pool:
            reading = pool.submit(self.lake.add_checksums, chunks, sums, within)
            yield reading
            reading.result()

    def _checksums(
        self, ranges: Sequence[KeyRange], reading: "Future[int]"
    ) -> Iterator[tuple[Checksum, float]]:
        """Yield the source's checksum of each range, and how long it took."""

        def timed(chunk: KeyRange) -> tuple[Checksum, float]:
            began = time.monotonic()
            return self.source.checksum(chunk), time.monotonic() - began

        with ThreadPoolExecutor(self.limits.connections, "source") as pool:
            left = iter(ranges)
            running = deque(pool.submit(timed, r) for r in islice(left, self.limits.connections))
            while running:
                answer = running.popleft().result()
                if reading.done() and reading.exception() is not None:
                    reading.result()
                yield answer
                self._asked_rows += answer[0].rows
                self.throttle(self._asked_rows)
                running.extend(pool.submit(timed, r) for r in islice(left, 1))

    def _by_buckets(self) -> tuple[list[ChunkResult], list[RowDifference]]:
        buckets = BucketChunks(self.table, min(_MOST_BUCKETS, 1 + self.table.source.rows // _BUCKET_ROWS))
        sums = ChunkSums(len(buckets), distinct=self.table.is_distinct)
        with self._reading(buckets, sums, None):
            began = time.monotonic()
            theirs = self.source.bucket_checksums(buckets)
            seconds = (time.monotonic() - began) / len(buckets)
        self.later.undo(buckets, sums)
        results = [
            _result(None, theirs.get(number, Checksum()), sums[number], seconds)
            for number in range(len(buckets))
        ]
        rows = sum(result.source_rows for result in results)
        self.on_rows(rows, rows)
        found: list[RowDifference] = []
        left = {number: result.source_rows for number, result in enumerate(results) if not result.equal}
        for group in _grouped(left, self._rows_at_once):
            chunks = BucketChunks(self.table, buckets.buckets, tuple(group))
            if not self._add(found, chunks, self.source.rows(chunks), None):
                break
        return results, found

    def _add(
        self, found: list[RowDifference], chunks: Chunks, source: Iterator[Row], within: KeyRange | None
    ) -> bool:
        """Add the rows of some chunks that differ; `source` are all their rows. Return False if there are too many."""
        lake = self.lake.rows_in(chunks, within)
        self._lake_rows += lake.num_rows
        for difference in RowComparison(self.table, self.later).differences(
            chunks, self._counted(source), lake
        ):
            if len(found) >= self.limits.differences:
                self._complete = False
                return False
            found.append(difference)
        return True

    def _counted(self, rows: Iterator[Row]) -> Iterator[Row]:
        for row in rows:
            self._fetched += 1
            yield row


def _grouped(rows: Mapping[int, int], most: int) -> Iterator[list[int]]:
    """Yield the keys of a mapping in groups whose values are together at most `most`, if each of them is."""
    group: list[int] = []
    total = 0
    for number, count in rows.items():
        if group and total + count > most:
            yield group
            group, total = [], 0
        group.append(number)
        total += count
    if group:
        yield group


def hull(ranges: Sequence[KeyRange]) -> KeyRange | None:
    """Return the range from the first to the last of some ranges in order; None if there are none."""
    return KeyRange(ranges[0].after, ranges[-1].upto) if ranges else None


def _result(chunk: KeyRange | None, source: Checksum, lake: Checksum, seconds: float) -> ChunkResult:
    first, last = (None, None) if chunk is None else (_text(chunk.after), _text(chunk.upto))
    return ChunkResult(first, last, source.rows, lake.rows, source == lake, seconds)


def _number(value: int | bytes) -> int:
    return prefix_of(value) if isinstance(value, bytes) else value


def _text(key: Key | None) -> str | None:
    return None if key is None else ", ".join(map(key_text, key))


def _texts(key: Key | None) -> tuple[str, ...] | None:
    return None if key is None else tuple(map(key_as_text, key))
