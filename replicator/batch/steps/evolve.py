"""Gives the lake tables of a source table the schema of a batch."""

from dataclasses import replace

from replicator.batch.evolution.followed_statements import refuse_late_events
from replicator.batch.evolution.keeper import TableKeeper
from replicator.batch.values import TableBatch
from replicator.model.roles import LakeRole


def evolve_tables(batch: TableBatch) -> TableBatch:
    """Return `batch` with the lake tables that it writes, which have its schema.

    A table with a newer schema than the batch is not written: after a crash, one of the two tables may have a part of
    the batch already.

    Raises:
        SchemaError: the table cannot follow the change; no part of the batch was applied.
        LakeUnavailable, CommitConflict: the catalog failed, or another commit was made; try again.
    """
    keeper = TableKeeper(batch.context, batch.task.table, batch.options, batch.schema)
    changelog = keeper.keep(LakeRole.CHANGELOG) if batch.options.changelog else None
    mirror = keeper.keep(LakeRole.MIRROR) if batch.has_mirror else None
    users = () if mirror is None else mirror.user_columns()
    evolved = replace(batch, changelog=changelog, mirror=mirror, user_columns=users)
    refuse_late_events(evolved)
    return evolved
