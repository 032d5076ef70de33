"""Compare rows of some chunks one by one: which are missing, unexpected or different, and in which columns."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from replicator.schema.types.table import Form
from replicator.verify.canonical import ComparedColumn
from replicator.verify.chunks import Chunks
from replicator.verify.compared_table import ComparedTable
from replicator.verify.lake_rows import Row, forms
from replicator.verify.later_changes import KeyStates, LaterChanges
from replicator.verify.mysql_json import json_meaning, same_json
from replicator.verify.results import Kind, RowDifference, shown


@dataclass(frozen=True, slots=True)
class RowComparison:
    """Compares rows of a table.

    Attributes:
        table: the table.
        later: the changes that the mirror has and the source's transaction may not have seen.
    """

    table: ComparedTable
    later: LaterChanges

    def differences(self, chunks: Chunks, source: Iterable[Row], lake: pa.Table) -> Iterator[RowDifference]:
        """Yield the rows that differ; `source` and `lake` are all rows of `chunks`."""
        ours = rows_of(lake, self.table.columns)
        if self.table.key:
            yield from self._keyed(self.later.inside(chunks).states(), source, ours)
        else:
            yield from self._keyless(chunks, source, ours)

    def _keyed(
        self, states: Mapping[Row, KeyStates], source: Iterable[Row], lake: Iterable[Row]
    ) -> Iterator[RowDifference]:
        theirs = {self._key(row): row for row in source}
        ours: dict[Row, list[Row]] = defaultdict(list)
        for row in lake:
            ours[self._key(row)].append(row)
        for key in dict.fromkeys([*theirs, *ours, *states]):
            yield from self._of_key(theirs.get(key), ours.get(key, []), states.get(key))

    def _of_key(
        self, source: Row | None, lake: Sequence[Row], states: KeyStates | None
    ) -> Iterator[RowDifference]:
        if states is None:
            yield from self._pair(source, lake[0] if lake else None)
            yield from (self._difference(Kind.UNEXPECTED, None, row) for row in lake[1:])
            return
        # The mirror must have the row after the last change, and the source one that the changelog has.
        yield from self._pair(states.last, lake[0] if lake else None, later=True)
        yield from (self._difference(Kind.UNEXPECTED, None, row) for row in lake[1:])
        if not any(self.same(source, known) for known in states.seen):
            yield from self._pair(source, states.before)

    def same(self, one: Row | None, other: Row | None) -> bool:
        """Return whether two rows are equal; None is no row."""
        if one is None or other is None:
            return one is other
        return not self._columns(one, other)

    def _pair(self, source: Row | None, lake: Row | None, *, later: bool = False) -> Iterator[RowDifference]:
        if source is None and lake is None:
            return
        if source is None or lake is None:
            kind = Kind.MISSING if lake is None else Kind.UNEXPECTED
            yield self._difference(kind, source, lake, later=later)
        elif columns := self._columns(source, lake):
            yield self._difference(Kind.DIFFERENT, source, lake, columns, later=later)

    def _columns(self, source: Row, lake: Row) -> tuple[str, ...]:
        """Return the columns in which two rows differ."""
        if source == lake:
            return ()
        pairs = zip(self.table.columns, source, lake, strict=True)
        return tuple(c.source for c, one, other in pairs if not _same_value(c, one, other))

    def _difference(
        self,
        kind: Kind,
        source: Row | None,
        lake: Row | None,
        columns: tuple[str, ...] = (),
        *,
        later: bool = False,
    ) -> RowDifference:
        row = source if source is not None else lake
        key = {} if row is None else shown(self.table.key, self._key(row))
        sides = [None if side is None else shown(self.table.columns, side) for side in (source, lake)]
        return RowDifference(kind, key, columns, sides[0], sides[1], later)

    def _key(self, row: Row) -> Row:
        places = [self.table.columns.index(column) for column in self.table.key]
        return tuple(row[place] for place in places)

    def _keyless(self, chunks: Chunks, source: Iterable[Row], lake: Iterable[Row]) -> Iterator[RowDifference]:
        """Compare how often each row occurs."""
        counts: Counter[Row] = Counter()
        examples: dict[Row, Row] = {}

        def count(rows: Iterable[Row], sign: int) -> None:
            for row in rows:
                plain = self._plain(row)
                counts[plain] += sign
                examples.setdefault(plain, row)

        count(source, 1)
        count(lake, -1)
        later = self.later.inside(chunks)
        for is_after, row in zip(
            later.after.tolist(), rows_of(later.images, self.table.columns), strict=True
        ):
            count((row,), 1 if is_after else -1)
        for plain, number in counts.items():
            row = examples[plain]
            for _ in range(abs(number)):
                if number > 0:
                    yield self._difference(Kind.MISSING, row, None)
                else:
                    yield self._difference(Kind.UNEXPECTED, None, row)

    def _plain(self, row: Row) -> Row:
        """Return a row in which JSON of the same meaning is the same."""
        if not any(c.form is Form.JSON for c in self.table.columns):
            return row
        return tuple(
            json_meaning(value.decode()).encode() if value is not None and c.form is Form.JSON else value
            for c, value in zip(self.table.columns, row, strict=True)
        )


def rows_of(rows: pa.Table, columns: Sequence[ComparedColumn]) -> list[Row]:
    """Return rows of the lake as canonical forms."""
    return list(zip(*(array.to_pylist() for array in forms(rows, columns)), strict=True))


def _same_value(column: ComparedColumn, one: bytes | None, other: bytes | None) -> bool:
    if one == other:
        return True
    if column.form is not Form.JSON or one is None or other is None:
        return False
    return same_json(one.decode(), other.decode())
