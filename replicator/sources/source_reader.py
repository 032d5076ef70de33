"""Read the state of a mirror's source."""

from dataclasses import replace

from replicator.config import ArchiveLog, Config, KafkaLog
from replicator.errors import LogError
from replicator.sources.source_view import SourceView


def read_source(config: Config, *, kafka_timeout_s: float | None = None) -> SourceView:
    """Query all servers. A server that cannot be reached is recorded and raises no error."""
    if isinstance(config.log, KafkaLog):
        # The clients of MySQL, Kafka and Connect take long to import; an archive needs none of them.
        from replicator.sources.server_view import read_servers  # noqa: PLC0415

        return read_servers(config, config.log, kafka_timeout_s)
    return _archive(config, config.log)


def _archive(config: Config, log: ArchiveLog) -> SourceView:
    from replicator.sources.archive.reader import ArchiveReader  # noqa: PLC0415 - Kafka does not need them
    from replicator.sources.archive.storage import open_storage  # noqa: PLC0415

    view = SourceView(f"{log.topic_prefix}." if log.topic_prefix else "")
    try:
        archive = ArchiveReader(open_storage(log.path, config.lake.catalog_options))
        prefix = log.topic_prefix or archive.manifest.topic_prefix
        return replace(view, prefix=f"{prefix}.", ends=archive.end_offsets())
    except LogError as error:
        return replace(view, log_problem=error.message)
