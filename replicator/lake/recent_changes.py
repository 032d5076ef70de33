"""The rows of the newest changelog commits of this process, held so that readers need no Spark job.

A few commits are enough: a pipeline over a result runs right after the one that computed it, and one over a mirror a
few commits later. Only changelogs that a reader has asked for are held.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import pyarrow as pa

from replicator.lake.catalog.tables import LakeTable
from replicator.lake.commit import Staged
from replicator.model.commit_marker import CommitMarker

_MOST_ROWS: Final = 50_000
_MOST_COMMITS: Final = 100
"""Of a changelog."""
_MOST_BYTES: Final = 128_000_000
"""Of all; the changelogs that were not written for the longest time are forgotten first."""
_LEAST_BYTES: Final = 20_000
"""What a commit takes, however few its rows are."""

_Commit: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Added:
    """What one commit added; `schema` is the id of the table's schema, whose columns `rows` have."""

    commit: _Commit
    schema: int
    rows: pa.Table

    @property
    def size(self) -> int:
        """About how much memory it takes, in bytes."""
        return max(_LEAST_BYTES, int(self.rows.nbytes))


@dataclass(slots=True)
class RecentChanges:
    """The rows of the newest commits of changelogs. It is safe for several threads."""

    _added: dict[str, list[_Added]] = field(default_factory=dict)
    _sizes: dict[str, int] = field(default_factory=dict)
    _wanted: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def committed(
        self, changelog: LakeTable, base: CommitMarker | None, marker: CommitMarker, staged: Staged
    ) -> None:
        """Note a commit on top of `base`, and the rows that it added, if the driver holds them."""
        if not self._wanted:
            # Most mirrors have no pipelines: asking Java for the table's id would take time for nothing.
            return
        uuid, rows = changelog.uuid, staged.rows
        with self._lock:
            known = self._added.pop(uuid, [])
            self._sizes.pop(uuid, None)
            if rows is None and known and not staged.data:
                rows = known[-1].rows.schema.empty_table()
            if uuid not in self._wanted or rows is None or rows.num_rows > _MOST_ROWS:
                return
            after = None if base is None else _id(base)
            added = _Added(_id(marker), changelog.schema_id, rows)
            # After a rollback, or a commit of another process, those from before lead elsewhere.
            follows = bool(known) and (known[-1].commit, known[-1].schema) == (after, added.schema)
            self._added[uuid] = _newest([*known, added] if follows else [added])
            self._sizes[uuid] = sum(one.size for one in self._added[uuid])
            while sum(self._sizes.values()) > _MOST_BYTES:
                oldest = next(iter(self._added))
                del self._added[oldest], self._sizes[oldest]

    def since(self, changelog: LakeTable, first: int) -> pa.Table | None:
        """Return the rows that commit `first` and later ones added to a changelog, up to the state that was loaded.

        None if not all of them are held.
        """
        uuid, present = changelog.uuid, changelog.marker()
        with self._lock:
            self._wanted.add(uuid)
            known = list(self._added.get(uuid, ()))
        newest = None if present is None else _id(present)
        last = next((n for n, added in enumerate(known) if added.commit == newest), None)
        if last is None or known[last].schema != changelog.schema_id:
            return None
        found = known[: last + 1]
        # Numbers have no gaps, as each commit was made on top of the one before.
        if first < found[0].commit[0]:
            return None
        wanted = [added.rows for added in found if added.commit[0] >= first]
        return pa.concat_tables(wanted) if wanted else found[0].rows.schema.empty_table()


def _id(marker: CommitMarker) -> _Commit:
    # After a rollback, another process may write a commit with the same number.
    return marker.sequence, marker.committed_ms


def _newest(added: Sequence[_Added]) -> list[_Added]:
    rows, found = 0, []
    for one in reversed(added[-_MOST_COMMITS:]):
        rows += one.rows.num_rows
        if rows > _MOST_ROWS:
            break
        found.append(one)
    return found[::-1]
