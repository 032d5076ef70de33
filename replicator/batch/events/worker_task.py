"""Decode the records of a Spark task and write their data files, in a Python worker; see `worker_files`."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replicator.batch.events.changelog_rows import driver_changelog_rows
from replicator.batch.events.net_changes import changes_by_key, last_changes_in_order, new_rows
from replicator.decode.decoder import Decoder
from replicator.decode.event_frame import EVENT_NUMBERS
from replicator.lake.files.parquet import FileStyle, LocalFile, fitting
from replicator.model.batch_stats import OP_CODES
from replicator.model.table import TableSchema

_NAMES: Final = ("file", "gtid", "tx_order")
RESULT: Final = pa.schema(
    [
        pa.field("kind", pa.string()),
        pa.field("content", pa.binary()),
        pa.field("path", pa.string()),
        pa.field("size", pa.int64()),
    ]
)
"""What a task returns. Kinds: numbers, keys, mirror, changelog, unwritten."""
NO_ROW: Final = -1
"""The position of a key that has no new row: its last event is a delete."""
_MERGED_ROWS: Final = 50_000
"""Changes whose superseded ones are left out at once."""


@dataclass(frozen=True, slots=True)
class WorkerWriting:
    """What workers do with the records of a batch; it can be pickled.

    Attributes:
        schema: the columns of decoded rows.
        mirror: how the files of the mirror are written.
        changelog: how those of the changelog are; None if the table has none.
        commit: number of the changelog's commit.
    """

    decoder: Decoder
    schema: TableSchema
    mirror: FileStyle
    changelog: FileStyle | None
    commit: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of `RESULT` for the records of a Spark task."""
        files = _TaskFiles(self)
        for batch in batches:
            events = self.decoder.decode(pa.Table.from_batches([batch]))
            yield _result("numbers", _packed(numbers_of(events)))
            files.add(events)
        yield from files.close()


class _TaskFiles:
    """The files of one Spark task; none if they would not be right."""

    def __init__(self, writing: WorkerWriting) -> None:
        self._writing = writing
        self._changelog = None if writing.changelog is None else LocalFile(writing.changelog)
        self._changes: list[pa.Table] = []
        self._waiting = 0
        self._is_right = True

    def add(self, events: pa.Table) -> None:
        """Write decoded events."""
        if self._is_right and not self._write(events):
            self._discard()

    def _write(self, events: pa.Table) -> bool:
        """Return whether the files have the events now."""
        schema, style = self._writing.schema, self._writing.changelog
        if not _are_ordinary(events):
            return False
        if self._changelog is not None and style is not None:
            rows = fitting(driver_changelog_rows(events, schema, self._writing.commit), style.schema)
            if rows is None:
                return False
            self._changelog.add(rows)
        self._changes.append(changes_by_key(events, schema))
        self._waiting += events.num_rows
        if self._waiting > _MERGED_ROWS:
            self._changes, self._waiting = [self._last_changes()], 0
        return True

    def _last_changes(self) -> pa.Table:
        # Values may be parts of the events' texts. Their copies are not, and the texts become free.
        return last_changes_in_order(pa.concat_tables(self._changes)).combine_chunks()

    def close(self) -> Iterator[pa.RecordBatch]:
        """Yield the keys and the files."""
        if self._is_right and self._changes:
            yield from self._close(self._last_changes())
        if not self._is_right:
            yield _result("unwritten")

    def _close(self, last: pa.Table) -> Iterator[pa.RecordBatch]:
        has_row = last.column("after").is_valid().to_numpy()
        rows = fitting(new_rows(last.filter(pa.array(has_row))), self._writing.mirror.schema)
        if rows is None:
            self._discard()
            return
        file = LocalFile(self._writing.mirror)
        file.add(rows)
        mirror = file.close()
        position = np.where(has_row, np.cumsum(has_row) - 1, NO_ROW)
        keys = last.drop_columns("after").append_column("pos", pa.array(position, pa.int64()))
        yield _result("keys", _packed(keys), None if mirror is None else mirror.path)
        changelog = None if self._changelog is None else self._changelog.close()
        for kind, written in (("mirror", mirror), ("changelog", changelog)):
            if written is not None:
                yield _result(kind, written.footer, written.path, written.size)

    def _discard(self) -> None:
        self._is_right, self._changes = False, []
        if self._changelog is not None:
            self._changelog.discard()


def _are_ordinary(events: pa.Table) -> bool:
    """Return whether all events are changes of one row each, which can be applied."""
    return bool((events.column("code").to_numpy() < OP_CODES["t"]).all())


def numbers_of(events: pa.Table) -> pa.Table:
    """Return the columns that statistics need; texts only of events near the end of a range."""
    in_end = events.column("in_range_end")
    names = {
        name: pc.if_else(in_end, events.column(name), pa.scalar(None, events.schema.field(name).type))
        for name in _NAMES
    }
    return pa.table({name: events.column(name) for name in EVENT_NUMBERS} | names)


def _result(
    kind: str, content: bytes | None = None, path: str | None = None, size: int | None = None
) -> pa.RecordBatch:
    row = {"kind": kind, "content": content, "path": path, "size": size}
    return pa.RecordBatch.from_pylist([row], schema=RESULT)


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    content: bytes = sink.getvalue().to_pybytes()
    return content
