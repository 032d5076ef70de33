"""Divide rows by the hour or the day of a column in Spark's Python workers, which do not have Iceberg's transforms.

Only rows are divided here. The values of the partitions are Iceberg's: it computes them on the driver, of one row of
each file; see `partitions.partition_of_each`.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

MOST_PARTITIONS: Final = 100
"""Rows of more partitions are written by Spark."""
_UNITS: Final = {"hour": 3_600_000_000, "day": 86_400_000_000}
"""Transform → its unit in microseconds."""
_NO_TIME: Final = np.iinfo(np.int64).min
"""Takes the place of the number of a partition for rows whose time is null; no time has it."""


@dataclass(frozen=True, slots=True)
class TimePartitions:
    """The partitions of a table that has one partition field.

    Attributes:
        column: the column by whose time rows are divided: a date, or a timestamp in microseconds.
        transform: "hour" or "day".
    """

    column: str
    transform: str

    @classmethod
    def of(cls, field: pa.Field, transform: str) -> "TimePartitions | None":
        """Return the partitions by a transform of a column; None if they are none by time."""
        kind, is_day = field.type, transform == "day"
        is_time = transform in _UNITS and pa.types.is_timestamp(kind) and kind.unit == "us"
        return cls(field.name, transform) if is_time or (is_day and pa.types.is_date32(kind)) else None

    def split(self, rows: pa.Table) -> list[tuple[int, pa.Table]]:
        """Divide rows: return for each partition its number and its rows, in their order."""
        if not rows.num_rows:
            return []
        numbers = self._numbers(rows)
        if (numbers == numbers[0]).all():
            return [(int(numbers[0]), rows)]
        order = np.argsort(numbers, kind="stable")
        rows, numbers = rows.take(pa.array(order)), numbers[order]
        starts = np.flatnonzero([True, *(numbers[1:] != numbers[:-1])])
        ends = [*starts[1:], len(numbers)]
        return [
            (int(numbers[start]), rows.slice(start, end - start))
            for start, end in zip(starts, ends, strict=True)
        ]

    def moment(self, rows: pa.Table) -> int | None:
        """Return the time of the first row: its days or microseconds since the epoch; None if it is null."""
        moment: int | None = self._moments(rows.slice(0, 1))[0].as_py()
        return moment

    def values(self, moments: list[int | None], schema: pa.Schema) -> pa.Table:
        """Return rows of the table's schema that have only the column of these partitions, with values of `moment`."""
        field = schema.field(self.column)
        kind = pa.int32() if pa.types.is_date32(field.type) else pa.int64()
        return pa.table([pa.array(moments, kind).cast(field.type)], schema=pa.schema([field]))

    def _numbers(self, rows: pa.Table) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
        """Return the number of the partition of each row: the hours or days since the epoch."""
        moments = self._moments(rows)
        unit = 1 if pa.types.is_date32(rows.column(self.column).type) else _UNITS[self.transform]
        # As Iceberg, numpy rounds down, also what is before the epoch.
        numbers = pc.fill_null(moments, 0).to_numpy() // unit
        return np.where(moments.is_valid().to_numpy(zero_copy_only=False), numbers, _NO_TIME)

    def _moments(self, rows: pa.Table) -> pa.Int64Array:
        column = rows.column(self.column).combine_chunks()
        return (column.cast(pa.int32()) if pa.types.is_date32(column.type) else column).cast(pa.int64())
