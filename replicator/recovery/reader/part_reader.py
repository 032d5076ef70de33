"""Read the parts of a source table into data files: on the driver if that can do it, else with Spark's executors."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from pyspark.sql import SparkSession

from replicator.config import Config
from replicator.jvm.spark import compile_plans, own_session
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.files.data_files import cast_to_table, stage_data
from replicator.model.table import Column
from replicator.recovery.reader import driver_rows
from replicator.recovery.reader.source_rows import read_rows
from replicator.recovery.reader.staging import Staging
from replicator.sources.mysql.table_rows import Boundary, SourceColumn, SourceTable
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.reread")
_CHUNK_BYTES: Final = 64_000_000
"""Estimated size of the rows that a task of Spark reads at most."""


@dataclass(frozen=True, slots=True)
class Part:
    """Rows that are committed together.

    Attributes:
        ranges: the conditions of its ranges of keys; each is read by one query.
        upto: the greatest key of the last range.
    """

    ranges: tuple[str, ...]
    upto: Boundary | None


@dataclass(frozen=True, slots=True)
class StagedPart:
    """A part that is being read."""

    part: Part
    _files: Sequence[Future[list[Any]]]

    def files(self) -> list[Any]:
        """Return the data files once all rows were read.

        Raises:
            ReplicatorError, PySparkException: MySQL or the lake failed.
        """
        return [file for found in self._files for file in found.result()]


class PartReader:
    """Reads the parts of one table, each as soon as the threads are free. Close it at the end."""

    def __init__(
        self,
        config: Config,
        staging: Staging,
        table: SourceTable,
        columns: Sequence[tuple[SourceColumn, Column]],
        *,
        may_be_plain: bool,
    ) -> None:
        """Read `columns` of `table` into its staging table.

        `may_be_plain` says whether the server accepts connections without TLS.
        """
        self._config = config
        self._staging = staging
        self.table = table
        self._columns = columns
        self._query = table.rows_query([source for source, _ in columns])
        self.cores = staging.context.spark.sparkContext.defaultParallelism
        at_once = driver_rows.rows_per_range(config, table, self.cores)
        plain = may_be_plain and driver_rows.may_be_plain(config.source)
        self._on_driver = (
            at_once is not None
            and plain
            and driver_rows.are_readable(columns)
            and driver_rows.is_writable(self._target())
            and driver_rows.connects(config.source)
        )
        self.rows_per_range = at_once if at_once is not None and self._on_driver else self._rows_per_task
        self._session: SparkSession | None = None
        self._pool = ThreadPoolExecutor(self.cores if self._on_driver else 1, "rows")
        _LOG.info("reading rows", table=str(table.table), by="the driver" if self._on_driver else "Spark")

    def __enter__(self) -> Self:
        """Return the reader."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for the queries under way, and start no others."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def start(self, part: Part) -> StagedPart:
        """Begin to read a part."""
        if self._on_driver:
            return StagedPart(part, [self._pool.submit(self._stage_range, found) for found in part.ranges])
        return StagedPart(part, [self._pool.submit(self._stage_by_spark, part.ranges)] if part.ranges else [])

    @property
    def _rows_per_task(self) -> int:
        return max(1, min(self._config.bootstrap.chunk_rows, _CHUNK_BYTES // self.table.bytes_per_row))

    def _stage_range(self, condition: str) -> list[Any]:
        lake, source = self._staging.context.lake, self._config.source
        files = driver_rows.stage_rows(lake, self._target(), source, self._query, self._columns, condition)
        return self._stage_by_spark([condition]) if files is None else files

    def _stage_by_spark(self, conditions: Sequence[str]) -> list[Any]:
        if self._session is None:
            # The scheduler changes settings of the other session.
            self._session = own_session(self._staging.context.spark)
            compile_plans(self._session, self._config, worth_it=True)
        frame = read_rows(self._session, self._config.source, self._query, conditions, self._columns)
        target = self._target()
        return stage_data(self._staging.context.lake, target, cast_to_table(frame, target.columns()))

    def _target(self) -> LakeTable:
        return self._staging.existing(self.table.table)
