"""Find the keys that changed since a position, in the changelog, so that only their rows are checked."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table

from replicator.errors import UsageError
from replicator.model.binlog import BinlogEnd
from replicator.model.common import counted
from replicator.model.gtid import GtidSet
from replicator.model.position import binlog_number
from replicator.model.verified import VerifiedTable
from replicator.verify.compared_table import ComparedTable
from replicator.verify.lake_rows import hash_rows
from replicator.verify.later_changes import Changelog, Flags, each
from replicator.verify.results import Verdict

_MOST_KEYS: Final = 1_000_000
"""If more keys changed, a check of all rows is faster."""
_ROW_CHANGES: Final = frozenset({"c", "u", "d"})


@dataclass(frozen=True, slots=True)
class Since:
    """Tells which changes count.

    Attributes:
        at: a position of the binlog, on the server that has it: changes at or behind it. Or GTIDs: changes of other
            transactions, also without a GTID. Or the first offset of each partition of the log.
    """

    at: BinlogEnd | GtidSet | Mapping[int, int]

    def mask(self, change: pa.StructArray) -> Flags:
        """Return for each change whether it is one since then."""
        match self.at:
            case BinlogEnd(file=name, pos=pos):
                first = (binlog_number(name), pos)
                return each(
                    (change.field("file"), change.field("pos")),
                    lambda file, pos: not file or (binlog_number(file), pos or 0) >= first,
                )
            case GtidSet() as known:
                return each(
                    (change.field("gtid"),),
                    lambda gtid: not gtid or known.lacking(GtidSet.parse(gtid)) > 0,
                )
        partitions, offsets = (
            change.field(name).to_numpy(zero_copy_only=False) for name in ("partition", "offset")
        )
        found = np.ones(len(offsets), bool)
        for partition, first_offset in self.at.items():
            found &= (partitions != partition) | (offsets >= first_offset)
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
            return Since(BinlogEnd(file, int(pos)))
        if (gtids := GtidSet.parse(text)).intervals:
            return Since(gtids)
    raise UsageError(
        f'"{text}" is no position of the source',
        'give "last", a binlog position as in binlog.000012:4, or a set of GTIDs',
    )


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
    return Since(checked.offsets)


def changed_keys(table: ComparedTable, changelog: Table | None, since: Since) -> pa.Table | AllRows:
    """Return the keys that changed, each once, in the columns of the lake.

    That is not known if MySQL cannot be asked for keys of such types, or if the rows of the table were replaced: by a
    TRUNCATE, a snapshot or a re-read.

    Raises:
        Unsettled: files of the changelog were deleted meanwhile.
    """
    if not table.key:
        return AllRows("it has no key")
    if changelog is None:
        return AllRows("it has no changelog")
    wanted = [column.lake for column in table.key]
    if not all(column.has_literals for column in table.key):
        return AllRows("its key has a type by which single rows cannot be read")
    if not set(wanted) <= {field.name for field in changelog.schema().fields}:
        return AllRows("its changelog lacks a column of the key")
    changes = Changelog.of(table.name, changelog, wanted)
    found = changes.reader.arrow_schema.empty_table().drop_columns([changes.change])
    hashes = np.empty(0, np.uint64)
    for part in changes.rows():
        at = part.column(changes.change).combine_chunks()
        inside = pa.array(since.mask(at))
        if set(pc.unique(at.field("op").filter(inside)).to_pylist()) - _ROW_CHANGES:
            return AllRows("its rows were replaced since then, by a TRUNCATE, a snapshot or a re-read")
        rows = part.filter(inside).drop_columns([changes.change])
        own, first = np.unique(hash_rows(rows, table.key), return_index=True)
        new = ~np.isin(own, hashes)
        found = pa.concat_tables([found, rows.take(pa.array(first[new]))])
        hashes = np.concatenate([hashes, own[new]])
        if len(hashes) > _MOST_KEYS:
            return AllRows(f"more than {counted(_MOST_KEYS, 'key')} changed")
    return found
