"""Find the data files that maintenance, of this process or of another one, replaced with others."""

from dataclasses import dataclass
from typing import Any, Final

from replicator.lake.catalog import LakeTable, lake_errors

_REWRITE: Final = "replace"
"""The operation of a snapshot that rewrote files without changing rows; Iceberg's table spec, "Snapshots"."""


@dataclass(frozen=True, slots=True)
class RewrittenFiles:
    """The files that rewrites added (Java objects) and that still exist, and the paths of those that they removed."""

    added: tuple[Any, ...]
    removed: set[str]


def rewritten_files(table: LakeTable, since: int) -> RewrittenFiles | None:
    """Return the files that were rewritten since the snapshot `since`.

    None if a commit since then changed rows instead of only rewriting files, or if `since` is not an ancestor of the
    current snapshot.
    """
    added: dict[str, Any] = {}
    removed: set[str] = set()
    with lake_errors(f"the snapshots of {table.namespace}.{table.name} cannot be read"):
        io, snapshot = table.java.io(), table.java.currentSnapshot()
        while snapshot is not None and int(snapshot.snapshotId()) != since:
            if snapshot.operation() != _REWRITE:
                return None
            added |= {str(file.location()): file for file in snapshot.addedDataFiles(io)}
            removed |= {str(file.location()) for file in snapshot.removedDataFiles(io)}
            parent = snapshot.parentId()
            snapshot = None if parent is None else table.java.snapshot(parent)
    if snapshot is None:
        return None
    return RewrittenFiles(tuple(file for path, file in added.items() if path not in removed), removed)
