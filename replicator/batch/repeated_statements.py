"""Refuses schema changes that the connector sends again, and that the mirror must not follow a second time.

If the connector took its initial snapshot again, a known statement behind it counts as executed again, by a replica
that lagged (`schema.definition_clock`). Such a replica has no later transaction of the table yet. If the mirror has one
from after the snapshot, the replica did not lag. Then the connector's offsets were set back, and changes that it sends
again, and that the mirror has, do not count a second time: the values that the statement removes would not come back.
"""

from replicator.batch.context import MirrorContext, TableTask
from replicator.errors import UnknownPast
from replicator.model.commit_marker import CommitMarker
from replicator.model.gtid import Transaction


def refuse_repeated_statements(context: MirrorContext, task: TableTask) -> None:
    """Check that the mirror has no change of a later transaction than a statement that it is to follow again.

    Raises:
        UnknownPast: it has one.
    """
    progress, history = context.ledger.progress(task.table), context.schemas.history(task.table)
    known, marker = progress.schema_at, progress.mirror
    if known is None or marker is None:
        return
    followed = {v.position.gtid for v in history.versions if v.at <= known}
    target = task.target_schema_at
    news = [v for v in history.after(known) if target is None or v.at <= target]
    for version in (v for v in news if v.position.gtid in followed):
        statement = version.start.transaction
        if statement is not None and _has_later_change(marker, task.topic, statement):
            raise UnknownPast(
                f"the connector sent the schema change {version.position} of {task.table} again, and later changes "
                "before that: its offsets were set back to before its last snapshot",
                f"read the table again: replicator heal {task.table}",
            )


def _has_later_change(marker: CommitMarker, topic: str, statement: Transaction) -> bool:
    """Return whether the mirror has a change from after its last snapshot, of a later transaction than `statement`."""
    if marker.snapshot is None or not marker.snapshot.repeated:
        return False
    partitions = (p for n, p in marker.progress.get(topic, {}).items() if n in marker.snapshot.starts)
    changes = (p.high_water for p in partitions if p.high_water is not None)
    return any(high.snapshot is None and high.transactions.has_later(statement) for high in changes)
