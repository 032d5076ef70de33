"""Carry out maintenance steps with Iceberg's actions.

Each step makes a few commits; the table is consistent after each.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, overload

from py4j.java_gateway import is_instance_of

from replicator import failpoints
from replicator.config import MaintenanceConfig
from replicator.lake.catalog.tables import Lake, LakeTable, lake_errors
from replicator.lake.strategies.equality import drop_unused_equality_deletes
from replicator.maintenance.history import MAINTAINED_KEY, STEP_KEY, StepRun, runs_to_json, step_runs
from replicator.maintenance.plan import MOST_MANIFESTS, Step, TableFacts, expire_before, levels
from replicator.maintenance.reports import StepReport
from replicator.model.common import now_ms

if TYPE_CHECKING:
    # It loads PyIceberg, which takes a second.
    from replicator.lake.reading.folders import TableFolders

_GRANULARITY: Final = "write.delete.granularity"
_FEW_FILES: Final = 50
"""Up to this many data files, each has its own merged delete file: readers then open only the deletes that they need.

With more data files, each merge would write one delete file for each of them.
"""
_DELETE_TARGET: Final = 64_000_000
"""Size of a fully merged delete file, in bytes: Iceberg's default."""
_RECENT: Final = 100
"""Number of newest snapshots in which earlier maintenance is searched: each takes a call of Java."""
_UNLIMITED: Final = 1 << 62


def table_facts(table: LakeTable) -> TableFacts:
    """Read the facts about a loaded table."""
    times = _SnapshotTimes(table.java.snapshots())
    return TableFacts.of(table.total, times, has_vectors=table.has_deletion_vectors)


@dataclass(frozen=True, slots=True)
class _SnapshotTimes(Sequence[int]):
    """The times of a table's snapshots, each read from Java when it is needed: there may be thousands."""

    java: Any

    def __len__(self) -> int:
        return len(self.java)

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...

    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        if isinstance(index, slice):
            return [int(found.timestampMillis()) for found in self.java[index]]
        return int(self.java[index].timestampMillis())


def _within_java(number: int) -> int:
    """Return a number that fits into Java's int."""
    return min(number, (1 << 31) - 1)


