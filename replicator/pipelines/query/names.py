"""Names of tables in the lake as pipelines write them, and of hidden columns."""

import difflib
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from replicator.model.common import has_wildcard, matches
from replicator.model.roles import LakeRole
from replicator.model.table import RESULT_STATE

WEIGHT: Final = "_weight"
"""Column of a change: above 0 for rows that appear, below 0 for rows that are removed."""
STATE: Final = RESULT_STATE
"""Column of a result: the state of its groups."""


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """Namespace and name of a table in the lake; a pattern with * or ? names several equal tables."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"

    @property
    def changes(self) -> "TableName":
        """The name of the table with the changes of this one."""
        return TableName(f"{self.namespace}{LakeRole.CHANGELOG.suffix}", self.name)

    @property
    def is_pattern(self) -> bool:
        """Whether it may name several tables."""
        return has_wildcard(str(self))

    def names(self, table: "TableName") -> bool:
        """Return whether a table has this name; SQL does not tell upper from lower case."""
        pairs = ((table.namespace, self.namespace), (table.name, self.name))
        return all(matches(name.lower(), [pattern.lower()]) for name, pattern in pairs)


def similar(name: str, known: Collection[str]) -> str | None:
    """Return the question for the known names that a wrong one may mean; None if none is like it."""
    by_lower = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name.lower(), list(by_lower), n=3, cutoff=0.55)
    return f"did you mean {' or '.join(by_lower[other] for other in close)}?" if close else None
