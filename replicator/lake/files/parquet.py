"""Write rows as Parquet files with Arrow, as Iceberg's readers expect them; also in Spark's Python workers.

Nothing here needs Java, so what a worker writes is plain values: the driver makes Iceberg's objects of them.
"""

import os
import struct
import uuid
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from replicator.lake.files.time_partitions import TimePartitions
from replicator.lake.reading.folders import local_path

_MAGIC_BYTES: Final = 4
"""A Parquet file ends with its footer, the footer's length (four bytes) and the format's magic number."""
_SAMPLE_ROWS: Final = 20_000


@dataclass(frozen=True, slots=True)
class FileStyle:
    """How the data files of a table are written.

    Attributes:
        folder: where they are: an absolute path or a `file:` URI, as the table's files have it.
        schema: the table's columns, with their field ids.
        codec: the compression.
        time: how rows are divided into files; None if the table is not partitioned.
    """

    folder: str
    schema: pa.Schema
    codec: str
    time: TimePartitions | None = None


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file that no snapshot refers to yet.

    Attributes:
        footer: its metadata as in the file.
        moment: of a table that is partitioned by time: that of one of the rows, as `TimePartitions.moment`.
    """

    path: str
    size: int
    footer: bytes
    moment: int | None = None


def fitting(rows: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """Return what `fitted` does; None if Arrow does not convert the values."""
    try:
        return fitted(rows, schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError):
        return None


def fitted(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return `rows` with exactly the columns and types of `schema`. A column that `rows` lacks is null."""
    columns = [
        rows.column(field.name) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, names=schema.names).cast(schema)


def repetitive_columns(rows: pa.Table) -> list[str] | bool:
    """Return the columns whose values are worth a dictionary, as Parquet names them; True for all of them.

    Of a column with many different values, a dictionary takes a third of the time of writing, and makes files larger.
    All columns of few rows have dictionaries, and of rows with a list.
    """
    if rows.num_rows < _SAMPLE_ROWS:
        return True
    columns = dict(_leaves(rows.slice(0, _SAMPLE_ROWS)))
    if any(pa.types.is_nested(column.type) for column in columns.values()):
        return True
    return [name for name, column in columns.items() if pc.count_distinct(column).as_py() < _SAMPLE_ROWS / 2]


def _leaves(rows: pa.Table) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Yield the columns, and in place of structs their fields, with the names that Parquet gives them."""
    for name, column in zip(rows.column_names, rows.columns, strict=True):
        if pa.types.is_struct(column.type):
            fields = pa.table(column.combine_chunks().flatten(), names=[field.name for field in column.type])
            yield from ((f"{name}.{inner}", values) for inner, values in _leaves(fields))
        else:
            yield name, column


def footer_of(file: BinaryIO) -> bytes:
    """Return the footer of a Parquet file."""
    file.seek(-_MAGIC_BYTES - 4, os.SEEK_END)
    (length,) = struct.unpack("<I", file.read(4))
    file.seek(-_MAGIC_BYTES - 4 - length, os.SEEK_END)
    return file.read(length)


def write_rows(rows: pa.Table, sink: Any, codec: str) -> None:
    """Write rows as a Parquet file with one row group.

    Arrow leaves out the bounds of a row group in which a text is very long. Iceberg makes the bounds of a file of those
    of its row groups: in a file with several, they could be bounds of a part of the rows.
    """
    pq.write_table(
        rows,
        sink,
        row_group_size=max(rows.num_rows, 1),
        compression=codec,
        use_dictionary=repetitive_columns(rows),
        store_schema=False,
        store_decimal_as_integer=True,
    )


def write_local(style: FileStyle, label: str, rows: pa.Table) -> WrittenFile:
    """Write rows, which have the columns of the style's schema, as a new data file; see `remove_local` for `label`.

    There must be rows, of one partition if the table is partitioned.
    """
    path = f"{style.folder}/{label}-{uuid.uuid4()}.parquet"
    target = local_path(path) or Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    write_rows(rows, target, style.codec)
    moment = None if style.time is None else style.time.moment(rows)
    with target.open("rb") as file:
        return WrittenFile(path, target.stat().st_size, footer_of(file), moment)


def remove_local(style: FileStyle, label: str, kept: Collection[str]) -> None:
    """Remove the files that were written with a label, also partly, except those at the paths `kept`.

    Those that cannot be removed are left to maintenance, which deletes orphan files.
    """
    folder = local_path(style.folder)
    for file in [] if folder is None else folder.glob(f"{label}-*.parquet"):
        if f"{style.folder}/{file.name}" not in kept:
            with suppress(OSError):
                file.unlink()
