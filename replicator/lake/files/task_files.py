"""What Spark's tasks return of the files that they write, and the files of rows that tasks only append."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from replicator.lake.files.parquet import FileStyle, WrittenFile, write_local
from replicator.lake.files.time_partitions import MOST_PARTITIONS

MOST_HELD: Final = 256 << 20
"""Rows of about this size, in bytes, are written before further ones are decoded."""
UNWRITTEN: Final = "unwritten"
"""The kind of the row of a task whose rows Spark must write. The driver then removes what tasks have written."""
RESULT: Final = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("content", pa.binary()),
        pa.field("path", pa.string()),
        pa.field("size", pa.int64()),
        pa.field("moment", pa.int64()),
    ]
)
"""What a task returns; `content` is the footer of a file, or what its kind says."""
_FILE: Final = "file"


def task_result(kind: str, content: bytes | None = None, path: str | None = None) -> pa.RecordBatch:
    """Return a row of `RESULT` that is no file."""
    return pa.RecordBatch.from_pylist([{"kind": kind, "content": content, "path": path}], RESULT)


def file_result(kind: str, file: WrittenFile) -> pa.RecordBatch:
    """Return the row of `RESULT` for a file."""
    row = {
        "kind": kind,
        "content": file.footer,
        "path": file.path,
        "size": file.size,
        "moment": file.moment,
    }
    return pa.RecordBatch.from_pylist([row], RESULT)


def files_in(rows: Sequence[Mapping[str, Any]], kind: str = _FILE) -> list[WrittenFile]:
    """Return the files of a kind in rows of `RESULT`."""
    return [
        WrittenFile(row["path"], row["size"], row["content"], row["moment"])
        for row in rows
        if row["kind"] == kind
    ]


class AppendedFiles:
    """The files of one Spark task: one for each partition of its rows; of many rows, several such.

    Rows of too many partitions are for Spark, which writes them in larger files.
    """

    def __init__(self, style: FileStyle, label: str) -> None:
        """Write files as `parquet.write_local` does."""
        self._style, self._label = style, label
        self._held: dict[int, list[pa.Table]] = {}
        self._bytes = 0
        self.is_right = True

    def add(self, rows: pa.Table) -> Iterator[pa.RecordBatch]:
        """Take rows, which have the columns of the style's schema, and yield the files that are full."""
        for number, part in self._split(rows):
            self._held.setdefault(number, []).append(part)
            self._bytes += part.nbytes
        if len(self._held) > MOST_PARTITIONS:
            self._held, self.is_right = {}, False
            yield task_result(UNWRITTEN)
        elif self._bytes >= MOST_HELD:
            yield from self.close()

    def close(self) -> Iterator[pa.RecordBatch]:
        """Yield the last files."""
        held, self._held, self._bytes = self._held, {}, 0
        for number in list(held):
            yield file_result(
                _FILE, write_local(self._style, self._label, pa.concat_tables(held.pop(number)))
            )

    def _split(self, rows: pa.Table) -> list[tuple[int, pa.Table]]:
        if self._style.time is not None:
            return self._style.time.split(rows)
        return [(0, rows)] if rows.num_rows else []
