"""The changes of the newest commits of results, which the driver still holds.

A pipeline that reads a result comes right after the one that computed it, and mostly lacks just these changes: it needs
no Spark job to read them.
"""

from dataclasses import dataclass, field

import pyarrow as pa

from replicator.lake.catalog.tables import LakeTable
from replicator.model.commit_marker import CommitMarker


@dataclass(slots=True)
class LatestChanges:
    """The rows that the newest commit added to the changelog of each result."""

    _held: dict[str, tuple[CommitMarker, pa.Table]] = field(default_factory=dict)

    def note(self, changelog: LakeTable, marker: CommitMarker, rows: pa.Table | None) -> None:
        """Note the rows of a commit; None if the driver does not hold them."""
        self._held.pop(changelog.uuid, None)
        if rows is not None:
            self._held[changelog.uuid] = marker, rows

    def forget(self) -> None:
        """Forget all rows."""
        self._held.clear()

    def after(self, changelog: LakeTable, commit: int) -> pa.Table | None:
        """Return the rows that a changelog, as it was loaded, has from after a commit; None if they are not held."""
        if (held := self._held.get(changelog.uuid)) is None:
            return None
        (marker, rows), present = held, changelog.marker()
        # After a rollback, another process may have written a commit with the same number.
        is_newest = present is not None and (present.sequence, present.committed_ms) == (
            marker.sequence,
            marker.committed_ms,
        )
        return rows if is_newest and marker.sequence == commit + 1 else None
