"""Tables that were rebuilt in another namespace: their provenance, and the commit that completes them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from replicator.lake.catalog.exact_commit import exact_change
from replicator.lake.catalog.tables import LakeTable
from replicator.model.recorded import Record

REBUILT_KEY: Final = "replicator.rebuilt"
"""Table property of a rebuilt table in a namespace of its own: a `Provenance`."""


@dataclass(frozen=True, slots=True)
class Provenance(Record):
    """What a rebuilt table was made of.

    Attributes:
        source: the source table, `database.table`.
        changelog: the changelog, with its namespace.
        snapshot_id: the snapshot of the changelog.
        as_of: what the operator asked for; None for all changes.
        position: the position in the binlog up to which changes count; None if it is unknown, because there are none.
        rebuilt_ms: when it was rebuilt, milliseconds since the epoch.
        complete: whether it has its rows; False until they are committed.
    """

    WHAT = "the provenance of a rebuilt table"
    source: str
    changelog: str
    snapshot_id: int | None
    as_of: str | None
    position: str | None
    rebuilt_ms: int
    complete: bool = False

    def is_of_same(self, other: "Provenance") -> bool:
        """Return whether both describe the same rows."""
        mine = (self.source, self.changelog, self.as_of, self.position)
        return mine == (other.source, other.changelog, other.as_of, other.position)


def provenance_of(table: LakeTable) -> Provenance | None:
    """Return the provenance of a rebuilt table; None for any other table."""
    text = table.property(REBUILT_KEY)
    return None if text is None else Provenance.from_json(text)


def complete(table: LakeTable, files: Sequence[Any], provenance: Provenance) -> None:
    """Commit the rows of a rebuilt table (Iceberg DataFile objects), together with its provenance.

    Raises:
        CommitConflict: another commit was made to the table.
        LakeUnavailable: the catalog failed.
    """
    with exact_change(table, f"commit to {table.namespace}.{table.name}") as transaction:
        append = transaction.newAppend()
        for file in files:
            append.appendFile(file)
        append.commit()
        transaction.updateProperties().set(REBUILT_KEY, provenance.to_json()).commit()
