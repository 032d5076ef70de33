"""Append events to log tables while the mirror runs, in a thread of its own.

The rounds of the mirror begin with changes of tables, and logs may have none for hours, or a backlog that must not
delay the mirror.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

from pyspark.sql import SparkSession

from replicator.config import Config, KafkaLog
from replicator.errors import JavaGone, ReplicatorError
from replicator.jvm.spark import first_line, own_session
from replicator.log_tables.batch import Appended
from replicator.log_tables.service import LogTables, NotAppended, Result
from replicator.pipelines.query.names import TableName
from replicator.runner.result_upkeep import ResultUpkeep
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.log_tables")
_RETRY_S: Final = 10.0
_CLOSE_S: Final = 60.0


def append_once(config: Config, spark: SparkSession) -> None:
    """Append everything that the topics have now, for a run that ends.

    Raises:
        LogUnavailable, LakeUnavailable: Kafka or the catalog does not answer.
    """
    if config.log_tables and isinstance(config.log, KafkaLog):
        with closing(LogTables.open(config, own_session(spark), config.log)) as tables:
            _log(tables.catch_up())


@contextmanager
def following_logs(config: Config, spark: SparkSession) -> Iterator[None]:
    """Append events to log tables while the block runs."""
    if not config.log_tables or not isinstance(config.log, KafkaLog):
        yield
        return
    thread = LogTableThread(config, spark, config.log)
    thread.start()
    try:
        yield
    finally:
        thread.close()


class LogTableThread:
    """Appends to log tables at the interval `apply.trigger`, and at once while there is more."""

    def __init__(self, config: Config, spark: SparkSession, log: KafkaLog) -> None:
        self._config, self._spark, self._kafka = config, spark, log
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log tables", daemon=True)
        self._tables: LogTables | None = None
        self._reported: str | None = None
        self._upkeep = ResultUpkeep(config)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the batch that runs now. If it takes long, it is left: it would be as if it was killed."""
        self._stopping.set()
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    pause = self._round()
                except JavaGone:
                    # The mirror notices it too, and ends.
                    return
                except ReplicatorError as error:
                    pause = _RETRY_S
                    self._report(error.message, error.hint)
                except Exception as error:  # noqa: BLE001 - the thread must not end silently
                    pause = _RETRY_S
                    self._report(first_line(error), None)
                self._stopping.wait(pause)
        finally:
            if self._tables is not None:
                self._tables.close()

    def _round(self) -> float:
        """Append what is new; return the seconds until the next round."""
        if self._tables is None:
            self._tables = LogTables.open(self._config, own_session(self._spark), self._kafka)
        results = self._tables.round()
        self._reported = None
        _log(results)
        self._maintain(self._tables, results)
        if any(isinstance(result, Appended) and result.left for result in results):
            return 0.0
        return self._config.apply.trigger

    def _maintain(self, tables: LogTables, results: Sequence[Result]) -> None:
        """Merge the files of tables that were written, and delete old partitions."""
        if not self._config.maintenance.enabled:
            return
        written = [r.table for r in results if isinstance(r, Appended)]
        names = [TableName(s.namespace, s.name) for s in self._config.log_tables if s.table in written]
        self._upkeep.run(tables.lake, names)
        for name, files in tables.expire().items():
            _LOG.info("old partitions deleted", table=name, files=files)

    def _report(self, reason: str, hint: str | None) -> None:
        if self._reported != reason:
            self._reported = reason
            _LOG.warning("log tables wait", reason=reason, next=hint, in_seconds=_RETRY_S)


def _log(results: Sequence[Result]) -> None:
    for result in results:
        if isinstance(result, NotAppended):
            _LOG.error("log table paused", table=result.table, reason=result.reason, next=result.hint)
            continue
        if result.columns:
            _LOG.info("log table has new columns", table=result.table, columns=", ".join(result.columns))
        for gap in result.gaps:
            _LOG.warning(
                "Kafka had deleted events of a log table",
                table=result.table,
                partition=gap.partition,
                first=gap.start,
                last=gap.end - 1,
            )
        _LOG.info(
            "appended",
            table=result.table,
            rows=result.rows,
            quarantined=result.bad,
            left=result.left,
            seconds=round(result.seconds, 3),
        )
