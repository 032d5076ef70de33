"""The records of tags in the lake, and the removal of tags from all lake tables."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from replicator.config import LakeConfig
from replicator.lake.catalog import Lake
from replicator.lake.tag_records import tags_in
from replicator.lake.tags import remove_tag
from replicator.model.tags import TagRecord


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
        namespaces = (self.config.namespace, self.config.changes_namespace)
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
