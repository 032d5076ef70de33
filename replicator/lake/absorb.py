"""Absorb small files: a commit writes the rows and positions of the newest ones again, together with its own.

So the number of small files grows with the logarithm of the number of commits, as in a log-structured merge tree, and
no commit is needed for that alone.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from replicator.lake.catalog import LakeTable
from replicator.lake.data_files import FilePositions, WrittenDeletes, joined
from replicator.lake.driver_files import WrittenData, read_data, writable_rows
from replicator.lake.small_files import AbsorbedFiles, Positions, SmallFiles


@dataclass(frozen=True, slots=True)
class Absorption:
    """What a commit writes in place of small files and of its own rows and deletes.

    Attributes:
        files: the files that it removes.
        rows: the remaining rows of their data files, then the new rows; None if it removes no data file.
        positions: the positions to delete in all other data files.
    """

    files: AbsorbedFiles = field(default_factory=AbsorbedFiles)
    rows: pa.Table | None = None
    positions: Sequence[FilePositions] = ()


def absorb(
    table: LakeTable,
    small: SmallFiles | None,
    rows: pa.Table | None,
    positions: Sequence[FilePositions],
    names: Iterable[str],
) -> Absorption:
    """Choose the small files that a commit absorbs.

    Args:
        table: the table; `small` are its small files, None if they are not known.
        small: see above.
        rows: the new rows; None if the driver does not hold them.
        positions: the positions of the rows that the commit deletes, each data file once.
        names: columns that the rows must have.
    """
    # A commit that only inserts stays an append, which others can read incrementally. The rows of a table with row
    # lineage have ids, which the driver does not know.
    if small is None or not positions or table.has_deletion_vectors:
        return Absorption(positions=positions)
    new = None if rows is None or not rows.num_rows else writable_rows(table, rows)
    count = sum(len(found.positions) for found in positions)
    files = small.to_absorb(0 if new is None else new.num_rows, count)
    older = remaining_rows(table, files.data, _deleted(small, files, positions)) if files.data else None
    if older is None or not set(names) <= set(older.column_names):
        files, older = small.to_absorb(0, count), None
    gone = files.paths
    kept = [found for found in positions if found.file.path not in gone]
    return Absorption(
        files,
        None if older is None else pa.concat_tables([older, new]),
        joined([*files.positions, *kept]) if files.deletes else kept,
    )


def remaining_rows(
    table: LakeTable, files: Sequence[WrittenData], deleted: Mapping[str, Positions]
) -> pa.Table | None:
    """Return the rows of data files without those at the `deleted` positions (path → positions), as the table has them.

    None if Arrow cannot convert them.
    """
    parts = []
    for file in files:
        rows = read_data(table, file)
        if rows is None:
            return None
        parts.append(_without(rows, deleted.get(file.path)))
    return writable_rows(table, pa.concat_tables(parts)) if parts else None


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
