"""Write files that no snapshot refers to yet. A crash leaves orphan files, never a visible change.

Iceberg's own Spark writer writes data files; it hands them to its rewrite coordinator instead of committing them, as
for Iceberg's rewrite actions. The driver writes position-delete files: plain Parquet with the two reserved field ids of
Iceberg's spec ("Position Delete Files"). All files go through the table's own FileIO, which has the credentials of the
object store.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.lake.catalog.tables import Lake, LakeTable, lake_errors
from replicator.lake.files.driver_files import parquet_file, upload
from replicator.lake.files.partitions import DataFileRef, Partition, label_of, planned_partitions
from replicator.lake.files.spark_tables import staging_table
from replicator.model.common import quoted
from replicator.model.types import LakeType, spark_sql_name

_PATH_ID: Final = 2147483546
_POS_ID: Final = 2147483545
POSITIONS: Final = pa.schema(
    [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(_PATH_ID)}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(_POS_ID)}),
    ]
)
"""The schema of position-delete files."""

_LINEAGE_VERSION: Final = 3
_LINEAGE: Final = ("_row_id", "_last_updated_sequence_number")
"""Columns of rows, from this format version on."""


@dataclass(frozen=True, slots=True)
class FilePositions:
    """Positions of rows in one data file, in ascending order."""

    file: DataFileRef
    positions: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WrittenDeletes:
    """A delete file that this process wrote.

    Attributes:
        file: Iceberg's DeleteFile object.
        positions: the positions in it.
        snapshot_id: the snapshot that added it; None before it is committed.
        partition: the partition of its data files; None if no file of the table belonged to one when it was written.
    """

    file: Any
    positions: Sequence[FilePositions]
    snapshot_id: int | None = None
    partition: Partition | None = None

    @property
    def count(self) -> int:
        """Number of positions."""
        return sum(len(found.positions) for found in self.positions)


def joined(positions: Sequence[FilePositions]) -> list[FilePositions]:
    """Return one `FilePositions` for each file, each position once and in ascending order."""
    files: dict[str, list[FilePositions]] = {}
    for found in positions:
        files.setdefault(found.file.path, []).append(found)
    return [
        FilePositions(parts[0].file, np.unique(np.concatenate([found.positions for found in parts])))
        for parts in files.values()
    ]


def by_file(positions: pa.Table) -> list[FilePositions]:
    """Group positions (columns file_path, pos) by data file."""
    ordered = positions.sort_by([("file_path", "ascending"), ("pos", "ascending")])
    paths = ordered.column("file_path").combine_chunks().dictionary_encode()
    counts = np.bincount(paths.indices.to_numpy(), minlength=len(paths.dictionary))
    pieces = np.split(ordered.column("pos").to_numpy(), np.cumsum(counts)[:-1])
    return [
        FilePositions(DataFileRef(path), piece)
        for path, piece in zip(paths.dictionary.to_pylist(), pieces, strict=False)
    ]


def cast_to_table(rows: DataFrame, columns: Mapping[str, LakeType], struct: str | None = None) -> DataFrame:
    """Return `rows` with exactly the lake table's columns, cast to their types; null for a column that `rows` lacks.

    `struct` names a column that is added unchanged, after the others.
    """
    return rows.select(*_cast_columns(tuple(rows.columns), tuple(columns.items()), struct))


# Each part of an expression takes a call into the JVM. The expressions of a table are the same in every batch.
@lru_cache(1024)
def _cast_columns(
    present: tuple[str, ...], columns: tuple[tuple[str, LakeType], ...], struct: str | None
) -> tuple[SparkColumn, ...]:
    fields = [
        (F.col(quoted(name)) if name in present else F.lit(None)).cast(spark_sql_name(lake_type)).alias(name)
        for name, lake_type in columns
    ]
    return (*fields, *([] if struct is None else [F.col(quoted(struct))]))


def stage_data(lake: Lake, table: LakeTable, rows: DataFrame) -> list[Any]:
    """Write `rows` (see `cast_to_table`) as data files of `table` and return Iceberg's DataFile objects."""
    if table.format_version >= _LINEAGE_VERSION:
        # Files that are not committed as an append must have them. Null: each row gets its number with the commit.
        rows = rows.withColumns({name: F.lit(None).cast("long") for name in _LINEAGE})
    with staging_table(lake, table) as (name, file_set):
        writer = rows.writeTo(name)
        if table.is_partitioned:
            # Rows are in no order of partitions, which Iceberg's default writer requires.
            writer = writer.option("fanout-enabled", "true")
        writer.append()
    with lake_errors(f"files of {table.name} cannot be staged"):
        coordinator = lake.classes.rewrite_coordinator.get()
        files = list(coordinator.fetchNewFiles(table.java, file_set).toArray())
        coordinator.clearRewrite(table.java, file_set)
    return files


