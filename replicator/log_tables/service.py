"""The log tables of a mirror: append what is new to all of them.

A table that cannot go on is paused, with a reason and a next step, and the others continue.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from pyspark.sql import SparkSession

from replicator.config import Config, KafkaLog
from replicator.config.log_tables import LogTableConfig
from replicator.errors import CommitConflict, FencedError, LakeUnavailable, LogUnavailable, ReplicatorError
from replicator.lake.catalog.tables import Lake
from replicator.lake.pauses import Pauses
from replicator.lake.properties import LOG_TABLE_PAUSED_KEY, Pause
from replicator.lake.quarantine import Quarantine
from replicator.log_tables.batch import Appended, LogBatch, WriterLookup
from replicator.log_tables.retention import delete_expired, expired_before
from replicator.log_tables.table import LogTableStore
from replicator.model.common import now_ms, retried
from replicator.sources.kafka.schema_registry import Registry
from replicator.sources.kafka.topic_states import TopicState
from replicator.sources.kafka.topics import KafkaTopics


@dataclass(frozen=True, slots=True)
class NotAppended:
    """A log table that was paused."""

    table: str
    reason: str
    hint: str | None


Result = Appended | NotAppended


@dataclass(slots=True)
class LogTables:
    """Appends events to log tables, one table after the other."""

    config: Config
    lake: Lake
    topics: KafkaTopics
    quarantine: Quarantine
    writers: WriterLookup = field(default_factory=WriterLookup)
    _pauses: Pauses = field(init=False)
    _paused: dict[str, Pause] = field(init=False)
    _tried: set[str] = field(default_factory=set)
    _expired: dict[str, datetime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._pauses = Pauses(self.lake, self.config.lake.ops_namespace, LOG_TABLE_PAUSED_KEY)
        self._paused = self._pauses.read()

    @classmethod
    def open(cls, config: Config, spark: SparkSession, log: KafkaLog) -> "LogTables":
        """Return the log tables of a mirror, which must be closed. Paused ones are tried again once.

        Raises:
            LakeUnavailable: the catalog does not answer.
            LogUnavailable, ConfigError: Kafka does not answer, or its settings are wrong.
        """
        lake = Lake(spark)
        namespace = config.lake.ops_namespace
        lake.ensure_namespace(namespace)
        quarantine = Quarantine(lake, namespace, config.mirror.name)
        writers = WriterLookup(Registry.of(log) if log.registry_url is not None else None)
        return cls(config, lake, KafkaTopics(log), quarantine, writers)

    def round(self) -> list[Result]:
        """Append one batch to each table that has new events.

        Raises:
            LogUnavailable, LakeUnavailable: Kafka or the catalog does not answer.
        """
        states = self.topics.states([settings.topic for settings in self.config.log_tables])
        results = []
        for settings in self.config.log_tables:
            is_paused = settings.table in self._paused and settings.table in self._tried
            if not is_paused and (result := self._appended(settings, states)) is not None:
                results.append(result)
        return results

    def catch_up(self) -> list[Result]:
        """Append everything that the topics have now. Raises as `round`."""
        every: list[Result] = []
        while found := self.round():
            every += found
            if not any(isinstance(result, Appended) and result.left for result in found):
                break
        return every

    def expire(self) -> dict[str, int]:
        """Delete the old partitions of tables, once they are; return the number of files that were deleted, by table.

        Raises:
            CommitConflict: another process committed to a table meanwhile.
            LakeUnavailable: the catalog failed.
        """
        deleted = {}
        for settings in self.config.log_tables:
            name, before = settings.table, expired_before(settings, now_ms())
            if before is None or self._expired.get(name) == before or name in self._paused:
                continue
            table = LogTableStore(self.config, self.lake, settings).load()
            if table is not None and (count := delete_expired(self.lake, table, settings, before)):
                deleted[name] = count
            self._expired[name] = before
        return deleted

    def close(self) -> None:
        """Close the connections."""
        self.topics.close()

    def _appended(self, settings: LogTableConfig, states: Mapping[str, TopicState]) -> Result | None:
        name, state = settings.table, states.get(settings.topic, TopicState())
        batch = LogBatch(self.config, settings, self.lake, self.topics, self.quarantine, self.writers)
        self._tried.add(name)
        try:
            result = retried(lambda: batch.run(state), CommitConflict)
        except (LogUnavailable, LakeUnavailable):
            raise
        except (CommitConflict, FencedError):
            # Others write to it at this moment. The next round reads what they left.
            return None
        except ReplicatorError as error:
            return self._pause(name, error)
        if name in self._paused:
            del self._paused[name]
            self._pauses.resume(name)
        return result

    def _pause(self, name: str, error: ReplicatorError) -> NotAppended:
        self._paused[name] = self._pauses.pause(name, error)
        return NotAppended(name, error.message, error.hint)
