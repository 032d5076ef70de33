"""Find the keys that changed since a position, in the changelog, so that only their rows are checked."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from replicator.consumer.files import FileReader, FilesGone, change_column_of, live_files
from replicator.errors import Unsettled, UsageError
from replicator.model.binlog import BinlogEnd
from replicator.model.common import counted
from replicator.model.gtid import GtidSet
from replicator.model.position import binlog_number
from replicator.model.verified import VerifiedTable
from replicator.verify.compared_table import ComparedTable
from replicator.verify.lake_rows import hash_rows
from replicator.verify.later_changes import Flags, each
from replicator.verify.results import Verdict

_MOST_KEYS: Final = 1_000_000
"""If more keys changed, a check of all rows is faster."""
_ROW_CHANGES: Final = frozenset({"c", "u", "d"})


class Since(Protocol):
    """Tells which changes count."""

    def mask(self, change: pa.StructArray) -> Flags:
        """Return for each change whether it is one since then."""
        ...


@dataclass(frozen=True, slots=True)
class SincePosition:
    """Changes at or behind a position of the binlog, on the server that has it."""

    end: BinlogEnd

    def mask(self, change: pa.StructArray) -> Flags:
        """Return for each change whether it is one since then."""
        first = (binlog_number(self.end.file), self.end.pos)

        def test(file: str | None, pos: int | None) -> bool:
            return not file or (binlog_number(file), pos or 0) >= first

        return _each(change, ("file", "pos"), test)


@dataclass(frozen=True, slots=True)
class SinceGtids:
    """Changes of transactions that are not among some; also those without a GTID."""

    gtids: GtidSet

    def mask(self, change: pa.StructArray) -> Flags:
        """Return for each change whether it is one since then."""

        def test(gtid: str | None) -> bool:
            return not gtid or self.gtids.lacking(GtidSet.parse(gtid)) > 0

        return _each(change, ("gtid",), test)


@dataclass(frozen=True, slots=True)
class SinceOffsets:
    """Changes at or behind an offset of the log, for each partition."""

    first: Mapping[int, int]

    def mask(self, change: pa.StructArray) -> Flags:
        """Return for each change whether it is one since then."""
        partitions, offsets = (
            change.field(name).to_numpy(zero_copy_only=False) for name in ("partition", "offset")
        )
        found = np.ones(len(offsets), bool)
        for partition, first in self.first.items():
            found &= (partitions != partition) | (offsets >= first)
        return found


def parse_since(text: str) -> Since:
    """Read a position, as in ``binlog.000012:4``, or a set of GTIDs.

    Raises:
        UsageError: it is neither.
    """
    file, _, pos = text.rpartition(":")
    with suppress(ValueError):
        if "." in file and pos.isdigit():
            binlog_number(file)
            return SincePosition(BinlogEnd(file, int(pos)))
        if (gtids := GtidSet.parse(text)).intervals:
            return SinceGtids(gtids)
    raise UsageError(
        f'"{text}" is no position of the source',
        'give "last", a binlog position as in binlog.000012:4, or a set of GTIDs',
    )


@dataclass(frozen=True, slots=True)
class ChangedKeys:
    """The keys that changed.

    Attributes:
        rows: one row for each of them, with the key columns.
    """

    rows: pa.Table

    @property
    def count(self) -> int:
        """Number of keys."""
        return int(self.rows.num_rows)


@dataclass(frozen=True, slots=True)
class AllRows:
    """The reason why all rows are checked: it is not known which keys changed, or there are too many."""

    reason: str


def since_last(checked: VerifiedTable | None, topic_id: str | None) -> Since | AllRows:
    """Return which changes count that came after the last check, `checked`, of a table whose topic has this id."""
    if checked is None:
        return AllRows("the table was not checked before")
    if checked.verdict == Verdict.DIFFERENT:
        return AllRows("the last check found it different")
    if checked.verdict != Verdict.EQUAL:
        return AllRows("the last check did not find it equal")
    if checked.sampled:
        return AllRows("the last check compared only a part of its rows")
    if not checked.offsets:
        return AllRows("it is not recorded where in its topic the last check was")
    if checked.topic_id != topic_id:
        return AllRows("its topic was recreated after the last check")
    return SinceOffsets(checked.offsets)


def changed_keys(table: ComparedTable, changelog: Table | None, since: Since) -> ChangedKeys | AllRows:
    """Return the keys that changed.

    That is not known if MySQL cannot be asked for keys of such types, or if the rows of the table were replaced: by a
    TRUNCATE, a snapshot or a re-read.

    Raises:
        Unsettled: files of the changelog were deleted meanwhile.
    """
    if not table.key:
        return AllRows("it has no key")
    if changelog is None:
        return AllRows("it has no changelog")
    schema = changelog.schema()
    change, names = change_column_of(schema), {field.name for field in schema.fields}
    if not all(c.has_literals for c in table.key):
        return AllRows("its key has a type by which single rows cannot be read")
    if not all(c.lake in names for c in table.key):
        return AllRows("its changelog lacks a column of the key")
    wanted = [c.lake for c in table.key]
    reader, snapshot = FileReader.of(changelog, schema.select(*wanted, change)), changelog.current_snapshot()
    found = _Found(table, reader.arrow_schema.empty_table().drop_columns([change]))
    try:
        for file in [] if snapshot is None else live_files(changelog, int(snapshot.snapshot_id)):
            for part in reader.batches(file.data):
                at = part.column(change).combine_chunks()
                inside = pa.array(since.mask(at))
                if set(pc.unique(at.field("op").filter(inside)).to_pylist()) - _ROW_CHANGES:
                    return AllRows(
                        "its rows were replaced since then, by a TRUNCATE, a snapshot or a re-read"
                    )
                found.add(part.filter(inside).drop_columns([change]))
                if len(found.hashes) > _MOST_KEYS:
                    return AllRows(f"more than {counted(_MOST_KEYS, 'key')} changed")
    except FilesGone as error:
        raise Unsettled(
            f"files of the changelog of {table.name} were deleted meanwhile", "check again"
        ) from error
    return ChangedKeys(found.rows)


class _Found:
    """Different keys, in the order in which they were found."""

    def __init__(self, table: ComparedTable, none: pa.Table) -> None:
        self._table = table
        self.rows = none
        self.hashes = np.empty(0, np.uint64)

    def add(self, rows: pa.Table) -> None:
        """Add the keys that are new."""
        hashes, first = np.unique(hash_rows(rows, self._table.key), return_index=True)
        new = ~np.isin(hashes, self.hashes)
        self.rows = pa.concat_tables([self.rows, rows.take(pa.array(first[new]))])
        self.hashes = np.concatenate([self.hashes, hashes[new]])


def _each(change: pa.StructArray, names: Sequence[str], test: Callable[..., bool]) -> Flags:
    return each([change.field(name) for name in names], test)
