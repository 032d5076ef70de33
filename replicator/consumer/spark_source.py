"""A Spark data source, `replicator_changes`: the changes after a cursor, as a stream.

Iceberg's own stream begins with the oldest snapshot that still exists, and leaves out what came before without a word;
see docs/adr/0036-consumers-continue-by-snapshot-or-offset.md. Here, the offset of a batch is a `Cursor`, so Spark's
checkpoint continues as exactly as any other consumer. The driver plans files, the executors read them.

Options: `config` (a file), `table`, `cursor` (where a new query starts), and `steps_at` (binlog key of the newest
schema step that the program knows; by default that of the cursor). The package must be installed on the executors.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyspark.sql import types as T
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from replicator.config import load
from replicator.consumer.batches import untold_steps
from replicator.consumer.cursor import Cursor
from replicator.consumer.files import (
    FileReader,
    appended_files,
    change_column_of,
    live_files,
    told_columns,
)
from replicator.consumer.heads import changelog_head
from replicator.consumer.lake_tables import LakeTables
from replicator.consumer.ordered_rows import Window, coordinates_of
from replicator.consumer.plan import RowsByOffset, parts_between
from replicator.errors import UnsupportedChange
from replicator.lake.reading.reader import open_catalog

SOURCE: Final = "replicator_changes"


class ChangesSource(DataSource):
    """The data source; see the module."""

    @classmethod
    def name(cls) -> str:
        """Return the name under which it is registered."""
        return SOURCE

    def schema(self) -> T.StructType:
        """Return the columns of the changelog now."""
        with _opened(self.options) as table:
            return spark_schema(told_columns(table))

    def streamReader(self, schema: T.StructType) -> "ChangesReader":  # noqa: N802 - Spark's name
        """Return the reader of a query with these columns."""
        return ChangesReader(dict(self.options), schema)


@dataclass(frozen=True, slots=True)
class FilePart(InputPartition):
    """One file to read, with all that an executor needs.

    Attributes:
        metadata: Iceberg's JSON of the table, without snapshots.
        properties: the settings to open its files.
    """

    metadata: str
    properties: Mapping[str, str]
    file: DataFile
    window: Window


class ChangesReader(DataSourceStreamReader):
    """Plans the batches of a query, and reads them. Its offsets are cursors, with the newest step that it was told."""

    def __init__(self, options: Mapping[str, str], schema: T.StructType) -> None:
        self._options, self._schema = options, schema
        cursor = Cursor.from_json(options["cursor"])
        self._known_from = cursor.steps_at
        self._start = replace(cursor, steps_at=int(options.get("steps_at", cursor.steps_at)))
        self._latest: Cursor | None = None

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return where a new query starts."""
        return {"cursor": self._start.to_json()}

    def latestOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Return the newest state of the changelog.

        Raises:
            UnsupportedChange: a statement changed rows without changes, and the query was not told of it.
        """
        start = self._start
        with _opened(self._options, start.changelog) as table:
            self._refuse_untold_steps(table)
            point = changelog_head(table).point
        # A commit without rows is no reason for a batch.
        known = self._latest or (start if start.scan is None else None)
        if known is None or known.at.snapshot_id != point.snapshot_id:
            known = Cursor(start.table, start.changelog, point, steps_at=start.steps_at)
        self._latest = known
        return {"cursor": known.to_json()}

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Sequence[InputPartition]:
        """Return the files to read between two offsets.

        Raises:
            CursorExpired, ForeignChange: as `changes`.
            UnsupportedChange: the changelog has other columns than the query, or see `latestOffset`.
        """
        since, until = Cursor.from_json(start["cursor"]), Cursor.from_json(end["cursor"]).at
        with _opened(self._options, since.changelog) as table:
            if spark_schema(told_columns(table)) != self._schema:
                raise UnsupportedChange(
                    f"the changelog of {since.table} has other columns than the query that reads it",
                    "start the query again: it continues with the new columns",
                )
            self._refuse_untold_steps(table, since.steps_at)
            metadata, properties = _without_snapshots(table.metadata), dict(table.io.properties)
            found: list[FilePart] = []
            for part in parts_between(since, until, changelog_head(table)):
                if isinstance(part, RowsByOffset):
                    window = Window(part.after, part.before)
                    files = (
                        [] if part.point.snapshot_id is None else live_files(table, part.point.snapshot_id)
                    )
                else:
                    window, files = Window(), appended_files(table, part.snapshot.snapshot_id)
                found += [
                    FilePart(metadata, properties, file.data, window)
                    for file in files
                    if window.may_contain(file)
                ]
            return found

    def _refuse_untold_steps(self, table: Table, told: int | None = None) -> None:
        """Raise UnsupportedChange if a statement changed rows, no change tells it, and the query was not told of it.

        `told` is the newest step that it was told when it stored its offset.
        """
        if untold_steps(table, self._start.steps_at):
            raise UnsupportedChange(
                f"a statement changed rows of {self._start.table}, and no change tells which",
                "load the query again with its first cursor, and apply the steps of the feed to the rows that it has",
            )
        if told is not None and any(s["at"] <= self._known_from for s in untold_steps(table, told)):
            raise UnsupportedChange(
                f"the cursor is from after a statement that changed rows of {self._start.table}, and the checkpoint is "
                "from before it, so the query was not told of it",
                "load the query again with the cursor with which it started",
            )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a file, on an executor."""
        assert isinstance(partition, FilePart)  # noqa: S101 - Spark gives back what `partitions` returned
        metadata = TableMetadataUtil.parse_raw(partition.metadata)
        io = load_file_io(dict(partition.properties), metadata.location)
        names = set(self._schema.names)
        columns = Schema(*(field for field in metadata.schema().fields if field.name in names))
        reader = FileReader(metadata, io, columns)
        change, wanted = change_column_of(reader.schema), to_arrow_schema(self._schema)
        for rows in reader.batches(partition.file):
            mask = partition.window.mask(*coordinates_of(rows, change))
            yield from rows.filter(pa.array(mask)).cast(wanted).to_batches()


@contextmanager
def _opened(options: Mapping[str, str], uuid: str | None = None) -> Iterator[Table]:
    """Open the catalog, and load the changelog that the options name."""
    lake = load(Path(options["config"])).lake
    with open_catalog(lake) as catalog:
        yield LakeTables(catalog, lake, options["table"]).changelog(uuid)


def _without_snapshots(metadata: TableMetadata) -> str:
    """Return the part of a table's metadata that is needed to read its files."""
    nothing: dict[str, Any] = {
        "snapshots": [],
        "refs": {},
        "snapshot_log": [],
        "metadata_log": [],
        "current_snapshot_id": None,
        "properties": {},
        "statistics": [],
        "partition_statistics": [],
    }
    return metadata.model_copy(update=nothing).model_dump_json()


def spark_schema(schema: Schema) -> T.StructType:
    """Return the Spark types of Iceberg columns."""
    return from_arrow_schema(schema_to_pyarrow(schema, include_field_ids=False), prefer_timestamp_ntz=True)
