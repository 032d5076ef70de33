"""Find the lake tables of a source table, also after they were renamed."""

from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from replicator.config import LakeConfig
from replicator.errors import UsageError
from replicator.lake.reading.catalog import tables_in
from replicator.model.roles import LakeRole
from replicator.model.table import RESULT_KEY, SOURCE_KEY


@dataclass(slots=True)
class LakeTables:
    """Loads the changelog and the mirror of one source table, or those of the result of a pipeline.

    Attributes:
        source: the source table, ``database.table``, or its name in the lake; of a result, ``namespace.name``.
        name: the name of the lake tables, as far as it is known.
        namespace, changes_namespace: where they are.
    """

    catalog: Catalog
    lake: LakeConfig
    source: str
    name: str | None = None
    namespace: str = field(init=False)
    changes_namespace: str = field(init=False)

    def __post_init__(self) -> None:
        self.namespace, self.changes_namespace = self.lake.namespace, self.lake.changes_namespace
        namespace, _, name = self.source.rpartition(".")
        changes = f"{namespace}{LakeRole.CHANGELOG.suffix}"
        found = self._load(changes, name) if namespace else None
        if found is not None and RESULT_KEY in found.properties:
            self.namespace, self.changes_namespace = namespace, changes
            self.source = self.name = name

    def changelog(self, uuid: str | None = None) -> Table:
        """Load the changelog; with `uuid`, only the table with this UUID.

        Raises:
            UsageError: there is none.
        """
        namespace = self.changes_namespace
        known = self._load(namespace, self.name)
        if known is not None and _fits(known, self.source if uuid is None else None, uuid):
            return known
        found = tables_in(self.catalog, namespace)
        for name, table in found.items():
            if _fits(table, self.source, uuid) or (uuid is None and name == self.source):
                self.name = name
                return table
        names = ", ".join(sorted({t.properties.get(SOURCE_KEY, n) for n, t in found.items()})) or "none"
        if uuid is not None:
            raise UsageError(
                f"the changelog of {self.source} was dropped since the cursor was written",
                "start again, without the cursor",
            )
        raise UsageError(
            f"{self.source} has no changelog in {namespace}", f"tables with a changelog: {names}"
        )

    def mirror(self) -> Table | None:
        """Load the mirror; None if there is none."""
        if self.name is None:
            self.changelog()
        return self._load(self.namespace, self.name)

    def _load(self, namespace: str, name: str | None) -> Table | None:
        if name is None:
            return None
        try:
            return self.catalog.load_table((namespace, name))
        except (NoSuchTableError, NoSuchNamespaceError):
            return None


def _fits(table: Table, source: str | None, uuid: str | None) -> bool:
    metadata: Any = table.metadata
    if uuid is not None:
        return str(metadata.table_uuid) == uuid
    return source in (table.properties.get(SOURCE_KEY), table.name()[-1])
