"""Write new data files, and position deletes for the rows with a changed key.

This is the default because it is the fastest in measurements: it finds the rows to delete with an inner join and
broadcast keys, whereas MERGE needs an outer join, which shuffles and sorts the whole target.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from replicator import failpoints
from replicator.jvm.spark import local_frame
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.commit import Staged
from replicator.lake.files.data_files import (
    FilePositions,
    by_file,
    cast_to_table,
    matching_positions,
    stage_data,
    with_partitions,
)
from replicator.lake.files.deletes import StagedDeletes, collected, stage_positions
from replicator.lake.files.driver_files import WrittenData, writable_rows, write_data
from replicator.lake.files.partitions import PartitionRows, data_file_ref
from replicator.lake.files.small_files import OWN_FILE, SmallChanges, SmallFiles, absorb
from replicator.lake.files.spark_tables import rows_of_snapshot
from replicator.lake.rows.locations import FileKeys, RowChanges, RowLocationCache
from replicator.lake.rows.search import locate
from replicator.lake.strategies.changes import LocatedChange, MirrorChange, WriteStrategy, WrittenRows, filled


class Split(WriteStrategy):
    """Writes new data files, and position deletes for the rows with a changed key."""

    takes_keys = True

    def stage(self, lake: Lake, table: LakeTable, change: MirrorChange) -> Staged:
        """Stage `change`; if the table is empty or is cleared, search no rows."""
        branch, snapshot_id = (None, table.snapshot_id) if change.clear else filled(lake, table)
        data = stage_data(lake, table, cast_to_table(change.rows, table.columns()))
        failpoints.reach("after-data-files")
        deletes = StagedDeletes()
        if snapshot_id is not None and not change.clear and not table.is_empty:
            rows = rows_of_snapshot(lake, table, snapshot_id)
            positions = matching_positions(rows, change.key, change.keys)
            found = by_file(positions.toArrow()) if change.few else collected(positions)
            deletes = stage_positions(lake, table, snapshot_id, found, None if change.few else OWN_FILE)
            failpoints.reach("after-delete-files")
        return Staged(
            data, deletes, clear=change.clear and not table.is_empty, branch=branch, fills_done=True
        )

    def searches(self, table: LakeTable, key: tuple[str, ...], cache: RowLocationCache) -> bool:
        """Return whether rows of the table must be searched: the process does not know where all of them are."""
        return bool(table.pending_fills()) or not cache.of(table, key).is_complete

    def stage_keys(
        self,
        lake: Lake,
        table: LakeTable,
        change: LocatedChange,
        cache: RowLocationCache,
        small: SmallFiles | None,
    ) -> Staged:
        """Stage the deletes with the row locations that this process knows."""
        known = cache.of(table, change.key)
        positions: Sequence[FilePositions] = ()
        if table.snapshot_id is not None:
            found = locate(lake, table, known, change.keys, cache)
            positions = with_partitions(table, table.snapshot_id, found)
        absorbed = absorb(table, small, driver_rows(table, change), positions)
        rows = stage_rows(lake, table, change, absorbed.rows)
        failpoints.reach("after-data-files")
        deletes, superseded = StagedDeletes(), () if change.written is None else change.written.superseded
        if table.snapshot_id is not None:
            own_file = OWN_FILE if absorbed.files.deletes else None
            found = [*absorbed.positions, *superseded]
            deletes = stage_positions(lake, table, table.snapshot_id, found, own_file)
            failpoints.reach("after-delete-files")
        removed = frozenset(absorbed.files.paths)
        # The driver cannot merge the files of a table with row lineage: it does not know the ids of the rows.
        small_files = SmallChanges(rows.written, deletes.written, absorbed.files)
        return Staged(
            rows.files,
            deletes,
            # The index would take a superseded row for that of its key.
            row_changes=None
            if superseded
            else RowChanges(known, change.keys, rows.located, rows.files, removed),
            small_files=None if table.has_deletion_vectors else small_files,
        )

    def stage_written(
        self,
        lake: Lake,
        table: LakeTable,
        change: LocatedChange,
        rows: WrittenRows,
        cache: RowLocationCache,
        small: SmallFiles | None,
    ) -> Staged:
        """Stage `rows`, which are those of `change` and in files already; the table has no columns to be filled."""
        if not table.is_empty and not self.searches(table, change.key, cache):
            return self.stage_keys(lake, table, replace(change, written=rows), cache, small)
        failpoints.reach("after-data-files")
        positions = list(rows.superseded)
        if table.snapshot_id is not None and not table.is_empty:
            present = rows_of_snapshot(lake, table, table.snapshot_id)
            keys = local_frame(lake.spark, change.keys)
            positions += collected(matching_positions(present, change.key, keys))
        # A table that has no partitions, as these, needs no snapshot to find them.
        deletes = stage_positions(lake, table, table.snapshot_id or 0, positions, OWN_FILE)
        failpoints.reach("after-delete-files")
        return Staged(rows.files, deletes, fills_done=True)


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The files of new rows.

    Attributes:
        files: Iceberg's DataFile objects.
        located: the keys of the rows of each file; None if they are not known.
        written: those of the files that the driver wrote.
    """

    files: list[Any]
    located: Sequence[FileKeys] | None = None
    written: Sequence[WrittenData] = ()


def driver_rows(table: LakeTable, change: LocatedChange) -> list[PartitionRows] | None:
    """Return the new rows by partition, if the driver holds them and can write them; else None."""
    return None if change.rows is None else writable_rows(table, change.rows[0])


def stage_rows(
    lake: Lake, table: LakeTable, change: LocatedChange, parts: Sequence[PartitionRows] | None
) -> StagedRows:
    """Write rows: on the driver those of `parts`, with Spark the new rows of `change` if it is None."""
    if change.written is not None:
        return StagedRows(list(change.written.files), change.written.located)
    if parts is not None:
        return write_parts(lake, table, parts, change.key)
    data = stage_data(lake, table, cast_to_table(change.frame(), table.columns()))
    if change.rows is None or len(data) != 1 or table.is_partitioned or table.is_sorted:
        return StagedRows(data)
    # One task wrote one file, in the order of the rows that it was given.
    return StagedRows(data, [FileKeys(change.rows[1], data_file_ref(table, data[0]))])


def stage_added(lake: Lake, table: LakeTable, parts: Sequence[PartitionRows]) -> Staged:
    """Write rows that are only added to a table on the driver, as `writable_rows` returned them; they are held, too."""
    written = [write_data(lake, table, part) for part in parts]
    rows = pa.concat_tables(part.rows for part in parts) if parts else None
    return Staged([data.file for data in written], small_files=SmallChanges(written), rows=rows)


def write_parts(
    lake: Lake, table: LakeTable, parts: Sequence[PartitionRows], key: Sequence[str]
) -> StagedRows:
    """Write rows on the driver, as `writable_rows` returned them; `key` are the columns of their keys."""
    written = [write_data(lake, table, part) for part in parts]
    keys = [part.rows.select(list(key)) for part in parts]
    located = [FileKeys(of_file, data.ref) for of_file, data in zip(keys, written, strict=True)]
    return StagedRows([data.file for data in written], located, written)
