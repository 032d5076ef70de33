"""Append events to log tables while the mirror runs, in a thread of its own.

The rounds of the mirror begin with changes of tables, and logs may have none for hours, or a backlog that must not
delay the mirror.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Final

from pyspark.sql import SparkSession

from replicator.config import Config, KafkaLog
from replicator.jvm.spark import own_session
from replicator.log_tables.batch import Appended
from replicator.log_tables.service import LogTables, NotAppended, Result
from replicator.pipelines.query.names import TableName
from replicator.runner.result_upkeep import ResultUpkeep
from replicator.runner.side_thread import RETRY_S, SideThread
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.log_tables")


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
    appends = _Appends(config, spark, config.log)
    with closing(SideThread("log tables", appends.round, _report, end=appends.close)) as thread:
        thread.start()
        yield


class _Appends:
    """Appends to log tables at the interval `apply.trigger`, and at once while there is more."""

    def __init__(self, config: Config, spark: SparkSession, log: KafkaLog) -> None:
        self._config, self._spark, self._kafka = config, spark, log
        self._tables: LogTables | None = None
        self._upkeep = ResultUpkeep(config)

    def close(self) -> None:
        """Close the clients of Kafka."""
        if self._tables is not None:
            self._tables.close()

    def round(self) -> float:
        """Append what is new; return the seconds until the next round."""
        if self._tables is None:
            self._tables = LogTables.open(self._config, own_session(self._spark), self._kafka)
        results = self._tables.round()
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


def _report(reason: str, hint: str | None) -> None:
    _LOG.warning("log tables wait", reason=reason, next=hint, in_seconds=RETRY_S)


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
