"""Write rows as Parquet files with Arrow, as Iceberg's readers expect them; also in Spark's Python workers.

Nothing here needs Java, so what a worker writes is plain values: the driver makes Iceberg's objects of them.
"""

import os
import struct
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_MAGIC_BYTES: Final = 4
"""A Parquet file ends with its footer, the footer's length (four bytes) and the format's magic number."""
_SAMPLE_ROWS: Final = 20_000
_GROUP_ROWS: Final = 200_000
"""Rows of one row group, about; readers skip whole row groups by their bounds."""


@dataclass(frozen=True, slots=True)
class FileStyle:
    """How the data files of a table are written.

    Attributes:
        folder: where they are: an absolute path or a `file:` URI, as the table's files have it.
        schema: the table's columns, with their field ids.
        codec: the compression.
    """

    folder: str
    schema: pa.Schema
    codec: str


@dataclass(frozen=True, slots=True)
class WrittenFile:
    """A Parquet file that no snapshot refers to yet; `footer` is its metadata as in the file."""

    path: str
    size: int
    footer: bytes


def fitting(rows: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """Return `rows` with exactly the columns and types of `schema`; None if Arrow does not convert them.

    A column that `rows` lacks is null.
    """
    columns = [
        rows.column(field.name) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    try:
        return pa.table(columns, names=schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError):
        return None


def repetitive_columns(rows: pa.Table) -> list[str] | bool:
    """Return the columns whose values are worth a dictionary; True for all of them, as of few rows.

    Of a column with many different values, a dictionary takes a third of the time of writing, and makes files larger.
    """
    if rows.num_rows < _SAMPLE_ROWS or any(pa.types.is_nested(kind) for kind in rows.schema.types):
        return True
    sample = rows.slice(0, _SAMPLE_ROWS)
    return [
        name
        for name in rows.column_names
        if pc.count_distinct(sample.column(name)).as_py() < _SAMPLE_ROWS / 2
    ]


def footer_of(file: BinaryIO) -> bytes:
    """Return the footer of a Parquet file."""
    file.seek(-_MAGIC_BYTES - 4, os.SEEK_END)
    (length,) = struct.unpack("<I", file.read(4))
    file.seek(-_MAGIC_BYTES - 4 - length, os.SEEK_END)
    return file.read(length)


def local_path(path: str) -> Path | None:
    """Return where a file of this machine is; None if it is elsewhere."""
    if path.startswith("/"):
        return Path(path)
    return Path("/" + path.removeprefix("file:").lstrip("/")) if path.startswith("file:/") else None


class LocalFile:
    """A new data file, which gets rows a part at a time."""

    def __init__(self, style: FileStyle) -> None:
        self._style = style
        self._path = f"{style.folder}/{uuid.uuid4()}.parquet"
        self._file = local_path(self._path) or Path(self._path)
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._rows = 0

    def add(self, rows: pa.Table) -> None:
        """Add rows, which have the columns of the style's schema."""
        self._waiting.append(rows)
        self._rows += rows.num_rows
        if self._rows >= _GROUP_ROWS:
            self._write()

    def close(self) -> WrittenFile | None:
        """Return the file; None if it would have no rows."""
        if self._rows:
            self._write()
        if self._writer is None:
            return None
        self._writer.close()
        with self._file.open("rb") as file:
            return WrittenFile(self._path, self._file.stat().st_size, footer_of(file))

    def discard(self) -> None:
        """Remove what was written."""
        self._waiting = []
        if self._writer is not None:
            self._writer.close()
            self._file.unlink(missing_ok=True)

    def _write(self) -> None:
        rows, self._waiting, self._rows = pa.concat_tables(self._waiting), [], 0
        if self._writer is None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._writer = pq.ParquetWriter(
                self._file,
                self._style.schema,
                compression=self._style.codec,
                use_dictionary=repetitive_columns(rows),
                store_schema=False,
                store_decimal_as_integer=True,
            )
        self._writer.write_table(rows, row_group_size=_GROUP_ROWS)


def remove(files: Sequence[WrittenFile]) -> None:
    """Remove files that are not needed."""
    for file in files:
        if (path := local_path(file.path)) is not None:
            path.unlink(missing_ok=True)
