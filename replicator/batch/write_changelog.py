"""Appends every change of a batch to the changelog, once."""

from dataclasses import replace

from replicator import failpoints
from replicator.batch.changelog_rows import changelog_rows
from replicator.batch.table_batch import TableBatch, TableKind
from replicator.lake.commit import Staged
from replicator.lake.data_files import cast_to_table, stage_data
from replicator.lake.ledger import LakeRole
from replicator.model.changelog import change_column


def write_changelog(batch: TableBatch) -> None:
    """Append the changes that the changelog lacks, in one commit.

    Raises:
        FencedError, CommitConflict: as `publish`; nothing was appended.
    """
    table, schema = batch.changelog, batch.schema.decoded
    if table is None:
        return
    target = batch.target(LakeRole.CHANGELOG, table)
    files = []
    if batch.stats.changes:
        rows = changelog_rows(batch.changelog_events(table), schema)
        rows = cast_to_table(rows, table.columns(), struct=change_column(schema.names))
        files = stage_data(batch.context.lake, table, rows)
    failpoints.reach("after-changelog-files")
    marker = replace(batch.next_marker(target.base), alone=batch.kind is TableKind.CHANGELOG_ONLY)
    batch.context.writer.commit(target, Staged(files), marker)
