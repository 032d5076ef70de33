"""Read where the source and its connector are, for tags at one position of the source."""

from typing import Final

from replicator.config import Config, KafkaLog
from replicator.errors import ConnectError, UsageError
from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.sources.connector.connect import KafkaConnect
from replicator.sources.connector.settings import connect_client

_READ_TIMEOUT_S: Final = 10


class SourcePositions:
    """The positions of a source and of its connector."""

    def __init__(self, config: Config, client: KafkaConnect, topic_prefix: str) -> None:
        self._config = config
        self._client = client
        self._topic_prefix = topic_prefix

    def end(self) -> BinlogEnd:
        """Return the end of the source's binlog.

        Raises:
            SourceError: the source does not answer, or writes no binlog.
        """
        # SQLAlchemy takes a second to import, and a mirror without tags does not need it.
        from replicator.sources.mysql.binlogs import read_exact_binlog_end  # noqa: PLC0415
        from replicator.sources.mysql.connection import connect  # noqa: PLC0415

        with connect(self._config.source, read_timeout=_READ_TIMEOUT_S) as connection:
            return read_exact_binlog_end(connection)

    def confirmed(self) -> ConnectorOffset | None:
        """Return the position up to which all changes are in the log; None if the connector has confirmed none.

        Raises:
            ConnectError: Kafka Connect does not answer.
        """
        found = self._client.find(self._topic_prefix)
        if found is None:
            return None
        offset = self._client.offset(found.name)
        try:
            return None if offset is None else ConnectorOffset.from_json(offset)
        except ValueError as error:
            raise ConnectError(f"the connector {found.name} has no position of MySQL: {error}") from error


def source_positions(config: Config) -> SourcePositions | None:
    """Return access to the positions; None if the configuration names no source, or not Kafka Connect."""
    client = connect_client(config)
    if client is None or not isinstance(config.log, KafkaLog):
        return None
    return SourcePositions(config, client, config.log.topic_prefix)


def required_positions(config: Config) -> SourcePositions:
    """Return access to the positions.

    Raises:
        UsageError: the configuration names no source, or not Kafka Connect.
    """
    if (positions := source_positions(config)) is None:
        raise UsageError(
            "only Kafka Connect knows up to where the connector has read, and log.connect_url is not set",
            'add connect_url = "http://…" to [log]',
        )
    return positions


def known_offset(positions: SourcePositions) -> ConnectorOffset | None:
    """Return what the connector has confirmed; None if that is not known at the moment."""
    try:
        return positions.confirmed()
    except ConnectError:
        return None
