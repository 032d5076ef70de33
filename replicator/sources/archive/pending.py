"""Events in memory, of one partition, until they are written to a file of an archive."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from replicator.sources.archive.containers import EVENTS
from replicator.sources.archive.format import PartitionKey

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Records:
    """Some records of one partition, in offset order: lists of the same length."""

    offsets: Sequence[int]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def size(self) -> int:
        """Number of bytes of keys and values."""
        return sum(map(len, filter(None, self.keys))) + sum(map(len, filter(None, self.values)))


_AT_ONCE: Final = 500
"""Number of records that become columns together: more of them do not fit into the processor's cache."""
_MOST_BYTES: Final = 64 << 20
"""Of records that become columns together: a column of texts has two gigabytes at most."""


@dataclass(slots=True)
class PendingEvents:
    """The pending events of one partition.

    Attributes:
        size: number of bytes of keys and values.
    """

    key: PartitionKey
    size: int = 0
    _columns: list[pa.RecordBatch] = field(default_factory=list)
    _rows: list[Records] = field(default_factory=list)
    _row_count: int = 0
    _row_bytes: int = 0

    def add(self, records: Records) -> None:
        """Append records, whose offsets follow those of the others."""
        self._rows.append(records)
        self._row_count += len(records)
        self._row_bytes += records.size
        self.size += records.size
        if self._row_count >= _AT_ONCE or self._row_bytes >= _MOST_BYTES:
            self._make_columns()

    def table(self) -> pa.Table:
        """Return the events, as `EVENTS`; each column is in one piece."""
        self._make_columns()
        table = pa.Table.from_batches(self._columns, EVENTS).combine_chunks()
        # The pieces are not needed any more.
        self._columns = table.to_batches()
        return table

    def _make_columns(self) -> None:
        if not self._rows:
            return
        topic, partition = self.key
        rows = self._rows
        columns = [
            pa.repeat(topic, self._row_count),
            pa.repeat(pa.scalar(partition, pa.int32()), self._row_count),
            pa.array([offset for some in rows for offset in some.offsets], pa.int64()),
            pa.array([time for some in rows for time in some.timestamps], pa.int64()),
            pa.array([key for some in rows for key in some.keys], pa.binary()),
            pa.array([value for some in rows for value in some.values], pa.binary()),
            _header_column([headers for some in rows for headers in some.headers]),
        ]
        self._columns.append(pa.RecordBatch.from_arrays(columns, schema=EVENTS))
        self._rows, self._row_count, self._row_bytes = [], 0, 0


def _header_column(headers: Sequence[Headers]) -> pa.Array:
    """Return the headers as a column. Most events of a partition have the same, so each is converted once."""
    numbers: dict[Headers, int] = {}
    indices = [numbers.setdefault(one, len(numbers)) for one in headers]
    distinct = [[{"key": key, "value": value} for key, value in one] for one in numbers]
    return pa.array(distinct, EVENTS.field("headers").type).take(pa.array(indices, pa.int32()))
