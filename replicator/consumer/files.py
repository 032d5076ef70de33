"""Find and read the data files of a changelog."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import ArrowScan, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntryStatus
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IntegerType, LongType, StructType

from replicator.errors import ForeignChange, UnsupportedChange
from replicator.model.changelog import FIRST_FIELDS
from replicator.model.table import RESULT_KEY, RESULT_STATE

Coordinate = tuple[int, int]
"""Partition and offset of a change in the log."""
_FIRST: Final[Coordinate] = (-(1 << 62), -(1 << 62))
_LAST: Final[Coordinate] = (1 << 62, 1 << 62)


class FilesGone(Exception):  # noqa: N818 - as the errors of the engine
    """Files were deleted while they were read, because maintenance deleted their snapshot; plan again."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A data file of a changelog.

    Attributes:
        first, last: no row has a coordinate before `first` or after `last`.
    """

    data: DataFile
    first: Coordinate
    last: Coordinate

    @property
    def rows(self) -> int:
        """Number of its rows."""
        return int(self.data.record_count)

    @property
    def path(self) -> str:
        """Where it is."""
        return str(self.data.file_path)


def told_columns(table: Table) -> Schema:
    """Return the columns of a table that consumers get: without the hidden one of the result of a pipeline."""
    schema = table.schema()
    if RESULT_KEY not in table.properties:
        return schema
    fields = [field for field in schema.fields if field.name != RESULT_STATE]
    return Schema(*fields, schema_id=schema.schema_id)


def change_column_of(schema: Schema) -> str:
    """Return the name of the changelog's struct column.

    Raises:
        ForeignChange: the table is no changelog.
    """
    for field in reversed(schema.fields):
        if (
            isinstance(field.field_type, StructType)
            and {f.name for f in field.field_type.fields} >= FIRST_FIELDS
        ):
            return field.name
    raise ForeignChange("the table is no changelog of this engine")


def planned_files(mirror: Table, snapshot_id: int, otherwise: str = "") -> list[FileScanTask]:
    """Return the data files of a snapshot of a mirror with their deletes, in an order that is always the same.

    `otherwise` is what one can do instead of applying equality deletes, for the message.

    Raises:
        FilesGone: the snapshot was deleted meanwhile.
        UnsupportedChange: the mirror has equality deletes, which PyIceberg cannot read.
    """
    if mirror.metadata.snapshot_by_id(snapshot_id) is None:
        raise FilesGone(f"snapshot {snapshot_id}")
    try:
        tasks = mirror.scan(snapshot_id=snapshot_id).plan_files()
        return sorted(tasks, key=lambda task: str(task.file.file_path))
    except FileNotFoundError as error:
        raise FilesGone(f"snapshot {snapshot_id}") from error
    except (NotImplementedError, ValueError) as error:
        raise UnsupportedChange(
            f"PyIceberg cannot read {'.'.join(mirror.name())}: {error}",
            f"apply its equality deletes (replicator maintain){otherwise}",
        ) from error


def appended_files(table: Table, snapshot_id: int) -> list[LogFile]:
    """Return the data files that a snapshot added.

    Raises:
        FilesGone: the snapshot was deleted meanwhile.
    """
    return _files(table, snapshot_id, added_only=True)


def live_files(table: Table, snapshot_id: int) -> list[LogFile]:
    """Return the data files of a snapshot.

    Raises:
        FilesGone: the snapshot was deleted meanwhile.
        ForeignChange: rows of it are deleted.
    """
    return _files(table, snapshot_id, added_only=False)


def _files(table: Table, snapshot_id: int, *, added_only: bool) -> list[LogFile]:
    snapshot = table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        raise FilesGone(f"snapshot {snapshot_id} of {'.'.join(table.name())}")
    try:
        return _log_files(table, snapshot, added_only=added_only)
    except FileNotFoundError as error:
        raise FilesGone(f"manifests of snapshot {snapshot_id} of {'.'.join(table.name())}") from error


def _log_files(table: Table, snapshot: Snapshot, *, added_only: bool) -> list[LogFile]:
    ids, snapshot_id = _coordinate_ids(table.schema()), snapshot.snapshot_id
    found = []
    for manifest in snapshot.manifests(table.io):
        if manifest.content == ManifestContent.DELETES:
            raise ForeignChange(f"rows of {'.'.join(table.name())} were deleted")
        if added_only and manifest.added_snapshot_id != snapshot_id:
            continue
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            is_added = entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot_id
            if (is_added or not added_only) and entry.data_file.content == DataFileContent.DATA:
                found.append(_log_file(entry.data_file, ids))
    return sorted(found, key=lambda file: (file.first, file.path))


def _coordinate_ids(schema: Schema) -> tuple[int, int]:
    """Return the ids of the fields with partition and offset."""
    change = change_column_of(schema)
    partition, offset = (schema.find_field(f"{change}.{name}") for name in ("partition", "offset"))
    return partition.field_id, offset.field_id


def _log_file(data: DataFile, ids: tuple[int, int]) -> LogFile:
    return LogFile(
        data,
        _bound(data.lower_bounds, ids) or _FIRST,
        _bound(data.upper_bounds, ids) or _LAST,
    )


def _bound(bounds: Any, ids: tuple[int, int]) -> Coordinate | None:
    """Return a bound of a file; None if it has no statistics of these columns."""
    texts = [None if not bounds else bounds.get(field_id) for field_id in ids]
    if texts[0] is None or texts[1] is None:
        return None
    return int(from_bytes(IntegerType(), texts[0])), int(from_bytes(LongType(), texts[1]))


@dataclass(frozen=True, slots=True)
class FileReader:
    """Reads data files of a table with the columns of one schema; columns are found by their ids, not their names.

    Attributes:
        metadata: the metadata of the table; its snapshots are not needed.
        io: opens the files.
        schema: the columns.
    """

    metadata: TableMetadata
    io: FileIO
    schema: Schema

    @classmethod
    def of(cls, table: Table, schema: Schema) -> "FileReader":
        """Return a reader for the files of a loaded table."""
        return cls(table.metadata, table.io, schema)

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of what is read."""
        return schema_to_pyarrow(self.schema, include_field_ids=False)

    def batches(self, data: DataFile, deletes: Sequence[DataFile] = ()) -> Iterator[pa.Table]:
        """Yield the rows of a file in their order, without those that `deletes` delete.

        Raises:
            FilesGone: the file was deleted meanwhile.
        """
        scan = ArrowScan(self.metadata, self.io, self.schema, AlwaysTrue())
        wanted = self.arrow_schema
        try:
            for batch in scan.to_record_batches([FileScanTask(data, set(deletes))]):
                yield pa.Table.from_batches([batch]).cast(wanted)
        except FileNotFoundError as error:
            raise FilesGone(str(data.file_path)) from error

    def read(self, files: Sequence[LogFile]) -> pa.Table:
        """Return all rows of files, one after the other."""
        parts = [part for file in files for part in self.batches(file.data)]
        return pa.concat_tables(parts) if parts else self.arrow_schema.empty_table()
