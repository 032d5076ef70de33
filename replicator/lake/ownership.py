"""Find out which mirror owns a lake table. A table that is not this mirror's is never written or altered.

Every table of a mirror has marks: the source table and the mirror's name since its creation, the commit marker since
the first commit. Tables of earlier versions may lack the first two.
"""

from typing import Final, Protocol

from replicator.errors import ForeignTable
from replicator.model.commit_marker import MARKER_KEY, CommitMarker
from replicator.model.table import MIRROR_KEY, SOURCE_KEY
from replicator.schema.changes import SCHEMA_KEY

_MARKS: Final = (SOURCE_KEY, SCHEMA_KEY, MARKER_KEY)
_HINT: Final = "rename that table, or choose another lake.namespace; then start the mirror again"


class MarkedTable(Protocol):
    """A lake table with its properties."""

    @property
    def namespace(self) -> str:
        """The namespace of the table."""
        ...

    @property
    def name(self) -> str:
        """The name of the table."""
        ...

    def property(self, key: str) -> str | None:
        """Return one of the table's properties; None if it is not set."""
        ...


def foreign(table: MarkedTable, mirror: str) -> ForeignTable | None:
    """Return why `table` is not the mirror's; None if it is."""
    # The marker first: nearly every table has one, and each property is a call of Java.
    marker = table.property(MARKER_KEY)
    owner = CommitMarker.from_json(marker).mirror if marker is not None else table.property(MIRROR_KEY)
    if owner is not None:
        return None if owner == mirror else another_mirrors(table, owner, mirror)
    if any(table.property(key) is not None for key in _MARKS):
        return None
    return ForeignTable(
        f"{table.namespace}.{table.name} exists, and no mirror made it; it was not changed", _HINT
    )


def another_mirrors(table: MarkedTable, owner: str, mirror: str) -> ForeignTable:
    """Return the error for a table of the mirror `owner`."""
    return ForeignTable(
        f"{table.namespace}.{table.name} belongs to the mirror {owner!r}, and not to {mirror!r}; it was not changed",
        _HINT,
    )


def refuse_foreign(table: MarkedTable, mirror: str) -> None:
    """Raise ForeignTable unless `table` is the mirror's."""
    if (error := foreign(table, mirror)) is not None:
        raise error
