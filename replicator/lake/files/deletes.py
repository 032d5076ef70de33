"""Stage deletes of rows by position, in the form that the format version of the table requires.

A deletion vector is a bitmap of the deleted rows of one data file. A snapshot has at most one for each data file, so
a new one also contains the earlier deletes of that file, and the same commit removes what it replaces. Iceberg's own
writer does both. It gets the positions of a data file as one serialized bitmap: no call of Java for each position.

Up to version 2, these are position-delete files, see `data_files`; from version 3 on they are deletion vectors. The
version is that of the table as it was loaded, whoever set it.
"""

import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.lake.catalog.applied_deletes import DeletesByFile
from replicator.lake.catalog.java import each_of
from replicator.lake.catalog.tables import Lake, LakeTable, lake_errors
from replicator.lake.files.data_files import (
    FilePositions,
    WrittenDeletes,
    by_partition,
    write_delete_files,
)
from replicator.lake.files.partitions import DataFileRef

_MAGIC: Final = 1681511377
"""Begins the bitmap in a deletion vector; Puffin's spec, "deletion-vector-v1 blob type"."""
_POSITION_DELETES: Final = "POSITION_DELETES"


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


def _write_vectors(
    lake: Lake, table: LakeTable, snapshot_id: int, positions: Sequence[FilePositions]
) -> StagedDeletes:
    """Write the deletion vectors of a snapshot of `table` and of `positions` as one Puffin file."""
    if not positions:
        return StagedDeletes()
    classes = lake.classes
    with lake_errors(f"deletion vectors of {table.name} cannot be staged"):
        applied = applied_deletes(lake, table, snapshot_id)
        earlier = _load(lake, table, applied, {found.file.path for found in positions})
        output = classes.output_file_factory.builderFor(table.java, 0, 0)
        output = output.format(classes.file_format.PUFFIN).build()
        writer = classes.vector_writer(output, classes.functions.forMap(earlier, None))
        bitmaps = _Bitmaps(lake)
        for partition, group in by_partition(table, snapshot_id, positions):
            spec = table.java.spec() if partition is None else partition.spec
            values = None if partition is None else partition.values
            for found in group:
                writer.delete(found.file.path, bitmaps.index(found.positions), spec, values)
        writer.close()
        result = writer.result()
        vectors = {str(file.referencedDataFile()): file for file in result.deleteFiles()}
        # One v2 delete file may be replaced by the vectors of several data files.
        replaced = {_identity(file): file for file in result.rewrittenDeleteFiles()}
    return StagedDeletes(list(vectors.values()), list(replaced.values()), vectors)


def applied_deletes(lake: Lake, table: LakeTable, snapshot_id: int) -> DeletesByFile:
    """Return the position deletes that apply to each data file of a snapshot of `table`."""
    name = (table.namespace, table.name)
    known = lake.applied_deletes.get(name, snapshot_id)
    if known is None:
        known = _read_applied(table, snapshot_id)
        lake.applied_deletes.put(name, snapshot_id, known)
    return known


def _read_applied(table: LakeTable, snapshot_id: int) -> DeletesByFile:
    if table.java.snapshot(snapshot_id).summary().get("total-position-deletes") == "0":
        return {}
    found: dict[str, Sequence[Any]] = {}
    for task in each_of(table.java.newScan().useSnapshot(snapshot_id).planFiles()):
        deletes = [file for file in task.deletes() if str(file.content()) == _POSITION_DELETES]
        if deletes:
            found[str(task.file().location())] = deletes
    return found


def _load(lake: Lake, table: LakeTable, applied: DeletesByFile, paths: set[str]) -> Any:
    """Return a Java map: data file path → the positions that are deleted already, and the files that say so."""
    classes, io = lake.classes, table.java.io()
    inputs, earlier = classes.hash_map(), classes.hash_map()
    loader = classes.delete_loader(classes.functions.forMap(inputs))
    for path in paths & applied.keys():
        files = classes.array_list()
        for file in applied[path]:
            inputs.put(file, io.newInputFile(file.location()))
            files.add(file)
        earlier.put(path, loader.loadPositionDeletes(files, path))
    return earlier


def _identity(file: Any) -> tuple[str, Any]:
    return str(file.location()), file.contentOffset()


class _Bitmaps:
    """Gives positions to Java, as Iceberg's PositionDeleteIndex."""

    def __init__(self, lake: Lake) -> None:
        classes = lake.classes
        self._indexes = classes.position_delete_index
        # Iceberg compares a bitmap with the metadata of its file: these bitmaps come from no file.
        metadata = classes.file_metadata.deleteFileBuilder(classes.partition_spec.unpartitioned())
        metadata = metadata.ofPositionDeletes().withFormat("PUFFIN").withPath("memory")
        self._metadata = metadata.withReferencedDataFile("memory").withContentOffset(0)

    def index(self, positions: npt.NDArray[np.int64]) -> Any:
        content = serialized(positions)
        metadata = self._metadata.withFileSizeInBytes(len(content)).withContentSizeInBytes(len(content))
        return self._indexes.deserialize(content, metadata.withRecordCount(len(positions)).build())


def serialized(positions: npt.NDArray[np.int64]) -> bytearray:
    """Return distinct positions in the form of a deletion vector: length, magic number, bitmap, checksum."""
    data = struct.pack("<I", _MAGIC) + BitMap64(positions).serialize()
    return bytearray(struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data)))


def stage_positions(
    lake: Lake,
    table: LakeTable,
    snapshot_id: int,
    positions: Sequence[FilePositions],
    own_file: int | None = None,
) -> StagedDeletes:
    """Stage the deletes of `positions`, which the driver holds; `own_file` as for `write_delete_files`."""
    if table.has_deletion_vectors:
        return _write_vectors(lake, table, snapshot_id, positions)
    written = write_delete_files(lake, table, snapshot_id, positions, own_file)
    return StagedDeletes([deletes.file for deletes in written], written=written)


def collected(positions: DataFrame) -> list[FilePositions]:
    """Fetch positions (file_path, pos), of which there may be many.

    Spark groups them by data file: the path of a file would be most of what it returns for each row. It does not write
    them: for deletion vectors all positions of a data file must be known, and Spark's own writer of plain files knows
    only Hadoop's file systems, not the table's FileIO.
    """
    grouped = positions.groupBy("file_path").agg(F.sort_array(F.collect_list("pos")).alias("pos")).toArrow()
    return [
        FilePositions(DataFileRef(path), found.values.to_numpy())
        for path, found in zip(grouped.column("file_path").to_pylist(), grouped.column("pos"), strict=True)
    ]
