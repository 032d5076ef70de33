"""Appends every change of a batch to the changelog, once."""

from dataclasses import replace
from typing import Any

from replicator import failpoints
from replicator.batch.events.changelog_rows import changelog_rows, driver_changelog_rows
from replicator.batch.values import TableBatch
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.commit import Staged
from replicator.lake.files.data_files import cast_to_table, stage_data
from replicator.lake.files.driver_files import writable_rows
from replicator.lake.files.small_files import SmallChanges
from replicator.lake.strategies.split import stage_added
from replicator.model.changelog import change_column
from replicator.model.roles import LakeRole


def write_changelog(batch: TableBatch) -> None:
    """Append the changes that the changelog lacks, in one commit.

    Raises:
        FencedError, CommitConflict: as `publish`; nothing was appended.
    """
    table = batch.changelog
    if table is None:
        return
    target = batch.target(LakeRole.CHANGELOG, table)
    marker = replace(batch.next_marker(target.base), alone=not batch.has_mirror)
    staged = _staged(batch, table, marker.sequence) if batch.stats.changes else Staged()
    failpoints.reach("after-changelog-files")
    staged = replace(staged, properties=batch.restatement(LakeRole.CHANGELOG, marker.sequence))
    batch.context.writer.commit(target, staged, marker)


def _staged(batch: TableBatch, table: LakeTable, commit: int) -> Staged:
    """Write the changelog rows that the table lacks, for its commit with this number."""
    lake, schema = batch.context.lake, batch.schema.decoded
    if (
        batch.task.executor.locates_rows
        and batch.is_in_log_order
        and not batch.written_offsets(LakeRole.CHANGELOG)
    ):
        rows = writable_rows(table, driver_changelog_rows(batch.events.arrow(), schema, commit))
        if rows is not None:
            return stage_added(lake, table, rows)
    if (found := _written(batch, table, commit)) is not None:
        return Staged(found, small_files=SmallChanges())
    frame = changelog_rows(batch.numbered(batch.changelog_events(), commit), schema)
    frame = cast_to_table(frame, table.columns(), struct=change_column(schema.names))
    return Staged(stage_data(lake, table, frame), small_files=SmallChanges())


def _written(batch: TableBatch, table: LakeTable, commit: int) -> list[Any] | None:
    """Return the files that workers wrote for this commit; None if there are none, or if the table has some events."""
    files = batch.events.files
    if files is None or not batch.is_in_log_order or batch.written_offsets(LakeRole.CHANGELOG):
        return None
    return files.changelog_files(batch.context.lake, table, commit)
