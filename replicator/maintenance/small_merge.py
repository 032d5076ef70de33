"""Merge the small files that this process wrote last, on the driver and in one commit."""

from dataclasses import dataclass
from typing import Any

from replicator import failpoints
from replicator.config import MaintenanceConfig
from replicator.lake.absorb import added_data, added_deletes, remaining_rows
from replicator.lake.catalog import Lake, LakeTable, lake_errors
from replicator.lake.data_files import WrittenDeletes, write_delete_files
from replicator.lake.driver_files import WrittenData, write_data
from replicator.lake.partitions import DataFileRef
from replicator.lake.row_locations import RowLocationCache
from replicator.lake.small_files import OWN_FILE, SmallFileLog, SmallFiles
from replicator.maintenance.history import STEP_KEY
from replicator.maintenance.plan import Step
from replicator.maintenance.reports import StepReport


@dataclass(frozen=True, slots=True)
class SmallMerge:
    """Merges small files, and keeps what the process knows about the table true."""

    lake: Lake
    row_locations: RowLocationCache
    small_files: SmallFileLog

    def run(self, table: LakeTable, settings: MaintenanceConfig) -> StepReport | None:
        """Merge the known small files of `table` if they are many or have many deleted rows; `table` is then refreshed.

        Return None if nothing is due, if another process committed to the table since, or if only Spark can write the
        table's files.

        Raises:
            CommitConflict: another process committed to the table meanwhile; nothing was changed.
            LakeUnavailable: the catalog or the storage failed.
        """
        small, since = self.small_files.of(table), table.snapshot_id
        if small is None or since is None:
            return None
        if small.count < settings.merge_files and small.deleted_share <= settings.delete_ratio:
            return None
        if table.has_deletion_vectors:
            # Others upgraded the table. A merge must keep the ids of the rows, which only Iceberg's actions know.
            self.small_files.forget(table)
            return None
        deleted = small.deleted(file.path for file in small.data)
        rows = remaining_rows(table, small.data, deleted)
        if rows is None:
            self.small_files.forget(table)
            return None
        removed = {file.path for file in small.data}
        data = [write_data(self.lake, table, rows)] if rows.num_rows else []
        kept = small.kept_deletes(removed)
        deletes = write_delete_files(self.lake, table, since, kept, OWN_FILE)
        failpoints.reach("after-merged-files")
        head = self._commit(table, since, small, data, deletes)
        if head is not None:
            self.small_files.merged(table, data, deletes, head)
            written = (rows, DataFileRef(data[0].path)) if data else None
            self.row_locations.merged(table, since, removed, written, head)
        failpoints.reach("after-maintenance-step")
        replaced, added = len(small.data) + len(small.deletes), len(data) + len(deletes)
        return StepReport(Step.MERGE_SMALL, replaced, added, sum(file.size for file in small.data))

    def _commit(
        self,
        table: LakeTable,
        since: int,
        small: SmallFiles,
        data: list[WrittenData],
        deletes: list[WrittenDeletes],
    ) -> int | None:
        """Commit the merge. Return its snapshot; None if another process committed between it and `since`."""
        with lake_errors(f"merged files of {table.namespace}.{table.name} cannot be committed"):
            rewrite: Any = table.java.newRewrite().validateFromSnapshot(since)
            for old in (*added_data(table, small.data), *added_deletes(table, small.deletes)):
                rewrite.deleteFile(old)
            for new in [*(d.file for d in data), *(d.file for d in deletes)]:
                rewrite.addFile(new)
            rewrite.set(STEP_KEY, str(Step.MERGE_SMALL)).commit()
            table.java.refresh()
            snapshot = table.java.currentSnapshot()
            return int(snapshot.snapshotId()) if snapshot.parentId() == since else None
