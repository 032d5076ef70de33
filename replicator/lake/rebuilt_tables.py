"""Tables that were rebuilt in another namespace: their provenance, and the commit that completes them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from replicator.lake.catalog import LakeTable, lake_errors

REBUILT_KEY: Final = "replicator.rebuilt"
"""Table property of a rebuilt table in a namespace of its own: a `Provenance`."""
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Provenance:
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

    source: str
    changelog: str
    snapshot_id: int | None
    as_of: str | None
    position: str | None
    rebuilt_ms: int
    complete: bool = False

    def to_json(self) -> str:
        return json.dumps(
            {
                "version": _VERSION,
                "source": self.source,
                "changelog": self.changelog,
                "snapshot_id": self.snapshot_id,
                "as_of": self.as_of,
                "position": self.position,
                "rebuilt_ms": self.rebuilt_ms,
                "complete": self.complete,
            }
        )


def is_incomplete(table: LakeTable) -> bool:
    """Return whether a rebuild of the table was interrupted before its rows were committed."""
    text = table.property(REBUILT_KEY)
    return text is not None and not json.loads(text)["complete"]


def complete(table: LakeTable, files: Sequence[Any], provenance: Provenance) -> None:
    """Commit the rows of a rebuilt table (Iceberg DataFile objects), together with its provenance.

    Raises:
        CommitConflict: another commit was made to the table.
        LakeUnavailable: the catalog failed.
    """
    with lake_errors(f"commit to {table.namespace}.{table.name}"):
        transaction = table.java.newTransaction()
        append = transaction.newAppend()
        for file in files:
            append.appendFile(file)
        append.commit()
        transaction.updateProperties().set(REBUILT_KEY, provenance.to_json()).commit()
        transaction.commitTransaction()
        table.java.refresh()
