"""Writes files that no snapshot refers to yet. A crash leaves orphan files, never a visible change.

Data files are written by Iceberg's own Spark writer; the file set goes to its rewrite coordinator instead of into
a commit, which is how Iceberg's rewrite actions work. Position-delete files are plain Parquet with the two reserved
field ids of Iceberg's spec ("Position Delete Files").
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.apply.lake import Lake, LakeTable, lake_errors
from replicator.model.types import LakeType

_PATH_ID: Final = 2147483546
_POS_ID: Final = 2147483545


def aligned(rows: DataFrame, columns: Mapping[str, LakeType], struct: str | None = None) -> DataFrame:
    """`rows` with exactly the lake table's columns: casts to wider types, null where the source has no such column.

    `struct` names a column that is taken over as it is, after the others.
    """
    present = set(rows.columns)
    fields = [
        (F.col(_quote(name)) if name in present else F.lit(None)).cast(spark_type_name(lake_type)).alias(name)
        for name, lake_type in columns.items()
    ]
    return rows.select(*fields, *([] if struct is None else [F.col(_quote(struct))]))


def spark_type_name(lake_type: LakeType) -> str:
    """The type as Spark SQL writes it."""
    return {"timestamp": "timestamp_ntz", "timestamptz": "timestamp"}.get(lake_type.name, str(lake_type))


def stage_data(lake: Lake, table: LakeTable, rows: DataFrame) -> list[Any]:
    """Write `rows` (see `aligned`) as data files of `table`. Returns Iceberg DataFile objects."""
    file_set = str(uuid.uuid4())
    writer = rows.writeTo(table.sql_name).option("rewritten-file-scan-task-set-id", file_set)
    if table.is_partitioned:
        # Rows come in any order; without this the writer wants each partition's rows together.
        writer = writer.option("fanout-enabled", "true")
    writer.append()
    coordinator = lake.jvm.org.apache.iceberg.spark.FileRewriteCoordinator.get()
    with lake_errors(f"files of {table.name} cannot be staged"):
        files = list(coordinator.fetchNewFiles(table.java, file_set))
        coordinator.clearRewrite(table.java, file_set)
    return files


def matching_positions(
    lake: Lake, table: LakeTable, snapshot_id: int, key_columns: Sequence[str], keys: DataFrame
) -> DataFrame:
    """File and position of the rows in a snapshot of `table` whose key is in `keys` (columns k0, k1, …)."""
    names = [f"k{i}" for i in range(len(key_columns))]
    target = lake.spark.read.format("iceberg").option("snapshot-id", str(snapshot_id)).load(table.sql_name)
    wanted = [F.col(_quote(column)).alias(name) for column, name in zip(key_columns, names, strict=True)]
    places = target.select(*wanted, F.col("_file").alias("file_path"), F.col("_pos").alias("pos"))
    return places.join(F.broadcast(keys.select(*names)), names, "left_semi").select("file_path", "pos")


def stage_deletes(lake: Lake, table: LakeTable, snapshot_id: int, positions: DataFrame) -> list[Any]:
    """Write position-delete files for `positions` (file_path, pos). Returns Iceberg DeleteFile objects."""
    folder = f"{table.java.location()}/data/deletes-{uuid.uuid4()}"
    rows = positions.select(
        F.col("file_path").alias("file_path", metadata={"parquet.field.id": _PATH_ID}),
        F.col("pos").alias("pos", metadata={"parquet.field.id": _POS_ID}),
    )
    if table.is_partitioned:
        # A delete file belongs to one partition of the table; one file for each data file keeps that true.
        rows = rows.repartition("file_path").sortWithinPartitions("file_path", "pos")
        rows = rows.withColumn("of", F.xxhash64("file_path"))
        rows.write.partitionBy("of").parquet(folder)
    else:
        rows.sortWithinPartitions("file_path", "pos").write.parquet(folder)
    with lake_errors(f"delete files of {table.name} cannot be staged"):
        return _delete_files(lake, table, snapshot_id, folder)


def _delete_files(lake: Lake, table: LakeTable, snapshot_id: int, folder: str) -> list[Any]:
    iceberg = lake.jvm.org.apache.iceberg
    io = table.java.io()
    config = iceberg.MetricsConfig.forPositionDelete(table.java)
    partitions = _partitions(table, snapshot_id) if table.is_partitioned else {}
    files = []
    for path in _parquet_files(lake, folder):
        opened = io.newInputFile(path)
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(opened, config)
        if metrics.recordCount() == 0:
            continue
        spec, partition = table.java.spec(), None
        if partitions:
            spec, partition = partitions[_lower_bound(iceberg, metrics)]
        builder = iceberg.FileMetadata.deleteFileBuilder(spec).ofPositionDeletes().withPath(path)
        if partition is not None:
            builder = builder.withPartition(partition)
        builder = builder.withFormat("PARQUET").withFileSizeInBytes(opened.getLength()).withMetrics(metrics)
        files.append(builder.build())
    return files


def _parquet_files(lake: Lake, folder: str) -> list[str]:
    path = lake.jvm.org.apache.hadoop.fs.Path(folder)
    system = path.getFileSystem(lake.spark._jsc.hadoopConfiguration())  # noqa: SLF001
    listed = system.listFiles(path, True)
    found = []
    while listed.hasNext():
        file = listed.next().getPath()
        if file.getName().endswith(".parquet"):
            found.append(str(file))
    return sorted(found)


def _lower_bound(iceberg: Any, metrics: Any) -> str:
    bound = metrics.lowerBounds().get(_PATH_ID)
    return str(
        iceberg.types.Conversions.fromByteBuffer(iceberg.types.Types.StringType.get(), bound).toString()
    )


def _partitions(table: LakeTable, snapshot_id: int) -> dict[str, tuple[Any, Any]]:
    """Data file path → its partition spec and partition."""
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


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
