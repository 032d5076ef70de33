"""Check the topics of log tables. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from replicator.config.log_tables import LogTableConfig
from replicator.operations.check.log_facts import TopicFacts
from replicator.operations.check.result import CheckResult, days, ok, warn

_NAME: Final = "log tables: topics"


def check_log_tables(tables: Sequence[LogTableConfig], topics: Sequence[TopicFacts]) -> Iterator[CheckResult]:
    """Check that the topic of each log table exists and keeps its events."""
    known = {topic.name: topic for topic in topics}
    for settings in tables:
        topic, name = known.get(settings.topic), f"{settings.topic} for {settings.table}"
        if topic is None:
            yield warn(
                _NAME, f"Kafka has no topic {name}", "create it, or correct topic; it is read once it exists"
            )
        elif topic.is_compacted:
            step = "set cleanup.policy = delete on it, unless only the last event of a key matters"
            yield warn(_NAME, f"{name} is compacted: Kafka removes earlier events of a key", step)
        else:
            kept = f", kept for {days(topic.retention_ms / 1000)}" if topic.retention_ms >= 0 else ""
            partitions = "partition" if topic.partitions == 1 else "partitions"
            yield ok(_NAME, f"{name}: {topic.partitions} {partitions}{kept}")
