"""Recover from binlogs that MySQL deleted before the connector had read them: the log lacks changes of all tables.

The connector stays failed then, and the mirror lets it begin again at the present end of the binlog. Every table is
read again from there.
"""

import threading
from typing import Final

from replicator.config import Config, KafkaLog
from replicator.errors import ConnectError
from replicator.sources.connector.settings import connect_client
from replicator.telemetry import get_logger

REASON: Final = "MySQL deleted binlogs that the connector had not read"

_LOG: Final = get_logger("replicator.runner")


class LostBinlog:
    """Whether the connector lacks binlogs; a monitoring thread notices it, and the scheduler's thread recovers.

    Attributes:
        reason: why the connector must begin again.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._noticed = threading.Event()
        self.reason = REASON
        self._enabled = config.can_read_source and config.heal.mode == "auto"

    def note(self) -> bool:
        """Note that the connector must begin again. Return whether the mirror recovers from that."""
        if self._enabled:
            self._noticed.set()
        return self._enabled

    @property
    def is_noticed(self) -> bool:
        """Whether the mirror must recover."""
        return self._noticed.is_set()

    def reset_connector(self) -> None:
        """Let the connector begin again at the end of the binlog.

        Raises:
            ConnectError: Kafka Connect failed; try again.
        """
        client = connect_client(self._config)
        if client is None or not isinstance(self._config.log, KafkaLog):
            return
        found = client.find(self._config.log.topic_prefix)
        if found is None:
            raise ConnectError("no connector has the topic prefix of the mirror", "run: replicator connect")
        _LOG.warning(
            "the connector begins again at the end of the binlog", connector=found.name, reason=self.reason
        )
        client.reset(found.name)
        self._noticed.clear()
