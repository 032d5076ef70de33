"""Executes the steps of a batch: on Spark's executors, or on the driver if the batch has few events of the table.

Spark's executors scale, but one Spark job takes longer than the work on a hundred rows. The driver counts, groups and
locates few rows itself, without a job, and writes one data file and one delete file.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Protocol

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


class MaterializedEvents(Protocol):
    """Rows that were computed once and are kept while a batch uses them."""

    @property
    def frame(self) -> DataFrame:
        """The rows as a frame."""
        ...

    @property
    def keys(self) -> pa.Table | None:
        """The keys (k0, k1, ...) of all rows with their partition and offset, if the driver holds them."""
        ...

    @property
    def files(self) -> WorkerFiles | None:
        """The data files of the rows, if Spark's workers have written them."""
        ...

    def filtered(self, frame: DataFrame) -> "MaterializedEvents":
        """Return the rows of `frame`, a subset of these."""
        ...

    def stats_columns(self, keys: Sequence[SparkColumn] = ()) -> "tuple[pa.Table, MaterializedEvents]":
        """Return the columns that `batch_stats` reads, and these rows with their `keys`."""
        ...

    def arrow(self) -> pa.Table:
        """Return all rows, on the driver."""
        ...

    def release(self) -> None:
        """Free the memory now; Spark would wait for a garbage collection."""
        ...


@dataclass(frozen=True, slots=True)
class SparkEvents:
    """Rows on Spark's executors."""

    frame: DataFrame
    keys: pa.Table | None = None
    files: None = None

    def filtered(self, frame: DataFrame) -> "SparkEvents":
        """Return the rows of `frame`, without keys: the known ones are those of all rows."""
        return SparkEvents(frame)

    def stats_columns(self, keys: Sequence[SparkColumn] = ()) -> "tuple[pa.Table, SparkEvents]":
        """Fetch the columns in one Spark job. Texts are fetched only for events near the end of a range."""
        names = [F.when(F.col("in_range_end"), F.col(name)).alias(name) for name in _NAMES]
        found = self.frame.select(*EVENT_NUMBERS, *names, *keys).toArrow()
        if not keys:
            return found, self
        kept = found.select(
            [*_LOG_COORDINATE, *(n for n in found.column_names if n not in {*EVENT_NUMBERS, *_NAMES})]
        )
        return found, replace(self, keys=kept)

    def arrow(self) -> pa.Table:
        """Fetch all rows in one Spark job."""
        return self.frame.toArrow()

    def release(self) -> None:
        """Unpersist the rows."""
        self.frame._jdf.queryExecution().logical().rdd().unpersist(False)  # noqa: SLF001 no public way


class DriverEvents:
    """Rows on the driver."""

    def __init__(self, rows: pa.Table | None, frame: Callable[[], DataFrame]) -> None:
        """Use `rows`, of which `frame` makes a frame if one is needed; or that frame's rows if `rows` is None."""
        self._rows = rows
        self._make_frame = frame

    @cached_property
    def frame(self) -> DataFrame:
        """The rows as a frame; it is made at the first use, because most batches need none."""
        return self._make_frame()

    @property
    def keys(self) -> None:
        """None: `arrow` has the keys."""
        return

    @property
    def files(self) -> None:
        """None: the driver writes them."""
        return

    def filtered(self, frame: DataFrame) -> "DriverEvents":
        """Return the rows of `frame`."""
        return DriverEvents(None, lambda: frame)

    def stats_columns(self, keys: Sequence[SparkColumn] = ()) -> "tuple[pa.Table, DriverEvents]":  # noqa: ARG002
        """Return the columns; `keys` are not needed."""
        return self.arrow().select([*EVENT_NUMBERS, *_NAMES]), self

    def arrow(self) -> pa.Table:
        """Return the rows; they are computed from the fetched ones if they were filtered."""
        return self.frame.toArrow() if self._rows is None else self._rows

    def release(self) -> None:
        """Do nothing: the rows are ordinary objects of the driver."""


class WrittenEvents:
    """Rows that Spark's workers decoded once, for the files that they wrote; computed again if they are needed."""

    def __init__(
        self, numbers: pa.Table, files: WorkerFiles | None, decode: Callable[[], SparkEvents]
    ) -> None:
        """Use the columns that statistics need, the files if they are right, and what decodes the rows again."""
        self._numbers, self.files = numbers, files
        self._decode = decode
        self._decoded: SparkEvents | None = None

    @property
    def frame(self) -> DataFrame:
        """The rows as a frame."""
        if self._decoded is None:
            self._decoded = self._decode()
        return self._decoded.frame

    @property
    def keys(self) -> None:
        """None: the files have the keys."""
        return

    def filtered(self, frame: DataFrame) -> SparkEvents:
        """Return the rows of `frame`; they are in no file."""
        return SparkEvents(frame)

    def stats_columns(self, keys: Sequence[SparkColumn] = ()) -> "tuple[pa.Table, WrittenEvents]":  # noqa: ARG002
        """Return the columns; `keys` are not needed."""
        return self._numbers, self

    def arrow(self) -> pa.Table:
        """Decode all rows again, and fetch them."""
        return self.frame.toArrow()

    def release(self) -> None:
        """Remove the files that were not used, and unpersist the rows."""
        if self.files is not None:
            self.files.remove_unused()
        if self._decoded is not None:
            self._decoded.release()


class BatchExecutor(Protocol):
    """How the steps of a batch of one table are executed.

    Attributes:
        locates_rows: whether changes are few, and may use the row locations that this process knows.
    """

    locates_rows: bool

    def materialize(self, frame: DataFrame) -> MaterializedEvents:
        """Compute `frame` once and keep its rows."""
        ...

    def last_changes(self, keyed: DataFrame, schema: TableSchema) -> MaterializedEvents:
        """Return the last event of each key; see `net_changes.last_changes`."""
        ...


class SparkExecutor:
    """Executes on Spark's executors."""

    locates_rows = False

    def materialize(self, frame: DataFrame) -> SparkEvents:
        """Keep the rows on the executors. Lazy: the first use computes them."""
        # Rows stay as they are in memory; a cached DataFrame would be rewritten column by column and compressed.
        return SparkEvents(frame.localCheckpoint(eager=False))

    def last_changes(self, keyed: DataFrame, schema: TableSchema) -> MaterializedEvents:  # noqa: ARG002
        """Group by key in Spark."""
        return self.materialize(last_changes(keyed))


class DriverExecutor:
    """Executes on the driver, with Arrow."""

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
