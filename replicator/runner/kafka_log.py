"""Open the log of a mirror that follows Kafka."""

import contextlib
from collections.abc import Iterator

from replicator.config import Config, KafkaLog
from replicator.runner.archive_run import staging_folder
from replicator.sources.archive import open_storage
from replicator.sources.archive.past import RecordedPast
from replicator.sources.change_log import ChangeLog
from replicator.sources.joined_log import JoinedLog
from replicator.sources.kafka import KafkaChangeLog


@contextlib.contextmanager
def open_kafka_log(config: Config, log: KafkaLog) -> Iterator[ChangeLog]:
    """Provide Kafka's topics, with what their archive has of the events that Kafka has deleted, if there is one.

    Neither is asked yet.

    Raises:
        ArchiveError: `log.archive` names an object store of an unknown kind.
    """
    live = KafkaChangeLog(log)
    if log.archive is None:
        yield live
        return
    storage = open_storage(log.archive, config.lake.catalog_options)
    joined = JoinedLog(live, RecordedPast(storage, log.topic_prefix, staging_folder(config)))
    with contextlib.closing(joined):
        yield joined
