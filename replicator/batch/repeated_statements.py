"""Refuses to follow a statement a second time if it would remove values that do not come back.

After a repeated snapshot, a known statement counts as executed again, by a replica that lagged
(`schema.definition_clock`). Such a replica has sent no later change of the table yet. If the mirror has one from after
the snapshot, the offsets of the connector were set back, or the definition was late. The mirror skips changes that it
has when they come again, so the values that the statement removes would not come back.
"""

from replicator.batch.context import MirrorContext, TableTask
from replicator.errors import UnknownPast
from replicator.model.commit_marker import CommitMarker
from replicator.model.truncate import SKEW_MS
from replicator.schema.history import SchemaHistory, SchemaVersion


def refuse_repeated_statements(context: MirrorContext, task: TableTask) -> None:
    """Check that the mirror has no later change than a statement that removes values and is to be followed again.

    Raises:
        UnknownPast: it has one.
    """
    progress, history = context.ledger.progress(task.table), context.schemas.history(task.table)
    state, marker = progress.mirror_schema, progress.mirror
    if state is None or marker is None:
        return
    for version in _followed_again(history, state.at, task.target_schema_at):
        if _has_later_change(marker, task.topic, version):
            raise UnknownPast(
                f"the schema change {version.position} of {task.table} came again, after later changes: the offsets "
                "of the connector were set back to before its last snapshot, or the definition was late",
                f"read the table again: replicator heal {task.table}",
            )


def _followed_again(history: SchemaHistory, known: int, target: int | None) -> list[SchemaVersion]:
    """Return the versions after `known`, up to `target`, whose statement is executed again and removes values."""
    return [
        v
        for i, v in enumerate(history.versions)
        if v.at > known and (target is None or v.at <= target) and history.loses_values_again(i)
    ]


def _has_later_change(marker: CommitMarker, topic: str, version: SchemaVersion) -> bool:
    """Return whether the mirror has a change from after its repeated snapshot that the version, or a later one, has."""
    snapshot, progress = marker.snapshot, marker.progress.get(topic, {})
    if snapshot is None or not snapshot.repeated:
        return False
    for partition, high in ((n, p.high_water) for n, p in progress.items()):
        if high is None or high.snapshot is not None:
            continue
        # Changes that come again in a partition without rows of the snapshot have paused the table (`table_reset`).
        if partition not in snapshot.starts and high.ts_ms <= snapshot.ts_ms + SKEW_MS:
            continue
        statement = version.start.transaction
        if statement is not None and high.transactions.has_later(statement):
            return True
        if version.start.is_before(high.position, high.ts_ms):
            return True
    return False
