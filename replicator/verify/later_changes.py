"""Find the changes of a table that a mirror has and the source's transaction did not see, to undo them.

A checksum is undone without looking at the mirror's rows: the hash of each image after a change is subtracted from its
chunk, and that of each image before it is added. If the mirror's row of a key is not the image after the last change,
the sums differ, as they must.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from replicator.consumer.files import FileReader, FilesGone, LogFile, change_column_of, live_files
from replicator.errors import Unsettled
from replicator.model.changelog import RowKind
from replicator.model.commit_marker import CommitMarker
from replicator.model.gtid import GtidSet
from replicator.model.position import binlog_number
from replicator.verify.chunks import Chunks, ChunkSums
from replicator.verify.compared_table import ComparedTable
from replicator.verify.lake_rows import Row, forms, hash_rows
from replicator.verify.source_side import Fence

Offsets = Mapping[int, int]
"""Partition → offset."""
Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"
_AFTER: Final = (str(RowKind.INSERT), str(RowKind.UPDATE_AFTER))
_STREAMED: Final = frozenset({"c", "u", "d"})
"""Operations of changes that have images."""
_AGAIN: Final = "check again"


@dataclass(frozen=True, slots=True)
class KeyStates:
    """What a key was, by the changelog; None is no row.

    Attributes:
        before: its row before the first change that the transaction may not have seen.
        last: its row after the last change.
        seen: further rows of it that the transaction may have seen instead of `before`.
    """

    before: Row | None
    last: Row | None
    seen: frozenset[Row | None] = frozenset()


@dataclass(frozen=True, slots=True)
class LaterChanges:
    """Images of changes, in their order.

    Attributes:
        table: the table.
        images: the images, with the compared columns.
        after: for each of them, whether it is the image after a change; else it is the one before.
        deletes: for each of them, whether the change deleted the row.
        unsure: for each of them, whether the transaction may have seen the change.
    """

    table: ComparedTable
    images: pa.Table
    after: Flags
    deletes: Flags
    unsure: Flags

    @property
    def count(self) -> int:
        """Number of images."""
        return int(self.images.num_rows)

    def undo(self, chunks: Chunks, sums: ChunkSums) -> None:
        """Undo the changes in the checksums of chunks."""
        if not self.count:
            return
        numbers, hashes = chunks.numbers(self.images), hash_rows(self.images, self.table.hashed)
        sums.add(numbers[self.after], hashes[self.after], -1)
        sums.add(numbers[~self.after], hashes[~self.after], 1)

    def inside(self, chunks: Chunks) -> "LaterChanges":
        """Return the images of rows in some chunks."""
        if not self.count:
            return self
        inside = chunks.numbers(self.images) >= 0
        kept = self.images.filter(pa.array(inside))
        return LaterChanges(self.table, kept, self.after[inside], self.deletes[inside], self.unsure[inside])

    def states(self) -> dict[Row, KeyStates]:
        """Return key → its states, for a table with a key."""
        columns = self.table.columns
        rows = list(zip(*(a.to_pylist() for a in forms(self.images, columns)), strict=True))
        places = [columns.index(column) for column in self.table.key]
        found: dict[Row, KeyStates] = {}
        flags = zip(self.after.tolist(), self.deletes.tolist(), self.unsure.tolist(), strict=True)
        for row, (is_after, deletes, unsure) in zip(rows, flags, strict=True):
            key = tuple(row[place] for place in places)
            known = found.get(key, KeyStates(None if is_after else row, None))
            if is_after or deletes:
                last = row if is_after else None
                known = KeyStates(known.before, last, known.seen | {last} if unsure else known.seen)
            found[key] = known
        return found


def nothing_later(table: ComparedTable, no_rows: pa.Table) -> LaterChanges:
    """Return that nothing changed; `no_rows` has the compared columns."""
    none = np.zeros(0, bool)
    return LaterChanges(table, no_rows, none, none, none)


def later_changes(
    table: ComparedTable, changelog: Table, fence: Fence, since: Offsets, until: Offsets
) -> LaterChanges:
    """Return the changes with offsets from `since` to before `until` that the transaction may not have seen.

    Raises:
        Unsettled: a change has no images, so it cannot be undone.
    """
    names = {field.name for field in changelog.schema().fields}
    wanted = [column.lake for column in table.columns if column.lake in names]
    changes = Changelog.of(table.name, changelog, wanted)
    parts = [
        _between(part, changes.change, since, until)
        for part in changes.rows(lambda file: _may_have(file, since, until))
    ]
    rows = pa.concat_tables(parts) if parts else changes.reader.arrow_schema.empty_table()
    return _classified(table, rows, changes.change, fence)


@dataclass(frozen=True, slots=True)
class Changelog:
    """A changelog, of which some columns are read.

    Attributes:
        table: the name of the source table.
        change: the column with the description of a change.
    """

    table: str
    changelog: Table
    change: str
    reader: FileReader

    @classmethod
    def of(cls, table: str, changelog: Table, columns: Sequence[str]) -> "Changelog":
        """Return the changelog of a table."""
        schema = changelog.schema()
        change = change_column_of(schema)
        return cls(table, changelog, change, FileReader.of(changelog, schema.select(*columns, change)))

    def rows(self, may_have: Callable[[LogFile], bool] = lambda _: True) -> Iterator[pa.Table]:
        """Yield the rows of the files that may have wanted ones.

        Raises:
            Unsettled: files were deleted meanwhile.
        """
        if (snapshot := self.changelog.current_snapshot()) is None:
            return
        try:
            for file in live_files(self.changelog, int(snapshot.snapshot_id)):
                if may_have(file):
                    yield from self.reader.batches(file.data)
        except FilesGone as error:
            raise Unsettled(
                f"files of the changelog of {self.table} were deleted meanwhile", _AGAIN
            ) from error


def offsets(marker: CommitMarker, topic: str) -> Offsets:
    """Return the first offset of each partition of a topic that a table with this marker lacks."""
    return {p: progress.next_offset for p, progress in marker.progress.get(topic, {}).items()}


def _may_have(file: LogFile, since: Offsets, until: Offsets) -> bool:
    if not until:
        return False
    first = min(since.get(partition, 0) for partition in until)
    return file.last[1] >= first and file.first[1] < max(until.values())


def _between(rows: pa.Table, change: str, since: Offsets, until: Offsets) -> pa.Table:
    at = rows.column(change).combine_chunks()
    partitions, numbers = (at.field(name).to_numpy(zero_copy_only=False) for name in ("partition", "offset"))
    inside = np.zeros(len(numbers), bool)
    for partition, end in until.items():
        inside |= (partitions == partition) & (numbers >= since.get(partition, 0)) & (numbers < end)
    return rows.filter(pa.array(inside))


def _classified(table: ComparedTable, rows: pa.Table, change: str, fence: Fence) -> LaterChanges:
    at = rows.column(change).combine_chunks()
    kinds = at.field("kind").to_pylist()
    # The order in the log; the image before an update precedes the one after it.
    is_after = np.array([kind in _AFTER for kind in kinds], bool)
    deletes = np.array([kind == RowKind.DELETE for kind in kinds], bool)
    order = np.lexsort(
        (is_after, *(at.field(n).to_numpy(zero_copy_only=False) for n in ("offset", "partition")))
    )
    rows, at = rows.take(pa.array(order)), at.take(pa.array(order))
    seen = each((at.field("file"), at.field("pos"), at.field("gtid")), lambda *p: _was_seen(fence, *p))
    unseen = each((at.field("file"), at.field("pos")), lambda *p: _was_not_seen(fence, *p))
    later = ~seen
    operations = set(pc.unique(at.field("op").filter(pa.array(later))).to_pylist())
    if strange := operations - _STREAMED:
        raise Unsettled(f"{table.name} was truncated or read again meanwhile (op {min(strange)})", _AGAIN)
    kept = rows.filter(pa.array(later)).drop_columns([change])
    return LaterChanges(table, kept, is_after[order][later], deletes[order][later], ~unseen[later])


def each(columns: Sequence[pa.Array], test: Callable[..., bool]) -> Flags:
    """Return a test of some columns for each row; each combination of values is tested once."""
    rows: Iterable[tuple[Any, ...]] = zip(*(column.to_pylist() for column in columns), strict=True)
    known: dict[tuple[Any, ...], bool] = {}
    found = []
    for values in rows:
        if values not in known:
            known[values] = test(*values)
        found.append(known[values])
    return np.array(found, bool)


def _was_seen(fence: Fence, file: str | None, pos: int | None, gtid: str | None) -> bool:
    if fence.seen.gtids is not None and gtid:
        return fence.seen.gtids.lacking(GtidSet.parse(gtid)) == 0
    return _place(file, pos) < _place(fence.seen.file, fence.seen.pos)


def _was_not_seen(fence: Fence, file: str | None, pos: int | None) -> bool:
    return _place(file, pos) >= _place(fence.before.file, fence.before.pos)


def _place(file: str | None, pos: int | None) -> tuple[int, int]:
    return (binlog_number(file) if file else 0, pos or 0)
