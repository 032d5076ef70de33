"""What happened to a log table since a snapshot: whether the rows that were appended are all that changed in it.

Snapshots tell it, and which files have these rows. Once they have expired, the offsets of rows tell what is new.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from replicator.config.log_tables import RECORD_COLUMNS
from replicator.lake.catalog.tables import LakeTable, lake_errors
from replicator.model.common import quoted
from replicator.model.table import LOG_TOPIC_KEY, LOG_UNNUMBERED_KEY
from replicator.pipelines.inputs.positions import any_of

_REMOVES_NONE: Final = ("append", "replace")
"""Iceberg's operations that remove no row: batches append, and maintenance replaces files."""


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """A snapshot of a log table.

    Attributes:
        id, parent: its id, and that of the snapshot before it; no parent if it is the first one.
        operation: Iceberg's name of what it did.
    """

    id: int
    parent: int | None
    operation: str


@dataclass(frozen=True, slots=True)
class Since:
    """What happened to a log table since a snapshot.

    Attributes:
        is_known: whether the table still has all snapshots since then.
        deleted: whether rows were deleted: by `retention`, or by others.
    """

    is_known: bool = True
    deleted: bool = False


def since_snapshot(table: LakeTable, snapshot: int | None) -> Since:
    """Return what happened to a table, as it was loaded, since a snapshot; without one, it had no rows.

    Raises:
        LakeUnavailable: the catalog failed.
    """
    if table.snapshot_id == snapshot:
        return Since()
    with lake_errors(f"snapshots of {table.namespace}.{table.name} cannot be read"):
        return since_in(_line(table), snapshot)


def since_in(line: Iterable[LogSnapshot], snapshot: int | None) -> Since:
    """Return what happened since a snapshot; `line` has those that the table still has, the newest first. Pure."""
    deleted = False
    for found in line:
        if found.id == snapshot:
            return Since(deleted=deleted)
        deleted |= found.operation not in _REMOVES_NONE
        if found.parent == snapshot:
            # It may have expired itself: what followed it is known.
            return Since(deleted=deleted)
    return Since(is_known=False, deleted=deleted)


def offsets_of(table: LakeTable) -> dict[int, int]:
    """Return the first offset of each partition that a log table lacks."""
    marker = table.marker()
    found = {} if marker is None else marker.progress.get(table.property(LOG_TOPIC_KEY) or "", {})
    return {partition: reached.next_offset for partition, reached in found.items()}


def is_later(table: LakeTable, offsets: Mapping[int, int]) -> SparkColumn | None:
    """Return whether a row came after all before `offsets`; None if not each row tells its partition and offset.

    Without nulls, it is a condition by which Iceberg skips files.
    """
    if not offsets:
        return F.lit(True)
    names = [RECORD_COLUMNS[part][0] for part in ("partition", "offset")]
    if table.property(LOG_UNNUMBERED_KEY) is not None or not set(names) <= set(table.columns()):
        return None
    partition, offset = (F.col(quoted(name)) for name in names)
    newest = max(offsets)
    known = [(partition == F.lit(p)) & (offset >= F.lit(n)) for p, n in offsets.items()]
    new = [partition == F.lit(p) for p in range(newest) if p not in offsets]
    return any_of([*known, *new, partition > F.lit(newest)])


def _line(table: LakeTable) -> Iterator[LogSnapshot]:
    java, snapshot = table.java, table.java.currentSnapshot()
    while snapshot is not None:
        parent = snapshot.parentId()
        yield LogSnapshot(
            int(snapshot.snapshotId()), None if parent is None else int(parent), str(snapshot.operation())
        )
        snapshot = None if parent is None else java.snapshot(parent)
