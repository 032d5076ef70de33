"""Write files that no snapshot refers to yet. A crash leaves orphan files, never a visible change.

Iceberg's own Spark writer writes data files; it hands them to its rewrite coordinator instead of committing them, as
for Iceberg's rewrite actions. Position-delete files are plain Parquet with the two reserved field ids of Iceberg's spec
("Position Delete Files").
"""

import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.lake.catalog import Lake, LakeTable, lake_errors
from replicator.model.identifiers import quoted
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
    file_set = str(uuid.uuid4())
    writer = rows.writeTo(table.sql_name).option("rewritten-file-scan-task-set-id", file_set)
    if table.is_partitioned:
        # Rows are in no order of partitions, which Iceberg's default writer requires.
        writer = writer.option("fanout-enabled", "true")
    writer.append()
    with lake_errors(f"files of {table.name} cannot be staged"):
        coordinator = lake.classes.rewrite_coordinator.get()
        files = list(coordinator.fetchNewFiles(table.java, file_set).toArray())
        coordinator.clearRewrite(table.java, file_set)
    return files


def matching_positions(
    lake: Lake, table: LakeTable, snapshot_id: int, key_columns: Sequence[str], keys: DataFrame
) -> DataFrame:
    """Find file and position of the rows in a snapshot of `table` whose key is in `keys` (columns k0, k1, …)."""
    names = [f"k{i}" for i in range(len(key_columns))]
    # `table` reads an old snapshot with the current schema; `load` would use the snapshot's own schema.
    target = lake.spark.read.option("snapshot-id", str(snapshot_id)).table(table.sql_name)
    wanted = [F.col(quoted(column)).alias(name) for column, name in zip(key_columns, names, strict=True)]
    rows = target.select(*wanted, F.col("_file").alias("file_path"), F.col("_pos").alias("pos"))
    return rows.join(F.broadcast(keys.select(*names)), names, "left_semi").select("file_path", "pos")


def stage_deletes(lake: Lake, table: LakeTable, snapshot_id: int, positions: DataFrame) -> list[Any]:
    """Write position-delete files for `positions` (file_path, pos) and return Iceberg's DeleteFile objects."""
    folder = f"{table.java.location()}/data/deletes-{uuid.uuid4()}"
    rows = positions.select(
        F.col("file_path").alias("file_path", metadata={"parquet.field.id": _PATH_ID}),
        F.col("pos").alias("pos", metadata={"parquet.field.id": _POS_ID}),
    )
    if table.is_partitioned:
        # A delete file must belong to one partition of the table; one delete file per data file guarantees that.
        rows = rows.repartition("file_path").sortWithinPartitions("file_path", "pos")
        rows = rows.withColumn("of", F.xxhash64("file_path"))
        rows.write.partitionBy("of").parquet(folder)
    else:
        rows.sortWithinPartitions("file_path", "pos").write.parquet(folder)
    with lake_errors(f"delete files of {table.name} cannot be staged"):
        return _delete_files(lake, table, snapshot_id, _parquet_files(lake, folder))


def stage_deletes_on_driver(lake: Lake, table: LakeTable, snapshot_id: int, positions: pa.Table) -> list[Any]:
    """Write position-delete files as `stage_deletes`, but on the driver and without a Spark job."""
    if not positions.num_rows:
        return []
    ordered = positions.sort_by([("file_path", "ascending"), ("pos", "ascending")]).cast(POSITIONS)
    pieces, partitions = [ordered], {}
    if table.is_partitioned:
        paths = ordered.column("file_path")
        pieces = [ordered.filter(pc.equal(paths, path)) for path in pc.unique(paths)]
        partitions = _partitions(table, snapshot_id)
    folder = f"{table.java.location()}/data/deletes-{uuid.uuid4()}"
    files = []
    with lake_errors(f"delete files of {table.name} cannot be staged"):
        for i, piece in enumerate(pieces):
            path = f"{folder}/{i:05d}.parquet"
            first, last = (piece["file_path"][at].as_py() for at in (0, -1))
            size = _upload(table, path, piece)
            metrics = _path_metrics(lake, piece.num_rows, first, last)
            files.append(_delete_file(lake, table, path, size, metrics, partitions.get(first)))
    return files


def write_deletes_on_driver(
    lake: Lake, table: LakeTable, snapshot_id: int, positions: DataFrame
) -> list[Any]:
    """Collect `positions`, which must be few, and write their delete files on the driver."""
    return stage_deletes_on_driver(lake, table, snapshot_id, positions.toArrow())


def _upload(table: LakeTable, path: str, rows: pa.Table) -> int:
    """Write one Parquet file and return its size in bytes.

    The table's own FileIO writes it, because that has the credentials of any object store.
    """
    buffer = BytesIO()
    pq.write_table(rows, buffer, compression="zstd", store_schema=False)
    content = bytearray(buffer.getvalue())
    stream = table.java.io().newOutputFile(path).create()
    try:
        stream.write(content)
    finally:
        stream.close()
    return len(content)


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


def _delete_files(lake: Lake, table: LakeTable, snapshot_id: int, paths: Sequence[str]) -> list[Any]:
    classes = lake.classes
    io = table.java.io()
    config = classes.metrics_config.forPositionDelete(table.java)
    partitions = _partitions(table, snapshot_id) if table.is_partitioned else {}
    files = []
    for path in paths:
        opened = io.newInputFile(path)
        metrics = classes.parquet_util.fileMetrics(opened, config)
        if metrics.recordCount() == 0:
            continue
        partition = partitions[_lower_bound(lake, metrics)] if partitions else None
        files.append(_delete_file(lake, table, path, opened.getLength(), metrics, partition))
    return files


def _delete_file(
    lake: Lake, table: LakeTable, path: str, size: int, metrics: Any, partition: tuple[Any, Any] | None
) -> Any:
    """Return the DeleteFile of a written file; `partition` is the spec and partition of the rows that it deletes."""
    spec, values = (table.java.spec(), None) if partition is None else partition
    builder = lake.classes.file_metadata.deleteFileBuilder(spec).ofPositionDeletes().withPath(path)
    if values is not None:
        builder = builder.withPartition(values)
    return builder.withFormat("PARQUET").withFileSizeInBytes(size).withMetrics(metrics).build()


def _parquet_files(lake: Lake, folder: str) -> list[str]:
    path = lake.classes.hadoop_path(folder)
    system = path.getFileSystem(lake.spark._jsc.hadoopConfiguration())  # noqa: SLF001
    listed = system.listFiles(path, True)
    found = []
    while listed.hasNext():
        file = listed.next().getPath()
        if file.getName().endswith(".parquet"):
            found.append(str(file))
    return sorted(found)


def _lower_bound(lake: Lake, metrics: Any) -> str:
    bound = metrics.lowerBounds().get(_PATH_ID)
    text = lake.classes.conversions.fromByteBuffer(lake.classes.types.StringType.get(), bound)
    return str(text.toString())


def _partitions(table: LakeTable, snapshot_id: int) -> dict[str, tuple[Any, Any]]:
    """Return data file path → its partition spec and partition."""
    found: dict[str, tuple[Any, Any]] = {}
    tasks = table.java.newScan().useSnapshot(snapshot_id).planFiles()
    try:
        iterator = tasks.iterator()
        while iterator.hasNext():
            task = iterator.next()
            found[str(task.file().location())] = (task.spec(), task.file().partition())
    finally:
        tasks.close()
    return found
