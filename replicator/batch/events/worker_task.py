"""Decode the records of a Spark task and write their data files, in a Python worker; see `worker_files`."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replicator.batch.events.changelog_rows import driver_changelog_rows
from replicator.batch.events.net_changes import changes_by_key, last_changes_in_order, new_rows
from replicator.decode.decoder import Decoder
from replicator.decode.event_frame import EVENT_NUMBERS
from replicator.lake.files.parquet import FileStyle, WrittenFile, fitting, remove_local, write_local
from replicator.lake.files.task_files import MOST_HELD, UNWRITTEN, file_result, task_result
from replicator.model.batch_stats import OP_CODES
from replicator.model.table import TableSchema

_NAMES: Final = ("file", "gtid", "tx_order")
NO_ROW: Final = -1
"""The position of a key that has no new row: its last event is a delete."""
_MERGED_ROWS: Final = 50_000
_MERGED_BYTES: Final = 64 << 20
"""Changes wait until they exceed one of these, or what was merged before them. Then superseded ones are left out."""


@dataclass(frozen=True, slots=True)
class WorkerWriting:
    """What workers do with the records of a batch; it can be pickled.

    Attributes:
        schema: the columns of decoded rows.
        mirror: how the files of the mirror are written.
        changelog: how those of the changelog are; None if the table has none.
        commit: number of the changelog's commit.
        label: begins the names of the files, and those of no others.
    """

    decoder: Decoder
    schema: TableSchema
    mirror: FileStyle
    changelog: FileStyle | None
    commit: int
    label: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of `task_files.RESULT` for the records of a Spark task: numbers, keys, and files."""
        files = _TaskFiles(self)
        for batch in batches:
            events = self.decoder.decode(pa.Table.from_batches([batch]))
            yield task_result("numbers", _packed(numbers_of(events)))
            yield from files.add(events)
        yield from files.close()

    def remove_files(self, kept: Collection[str] = ()) -> None:
        """Remove the files that workers have written, also partly, except those at the paths `kept`."""
        for style in (self.mirror, self.changelog):
            if style is not None:
                remove_local(style, self.label, kept)


class _TaskFiles:
    """The files of one Spark task, each of a part of its events; the driver removes them if they are not right."""

    def __init__(self, writing: WorkerWriting) -> None:
        self._writing = writing
        self._is_right = True
        self._begin_part()

    def _begin_part(self) -> None:
        self._changes: list[pa.Table] = []
        self._log: list[pa.Table] = []

    def add(self, events: pa.Table) -> Iterator[pa.RecordBatch]:
        """Take decoded events, and yield the files that are full."""
        self._is_right = self._is_right and self._take(events)
        if not self._is_right:
            self._begin_part()
        elif _bytes(self._changes) + _bytes(self._log) >= MOST_HELD:
            yield from self._write()

    def close(self) -> Iterator[pa.RecordBatch]:
        """Yield the last files."""
        if self._changes:
            yield from self._write()
        if not self._is_right:
            yield task_result(UNWRITTEN)

    def _take(self, events: pa.Table) -> bool:
        """Return whether the rows of events are held now."""
        schema, style = self._writing.schema, self._writing.changelog
        if not _are_ordinary(events):
            return False
        if style is not None:
            rows = fitting(driver_changelog_rows(events, schema, self._writing.commit), style.schema)
            if rows is None:
                return False
            self._log.append(rows)
        self._changes.append(changes_by_key(events, schema))
        first, *later = self._changes
        if sum(part.num_rows for part in later) > max(_MERGED_ROWS, first.num_rows) or _bytes(later) > max(
            _MERGED_BYTES, first.nbytes
        ):
            self._changes = [self._last_changes()]
        return True

    def _last_changes(self) -> pa.Table:
        # Values may be parts of the events' texts. Their copies are not, and the texts become free.
        return last_changes_in_order(pa.concat_tables(self._changes)).combine_chunks()

    def _write(self) -> Iterator[pa.RecordBatch]:
        """Write what is held, and yield its keys and files."""
        last, log = self._last_changes(), self._log
        self._begin_part()
        has_row = last.column("after").is_valid().to_numpy()
        rows = fitting(new_rows(last.filter(pa.array(has_row))), self._writing.mirror.schema)
        if rows is None:
            self._is_right = False
            return
        mirror = self._written(self._writing.mirror, [rows])
        position = np.where(has_row, np.cumsum(has_row) - 1, NO_ROW)
        keys = last.drop_columns("after").append_column("pos", pa.array(position, pa.int64()))
        yield task_result("keys", _packed(keys), None if mirror is None else mirror.path)
        for kind, file in (("mirror", mirror), ("changelog", self._written(self._writing.changelog, log))):
            if file is not None:
                yield file_result(kind, file)

    def _written(self, style: FileStyle | None, parts: Sequence[pa.Table]) -> WrittenFile | None:
        """Return a new file with rows; None if there are none."""
        if style is None or not any(part.num_rows for part in parts):
            return None
        return write_local(style, self._writing.label, pa.concat_tables(parts))


def _bytes(parts: Sequence[pa.Table]) -> int:
    return sum(part.nbytes for part in parts)


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


def _packed(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    # What a task returns is copied several times on its way through Java, and most numbers repeat each other.
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table.combine_chunks())
    content: bytes = sink.getvalue().to_pybytes()
    return content
