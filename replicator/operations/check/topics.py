"""Check that topics keep what a mirror needs: all definitions, what continues the archive, events of log tables. Pure.

A record of the topic has one statement, and its key is the database: compaction removes all statements of a database
but the last one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from replicator.config import Config, KafkaLog
from replicator.config.log_tables import LogTableConfig
from replicator.model.common import counted, listing
from replicator.operations.check.connector import mirrored_topics
from replicator.operations.check.log_facts import TopicFacts
from replicator.operations.check.result import CheckResult, days, fail, ok, warn
from replicator.sources.archive.format import Manifest
from replicator.sources.archive.joints import joined
from replicator.sources.kafka.topic_states import TopicState

_NAME: Final = "log: schema changes"
_REASON: Final = (
    "without old definitions, older events without schemas cannot be decoded, and a connector that lost its offset "
    "looks like a new one"
)


def check_schema_topic(topics: Sequence[TopicFacts], log: KafkaLog) -> Iterator[CheckResult]:
    """Check the schema-change topic, if it is among `topics`.

    With an archive, Kafka need not keep the definitions. Another check tells whether the archive has all of them.
    """
    for topic in topics:
        if topic.name != log.topic_prefix:
            continue
        if log.archive is None or topic.is_compacted:
            yield _checked(topic)
        else:
            yield ok(_NAME, f"the archive of {topic.name} keeps what Kafka deletes")


def _checked(topic: TopicFacts) -> CheckResult:
    found, settings = list(_problems(topic)), _settings(topic)
    if settings:
        return warn(_NAME, "; ".join(found), f"set {' and '.join(settings)} on it: {_REASON}")
    if found:
        step = "if tables pause because their definition is missing, run: replicator heal DATABASE.TABLE"
        return warn(_NAME, "; ".join(found), step)
    return ok(_NAME, f"{topic.name} keeps all definitions")


def _problems(topic: TopicFacts) -> Iterator[str]:
    if topic.first_offset > 0:
        yield f"{topic.name} begins at offset {topic.first_offset:,}: the definitions before it are deleted"
    if topic.is_compacted:
        yield f"{topic.name} keeps only the last schema change of each database, because it is compacted"
    if limits := list(_limits(topic)):
        yield f"Kafka deletes definitions from {topic.name} {', and '.join(limits)}"


def _limits(topic: TopicFacts) -> Iterator[str]:
    if not topic.expires:
        return
    if topic.retention_ms >= 0:
        yield f"after {days(topic.retention_ms / 1000)}"
    if topic.retention_bytes >= 0:
        yield f"beyond {topic.retention_bytes:,} bytes"


def _settings(topic: TopicFacts) -> list[str]:
    """Return the settings with which the topic keeps what it has; a topic that is compacted now is deleted then."""
    settings = ["cleanup.policy = delete"] if topic.is_compacted else []
    if topic.expires or topic.is_compacted:
        settings += ["retention.ms = -1"] if topic.retention_ms >= 0 else []
        settings += ["retention.bytes = -1"] if topic.retention_bytes >= 0 else []
    return settings


_ARCHIVE: Final = "log: archive"


def check_archive(
    location: str, manifest: Manifest | None, topics: Mapping[str, TopicState], config: Config
) -> list[CheckResult]:
    """Check the archive in `log.archive`; `manifest` is None if there is none. `topics` have the log's prefix."""
    record = f"replicator record --to {location}"
    if manifest is None:
        return [warn(_ARCHIVE, f"there is no archive in {location}", f"run: {record}")]
    prefix = config.log.topic_prefix
    if manifest.topic_prefix != prefix:
        return [
            fail(
                _ARCHIVE,
                f"{location} contains events of {manifest.topic_prefix!r}, not of {prefix!r}",
                "name an archive of this mirror's topics",
            )
        ]
    is_mirrored = mirrored_topics(config)
    ours = {topic: live for topic, live in topics.items() if topic == prefix or is_mirrored(topic)}
    found = joined(ours, manifest)
    if not found.problems:
        return [ok(_ARCHIVE, f"{counted(manifest.events, 'event')} in {location}; Kafka continues it")]
    return [
        warn(
            _ARCHIVE,
            f"{location} is not continued by Kafka: "
            + listing(f"{topic}: {problem}" for topic, problem in sorted(found.problems.items())),
            "run record more often than Kafka deletes events. After a gap an archive cannot be continued: record "
            "into another folder, and name that one in log.archive",
        )
    ]


_LOG_TABLES: Final = "log tables: topics"


def check_log_tables(tables: Sequence[LogTableConfig], topics: Sequence[TopicFacts]) -> Iterator[CheckResult]:
    """Check that the topic of each log table exists and keeps its events."""
    known = {topic.name: topic for topic in topics}
    for settings in tables:
        topic, name = known.get(settings.topic), f"{settings.topic} for {settings.table}"
        if topic is None:
            yield warn(
                _LOG_TABLES,
                f"Kafka has no topic {name}",
                "create it, or correct topic; it is read once it exists",
            )
        elif topic.is_compacted:
            step = "set cleanup.policy = delete on it, unless only the last event of a key matters"
            yield warn(_LOG_TABLES, f"{name} is compacted: Kafka removes earlier events of a key", step)
        else:
            kept = f", kept for {days(topic.retention_ms / 1000)}" if topic.retention_ms >= 0 else ""
            partitions = "partition" if topic.partitions == 1 else "partitions"
            yield ok(_LOG_TABLES, f"{name}: {topic.partitions} {partitions}{kept}")
