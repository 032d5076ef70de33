"""Read from the loaded metadata of lake tables what a consumer must know: states, snapshots and schemas."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.table import Table

from replicator.consumer.cursor import Point, offsets_of
from replicator.consumer.files import told_columns
from replicator.errors import LakeUnavailable
from replicator.lake.reading.table_metadata import newest_marker
from replicator.model.changelog import RESTATED_KEY, Restatement, restated
from replicator.model.commit_marker import COMMIT_KEY, CommitMarker


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """A snapshot of a changelog.

    Attributes:
        parent_id: the snapshot before it; None for the first one.
        operation: Iceberg's operation: append, replace, overwrite or delete.
        commit: number of the commit that made it; None if maintenance did.
    """

    snapshot_id: int
    parent_id: int | None
    sequence_number: int
    operation: str
    commit: int | None


@dataclass(frozen=True, slots=True)
class ChangelogHead:
    """The newest state of a changelog, and the snapshots that it still has.

    Attributes:
        uuid: Iceberg's UUID of the table.
        point: the state.
        snapshots: snapshot id → snapshot.
        restated: its newest restatement; None if it has none.
        schema: its columns, without hidden ones.
    """

    uuid: str
    point: Point
    snapshots: Mapping[int, LogSnapshot]
    restated: Restatement | None
    schema: Schema

    @property
    def has_one_order(self) -> bool:
        """Whether offsets order all rows of a key: they are of one topic, which was never recreated.

        A re-read finds rows of all partitions, and its rows have an offset of only one.
        """
        partitions = [p for ps in self.point.offsets.values() for p in ps]
        if self.restated is not None and (self.restated.topics or len(partitions) > 1):
            return False
        return len(self.point.offsets) <= 1


def changelog_head(table: Table) -> ChangelogHead:
    """Return the state of a loaded changelog.

    Raises:
        LakeUnavailable: a newer version of the engine wrote it.
    """
    metadata: Any = table.metadata
    current = table.current_snapshot()
    marker = newest_marker(table) or CommitMarker("", 0, 0)
    point = Point(
        None if current is None else int(current.snapshot_id),
        0 if current is None else int(current.sequence_number or 0),
        marker.sequence,
        offsets_of(marker),
        dict(marker.topic_ids),
    )
    snapshots = {int(found.snapshot_id): _snapshot(found) for found in metadata.snapshots}
    return ChangelogHead(
        str(metadata.table_uuid), point, snapshots, restatement_of(table), told_columns(table)
    )


def restatement_of(table: Table) -> Restatement | None:
    """Return the newest restatement of a loaded table; None if it has none.

    Raises:
        LakeUnavailable: a newer version of the engine wrote it.
    """
    try:
        return restated(table.properties.get(RESTATED_KEY))
    except (ValueError, KeyError, TypeError) as error:
        name = ".".join(table.name())
        raise LakeUnavailable(
            f"{name}: {error}", "use the version of replicator that wrote the table"
        ) from error


def _snapshot(found: Any) -> LogSnapshot:
    summary = found.summary
    commit = None if summary is None else summary.additional_properties.get(COMMIT_KEY)
    return LogSnapshot(
        int(found.snapshot_id),
        None if found.parent_snapshot_id is None else int(found.parent_snapshot_id),
        int(found.sequence_number or 0),
        "append" if summary is None else str(summary.operation.value),
        None if commit is None else int(commit),
    )
