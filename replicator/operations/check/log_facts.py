"""Read the facts for the log's checks from the broker and Kafka Connect. Changes nothing there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from replicator.config import KafkaLog
from replicator.config.log_tables import LogTableConfig
from replicator.sources.connector.connect import KafkaConnect
from replicator.sources.connector.state import Connector
from replicator.sources.kafka.admin import QUICK_S, KafkaAdmin
from replicator.sources.kafka.topic_states import TopicState, topic_states


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic; `retention_ms` and `retention_bytes` are -1 if they are unlimited.

    Attributes:
        first_offset: where the schema-change topic begins; it is read of this topic only.
    """

    name: str
    partitions: int
    cleanup_policy: str = "delete"
    retention_ms: int = -1
    retention_bytes: int = -1
    first_offset: int = 0

    @property
    def is_compacted(self) -> bool:
        """Whether Kafka removes all records of a key but the last one."""
        return "compact" in self.cleanup_policy

    @property
    def expires(self) -> bool:
        """Whether Kafka removes the records that exceed the retention."""
        return "delete" in self.cleanup_policy


def read_topics(log: KafkaLog) -> tuple[TopicFacts, ...]:
    """Return the topics under `log.topic_prefix`, sorted by name. Raises what `kafka_errors` raises."""
    prefix = log.topic_prefix
    return _read(log, lambda name: name == prefix or name.startswith(f"{prefix}."))


def read_named_topics(log: KafkaLog, tables: Sequence[LogTableConfig]) -> tuple[TopicFacts, ...]:
    """Return the existing topics of log tables, sorted by name. Raises what `kafka_errors` raises."""
    return _read(log, {settings.topic for settings in tables}.__contains__)


def _read(log: KafkaLog, is_wanted: Callable[[str], bool]) -> tuple[TopicFacts, ...]:
    admin = KafkaAdmin(log, timeout_s=QUICK_S)
    every = admin.partitions()
    names = sorted(filter(is_wanted, every))
    settings = admin.settings(names)
    first = admin.first_offsets((name, p) for name in names if name == log.topic_prefix for p in every[name])
    return tuple(
        TopicFacts(
            name,
            len(every[name]),
            settings[name].get("cleanup.policy", "delete"),
            int(settings[name].get("retention.ms", -1)),
            int(settings[name].get("retention.bytes", -1)),
            max((offset for (topic, _), offset in first.items() if topic == name), default=0),
        )
        for name in names
    )


def read_live_topics(log: KafkaLog) -> dict[str, TopicState]:
    """Return the ids and offsets of the topics under `log.topic_prefix`. Raises what `kafka_errors` raises."""
    names = log.topic_prefix, f"{log.topic_prefix}."
    admin = KafkaAdmin(log, timeout_s=QUICK_S)
    return topic_states(admin, lambda name: name == names[0] or name.startswith(names[1]))


def read_connector(log: KafkaLog) -> Connector | None:
    """Return the connector whose topic.prefix is this mirror's; None if there is none. Raises ConnectError."""
    return KafkaConnect(str(log.connect_url)).find(log.topic_prefix)
