"""Make staged files visible, together with the commit marker, in one atomic commit.

The commit is a compare-and-swap on two levels. First, the table must carry the marker from which the batch started;
otherwise another process writes the same table, and this one stops. Second, the commit replaces exactly the metadata
with which the table was loaded, see `exact_commit`: if another commit was made since, nothing is committed, and the
caller plans the batch again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from replicator import failpoints
from replicator.errors import FencedError, LakeError
from replicator.lake.catalog.exact_commit import begin
from replicator.lake.catalog.tables import Lake, LakeTable, lake_errors
from replicator.lake.files.deletes import StagedDeletes
from replicator.lake.files.small_files import AbsorbedFiles, SmallChanges, in_manifests
from replicator.lake.others import another_mirrors
from replicator.lake.rows.locations import RowChanges
from replicator.model.commit_marker import COMMIT_KEY, SEQUENCE_KEY, SNAPSHOT_KEY, CommitMarker
from replicator.schema.evolution.changes import PENDING_CLEAR_KEY, PENDING_FILLS_KEY


@dataclass(frozen=True, slots=True)
class Staged:
    """The changes of one commit.

    Attributes:
        data: Iceberg DataFile objects to add.
        deletes: the deletes of rows by position.
        equality_deletes: Iceberg DeleteFile objects to add; they name keys whose earlier rows are deleted.
        clear: remove all earlier rows in the same commit.
        branch: publish this branch, a descendant of the current snapshot, and add `data` and `deletes` on it.
        fills_done: this commit fills the added columns, and removes the rows from before the table was recreated.
        row_changes: the locations of the changed rows after this commit; None if they are not tracked.
        small_files: the files that the driver wrote; None if the commit changes the table in another way too.
        properties: table properties to set in the same commit; None removes one.
        rows: what `data` has, with the columns of the table, if the driver holds it; only a changelog's are of use.
    """

    data: Sequence[Any] = ()
    deletes: StagedDeletes = field(default_factory=StagedDeletes)
    equality_deletes: Sequence[Any] = ()
    clear: bool = False
    branch: str | None = None
    fills_done: bool = False
    row_changes: RowChanges | None = None
    small_files: SmallChanges | None = None
    properties: Mapping[str, str | None] = field(default_factory=dict)
    rows: pa.Table | None = None


def publish(
    lake: Lake, table: LakeTable, base: CommitMarker | None, marker: CommitMarker, staged: Staged
) -> int | None:
    """Commit `staged` and `marker` to `table`, whose newest marker must be `base`.

    If no row changes, the commit writes the marker to the table's properties. It makes a snapshot only if the catalog
    needs one, see `exact_commit`.

    Returns the table's current snapshot after the commit; None if it is unknown, because the commit succeeded but the
    catalog's answer was lost.

    Raises:
        ForeignTable: the table belongs to another mirror.
        FencedError: the table's marker is not `base`: another process writes this mirror.
        CommitConflict: another commit was made since the table was loaded; nothing was changed.
        LakeUnavailable: the catalog failed. Unless it still fails, the commit did not succeed.
    """
    found = table.marker()
    if found is not None and found.mirror != marker.mirror:
        raise another_mirrors(table, found.mirror, marker.mirror)
    if found != base:
        raise fenced(table, base, found)
    try:
        with lake_errors(f"commit to {table.namespace}.{table.name}"):
            failpoints.reach("before-commit")
            return _commit(lake, table, marker, staged)
    except LakeError:
        # The answer may have been lost: a connection broke, or the client repeated a request that had succeeded. The
        # marker in the table shows whether the commit did.
        if not _landed(lake, table, base, marker):
            raise
    return None


def fenced(table: LakeTable, base: CommitMarker | None, found: CommitMarker | None) -> FencedError:
    """Return the error for a table whose marker is not the expected one."""
    seen = "no marker" if found is None else f"commit {found.sequence} of mirror {found.mirror!r}"
    wanted = "no marker" if base is None else f"commit {base.sequence} of mirror {base.mirror!r}"
    return FencedError(
        f"another process writes {table.namespace}.{table.name}: it carries {seen}, this mirror left {wanted}",
        "stop the other mirror process, then start this one again; nothing was lost or doubled",
    )


def _landed(lake: Lake, table: LakeTable, base: CommitMarker | None, marker: CommitMarker) -> bool:
    """Return whether the commit of `marker` succeeded. Raises FencedError if another process's commit did."""
    now = lake.load(table.namespace, table.name)
    found = None if now is None else now.marker()
    if found == marker:
        return True
    if found != base:
        raise fenced(table, base, found)
    return False


