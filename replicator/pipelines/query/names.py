"""Names of tables in the lake as pipelines write them."""

from dataclasses import dataclass

from replicator.model.common import has_wildcard, matches, quoted


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """Namespace and name of a table in the lake; a pattern with * or ? names several equal tables."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"

    @property
    def sql(self) -> str:
        """The name as SQL has it."""
        return f"{quoted(self.namespace)}.{quoted(self.name)}"

    @property
    def is_pattern(self) -> bool:
        """Whether it may name several tables."""
        return has_wildcard(str(self))

    def names(self, table: "TableName") -> bool:
        """Return whether a table has this name; SQL does not tell upper from lower case."""
        pairs = ((table.namespace, self.namespace), (table.name, self.name))
        return all(matches(name.lower(), [pattern.lower()]) for name, pattern in pairs)
