"""Read the tags of a mirror in Python, without Java."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from replicator.config import LakeConfig
from replicator.lake.properties import tags_in
from replicator.lake.reading.catalog import Catalog, namespace_properties
from replicator.lake.reading.table_metadata import TableMetadata
from replicator.model.tags import TagRecord, TagState


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
        results: the results of pipelines that have it.
        without: those that do not, of a complete tag: no refresh stopped at its position, or none yet.
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
    results: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    reason: str | None = None

    @property
    def lag_seconds(self) -> float | None:
        """How long after its position the tag was complete."""
        if self.completed_ms is None or self.source_ms is None:
            return None
        return (self.completed_ms - self.source_ms) / 1000


def read_tag_records(catalog: Catalog[Any], lake: LakeConfig) -> list[TagRecord]:
    """Return the recorded tags, oldest first.

    Raises:
        LakeUnavailable: a newer version of the engine wrote one.
    """
    return tags_in(namespace_properties(catalog, lake.ops_namespace))


def tag_status(
    records: Iterable[TagRecord], mirrors: Iterable[TableMetadata], results: Iterable[TableMetadata]
) -> tuple[TagStatus, ...]:
    """Return the status of recorded tags, with the mirrors and the results of pipelines that have them."""
    tagged, of_results = ({".".join(t.name()): t.tags for t in tables} for tables in (mirrors, results))
    return tuple(_status(record, tagged, of_results) for record in records)


def _status(
    record: TagRecord, mirrors: Mapping[str, Collection[str]], results: Mapping[str, Collection[str]]
) -> TagStatus:
    point, is_complete = record.point, record.state is TagState.COMPLETE
    return TagStatus(
        name=record.name,
        state=str(record.state),
        position=None if point is None else str(point),
        gtids=None if point is None else point.gtids,
        source_ms=None if point is None else point.read_ms,
        requested_ms=record.requested_ms,
        completed_ms=record.completed_ms,
        scheduled=record.scheduled,
        tables=tuple(sorted(name for name, tags in mirrors.items() if record.name in tags)),
        left_out=record.left_out,
        results=tuple(sorted(name for name, tags in results.items() if record.name in tags)),
        without=tuple(
            sorted(name for name, tags in results.items() if is_complete and record.name not in tags)
        ),
        reason=record.reason,
    )
