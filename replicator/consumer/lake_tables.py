"""Find the lake tables of a source table, also after they were renamed."""

from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from replicator.config import LakeConfig
from replicator.errors import UsageError
from replicator.lake.reading.reader import tables_in
from replicator.model.table import SOURCE_KEY


@dataclass(slots=True)
class LakeTables:
    """Loads the changelog and the mirror of one source table.

    Attributes:
        source: the source table, ``database.table``, or its name in the lake.
        name: the name of the lake tables, as far as it is known.
    """

    catalog: Catalog
    lake: LakeConfig
    source: str
    name: str | None = None

    def changelog(self, uuid: str | None = None) -> Table:
        """Load the changelog; with `uuid`, only the table with this UUID.

        Raises:
            UsageError: there is none.
        """
        namespace = self.lake.changes_namespace
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
        return self._load(self.lake.namespace, self.name)

    def _load(self, namespace: str, name: str | None) -> Table | None:
        if name is None:
            return None
        try:
            return self.catalog.load_table((namespace, name))
        except NoSuchTableError:
            return None


def _fits(table: Table, source: str | None, uuid: str | None) -> bool:
    metadata: Any = table.metadata
    if uuid is not None:
        return str(metadata.table_uuid) == uuid
    return source in (table.properties.get(SOURCE_KEY), table.name()[-1])
