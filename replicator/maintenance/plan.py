"""Decide which maintenance steps of a table are due. Pure: no access to the lake."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from replicator.config import MaintenanceConfig

SMALLEST_LEVEL: Final = 128_000
"""Data files and delete files below this size, in bytes, are of the first level."""
LEVEL_RATIO: Final = 8
"""How many times as large each level is as the one before."""
_FULL: Final = 0.75
"""A file of this share of the target size counts as fully merged."""
_SLACK: Final = 10
"""Snapshots expire once a tenth more of them exist than the settings permit, so that few commits delete snapshots."""
FEW_BYTES: Final = 1_000_000
"""Deleted rows of fewer bytes stay: readers skip them in milliseconds, and a rewrite takes a good part of a second."""
BEHIND: Final = 10
"""A mirror that is behind maintains a table only after this many times as many commits."""
MOST_MANIFESTS: Final = 100
"""Manifests are rewritten if the current snapshot has more of them; only `replicator maintain` does it."""


class Step(StrEnum):
    """A maintenance step; the steps run in this order. Only the process that wrote the files merges small ones."""

    MERGE_SMALL = "merge small files"
    MERGE_DATA = "merge data files"
    MERGE_DELETES = "merge delete files"
    FOLD_DELETES = "remove deleted rows"
    APPLY_EQUALITY = "apply equality deletes"
    EXPIRE = "delete snapshots"
    MANIFESTS = "rewrite manifests"
    ORPHANS = "delete orphan files"
    PARTITIONS = "delete old partitions"
    """Of log tables: see `log_tables.retention`."""


DATA_STEPS: Final = frozenset((Step.MERGE_DATA, Step.FOLD_DELETES, Step.APPLY_EQUALITY))
"""Steps that leave no data files to merge."""
DELETE_STEPS: Final = frozenset((Step.MERGE_DELETES, Step.FOLD_DELETES, Step.APPLY_EQUALITY))
"""Steps that leave no delete files to merge."""


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What the metadata of a table says, without reading any manifest.

    Attributes:
        data_files, delete_files: number of files in the current snapshot.
        rows: number of rows in the data files, deleted ones included.
        deleted_rows: number of position deletes in the delete files; some may name files that no longer exist.
        equality_deletes: number of keys in the equality-delete files.
        bytes: size of all files in the current snapshot.
        snapshot_ms: the time of each snapshot, in the order of the commits, milliseconds since the epoch.
        has_vectors: whether new position deletes are deletion vectors; `delete_files` then counts each of them.
    """

    data_files: int
    delete_files: int
    rows: int
    deleted_rows: int
    bytes: int
    snapshot_ms: Sequence[int]
    equality_deletes: int = 0
    has_vectors: bool = False

    @classmethod
    def of(
        cls, total: Callable[[str], int], snapshot_ms: Sequence[int], *, has_vectors: bool
    ) -> "TableFacts":
        """Return the facts of a table; `total` returns a number of the current snapshot's summary."""
        return cls(
            data_files=total("total-data-files"),
            delete_files=total("total-delete-files"),
            rows=total("total-records"),
            deleted_rows=total("total-position-deletes"),
            bytes=total("total-files-size"),
            snapshot_ms=snapshot_ms,
            equality_deletes=total("total-equality-deletes"),
            has_vectors=has_vectors,
        )


@dataclass(frozen=True, slots=True)
class MergedFiles:
    """The number of files that the last merge left: they are already large, or too few of their size to merge."""

    data_files: int = 0
    delete_files: int = 0

    def plus(self, other: "MergedFiles") -> "MergedFiles":
        """Return the numbers of both together."""
        return MergedFiles(self.data_files + other.data_files, self.delete_files + other.delete_files)

    def after(self, left: "MergedFiles", merged: frozenset[Step]) -> "MergedFiles":
        """Return the numbers after the steps `merged`, which left `left`: files that were not merged do not count."""
        return MergedFiles(
            left.data_files if merged & DATA_STEPS else min(self.data_files, left.data_files),
            left.delete_files if merged & DELETE_STEPS else min(self.delete_files, left.delete_files),
        )


def due_steps(
    facts: TableFacts, merged: MergedFiles, settings: MaintenanceConfig, now_ms: int
) -> tuple[Step, ...]:
    """Return the steps that are due, in order."""
    due = []
    if facts.data_files - merged.data_files >= settings.merge_files:
        due.append(Step.MERGE_DATA)
    if facts.delete_files - merged.delete_files >= settings.merge_files:
        # Equality deletes cannot be merged: each applies to the data files of earlier commits only. Deletion vectors
        # need no merge: a data file has at most one.
        if facts.equality_deletes:
            due.append(Step.APPLY_EQUALITY)
        elif not facts.has_vectors:
            due.append(Step.MERGE_DELETES)
    share = facts.deleted_rows / max(facts.rows, 1)
    if facts.delete_files and share > settings.delete_ratio and share * facts.bytes > FEW_BYTES:
        due.append(Step.FOLD_DELETES)
    if expire_before(facts, settings, now_ms, slack=True) is not None:
        due.append(Step.EXPIRE)
    return tuple(due)


def overdue_steps(due: Sequence[Step], commits: int, settings: MaintenanceConfig) -> tuple[Step, ...]:
    """Return the steps of `due` that `replicator run` does not carry out soon by itself.

    It inspects a table only after further commits, so it never deletes the old snapshots of one that receives none.
    `commits` is the number of snapshots since the last maintenance.
    """
    if not settings.enabled or commits >= BEHIND * settings.merge_files:
        return tuple(due)
    return tuple(step for step in due if step in (Step.EXPIRE, Step.MANIFESTS))


def expire_before(
    facts: TableFacts, settings: MaintenanceConfig, now_ms: int, *, slack: bool = False
) -> int | None:
    """Return the time before which snapshots are to be deleted, milliseconds since the epoch; None if there are none.

    With `slack`, return None unless a limit is exceeded by more than a tenth. The newest snapshot never expires.
    """
    times = facts.snapshot_ms
    age_ms, most = int(settings.snapshot_age * 1000), settings.max_snapshots
    oldest_ms = now_ms - age_ms
    if slack:
        age_ms, most = age_ms + age_ms // _SLACK, most + max(1, most // _SLACK)
    too_old = len(times) > 1 and times[0] < now_ms - age_ms
    if not too_old and len(times) <= most:
        return None
    surplus = len(times) - settings.max_snapshots
    return max(oldest_ms, times[surplus] if surplus > 0 else 0)


def levels(target_bytes: int) -> Iterator[int]:
    """Yield the size of each level, in bytes: files below it are merged with each other.

    The last level is three quarters of the target size.
    """
    size = SMALLEST_LEVEL
    while size < _FULL * target_bytes:
        yield size
        size *= LEVEL_RATIO
    yield max(1, int(_FULL * target_bytes))
