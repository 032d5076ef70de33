"""Absorb small files: a commit writes the rows and positions of the newest ones again, together with its own.

So the number of small files grows with the logarithm of the number of commits, as in a log-structured merge tree, and
no commit is needed for that alone.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from replicator.lake.catalog import LakeTable
from replicator.lake.data_files import FilePositions, WrittenDeletes, joined
from replicator.lake.driver_files import WrittenData, read_data
from replicator.lake.partition_rows import PartitionRows
from replicator.lake.partitions import label_of
from replicator.lake.small_files import AbsorbedFiles, Positions, SmallFiles


@dataclass(frozen=True, slots=True)
class Absorption:
    """What a commit writes in place of small files and of its own rows and deletes.

    Attributes:
        rows: the new rows, each partition with the remaining rows of the data files that it removes; None if the driver
            does not write the new rows.
        positions: the positions to delete in all other data files.
        files: the files that the commit removes.
    """

    rows: Sequence[PartitionRows] | None
    positions: Sequence[FilePositions]
    files: AbsorbedFiles = field(default_factory=AbsorbedFiles)


def absorb(
    table: LakeTable,
    small: SmallFiles | None,
    rows: Sequence[PartitionRows] | None,
    positions: Sequence[FilePositions],
) -> Absorption:
    """Choose the small files that a commit absorbs.

    Args:
        table: the table; `small` are its small files, None if they are not known.
        small: see above.
        rows: the new rows, by partition; None if the driver does not write them.
        positions: the positions of the rows that the commit deletes, each data file once, with its partition.
    """
    # A commit that only inserts stays an append, which others can read incrementally. The rows of a table with row
    # lineage have ids, which the driver does not know.
    if small is None or not positions or table.has_deletion_vectors:
        return Absorption(rows, positions)
    added = {label_of(part.partition): part.rows.num_rows for part in rows or ()}
    deleted = Counter[str]()
    for found in positions:
        deleted[label_of(found.file.partition)] += len(found.positions)
    files = small.to_absorb(added, deleted)
    if rows is not None and files.data:
        together = _with_older(table, rows, files, _deleted(small, files, positions))
        if together is None:
            files = small.to_absorb({}, deleted)
        else:
            rows = together
    gone = files.paths
    kept = [found for found in positions if found.file.path not in gone]
    return Absorption(rows, joined([*files.positions, *kept]) if files.deletes else kept, files)


def _with_older(
    table: LakeTable, rows: Sequence[PartitionRows], files: AbsorbedFiles, deleted: Mapping[str, Positions]
) -> list[PartitionRows] | None:
    """Return new rows, each partition after the remaining rows of its absorbed files.

    None if Arrow cannot convert them.
    """
    together = []
    for part in rows:
        label = label_of(part.partition)
        older = [file for file in files.data if label_of(file.partition) == label]
        remaining = remaining_rows(table, older, deleted)
        if remaining is None:
            return None
        together.append(replace(part, rows=pa.concat_tables([*remaining, part.rows])))
    return together


def remaining_rows(
    table: LakeTable, files: Sequence[WrittenData], deleted: Mapping[str, Positions]
) -> list[pa.Table] | None:
    """Return the rows of each data file, as the table has them, without those at `deleted` (path → positions).

    None if Arrow cannot convert them.
    """
    parts = []
    for file in files:
        rows = read_data(table, file)
        if rows is None:
            return None
        parts.append(_without(rows, deleted.get(file.path)))
    return parts


def added_data(table: LakeTable, files: Sequence[WrittenData]) -> list[Any]:
    """Return Iceberg's DataFile objects, with the manifests in which they are: Iceberg then searches only these."""
    return _added(table, files, "addedDataFiles")


def added_deletes(table: LakeTable, files: Sequence[WrittenDeletes]) -> list[Any]:
    """Return Iceberg's DeleteFile objects as `added_data`."""
    return _added(table, files, "addedDeleteFiles")


def _added(
    table: LakeTable, files: Sequence[WrittenData] | Sequence[WrittenDeletes], method: str
) -> list[Any]:
    found = []
    for file in files:
        path = str(file.file.location())
        snapshot = None if file.snapshot_id is None else table.java.snapshot(file.snapshot_id)
        added = [] if snapshot is None else getattr(snapshot, method)(table.java.io())
        found.append(next((new for new in added if str(new.location()) == path), file.file))
    return found


def _deleted(
    small: SmallFiles, files: AbsorbedFiles, positions: Sequence[FilePositions]
) -> dict[str, Positions]:
    """Return data file path → the positions that are deleted, by earlier commits and by `positions`."""
    deleted, gone = small.deleted(files.paths), files.paths
    for found in positions:
        if (path := found.file.path) in gone:
            earlier = deleted.get(path)
            deleted[path] = found.positions if earlier is None else np.union1d(earlier, found.positions)
    return deleted


def _without(rows: pa.Table, positions: Positions | None) -> pa.Table:
    if positions is None:
        return rows
    kept = np.ones(rows.num_rows, bool)
    kept[positions] = False
    return rows.filter(pa.array(kept))
