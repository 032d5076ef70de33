"""Create and remove Iceberg tags of lake tables, and the records of tags. Each can be repeated."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from replicator import failpoints
from replicator.config import LakeConfig
from replicator.lake.catalog.tables import Lake, LakeTable, lake_errors
from replicator.lake.properties import tags_in
from replicator.model.roles import LakeRole
from replicator.model.tags import TagRecord


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
            table.refresh()
            failpoints.reach("before-tag")
        java.manageSnapshots().createTag(name, java.currentSnapshot().snapshotId()).commit()
        table.refresh()
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
        table.refresh()
    return True


def has_tag(table: LakeTable, name: str) -> bool:
    """Return whether a table has a tag of this name."""
    found = table.java.refs().get(name)
    return found is not None and bool(found.isTag())


@dataclass(frozen=True, slots=True)
class TagStore:
    """Access to the tags of one mirror. All methods may raise LakeUnavailable."""

    lake: Lake
    config: LakeConfig

    def read(self) -> list[TagRecord]:
        """Return the recorded tags, oldest first."""
        return tags_in(self.lake.namespace_properties(self.config.ops_namespace))

    def write(self, tag: TagRecord) -> None:
        """Record a tag in place of what was recorded under its name."""
        self.lake.set_namespace_property(self.config.ops_namespace, tag.key, tag.to_json())

    def forget(self, tag: TagRecord) -> None:
        """Remove the record of a tag."""
        self.lake.set_namespace_property(self.config.ops_namespace, tag.key, None)

    def tables(self) -> list[tuple[str, str]]:
        """Return namespace and name of all mirrors and changelogs."""
        namespaces = map(self.config.namespace_of, LakeRole)
        return [(namespace, name) for namespace in namespaces for name in self.lake.tables(namespace)]

    def remove(self, name: str, tables: Iterable[tuple[str, str]], deadline: float) -> list[tuple[str, str]]:
        """Remove a tag from lake tables until the deadline (of `time.monotonic`); return those that are left.

        Raises:
            CommitConflict: another commit was made to a table; try again.
        """
        left = list(tables)
        while left and time.monotonic() < deadline:
            namespace, table = left[-1]
            found = self.lake.load(namespace, table)
            if found is not None:
                remove_tag(found, name)
            left.pop()
        return left
