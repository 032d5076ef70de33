"""Find out whether the binlog has a compressed transaction at a position.

All events of a compressed transaction have its position, so one that was sent again cannot be distinguished there from
a second equal change. Elsewhere, each row has a position of its own.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from replicator.config import Config, KafkaLog, SourceConfig
from replicator.errors import ReplicatorError
from replicator.model.position import SourcePosition, binlog_number
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.compression")
_READ_TIMEOUT_S: Final = 60
_SILENCE_S: Final = 60.0
"""After an error, the source is not asked for this long."""

AskSource = Callable[[SourcePosition], bool | None]
"""Returns whether the source has a compressed transaction at a position; None if it no longer has the position."""


@dataclass(slots=True)
class CompressionProbe:
    """Knows, from the source or from the configuration, whether a transaction is compressed.

    Attributes:
        expected: whether transactions may be compressed according to the configuration, which applies if the source
            cannot tell.
        ask: asks the source, and raises a ReplicatorError if it does not answer; None if the mirror has no access.
    """

    expected: bool
    ask: AskSource | None = None
    _silent_until: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, config: Config) -> "CompressionProbe":
        """Return the probe of a mirror."""
        expected = isinstance(config.log, KafkaLog) and config.log.transactions
        if config.source.url is None:
            return cls(expected)
        return cls(expected, lambda position: _ask(config.source, position))

    def may_be_at(self, position: SourcePosition) -> bool | None:
        """Return whether the event at a position is, or may be, one of a compressed transaction.

        None if the source cannot tell, and it is expected that it is not one.
        """
        found = self._answer(position)
        return True if found is None and self.expected else found

    def _answer(self, position: SourcePosition) -> bool | None:
        if self.ask is None:
            return None
        # One table after the other: if the source does not answer, the others need not wait for that too.
        with self._lock:
            if time.monotonic() < self._silent_until:
                return None
            try:
                return self.ask(position)
            except ReplicatorError as error:
                self._silent_until = time.monotonic() + _SILENCE_S
                _LOG.warning(
                    "the source does not tell whether its transactions are compressed",
                    position=str(position),
                    assumed=self.expected,
                    cause=error.message,
                )
                return None


def _ask(source: SourceConfig, position: SourcePosition) -> bool | None:
    # SQLAlchemy takes a second to import, and hardly any mirror needs it here.
    from replicator.sources.mysql.binlogs import COMPRESSED, event_type, read_binlogs  # noqa: PLC0415
    from replicator.sources.mysql.connection import connect  # noqa: PLC0415

    with connect(source, read_timeout=_READ_TIMEOUT_S) as connection:
        name = read_binlogs(connection).named(binlog_number(position.file))
        found = None if name is None else event_type(connection, name, position)
    return None if found is None else found == COMPRESSED
