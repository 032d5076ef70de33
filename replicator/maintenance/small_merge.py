"""Merge the small files that this process wrote last, on the driver and in one commit."""

import time
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from replicator import failpoints
from replicator.config import MaintenanceConfig
from replicator.lake.catalog.tables import Lake, LakeTable, lake_errors
from replicator.lake.files.data_files import joined, write_delete_files
from replicator.lake.files.driver_files import writable_rows, write_data
from replicator.lake.files.partitions import PartitionRows
from replicator.lake.files.small_files import (
    OWN_FILE,
    AbsorbedFiles,
    SmallChanges,
    SmallFileLog,
    SmallFiles,
    in_manifests,
    remaining_rows,
)
from replicator.lake.rows.locations import RowLocationCache
from replicator.maintenance.history import STEP_KEY
from replicator.maintenance.plan import MergedFiles, Step
from replicator.maintenance.reports import StepReport, log_steps


@dataclass(frozen=True, slots=True)
class SmallMerge:
    """Merges small files, and keeps what the process knows about the table true."""

    lake: Lake
    row_locations: RowLocationCache
    small_files: SmallFileLog

    def is_due(self, namespace: str, name: str, settings: MaintenanceConfig) -> bool:
        """Return whether the small files of a table should be merged, by what this process knows of it."""
        small = self.small_files.known(namespace, name)
        if small is None or small.commits < (most := small.due_at(settings.merge_files)):
            return False
        return bool(small.to_merge(most, settings.delete_ratio))

    def waiting(self, table: LakeTable) -> MergedFiles:
        """Return the numbers of the small files that will be merged here: they are not for Spark to merge."""
        small = self.small_files.of(table)
        return MergedFiles() if small is None else MergedFiles(*small.counts())

    def run(self, table: LakeTable, settings: MaintenanceConfig) -> None:
        """Merge the known small files of `table` if they are many or have many deleted rows, and log it.

        `table` is then refreshed. Do nothing if another process committed to the table since, or if only Spark can
        write the table's files.

        Raises:
            CommitConflict: another process committed to the table meanwhile; nothing was changed.
            LakeUnavailable: the catalog or the storage failed.
        """
        started = time.monotonic()
        small, since = self.small_files.of(table), table.snapshot_id
        if small is None or since is None:
            return
        old = small.to_merge(small.due_at(settings.merge_files), settings.delete_ratio)
        if not old:
            return
        if table.has_deletion_vectors:
            # Others upgraded the table. A merge must keep the ids of the rows, which only Iceberg's actions know.
            self.small_files.forget(table)
            return
        parts = _remaining(table, small, old)
        if parts is None:
            self.small_files.forget(table)
            return
        data = [write_data(self.lake, table, part) for part in parts]
        deletes = write_delete_files(self.lake, table, since, joined(old.positions), OWN_FILE)
        failpoints.reach("after-merged-files")
        new = SmallChanges(data, deletes, old)
        head = self._commit(table, since, new)
        self.small_files.merged(table, since, new, head)
        if head is not None:
            written = [(part.rows, file.ref) for part, file in zip(parts, data, strict=True)]
            self.row_locations.merged(table, since, old.paths, written, head)
        failpoints.reach("after-maintenance-step")
        replaced, added = len(old.data) + len(old.deletes), len(data) + len(deletes)
        report = StepReport(Step.MERGE_SMALL, replaced, added, sum(file.size for file in old.data))
        log_steps(f"{table.namespace}.{table.name}", [report], time.monotonic() - started)

    def _commit(self, table: LakeTable, since: int, new: SmallChanges) -> int | None:
        """Commit the merge. Return its snapshot; None if another process committed between it and `since`."""
        with lake_errors(f"merged files of {table.namespace}.{table.name} cannot be committed"):
            rewrite: Any = table.of_few_files(table.java.newRewrite().validateFromSnapshot(since))
            absorbed = new.absorbed
            for old in (*in_manifests(table, absorbed.data), *in_manifests(table, absorbed.deletes)):
                rewrite.deleteFile(old)
            for added in [*(data.file for data in new.data), *(deletes.file for deletes in new.deletes)]:
                rewrite.addFile(added)
            rewrite.set(STEP_KEY, str(Step.MERGE_SMALL)).commit()
            table.refresh()
            snapshot = table.java.currentSnapshot()
            return int(snapshot.snapshotId()) if snapshot.parentId() == since else None


def _remaining(table: LakeTable, small: SmallFiles, old: AbsorbedFiles) -> list[PartitionRows] | None:
    """Return the rows of data files that are not deleted, by partition; None if only Spark can write them."""
    rows = remaining_rows(table, old.data, small.deleted(old.paths))
    if rows is None:
        return None
    return writable_rows(table, pa.concat_tables(rows)) if rows else []
