"""Create and remove Iceberg tags of lake tables. Both can be repeated."""

from replicator import failpoints
from replicator.lake.catalog import LakeTable, lake_errors


def create_tag(table: LakeTable, name: str) -> None:
    """Tag the current snapshot of a table as it was loaded; a table that has the tag keeps it.

    A reader of the tag sees the columns of its snapshot. So if the table has no snapshot, or if its columns changed
    since, an empty snapshot is committed first.

    Raises:
        CommitConflict: another commit was made; try again.
        LakeUnavailable: the catalog failed.
    """
    with lake_errors(f"{table.namespace}.{table.name} cannot be tagged"):
        java = table.java
        if has_tag(table, name):
            return
        snapshot = java.currentSnapshot()
        if snapshot is None or snapshot.schemaId() != java.schema().schemaId():
            java.newFastAppend().commit()
            java.refresh()
            failpoints.reach("before-tag")
        java.manageSnapshots().createTag(name, java.currentSnapshot().snapshotId()).commit()
        java.refresh()
    failpoints.reach("after-tag")


def remove_tag(table: LakeTable, name: str) -> bool:
    """Remove a tag; return whether the table had it.

    Raises:
        CommitConflict: another commit was made; try again.
        LakeUnavailable: the catalog failed.
    """
    if not has_tag(table, name):
        return False
    with lake_errors(f"tag {name} of {table.namespace}.{table.name} cannot be removed"):
        table.java.manageSnapshots().removeTag(name).commit()
        table.java.refresh()
    return True


def has_tag(table: LakeTable, name: str) -> bool:
    """Return whether a table has a tag of this name."""
    found = table.java.refs().get(name)
    return found is not None and bool(found.isTag())
