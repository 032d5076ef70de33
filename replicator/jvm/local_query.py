"""Evaluate a query over few rows on the driver: Spark plans it once, and no job is started.

To plan a query and to start its job take ten times as long as to evaluate its expressions for a hundred rows. Spark's
optimizer itself evaluates projections of local rows in this way (its rule ConvertToLocalRelation).
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from replicator.errors import LakeUnavailable

PREFIX: Final = "rows-"
"""The names of the files in which rows pass between Python and Java begin with this; each lives for one call."""

_ZONE: Final = "UTC"
_ROWS_PER_BATCH: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class LocalQuery:
    """A planned query. Only one thread at a time may use it, because expressions have state.

    Attributes:
        schema: the schema of the result.
    """

    schema: StructType
    _classes: "_Classes"
    _folder: Path
    _input: Any
    _output: Any
    _evaluate: Any

    @classmethod
    def plan(
        cls, spark: SparkSession, folder: Path, schema: StructType, query: Callable[[DataFrame], DataFrame]
    ) -> Self | None:
        """Plan `query` for rows of `schema`. Return None if it is more than a chain of projections.

        Rows pass between Python and Java in private files in `folder`. A process that is killed may leave one there.
        """
        # Without known rows, Spark cannot evaluate anything while it plans.
        frame = query(spark.createDataFrame(spark.sparkContext.emptyRDD(), schema))
        optimized = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 no public way
        jvm: Any = spark._jvm  # noqa: SLF001
        projections = _projections(jvm, optimized)
        if not projections:
            return None
        parse = spark._jsparkSession.parseDataType  # noqa: SLF001
        evaluate = reduce(lambda first, then: first.andThen(then), projections)
        return cls(frame.schema, _Classes.of(jvm), folder, parse(schema.json()), optimized.schema(), evaluate)

    def run(self, rows: pa.Table) -> pa.Table:
        """Return the result for `rows`, in their order.

        Raises:
            LakeUnavailable: the folder cannot be written to.
            PySparkException: an expression failed.
        """
        try:
            with _file(self._folder) as source, _file(self._folder) as target:
                with pa.OSFile(str(source), "wb") as file, pa.ipc.new_stream(file, rows.schema) as stream:
                    stream.write_table(rows.combine_chunks())
                self._classes.transform(source, target, self._input, self._output, self._evaluate)
                with pa.OSFile(str(target)) as file:
                    return pa.ipc.open_stream(file).read_all()
        except OSError as error:
            raise LakeUnavailable(
                f"rows cannot be passed to Java: {error}",
                "free space in mirror.state_dir, and check its permissions",
            ) from error


def remove_leftovers(folder: Path) -> None:
    """Remove the files that a killed process left in `folder`."""
    for path in folder.glob(f"{PREFIX}*"):
        path.unlink(missing_ok=True)


@contextmanager
def _file(folder: Path) -> Iterator[Path]:
    """Provide an empty file that only this user can read."""
    number, name = tempfile.mkstemp(prefix=PREFIX, dir=folder)
    os.close(number)
    try:
        yield Path(name)
    finally:
        Path(name).unlink()


def _projections(jvm: Any, plan: Any) -> list[Any]:
    """Return a plan's projections as Java functions of a row, the first one first; none if it has other parts."""
    found: list[Any] = []
    while plan.nodeName() == "Project":
        child = plan.child()
        interpreted = jvm.org.apache.spark.sql.catalyst.expressions.InterpretedMutableProjection
        projection = interpreted(plan.projectList(), child.output())
        projection.initialize(0)
        found.append(projection)
        plan = child
    return found[::-1] if plan.nodeName() == "LogicalRDD" else []


@dataclass(frozen=True, slots=True)
class _Classes:
    """Java's classes; each of them takes several calls to look up."""

    converters: Any
    stream_writer: Any
    file_input: Any
    file_output: Any
    channels: Any

    @classmethod
    def of(cls, jvm: Any) -> "_Classes":
        arrow = jvm.org.apache.spark.sql.execution.arrow
        return cls(
            getattr(arrow, "ArrowConverters$").__getattr__("MODULE$"),
            arrow.ArrowBatchStreamWriter,
            jvm.java.io.FileInputStream,
            jvm.java.io.FileOutputStream,
            jvm.java.nio.channels.Channels,
        )

    def transform(self, source: Path, target: Path, schema: Any, result: Any, evaluate: Any) -> None:
        """Apply `evaluate` to each row of the Arrow stream `source`, and write the results to `target`."""
        with _closing(self.file_input(str(source))) as data, _closing(self.file_output(str(target))) as out:
            batches = self.converters.getBatchesFromStream(self.channels.newChannel(data))
            rows = self.converters.fromBatchIterator(batches, schema, _ZONE, False, False, None)
            # Each function reuses its row, which the next one has read before it gets another.
            results = self.converters.toBatchIterator(
                rows.map(evaluate), result, _ROWS_PER_BATCH, _ZONE, False, False, None
            )
            writer = self.stream_writer(result, out, _ZONE, False, False)
            try:
                writer.writeBatches(results)
                writer.end()
            except BaseException:
                # Both close themselves at their end, which was not reached.
                results.close()
                _close_all(rows.resources())
                raise


@contextmanager
def _closing(stream: Any) -> Iterator[Any]:
    try:
        yield stream
    finally:
        stream.close()


def _close_all(resources: Any) -> None:
    for i in reversed(range(resources.size())):
        resources.apply(i).close()
