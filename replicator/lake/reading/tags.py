"""Read the tags of a mirror in Python, without Java."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType

from replicator.config import LakeConfig
from replicator.lake.properties import tags_in
from replicator.lake.reading.reader import namespace_properties
from replicator.model.tags import TagRecord


@dataclass(frozen=True, slots=True)
class TagStatus:
    """A tag of a mirror.

    Attributes:
        name: its name in all lake tables.
        state: requested, started, complete, failed or deleting.
        position: the position in the binlog; changes at or after it are not in the tagged snapshots. None until it is
            chosen.
        gtids: all transactions before it; None if the source has no GTIDs, or if there are too many to be recorded.
        source_ms: when the source was at the position, milliseconds since the epoch.
        requested_ms, completed_ms: when it was requested and complete, milliseconds since the epoch.
        scheduled: whether the schedule requested it.
        tables: the mirrors that have it, `namespace.name`.
        left_out: the source tables that were paused, and have no tag.
        reason: why it failed.
    """

    name: str
    state: str
    position: str | None
    gtids: str | None
    source_ms: int | None
    requested_ms: int
    completed_ms: int | None
    scheduled: bool
    tables: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def lag_seconds(self) -> float | None:
        """How long after its position the tag was complete."""
        if self.completed_ms is None or self.source_ms is None:
            return None
        return (self.completed_ms - self.source_ms) / 1000


def read_tag_records(catalog: Catalog, lake: LakeConfig) -> list[TagRecord]:
    """Return the recorded tags, oldest first.

    Raises:
        LakeUnavailable: a newer version of the engine wrote one.
    """
    return tags_in(namespace_properties(catalog, lake.ops_namespace))


def tag_status(records: Iterable[TagRecord], mirrors: Iterable[Table]) -> tuple[TagStatus, ...]:
    """Return the status of recorded tags, with the mirrors that have them."""
    tagged: dict[str, list[str]] = {}
    for table in mirrors:
        for name in tags_of(table):
            tagged.setdefault(name, []).append(".".join(table.name()))
    return tuple(_status(record, tagged.get(record.name, ())) for record in records)


def tags_of(table: Table) -> list[str]:
    """Return the names of the Iceberg tags of a table."""
    refs: Mapping[str, Any] = table.metadata.refs
    return [name for name, ref in refs.items() if ref.snapshot_ref_type == SnapshotRefType.TAG]


def _status(record: TagRecord, tables: Iterable[str]) -> TagStatus:
    point = record.point
    return TagStatus(
        name=record.name,
        state=str(record.state),
        position=None if point is None else str(point),
        gtids=None if point is None else point.gtids,
        source_ms=None if point is None else point.read_ms,
        requested_ms=record.requested_ms,
        completed_ms=record.completed_ms,
        scheduled=record.scheduled,
        tables=tuple(sorted(tables)),
        left_out=record.left_out,
        reason=record.reason,
    )