@dataclass(frozen=True, slots=True)
class Maintenance:
    """The maintenance of one lake table.

    Attributes:
        table: the table as it was loaded; it is refreshed after every step.
        deadline: the time of `time.monotonic()` after which no further rewrite is started.
        slice_bytes: how much a step rewrites at most, in bytes.
        folders: the folders of all tables of the catalog; without them no orphan file is deleted.
        warehouse: the folder of the lake, as configured; see `outside`.
    """

    lake: Lake
    table: LakeTable
    settings: MaintenanceConfig
    deadline: float = float("inf")
    slice_bytes: int = _UNLIMITED
    folders: "Sequence[TableFolders] | None" = None
    warehouse: str | None = None

    def run(self, step: Step) -> StepReport:
        """Carry out one step.

        Raises:
            CommitConflict: another process committed to the table; earlier rewrites of this step remain.
            LakeUnavailable: the catalog or the storage failed.
        """
        steps: Mapping[Step, Callable[[], StepReport]] = {
            Step.MERGE_DATA: self._merge_data,
            Step.MERGE_DELETES: self._merge_deletes,
            Step.FOLD_DELETES: self._fold_deletes,
            Step.APPLY_EQUALITY: self._apply_equality_deletes,
            Step.EXPIRE: self._expire,
            Step.MANIFESTS: self._rewrite_manifests,
            Step.ORPHANS: self._delete_orphans,
        }
        with lake_errors(f"{step} of {self.table.namespace}.{self.table.name}"):
            report = steps[step]()
            self.table.refresh()
        failpoints.reach("after-maintenance-step")
        return report

    def _merge_data(self) -> StepReport:
        """Merge files of each level, the smallest first, as many as a slice permits."""
        rewritten = added = size = 0
        complete = True
        for level in levels(self.settings.target_file_size):
            # A slice that only looks at the first levels would never come to the others.
            if rewritten and (time.monotonic() > self.deadline or size >= self.slice_bytes):
                return StepReport(Step.MERGE_DATA, rewritten, added, size, complete=False)
            most = _within_java(max(self.settings.merge_files, self.slice_bytes // level))
            options = {
                "min-file-size-bytes": level,
                "delete-ratio-threshold": 1,
                "max-files-to-rewrite": most,
            }
            result = self._rewrite_data(Step.MERGE_DATA, options)
            rewritten += result.rewrittenDataFilesCount()
            added += result.addedDataFilesCount()
            size += result.rewrittenBytesCount()
            complete &= result.rewrittenDataFilesCount() < most
            if self._facts().data_files < self.settings.merge_files:
                break
        return StepReport(Step.MERGE_DATA, rewritten, added, size, complete)

    def _facts(self) -> TableFacts:
        """Return the facts about the newest state of the table."""
        self.table.refresh()
        return table_facts(self.table)

    def _rewrite_data(self, step: Step, options: Mapping[str, object]) -> Any:
        target = self.settings.target_file_size
        common = {
            "target-file-size-bytes": target,
            "max-file-size-bytes": max(_UNLIMITED, target + 1),
            "min-input-files": self.settings.merge_files,
            "max-file-group-size-bytes": max(self.slice_bytes, target),
            "max-concurrent-file-group-rewrites": 1,
        }
        action = self._actions().rewriteDataFiles(self.table.java).binPack()
        return self._execute(step, action, {**common, **options})

    def _merge_deletes(self) -> StepReport:
        """Merge delete files of each level. Position deletes that refer to missing data files are dropped.

        A merge of data files, which comes before, drops the delete files that are older than all data files.
        """
        rewritten = added = size = 0
        for level in levels(_DELETE_TARGET):
            facts = self._facts()
            if facts.delete_files < self.settings.merge_files:
                break
            if rewritten and time.monotonic() > self.deadline:
                return StepReport(Step.MERGE_DELETES, rewritten, added, size, complete=False)
            self._set_granularity("file" if facts.data_files <= _FEW_FILES else "partition")
            result = self._rewrite_deletes(Step.MERGE_DELETES, {"min-file-size-bytes": level})
            rewritten += result.rewrittenDeleteFilesCount()
            added += result.addedDeleteFilesCount()
            size += result.rewrittenBytesCount()
        return StepReport(Step.MERGE_DELETES, rewritten, added, size)

    def _rewrite_deletes(self, step: Step, options: Mapping[str, object]) -> Any:
        common = {
            "target-file-size-bytes": _DELETE_TARGET,
            "max-file-size-bytes": _UNLIMITED,
            "min-input-files": self.settings.merge_files,
            "max-concurrent-file-group-rewrites": 1,
        }
        action = self._actions().rewritePositionDeletes(self.table.java)
        return self._execute(step, action, {**common, **options})

    def _fold_deletes(self) -> StepReport:
        """Rewrite data files in which many rows are deleted, as many as a slice permits.

        Iceberg counts only the deletes in delete files that refer to a single data file, so those are written first. In
        a table with deletion vectors, this converts delete files from before its upgrade; usually there are none.
        """
        facts = self._facts()
        if not facts.has_vectors:
            # Delete files that this engine wrote name several data files, whatever the property says.
            self._set_granularity("file")
        self._rewrite_deletes(Step.FOLD_DELETES, {"rewrite-all": "true"})
        self.table.refresh()
        options = {"delete-ratio-threshold": self.settings.delete_ratio}
        report = self._rewrite_slice(Step.FOLD_DELETES, facts, options)
        # The rewritten files leave deletes behind that name no existing file.
        self._rewrite_deletes(Step.FOLD_DELETES, {"rewrite-all": "true"})
        return report

    def _apply_equality_deletes(self) -> StepReport:
        """Rewrite the data files to which deletes apply, as many as a slice permits, and drop unused equality deletes.

        The new files have the sequence number of the state that was read, so keys that are deleted meanwhile stay
        deleted, and a commit of the stream does not conflict.
        """
        report = self._rewrite_slice(Step.APPLY_EQUALITY, self._facts(), {"delete-file-threshold": 1})
        drop_unused_equality_deletes(self.lake, self.table, {STEP_KEY: str(Step.APPLY_EQUALITY)})
        return report

    def _rewrite_slice(self, step: Step, facts: TableFacts, options: Mapping[str, object]) -> StepReport:
        """Rewrite data files of any size, as many as a slice permits; `facts` are those of the table."""
        file_size = max(1, facts.bytes // max(1, facts.data_files))
        most = _within_java(max(1, self.slice_bytes // file_size))
        result = self._rewrite_data(step, {"min-file-size-bytes": 0, "max-files-to-rewrite": most, **options})
        self.table.refresh()
        count, added = int(result.rewrittenDataFilesCount()), result.addedDataFilesCount()
        return StepReport(step, count, added, result.rewrittenBytesCount(), complete=count < most)

    def _set_granularity(self, granularity: str) -> None:
        """Set whether a merged delete file belongs to one data file, or to a whole partition."""
        if self.table.property(_GRANULARITY) != granularity:
            self.table.java.updateProperties().set(_GRANULARITY, granularity).commit()
            self.table.refresh()

    def _expire(self) -> StepReport:
        """Delete old snapshots, and the files that only they have. Snapshots of tags and branches are kept.

        The same commit records the step, together with those whose snapshots it may delete.
        """
        facts, now = table_facts(self.table), now_ms()
        before = expire_before(facts, self.settings, now)
        if before is None or self.table.property("gc.enabled") == "false":
            return StepReport(Step.EXPIRE, 0)
        runs = self._runs() | {Step.EXPIRE: StepRun(now, facts.data_files, facts.delete_files)}
        transaction = self.table.java.newTransaction()
        transaction.expireSnapshots().expireOlderThan(before).retainLast(1).commit()
        transaction.updateProperties().set(MAINTAINED_KEY, runs_to_json(runs)).commit()
        transaction.commitTransaction()
        self.table.refresh()
        return StepReport(Step.EXPIRE, len(facts.snapshot_ms) - len(table_facts(self.table).snapshot_ms))

    def _runs(self) -> dict[Step, StepRun]:
        """Return the last run of each step, as far as the newest snapshots and the table's property have it."""
        snapshots = self.table.java.snapshots()
        newest = (snapshots[i] for i in range(max(0, len(snapshots) - _RECENT), len(snapshots)))
        known = (
            (int(found.timestampMillis()), self.lake.classes.texts(found.summary()))
            for found in newest
            if found.summary().containsKey(STEP_KEY)
        )
        return step_runs(known, self.table.property(MAINTAINED_KEY))

    def _actions(self) -> Any:
        return self.lake.classes.spark_actions.get(self.lake.spark._jsparkSession)  # noqa: SLF001 no public way

    @staticmethod
    def _execute(step: Step, action: Any, options: Mapping[str, object]) -> Any:
        """Run an action of Iceberg; the snapshots that it makes have the step in their summaries."""
        for name, value in options.items():
            action = action.option(name, str(value))
        return action.snapshotProperty(STEP_KEY, str(step)).execute()

    def _rewrite_manifests(self) -> StepReport:
        """Rewrite the manifests of the current snapshot into few, if there are many."""
        before = self._manifests()
        if before <= MOST_MANIFESTS:
            return StepReport(Step.MANIFESTS, 0)
        self._execute(Step.MANIFESTS, self._actions().rewriteManifests(self.table.java), {})
        self.table.refresh()
        return StepReport(Step.MANIFESTS, before, self._manifests())

    def _manifests(self) -> int:
        snapshot = self.table.java.currentSnapshot()
        return 0 if snapshot is None else int(snapshot.allManifests(self.table.java.io()).size())

    def _delete_orphans(self) -> StepReport:
        """Delete files in the table's folder that no snapshot has, if they are older than `orphan_age`.

        A folder with files of another table is left unchanged: the other table's files would be deleted.
        """
        from replicator.maintenance.orphans import why_orphans_stay  # noqa: PLC0415 - `run` never deletes them

        location, io = str(self.table.java.location()), self.table.java.io()
        name, uuid = f"{self.table.namespace}.{self.table.name}", str(self.table.java.uuid())
        skipped = why_orphans_stay(name, uuid, location, self.table.property, self.folders, self.warehouse)
        if skipped is not None:
            return StepReport(Step.ORPHANS, 0, skipped=skipped)
        action = self._actions().deleteOrphanFiles(self.table.java)
        action = action.olderThan(now_ms() - int(self.settings.orphan_age * 1000))
        # The table's own access to its files, if that can list a folder; Hadoop's needs settings of its own.
        gateway: Any = self.lake.spark.sparkContext._gateway  # noqa: SLF001 no public way
        lists = is_instance_of(gateway, io, "org.apache.iceberg.io.SupportsPrefixOperations")
        found = action.usePrefixListing(lists).execute()
        return StepReport(Step.ORPHANS, int(found.orphanFilesCount()))
