"""Commits staged files to a lake table and keeps the process's record of the lake true.

A commit changes what must agree: the table, the ledger's copy of its marker, the cache of row locations, the log of
small files, and the newest changes. `TableWriter.commit` is the only place that changes them together.
"""

from dataclasses import dataclass

from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.commit import Staged, publish
from replicator.lake.files.small_files import SmallFileLog
from replicator.lake.ledger import Ledger
from replicator.lake.others import refuse_foreign, refuse_rollback
from replicator.lake.recent_changes import RecentChanges
from replicator.lake.rows.locations import RowLocationCache
from replicator.model.changelog import RECREATED_TOPIC, RESTATED_KEY, followed_by_mirror, next_restatement
from replicator.model.commit_marker import CommitMarker
from replicator.model.roles import LakeRole
from replicator.model.table import TableId


@dataclass(frozen=True, slots=True)
class WriteTarget:
    """A lake table as a commit expects it.

    Attributes:
        source: the source table.
        role: whether `table` is its mirror or its changelog.
        table: the lake table as it was loaded.
        base: the marker that `table` must carry; None for a table without a commit.
    """

    source: TableId
    role: LakeRole
    table: LakeTable
    base: CommitMarker | None


@dataclass(frozen=True, slots=True)
class TableWriter:
    """Commits to the lake tables of one mirror."""

    lake: Lake
    ledger: Ledger
    row_locations: RowLocationCache
    small_files: SmallFileLog
    recent: RecentChanges

    def commit(self, target: WriteTarget, staged: Staged, marker: CommitMarker) -> None:
        """Make `staged` visible in one atomic commit, together with `marker`.

        Raises:
            FencedError, ForeignChange, CommitConflict, LakeUnavailable: as `publish`; nothing was committed.
        """
        # The table shows its newest snapshot once the commit is made.
        before = target.table.snapshot_id
        head = publish(self.lake, target.table, target.base, marker, staged)
        changes = staged.row_changes
        if changes is not None:
            self.row_locations.committed(target.table, changes, head)
        if (small := staged.small_files) is not None:
            self.small_files.committed(target.table, before, small, head)
        if target.role is LakeRole.CHANGELOG:
            self.recent.committed(target.table, target.base, marker, staged)
        self.ledger.committed(target.source, target.role, marker, fills_done=staged.fills_done)

    def target(self, source: TableId, role: LakeRole, table: LakeTable) -> WriteTarget:
        """Return `table` as a target whose base is the marker that the ledger knows.

        Raises:
            ForeignTable: the table is not the mirror's.
            ForeignChange: the table was rolled back or replaced.
        """
        refuse_rollback(self.lake, table, is_mirror=role is LakeRole.MIRROR)
        return self.replaced_target(source, role, table)

    def replaced_target(self, source: TableId, role: LakeRole, table: LakeTable) -> WriteTarget:
        """Return `table` as a target like `target`, whatever rows it has, because the commit makes them right.

        Raises:
            ForeignTable: the table is not the mirror's.
        """
        refuse_foreign(table, self.ledger.mirror)
        return WriteTarget(source, role, table, self.ledger.progress(source).marker(role))

    def reset_topic(
        self, source: TableId, topic: str, topic_id: str | None, partitions: int | None = None
    ) -> None:
        """Remove the offsets of `topic` from the markers of a source table, because the topic was recreated.

        `partitions` is the number of its partitions, if known.

        Raises:
            FencedError: another process writes this mirror.
            CommitConflict: another commit was made to the table; try again.
        """
        progress = self.ledger.progress(source)
        changelog, mirror = (
            None if base is None else self.lake.load(self.ledger.namespace(role), source.name)
            for role, base in ((LakeRole.CHANGELOG, progress.changelog), (LakeRole.MIRROR, progress.mirror))
        )
        logged, known = (None if t is None else t.property(RESTATED_KEY) for t in (changelog, mirror))
        # The changelog comes first, as in every batch: if the mirror is behind, nothing is lost.
        if changelog is not None and progress.changelog is not None:
            marker = progress.changelog.with_new_topic(topic, topic_id, partitions)
            logged = next_restatement(logged, known, RECREATED_TOPIC, marker.sequence, recreates_topic=True)
            target = WriteTarget(source, LakeRole.CHANGELOG, changelog, progress.changelog)
            self.commit(target, Staged(properties={RESTATED_KEY: logged}), marker)
        if mirror is not None and progress.mirror is not None:
            target = WriteTarget(source, LakeRole.MIRROR, mirror, progress.mirror)
            staged = Staged(properties={RESTATED_KEY: followed_by_mirror(logged, known)})
            self.commit(target, staged, progress.mirror.with_new_topic(topic, topic_id, partitions))
