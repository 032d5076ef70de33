"""Decode a large batch and write its data files in Spark's Python workers, so that no row comes back into Java.

Each Spark task decodes its records once and writes two files: the changelog rows of its events, and the new row of each
key that it saw, if the key's last event is no delete; of many rows, several such pairs. It returns the numbers from
which the statistics are made, the keys, and the footers of the files. Whether the files are right is known only then:
the driver uses them if every event is an ordinary change that was not delivered before, and if the tables are still as
they were planned. Otherwise the files are removed, and the steps of the batch use the decoded frame, which Spark
computes then.

Of a key in several files, all new rows but the last one are deleted by their positions in the same commit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from replicator.batch.events.net_changes import driver_last_changes
from replicator.batch.events.worker_task import NO_ROW, WorkerWriting
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.files.data_files import FilePositions
from replicator.lake.files.driver_files import data_files, file_style
from replicator.lake.files.parquet import FileStyle, WrittenFile
from replicator.lake.files.partitions import DataFileRef
from replicator.lake.rows.locations import FileKeys
from replicator.lake.strategies.changes import WrittenRows


@dataclass(frozen=True, slots=True)
class TaskKeys:
    """The keys that a Spark task saw: columns k0, k1, …, log_key, and pos in the file at `path`, or `NO_ROW`."""

    keys: pa.Table
    path: str | None

    def located(self) -> FileKeys:
        """Return the keys of the rows in the file, in the order of the rows."""
        rows = self.keys.filter(pc.field("pos") != NO_ROW)
        return FileKeys(rows.drop_columns(["log_key", "pos"]), DataFileRef(self.path or ""))


class WorkerFiles:
    """The files that the workers wrote for a batch; those that are not used are removed in the end."""

    def __init__(
        self,
        writing: WorkerWriting,
        mirror: Sequence[WrittenFile],
        changelog: Sequence[WrittenFile],
        keys: Sequence[TaskKeys],
    ) -> None:
        self._writing = writing
        self._mirror, self._changelog, self._keys = mirror, changelog, keys
        self._used_paths: set[str] = set()

    def changelog_files(self, lake: Lake, table: LakeTable, commit: int) -> list[object] | None:
        """Return Iceberg's DataFile objects for a commit of the changelog; None if the files are not right for it."""
        if commit != self._writing.commit or not self._fits(table, self._writing.changelog):
            return None
        return self._used(lake, table, self._changelog)

    def mirror_rows(self, lake: Lake, table: LakeTable) -> WrittenRows | None:
        """Return the new rows of the mirror; None if the files are not right for it."""
        if not self._fits(table, self._writing.mirror):
            return None
        keys, superseded = last_of_tasks(self._keys)
        located = None if superseded else [task.located() for task in self._keys if task.path is not None]
        return WrittenRows(self._used(lake, table, self._mirror), keys, superseded, located)

    def remove_unused(self) -> None:
        """Remove the files that no commit got."""
        if any(file.path not in self._used_paths for file in (*self._mirror, *self._changelog)):
            self._writing.remove_files(self._used_paths)

    def _fits(self, table: LakeTable, style: FileStyle | None) -> bool:
        now = file_style(table)
        return (
            style is not None and now is not None and now == style and now.schema.equals(style.schema, True)
        )

    def _used(self, lake: Lake, table: LakeTable, files: Sequence[WrittenFile]) -> list[object]:
        self._used_paths |= {file.path for file in files}
        return data_files(lake, table, files)


def last_of_tasks(tasks: Sequence[TaskKeys]) -> tuple[pa.Table, list[FilePositions]]:
    """Return each key once, and the positions of the rows that a later task has newer ones of."""
    together = pa.concat_tables([task.keys for task in tasks])
    last = driver_last_changes(together.drop_columns("pos"))
    keys = last.drop_columns(["log_key", "events"])
    if last.num_rows == together.num_rows:
        return keys, []
    newest = last.column("log_key").combine_chunks()
    superseded = []
    for task in tasks:
        older = task.keys.filter(pc.invert(pc.is_in(task.keys.column("log_key"), newest)))
        positions = older.filter(pc.field("pos") != NO_ROW).column("pos")
        if task.path is not None and len(positions):
            superseded.append(FilePositions(DataFileRef(task.path), positions.to_numpy()))
    return keys, superseded
