"""Net changes of a table; a DataFrame of Spark is made only if it is needed."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.files.spark_tables import columns_of
from replicator.model.common import quoted
from replicator.pipelines.held import held_frame, held_rows
from replicator.pipelines.query.names import WEIGHT


@dataclass(slots=True)
class NetChanges:
    """Rows with the columns and types of a table, and `WEIGHT`: how many copies of the row came, below 0 how many went.

    Attributes:
        columns: the columns of the table.
        held: the rows, if the driver holds them.
    """

    columns: tuple[str, ...]
    held: pa.Table | None
    _make: Callable[[], DataFrame]
    _frame: DataFrame | None = None

    @classmethod
    def of(cls, lake: Lake, table: LakeTable, rows: DataFrame, held: pa.Table | None = None) -> "NetChanges":
        """Return net changes of a table; `held` are the same rows, if the driver holds them."""
        fields = columns_of(lake, table).fields
        names = tuple(f.name for f in fields)
        wanted = [*((f.name, f.dataType.simpleString()) for f in fields), (WEIGHT, "bigint")]
        if [(f.name, f.dataType.simpleString()) for f in rows.schema.fields] == wanted:
            return cls(names, held, lambda: rows)
        columns = [F.col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in fields]
        return cls(names, None, lambda: rows.select(*columns, F.col(WEIGHT).cast("bigint")))

    @classmethod
    def on_driver(cls, lake: Lake, rows: pa.Table) -> "NetChanges":
        """Return changes that the driver holds, with the types of the table."""
        names = tuple(name for name in rows.column_names if name != WEIGHT)
        return cls(names, rows, lambda: held_frame(lake.spark, rows))

    @property
    def frame(self) -> DataFrame:
        """The rows as a DataFrame of Spark."""
        if self._frame is None:
            self._frame = self._make()
        return self._frame

    def held_if_few(self, lake: Lake, table: LakeTable) -> "NetChanges":
        """Return the same changes, on the driver if it can hold them."""
        if self.held is not None or (few := held_rows(self.frame, [table])) is None:
            return self
        return NetChanges.on_driver(lake, few)
