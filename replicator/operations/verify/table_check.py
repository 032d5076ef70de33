"""Check one table: checksums of chunks, then hashes of single rows where they differ, then rows.

The hashes of rows tell which keys have rows that differ, so only their rows are fetched. A table without a key has
nothing by which to find a row again: all rows of chunks that differ are fetched.

Both sides read at the same time: the source in the thread of the caller, the lake in another one. Memory is bounded by
the number of chunks, and by the hashes and rows that are compared at once.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from replicator.operations.verify.chunks import (
    BucketChunks,
    ChosenKeys,
    Chunks,
    ChunkSums,
    KeyRange,
    RangeChunks,
)
from replicator.operations.verify.compared_table import ComparedTable
from replicator.operations.verify.differing_keys import RowHashes, differing_keys
from replicator.operations.verify.lake_rows import Checksum, Row
from replicator.operations.verify.later_changes import LaterChanges
from replicator.operations.verify.ordered_keys import Key, Numbers, key_text
from replicator.operations.verify.results import (
    ChunkResult,
    Kind,
    RowDifference,
    SchemaFinding,
    Severity,
    TableResult,
    Verdict,
)
from replicator.operations.verify.row_comparison import RowComparison

_BUCKET_ROWS: Final = 500
"""Rows of a bucket."""
_HASHES_AT_ONCE: Final = 2_000_000
"""Rows of the source whose hashes are compared at once, at most."""
_ROWS_AT_ONCE: Final = 50_000
_BYTES_AT_ONCE: Final = 64_000_000
"""Rows of the source, and their estimated size, that are compared column by column at once, at most."""
_MOST_BUCKETS: Final = 50_000
_ALL: Final = KeyRange(None, None)


class SourceRows(Protocol):
    """What is asked of the source; see `SourceSide`."""

    def chunk_rows(self, within: KeyRange, /) -> int:
        """Return the number of rows of a chunk."""
        ...

    def ranges(self, within: KeyRange, rows: int) -> Iterator[KeyRange]:
        """Divide a range into ranges of about `rows` rows each."""
        ...

    def checksum(self, chunk: KeyRange) -> Checksum:
        """Return the checksum of a range."""
        ...

    def bucket_checksums(self, chunks: BucketChunks) -> dict[int, Checksum]:
        """Return the checksums of all buckets that have rows."""
        ...

    def row_hashes(self, chunk: KeyRange | BucketChunks) -> RowHashes:
        """Return the hashes of the rows of a range, or of buckets."""
        ...

    def rows(self, chunk: KeyRange | BucketChunks, keys: Numbers | None = None) -> Iterator[Row]:
        """Yield the rows of a range, or of buckets; only those with `keys`, if these are given."""
        ...


class LakeRows(Protocol):
    """What is asked of the lake; see `LakeSide`."""

    def add_checksums(self, chunks: Chunks, sums: ChunkSums, within: KeyRange | None = None) -> int:
        """Add all rows to the checksums of their chunks."""
        ...

    def row_hashes(self, chunks: Chunks, within: KeyRange | None = None) -> RowHashes:
        """Return the hashes of the rows of some chunks."""
        ...

    def rows_in(self, chunks: Chunks, within: KeyRange | None = None) -> pa.Table:
        """Return the rows of some chunks."""
        ...


@dataclass(frozen=True, slots=True)
class Limits:
    """How a table is checked.

    Attributes:
        rows_per_second: the source is asked for the checksums of so many rows in a second at most; None is no limit.
        differences: so many differing rows are looked for at most, in each table.
        sample: the share of the chunks that is checked, 0 to 1; 1 checks all.
        seed: chooses the sample.
        connections: number of connections to the source.
    """

    rows_per_second: int | None = None
    differences: int = 10_000
    sample: float = 1.0
    seed: int = 0
    connections: int = 1


OnRows = Callable[[int, int], None]
"""Called with the number of rows of the source that were checked, and the estimated number."""


@dataclass(slots=True)
class TableCheck:
    """Checks one table.

    Attributes:
        later: the changes that the mirror has and the source's transaction may not have seen.
        schema: what was found about the columns.
        on_rows: called during the check.
    """

    table: ComparedTable
    source: SourceRows
    lake: LakeRows
    later: LaterChanges
    limits: Limits = Limits()
    schema: Sequence[SchemaFinding] = ()
    on_rows: OnRows = lambda *_: None
    _fetched: int = field(default=0, init=False)
    _complete: bool = field(default=True, init=False)

    def run(self) -> TableResult:
        """Check the table.

        Raises:
            LakeError, SchemaError: as `LakeSide.add_checksums`.
            SourceError: the source does not answer.
        """
        began = time.monotonic()
        chunks, differences = self._by_ranges() if self.table.ranges else self._by_buckets()
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
            by="ranges" if self.table.ranges else "buckets",
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
            passing=reason is not None,
        )

    @property
    def _rows_at_once(self) -> int:
        return max(1, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE // self.table.source.bytes_per_row))

    def _by_ranges(self) -> tuple[list[ChunkResult], list[RowDifference]]:
        ranges = self._sampled(list(self.source.ranges(_ALL, self.source.chunk_rows(_ALL))))
        results = self._compare_ranges(ranges)
        found: list[RowDifference] = []
        for places in self._groups(results):
            group = [ranges[place] for place in places]
            if not self._add_differences(found, RangeChunks(self.table, tuple(group)), group, hull(group)):
                break
        return results, found

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
        with ThreadPoolExecutor(1, "lake") as pool:
            reading = pool.submit(self.lake.add_checksums, chunks, sums, hull(ranges))
            theirs = list(self._checksums(ranges, reading))
            reading.result()
        self.later.undo(chunks, sums)
        return [
            _result(r, found, sums[number], seconds)
            for number, (r, (found, seconds)) in enumerate(zip(ranges, theirs, strict=True))
        ]

    def _checksums(
        self, ranges: Sequence[KeyRange], reading: "Future[int]"
    ) -> Iterator[tuple[Checksum, float]]:
        """Yield the source's checksum of each range, and how long it took."""
        began, rows = time.monotonic(), 0
        with ThreadPoolExecutor(self.limits.connections, "source") as pool:
            asked = iter(ranges)
            running = deque(pool.submit(self._timed, r) for r in islice(asked, self.limits.connections))
            while running:
                found, seconds = running.popleft().result()
                if reading.done() and reading.exception() is not None:
                    reading.result()
                rows += found.rows
                yield found, seconds
                self.on_rows(rows, max(rows, self.table.source.rows))
                if self.limits.rows_per_second:
                    time.sleep(max(0.0, began + rows / self.limits.rows_per_second - time.monotonic()))
                running.extend(pool.submit(self._timed, r) for r in islice(asked, 1))

    def _timed(self, chunk: KeyRange) -> tuple[Checksum, float]:
        began = time.monotonic()
        return self.source.checksum(chunk), time.monotonic() - began

    def _by_buckets(self) -> tuple[list[ChunkResult], list[RowDifference]]:
        buckets = BucketChunks(self.table, min(_MOST_BUCKETS, 1 + self.table.source.rows // _BUCKET_ROWS))
        sums = ChunkSums(len(buckets), distinct=self.table.is_distinct)
        with ThreadPoolExecutor(1, "lake") as pool:
            reading = pool.submit(self.lake.add_checksums, buckets, sums)
            began = time.monotonic()
            theirs = self.source.bucket_checksums(buckets)
            seconds = (time.monotonic() - began) / len(buckets)
            reading.result()
        self.later.undo(buckets, sums)
        results = [
            _result(None, theirs.get(number, Checksum()), sums[number], seconds)
            for number in range(len(buckets))
        ]
        rows = sum(result.source_rows for result in results)
        self.on_rows(rows, rows)
        found: list[RowDifference] = []
        for places in self._groups(results):
            chunks = BucketChunks(self.table, buckets.buckets, tuple(places))
            if not self._add_differences(found, chunks, [chunks], None):
                break
        return results, found

    def _groups(self, results: Sequence[ChunkResult]) -> Iterator[list[int]]:
        """Yield the places of chunks that differ, in groups of so many rows as are compared at once."""
        most = _HASHES_AT_ONCE if self.table.key else self._rows_at_once
        group: list[int] = []
        rows = 0
        for place, result in enumerate(results):
            if result.equal:
                continue
            if group and rows + result.source_rows > most:
                yield group
                group, rows = [], 0
            group.append(place)
            rows += result.source_rows
        if group:
            yield group

    def _add_differences(
        self,
        found: list[RowDifference],
        chunks: Chunks,
        asked: Sequence[KeyRange | BucketChunks],
        within: KeyRange | None,
    ) -> bool:
        """Add the rows of some chunks that differ; `asked` are the same chunks. Return False if there are too many."""
        if not self.table.key:
            rows = (row for chunk in asked for row in self.source.rows(chunk))
            return self._add(found, chunks, rows, within)
        with ThreadPoolExecutor(1, "lake") as pool:
            reading = pool.submit(self.lake.row_hashes, chunks, within)
            theirs = [self.source.row_hashes(chunk) for chunk in asked]
            before, after = self.later.inside(chunks).hashes()
            keys = differing_keys(RowHashes.joined(theirs), reading.result(), before, after)
        # JSON of the same meaning may have another hash, so there may be many keys whose rows do not differ.
        for start in range(0, len(keys), self._rows_at_once):
            wanted = keys[start : start + self._rows_at_once]
            source = self._rows_with(wanted, list(zip(asked, theirs, strict=True)))
            if not self._add(found, ChosenKeys(self.table, wanted), source, within):
                return False
        return True

    def _rows_with(
        self, keys: Numbers, asked: Sequence[tuple[KeyRange | BucketChunks, RowHashes]]
    ) -> Iterator[Row]:
        """Yield the rows of the source with some keys."""
        for chunk, known in asked:
            inside = np.intersect1d(known.keys, keys)
            if len(inside):
                yield from self.source.rows(chunk, inside)

    def _add(
        self, found: list[RowDifference], chunks: Chunks, source: Iterator[Row], within: KeyRange | None
    ) -> bool:
        """Add the rows of some chunks that differ; `source` are all their rows. Return False if there are too many."""
        lake = self.lake.rows_in(chunks, within)
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


def hull(ranges: Sequence[KeyRange]) -> KeyRange | None:
    """Return the range from the first to the last of some ranges in order; None if there are none."""
    return KeyRange(ranges[0].after, ranges[-1].upto) if ranges else None


def _result(chunk: KeyRange | None, source: Checksum, lake: Checksum, seconds: float) -> ChunkResult:
    first, last = (None, None) if chunk is None else (_text(chunk.after), _text(chunk.upto))
    return ChunkResult(first, last, source.rows, lake.rows, source == lake, seconds)


def _text(key: Key | None) -> str | None:
    return None if key is None else ", ".join(map(key_text, key))