def matching_positions(target: DataFrame, key_columns: Sequence[str], keys: DataFrame) -> DataFrame:
    """Find file and position of the rows of `target` whose key is in `keys` (columns k0, k1, …)."""
    names = [f"k{i}" for i in range(len(key_columns))]
    wanted = [F.col(quoted(column)).alias(name) for column, name in zip(key_columns, names, strict=True)]
    rows = target.select(*wanted, F.col("_file").alias("file_path"), F.col("_pos").alias("pos"))
    return rows.join(F.broadcast(keys.select(*names)), names, "left_semi").select("file_path", "pos")


def write_delete_files(
    lake: Lake,
    table: LakeTable,
    snapshot_id: int,
    positions: Sequence[FilePositions],
    own_file: int | None = None,
) -> list[WrittenDeletes]:
    """Write position-delete files with the table's own FileIO: one for each partition.

    A data file with at least `own_file` positions gets a delete file of its own. Readers then load the deletes of
    several data files at the same time, and do not compare paths.
    """
    if not positions:
        return []
    folder = f"{table.java.location()}/data/deletes-{uuid.uuid4()}"
    files = []
    with lake_errors(f"delete files of {table.name} cannot be staged"):
        groups = [
            (partition, part)
            for partition, found in by_partition(table, snapshot_id, positions)
            for part in _with_own_files(found, own_file)
        ]
        for i, (partition, found) in enumerate(groups):
            path = f"{folder}/{i:05d}.parquet"
            rows = _delete_rows(found)
            content = parquet_file(rows, "zstd")
            upload(table, path, content)
            metrics = _path_metrics(lake, rows.num_rows, found[0].file.path, found[-1].file.path)
            file = _delete_file(lake, table, path, len(content), metrics, partition)
            files.append(WrittenDeletes(file, found, partition=partition))
    return files


def by_partition(
    table: LakeTable, snapshot_id: int, positions: Sequence[FilePositions]
) -> list[tuple[Partition | None, list[FilePositions]]]:
    """Group positions by the partition of their files; of each partition, in the order of the files' paths."""
    located = sorted(
        with_partitions(table, snapshot_id, positions),
        key=lambda found: (label_of(found.file.partition), found.file.path),
    )
    groups = [list(group) for _, group in groupby(located, lambda found: label_of(found.file.partition))]
    return [(group[0].file.partition, group) for group in groups]


def with_partitions(
    table: LakeTable, snapshot_id: int, positions: Sequence[FilePositions]
) -> Sequence[FilePositions]:
    """Return positions with the partition of each data file, if data files of the table may belong to partitions."""
    if not any(found.file.partition is None for found in positions) or not table.is_partitioned:
        return positions
    planned = planned_partitions(table, snapshot_id)
    return [
        found
        if found.file.partition is not None
        else replace(found, file=DataFileRef(found.file.path, planned[found.file.path]))
        for found in positions
    ]


def _with_own_files(positions: list[FilePositions], own_file: int | None) -> list[list[FilePositions]]:
    """Return the contents of the delete files of a partition."""
    if own_file is None:
        return [positions]
    few = [found for found in positions if len(found.positions) < own_file]
    own = [[found] for found in positions if len(found.positions) >= own_file]
    return [few, *own] if few else own


def _delete_rows(positions: Sequence[FilePositions]) -> pa.Table:
    """Return the rows of a delete file."""
    counts = [len(found.positions) for found in positions]
    numbers = pa.array(np.repeat(np.arange(len(positions), dtype=np.int32), counts))
    paths = pa.DictionaryArray.from_arrays(numbers, pa.array([found.file.path for found in positions]))
    places = np.concatenate([found.positions for found in positions])
    return pa.table([paths.cast(pa.string()), places], schema=POSITIONS)


def _path_metrics(lake: Lake, count: int, first: str, last: str) -> Any:
    """Return the metrics of a position-delete file that readers use: number of rows, first and last data file.

    Iceberg could read them from the file, but parses Hadoop's whole configuration each time it opens one.
    """
    classes = lake.classes
    bounds = []
    for path in (first, last):
        bound = classes.hash_map()
        bound.put(_PATH_ID, classes.conversions.toByteBuffer(classes.types.StringType.get(), path))
        bounds.append(bound)
    return classes.metrics(count, None, None, None, None, *bounds)


def _delete_file(
    lake: Lake, table: LakeTable, path: str, size: int, metrics: Any, partition: Partition | None
) -> Any:
    """Return the DeleteFile of a written file; `partition` is that of the rows that it deletes."""
    spec = table.java.spec() if partition is None else partition.spec
    builder = lake.classes.file_metadata.deleteFileBuilder(spec).ofPositionDeletes().withPath(path)
    if partition is not None:
        builder = builder.withPartition(partition.values)
    return builder.withFormat("PARQUET").withFileSizeInBytes(size).withMetrics(metrics).build()
