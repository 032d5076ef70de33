"""Open the log of a mirror that follows Kafka."""

from replicator.config import Config, KafkaLog
from replicator.sources.archive.storage import open_storage
from replicator.sources.joined_log import JoinedLog, RecordedPast
from replicator.sources.kafka.log import KafkaChangeLog

FollowedLog = KafkaChangeLog | JoinedLog
"""The log of a mirror that follows Kafka."""


def open_kafka_log(config: Config, log: KafkaLog) -> FollowedLog:
    """Return Kafka's topics, with what their archive has of the events that Kafka has deleted, if there is one.

    It must be closed. Neither is asked yet.

    Raises:
        ArchiveError: `log.archive` names an object store of an unknown kind.
    """
    live = KafkaChangeLog(log)
    if log.archive is None:
        return live
    storage = open_storage(log.archive, config.lake.catalog_options)
    return JoinedLog(live, RecordedPast(storage, log.topic_prefix))