def _commit(lake: Lake, table: LakeTable, marker: CommitMarker, staged: Staged) -> int | None:
    before = table.snapshot_id
    exact = begin(table)
    transaction = exact.java
    if staged.clear:
        everything = lake.classes.expressions.alwaysTrue()
        _stamped(transaction.newDelete().deleteFromRowFilter(everything), marker).commit()
    if staged.branch is not None:
        transaction.manageSnapshots().fastForwardBranch("main", staged.branch).commit()
    if staged.data or staged.deletes.files or staged.equality_deletes:
        _stamped(table.of_few_files(_rows(table, transaction, staged)), marker).commit()
    elif staged.branch is not None:
        # The snapshots of the branch were made by SQL, without the number of the commit.
        _stamped(transaction.newFastAppend(), marker).commit()
    if staged.branch is not None:
        transaction.manageSnapshots().removeBranch(staged.branch).commit()
    exact.add_snapshot((COMMIT_KEY, str(marker.sequence)))
    snapshot = transaction.currentMetadata().currentSnapshot()
    properties = transaction.updateProperties()
    values = {**marker.properties(), **_snapshot_properties(snapshot), **staged.properties}
    for key, value in values.items():
        properties.remove(key) if value is None else properties.set(key, value)
    if staged.fills_done:
        properties.remove(PENDING_FILLS_KEY).remove(PENDING_CLEAR_KEY)
    properties.commit()
    # `commitTransaction` would apply the changes to a newer state, for which the marker and the position deletes would
    # be wrong.
    exact.commit()
    head = None if snapshot is None else int(snapshot.snapshotId())
    if head is not None and before is not None and not staged.clear and staged.branch is None:
        lake.applied_deletes.committed((table.namespace, table.name), before, staged.deletes.vectors, head)
    return head


def _snapshot_properties(snapshot: Any) -> dict[str, str | None]:
    if snapshot is None:
        return {SNAPSHOT_KEY: None, SEQUENCE_KEY: None}
    return {SNAPSHOT_KEY: str(snapshot.snapshotId()), SEQUENCE_KEY: str(snapshot.sequenceNumber())}


def _rows(table: LakeTable, transaction: Any, staged: Staged) -> Any:
    absorbed = AbsorbedFiles() if staged.small_files is None else staged.small_files.absorbed
    if not staged.deletes.files and not staged.equality_deletes and not absorbed:
        # Merges manifests once there are many, which a fast append does not.
        update = transaction.newAppend()
        for file in staged.data:
            update.appendFile(file)
        return update
    update = transaction.newRowDelta()
    for file in staged.data:
        update.addRows(file)
    for file in (*staged.deletes.files, *staged.equality_deletes):
        update.addDeletes(file)
    if staged.deletes.vectors:
        # Iceberg searches the commits since a snapshot for other deletion vectors of the same data files, and without
        # one all commits. There is none since this snapshot: this commit succeeds only on the state that was loaded.
        update.validateFromSnapshot(transaction.currentMetadata().currentSnapshot().snapshotId())
        update.validateDeletedFiles()
        for file in staged.deletes.replaced:
            update.removeDeletes(file)
    if absorbed:
        for file in in_manifests(table, absorbed.data):
            update.removeRows(file)
        for file in in_manifests(table, absorbed.deletes):
            update.removeDeletes(file)
        # A file that does not exist any more would leave its rows doubled.
        update.validateDeletedFiles()
    return update


def _stamped(update: Any, marker: CommitMarker) -> Any:
    return update.set(COMMIT_KEY, str(marker.sequence))
