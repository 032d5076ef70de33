"""Write data files of rows in memory, and equality-delete files, on the driver, with Arrow and without a Spark job.

Iceberg itself computes the metrics of each file (counts, bounds) from its footer, as it does for imported files; only
the number of NaN values is missing, which readers then treat as unknown.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from replicator.errors import LakeUnavailable
from replicator.lake.catalog.tables import Lake, LakeTable, lake_errors
from replicator.lake.files.arrow_schemas import arrow_schema, field_id
from replicator.lake.files.parquet import (
    FileStyle,
    WrittenFile,
    fitting,
    footer_of,
    write_rows,
)
from replicator.lake.files.partitions import (
    DataFileRef,
    Partition,
    PartitionRows,
    partition_of_each,
    split_by_partition,
)
from replicator.lake.files.time_partitions import TimePartitions
from replicator.lake.reading.folders import local_path

_CODEC: Final = "write.parquet.compression-codec"
_CODECS: Final = {"zstd": "zstd", "gzip": "gzip", "snappy": "snappy", "uncompressed": "none", "lz4": "lz4"}
_BLOOM_FILTERS: Final = "write.parquet.bloom-filter-enabled.column."
_KEPT_BYTES: Final = 100_000
"""Files of up to this size stay in memory until they are merged."""
_FORMAT: Final = "write.format.default"


@dataclass(frozen=True, slots=True)
class WrittenData:
    """A data file that this process wrote.

    Attributes:
        file: Iceberg's DataFile object.
        path: where the file is.
        size: in bytes.
        rows: number of rows.
        content: the file itself, if it is small; None if it must be read.
        snapshot_id: the snapshot that added it; None before it is committed.
        partition: its partition; None if no file of the table belonged to one when it was written.
    """

    file: Any
    path: str
    size: int
    rows: int
    content: bytes | None = None
    snapshot_id: int | None = None
    partition: Partition | None = None

    @property
    def ref(self) -> DataFileRef:
        """The reference to the file."""
        return DataFileRef(self.path, self.partition)


def writable_rows(table: LakeTable, rows: pa.Table) -> list[PartitionRows] | None:
    """Return `rows` with the columns and types of `table`, by partition; None if only Spark can write them.

    A column that `rows` lacks is null. Only Spark writes tables with a sort order, Bloom filters or a file format other
    than Parquet, values that Arrow does not convert, and rows that `split_by_partition` leaves to it.
    """
    if not rows.num_rows:
        return []
    if table.is_sorted or not _is_plain(table):
        return None
    fitted = fitting(rows, arrow_schema(table.schema_json()))
    return None if fitted is None else split_by_partition(table, fitted)


def write_data(lake: Lake, table: LakeTable, part: PartitionRows) -> WrittenData:
    """Write the rows of one partition, as `writable_rows` returned them, as one data file of `table`."""
    content = parquet_file(part.rows, _codec(table))
    with lake_errors(f"files of {table.name} cannot be staged"):
        path, builder = _new_data_file(table, part.partition)
        file = _uploaded(lake, table, path, content, builder)
    kept = bytes(content) if len(content) <= _KEPT_BYTES else None
    return WrittenData(file, path, len(content), part.rows.num_rows, kept, partition=part.partition)


def _new_data_file(table: LakeTable, partition: Partition | None) -> tuple[str, Any]:
    """Return where a data file is to be written, and the builder of its DataFile object."""
    name, locations = f"{uuid.uuid4()}.parquet", table.java.locationProvider()
    if partition is None or partition.spec.isUnpartitioned():
        return str(locations.newDataLocation(name)), _builder(table, None)
    return str(locations.newDataLocation(partition.spec, partition.values, name)), _builder(table, partition)


def _builder(table: LakeTable, partition: Partition | None) -> Any:
    """Return the builder of the DataFile object of a file in a partition, or of a table without any."""
    if partition is None:
        return table.classes.data_files.builder(table.java.spec())
    return table.classes.data_files.builder(partition.spec).withPartition(partition.values)


def write_equality_deletes(lake: Lake, table: LakeTable, keys: pa.Table) -> Any:
    """Write `keys`, columns of `arrow_schema`, as one equality-delete file, and return Iceberg's DeleteFile object.

    It deletes the rows with one of these keys from all data files of earlier commits.
    """
    content = parquet_file(keys, _codec(table))
    gateway: Any = lake.spark.sparkContext._gateway  # noqa: SLF001 no public way
    ids = gateway.new_array(gateway.jvm.int, keys.num_columns)
    for i, field in enumerate(keys.schema):
        ids[i] = field_id(field)
    with lake_errors(f"delete files of {table.name} cannot be staged"):
        path = str(table.java.locationProvider().newDataLocation(f"{uuid.uuid4()}-deletes.parquet"))
        builder = lake.classes.file_metadata.deleteFileBuilder(table.java.spec()).ofEqualityDeletes(ids)
        return _uploaded(lake, table, path, content, builder)


def parquet_file(rows: pa.Table, codec: str) -> bytearray:
    """Return rows as a Parquet file."""
    buffer = BytesIO()
    write_rows(rows, buffer, codec)
    return bytearray(buffer.getvalue())


def _uploaded(lake: Lake, table: LakeTable, path: str, content: bytearray, builder: Any) -> Any:
    """Write a file, and return the object that `builder` makes of it."""
    upload(table, path, content)
    return _data_file(lake, table, WrittenFile(path, len(content), footer_of(BytesIO(content))), builder)


def _data_file(lake: Lake, table: LakeTable, file: WrittenFile, builder: Any) -> Any:
    """Return the object that `builder` makes of a file, with Iceberg's metrics of it.

    Iceberg could open the file itself, but parses Hadoop's whole configuration each time: that took a third of the time
    of a small batch.
    """
    classes = lake.classes
    footer = classes.parquet_footers.readParquetMetadata(classes.byte_stream(file.footer))
    config = classes.metrics_config.forTable(table.java)
    metrics = classes.parquet_util.footerMetrics(footer, classes.stream.empty(), config)
    builder = builder.withPath(file.path).withFormat("PARQUET").withFileSizeInBytes(file.size)
    return builder.withMetrics(metrics).build()


def file_style(table: LakeTable) -> FileStyle | None:
    """Return how Spark's workers write data files of a table as they are; None if only Iceberg's own writer does.

    As `writable_rows`; further, the table has no partitions, no deletion vectors, and its files are on a local path.
    """
    return None if table.is_partitioned or table.has_deletion_vectors else _style(table, None)


def appending_style(table: LakeTable) -> FileStyle | None:
    """Return how Spark's workers write data files of a table to which rows are only appended; None as `file_style`.

    It may have deletion vectors, and partitions by the hour or the day of one column.
    """
    layout = table.partition_layout["fields"]
    if not layout:
        return _style(table, None)
    part, columns = layout[0], arrow_schema(table.schema_json())
    source = next((column for column in columns if field_id(column) == part.get("source-id")), None)
    time = None if source is None or len(layout) > 1 else TimePartitions.of(source, part["transform"])
    return None if time is None else _style(table, time)


def _style(table: LakeTable, time: TimePartitions | None) -> FileStyle | None:
    if table.is_sorted or not _is_plain(table):
        return None
    folder, _, _ = str(table.java.locationProvider().newDataLocation("part.parquet")).rpartition("/")
    if local_path(folder) is None:
        return None
    return FileStyle(folder, arrow_schema(table.schema_json()), _codec(table), time)


def data_files(lake: Lake, table: LakeTable, files: Sequence[WrittenFile]) -> list[Any]:
    """Return Iceberg's DataFile objects of files that were written in the table's `file_style`."""
    with lake_errors(f"files of {table.name} cannot be staged"):
        return [_data_file(lake, table, file, _builder(table, None)) for file in files]


def appended_files(
    lake: Lake, table: LakeTable, style: FileStyle, files: Sequence[WrittenFile]
) -> list[Any] | None:
    """Return Iceberg's DataFile objects of files that were written in `style`, the table's `appending_style`.

    None if the partition of a file cannot be computed here: Python has no times beyond the year 9999.
    """
    if style.time is None or not files:
        return data_files(lake, table, files)
    moments = style.time.values([file.moment for file in files], style.schema)
    partitions = partition_of_each(table, moments)
    if partitions is None:
        return None
    with lake_errors(f"files of {table.name} cannot be staged"):
        return [
            _data_file(lake, table, file, _builder(table, partition))
            for file, partition in zip(files, partitions, strict=True)
        ]


def read_data(table: LakeTable, file: WrittenData) -> pa.Table | None:
    """Return the rows of a file that `write_data` wrote, with the columns and types that the table has now.

    None if Arrow cannot convert them.
    """
    content = content_of(table, file.path) if file.content is None else file.content
    found = pq.read_table(pa.BufferReader(content))
    wanted = arrow_schema(table.schema_json())
    same = _same_fields(found, wanted)
    if any(_nested_ids(found.schema.field(i)) != _nested_ids(field) for i, field in same):
        return None
    return fitting(
        found.select([i for i, _ in same]).rename_columns([field.name for _, field in same]), wanted
    )


def content_of(table: LakeTable, path: str) -> bytes:
    """Return the content of a file of a table. One that is not local should be small: it passes through a socket.

    Raises:
        LakeUnavailable: it cannot be read.
    """
    if (local := local_path(path)) is not None:
        with _local_errors(local, "read"):
            return local.read_bytes()
    failed = f"files of {table.name} cannot be read"
    with lake_errors(failed), closing(table.java.io().newInputFile(path).newStream()) as stream:
        return bytes(stream.readAllBytes())


@contextmanager
def _local_errors(path: Path, done: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise LakeUnavailable(f"{path} cannot be {done}: {error.strerror}") from error


def upload(table: LakeTable, path: str, content: bytearray) -> None:
    """Write a file.

    The table's own FileIO writes it, because that has the credentials of any object store. It gets the content as text
    through a socket, so this process writes a local file itself.
    """
    if (local := local_path(path)) is not None:
        with _local_errors(local, "written"):
            local.parent.mkdir(parents=True, exist_ok=True)
            with local.open("xb") as file:
                file.write(content)
        return
    with closing(table.java.io().newOutputFile(path).create()) as stream:
        stream.write(content)


def _same_fields(rows: pa.Table, wanted: pa.Schema) -> list[tuple[int, pa.Field]]:
    """Return the index in `rows` of each of the `wanted` fields that it has."""
    present = {field_id(field): i for i, field in enumerate(rows.schema)}
    return [(present[number], field) for field in wanted if (number := field_id(field)) in present]


def _nested_ids(field: pa.Field) -> list[int]:
    """Return the ids of the fields of a struct, in order; none for any other type."""
    return [field_id(child) for child in field.type] if pa.types.is_struct(field.type) else []


def _codec(table: LakeTable) -> str:
    return _CODECS.get(table.property(_CODEC) or "zstd", "zstd")


def _is_plain(table: LakeTable) -> bool:
    properties = table.properties
    if (properties.get(_FORMAT) or "parquet") != "parquet" or (
        properties.get(_CODEC) or "zstd"
    ) not in _CODECS:
        return False
    return not any(name.startswith(_BLOOM_FILTERS) for name in properties)
