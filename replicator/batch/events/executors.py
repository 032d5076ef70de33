"""Executes the steps of a batch: on Spark's executors, or on the driver if the batch has few events of the table.

Spark's executors scale, but one Spark job takes longer than the work on a hundred rows. The driver counts, groups and
locates few rows itself, without a job, and writes one data file and one delete file.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.batch.events.net_changes import driver_last_changes, last_changes
from replicator.batch.events.worker_files import WorkerFiles
from replicator.decode.event_frame import EVENT_NUMBERS
from replicator.jvm.spark import local_frame
from replicator.model.table import TableSchema

_NAMES: Final = ("file", "gtid", "tx_order")
_LOG_COORDINATE: Final = ("partition", "offset")


class MaterializedEvents(ABC):
    """Rows that were computed once and are kept while a batch uses them.

    Attributes:
        keys: the keys (k0, k1, ...) of all rows with their partition and offset, if the driver holds them.
        files: the data files of the rows, if Spark's workers have written them.
    """

    keys: pa.Table | None = None
    files: WorkerFiles | None = None

    def __init__(self, frame: Callable[[], DataFrame]) -> None:
        """Use what makes a frame of the rows if one is needed."""
        self._make_frame = frame

    @cached_property
    def frame(self) -> DataFrame:
        """The rows as a frame; it is made at the first use, because most batches need none."""
        return self._make_frame()

    def filtered(self, frame: DataFrame) -> "MaterializedEvents":
        """Return the rows of `frame`, a subset of these; known keys and files are those of all rows."""
        return SparkEvents(lambda: frame)

    @abstractmethod
    def stats_columns(self, keys: Sequence[SparkColumn]) -> pa.Table:
        """Return the columns that `batch_stats` reads; `keys` are fetched with them if nothing else has them."""

    def arrow(self) -> pa.Table:
        """Return all rows, on the driver."""
        return self.frame.toArrow()

    @abstractmethod
    def release(self) -> None:
        """Free the memory now; Spark would wait for a garbage collection."""


class SparkEvents(MaterializedEvents):
    """Rows on Spark's executors."""

    def stats_columns(self, keys: Sequence[SparkColumn]) -> pa.Table:
        """Fetch the columns in one Spark job. Texts are fetched only for events near the end of a range."""
        names = [F.when(F.col("in_range_end"), F.col(name)).alias(name) for name in _NAMES]
        found = self.frame.select(*EVENT_NUMBERS, *names, *keys).toArrow()
        if keys:
            others = [name for name in found.column_names if name not in {*EVENT_NUMBERS, *_NAMES}]
            self.keys = found.select([*_LOG_COORDINATE, *others])
        return found

    def release(self) -> None:
        self.frame._jdf.queryExecution().logical().rdd().unpersist(False)  # noqa: SLF001 no public way


class WrittenEvents(SparkEvents):
    """Rows that Spark's workers decoded once, for the files that they wrote; computed again if they are needed."""

    def __init__(self, numbers: pa.Table, files: WorkerFiles | None, decode: Callable[[], DataFrame]) -> None:
        """Use the columns that statistics need, the files if they are right, and what decodes the rows again."""
        super().__init__(decode)
        self._numbers, self.files = numbers, files

    def stats_columns(self, keys: Sequence[SparkColumn]) -> pa.Table:  # noqa: ARG002 the files have the keys
        return self._numbers

    def release(self) -> None:
        """Remove the files that were not used, and unpersist the rows."""
        if self.files is not None:
            self.files.remove_unused()
        if "frame" in vars(self):
            super().release()


class DriverEvents(MaterializedEvents):
    """Rows on the driver."""

    def __init__(self, rows: pa.Table | None, frame: Callable[[], DataFrame]) -> None:
        """Use `rows`, of which `frame` makes a frame if one is needed; or that frame's rows if `rows` is None."""
        super().__init__(frame)
        self._rows = rows

    def filtered(self, frame: DataFrame) -> "DriverEvents":
        return DriverEvents(None, lambda: frame)

    def stats_columns(self, keys: Sequence[SparkColumn]) -> pa.Table:  # noqa: ARG002 `arrow` has the keys
        return self.arrow().select([*EVENT_NUMBERS, *_NAMES])

    def arrow(self) -> pa.Table:
        """Return the rows; they are computed from the fetched ones if they were filtered."""
        return super().arrow() if self._rows is None else self._rows

    def release(self) -> None:
        """Do nothing: the rows are ordinary objects of the driver."""


class SparkExecutor:
    """Executes the steps of a batch of one table on Spark's executors.

    Attributes:
        locates_rows: whether changes are few, and may use the row locations that this process knows.
    """

    locates_rows = False

    def materialize(self, frame: DataFrame) -> MaterializedEvents:
        """Compute `frame` once and keep its rows. Lazy on executors: the first use computes them."""
        # Rows stay as they are in memory; a cached DataFrame would be rewritten column by column and compressed.
        kept = frame.localCheckpoint(eager=False)
        return SparkEvents(lambda: kept)

    def last_changes(self, keyed: DataFrame, schema: TableSchema) -> MaterializedEvents:  # noqa: ARG002
        """Return the last event of each key; see `net_changes.last_changes`."""
        return self.materialize(last_changes(keyed))


class DriverExecutor(SparkExecutor):
    """Executes them on the driver, with Arrow."""

    locates_rows = True

    def materialize(self, frame: DataFrame) -> MaterializedEvents:
        """Fetch the rows."""
        rows, schema = frame.toArrow(), frame.schema
        return DriverEvents(rows, lambda: local_frame(frame.sparkSession, rows, schema))

    def last_changes(self, keyed: DataFrame, schema: TableSchema) -> MaterializedEvents:
        """Group by key on the driver, unless the key has floating-point columns: Arrow compares their bytes."""
        if has_floating_key(schema):
            return SPARK.last_changes(keyed, schema)
        last = driver_last_changes(keyed.toArrow())
        return DriverEvents(last, lambda: local_frame(keyed.sparkSession, last))


SPARK: Final = SparkExecutor()
DRIVER: Final = DriverExecutor()


def has_floating_key(schema: TableSchema) -> bool:
    """Return whether a key column is FLOAT or DOUBLE, so that equal keys may differ in their bytes (0.0 and -0.0)."""
    return any(c.type.name in ("float", "double") for c in schema.key_columns)
