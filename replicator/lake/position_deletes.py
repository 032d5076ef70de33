"""Stage the deletes of rows by position, in the form that the format version of the table requires.

Up to version 2, these are position-delete files, see `data_files`; from version 3 on they are deletion vectors. The
version is that of the table as it was loaded, whoever set it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.lake.catalog import Lake, LakeTable
from replicator.lake.data_files import (
    FilePositions,
    WrittenDeletes,
    by_file,
    write_delete_files,
)
from replicator.lake.deletion_vectors import write_vectors
from replicator.lake.partitions import DataFileRef
from replicator.lake.small_files import OWN_FILE


@dataclass(frozen=True, slots=True)
class StagedDeletes:
    """Deletes of rows that no snapshot refers to yet; they name positions in the snapshot that they were staged for.

    Attributes:
        files: Iceberg DeleteFile objects to add.
        replaced: Iceberg DeleteFile objects of that snapshot, which the same commit must remove.
        vectors: data file path → its deletion vector, which is one of `files`.
        written: those of `files` that the driver wrote as position-delete files.
    """

    files: Sequence[Any] = ()
    replaced: Sequence[Any] = ()
    vectors: Mapping[str, Any] = field(default_factory=dict)
    written: Sequence[WrittenDeletes] = ()


def stage_positions(
    lake: Lake,
    table: LakeTable,
    snapshot_id: int,
    positions: Sequence[FilePositions],
    own_file: int | None = None,
) -> StagedDeletes:
    """Stage the deletes of `positions`, which the driver holds; `own_file` as for `write_delete_files`."""
    if table.has_deletion_vectors:
        vectors = write_vectors(lake, table, snapshot_id, positions)
        return StagedDeletes(list(vectors.files.values()), vectors.replaced, vectors.files)
    written = write_delete_files(lake, table, snapshot_id, positions, own_file)
    return StagedDeletes([deletes.file for deletes in written], written=written)


def stage_deletes(lake: Lake, table: LakeTable, snapshot_id: int, positions: DataFrame) -> StagedDeletes:
    """Stage the deletes of `positions` (file_path, pos), of which there may be many.

    Spark finds and groups them, and the driver writes them: for deletion vectors it must know all positions of a data
    file, and Spark's own writer of plain files knows only Hadoop's file systems, not the table's FileIO.
    """
    return stage_positions(lake, table, snapshot_id, _collected(positions), OWN_FILE)


def stage_few_deletes(lake: Lake, table: LakeTable, snapshot_id: int, positions: DataFrame) -> StagedDeletes:
    """Stage the deletes of `positions` as `stage_deletes`, but on the driver: they must be few."""
    return stage_positions(lake, table, snapshot_id, by_file(positions.toArrow()))


def _collected(positions: DataFrame) -> list[FilePositions]:
    """Fetch positions, grouped by data file: the path of a file would be most of what Spark returns for each row."""
    grouped = positions.groupBy("file_path").agg(F.sort_array(F.collect_list("pos")).alias("pos")).toArrow()
    return [
        FilePositions(DataFileRef(path), found.values.to_numpy())
        for path, found in zip(grouped.column("file_path").to_pylist(), grouped.column("pos"), strict=True)
    ]
