"""Decode the records of a Spark task and write their rows as data files, in a Python worker."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.accumulators import Accumulator

from replicator.lake.files.parquet import FileStyle, fitted, remove_local
from replicator.lake.files.task_files import AppendedFiles
from replicator.log_tables.decoding import LogDecoding
from replicator.log_tables.notes import Notes, notes_of


@dataclass(frozen=True, slots=True)
class RowWriting:
    """What workers do with the records of a batch; it can be pickled.

    Attributes:
        event_time: the column with the time of an event; None if there is none.
        style: how files are written.
        label: begins the names of the files, and those of no others.
        notes: what is known of the records besides.
    """

    decoding: LogDecoding
    event_time: str | None
    style: FileStyle
    label: str
    notes: "Accumulator[Notes]"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows of `task_files.RESULT`, of the files with the good events of a Spark task."""
        files = AppendedFiles(self.style, self.label)
        for batch in batches:
            found = self.decoding.decode(pa.Table.from_batches([batch]))
            self.notes.add(notes_of(found, self.event_time))
            yield from files.add(fitted(found.rows, self.style.schema))
            if not files.is_right:
                return
        yield from files.close()

    def remove_files(self, kept: Collection[str] = ()) -> None:
        """Remove the files that workers have written, also partly, except those at the paths `kept`."""
        remove_local(self.style, self.label, kept)
