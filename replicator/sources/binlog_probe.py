"""Find out what the source's binlog has at the positions of events, if the events do not tell whether they are new.

All events of a compressed transaction have its position, so one that was sent again cannot be distinguished there from
a second equal change. Elsewhere, each row has a position of its own.

If a fail-over interrupts the connector within a transaction, the rest of it comes from another server's binlog. Where
the binlogs of both have the same number, its positions look like those of events that were sent before.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from replicator.config import Config, KafkaLog, SourceConfig
from replicator.errors import ReplicatorError
from replicator.model.position import SourcePosition, binlog_number
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.binlog_probe")
_READ_TIMEOUT_S: Final = 60
_SILENCE_S: Final = 60.0
"""After an error, the source is not asked for this long."""


class SourceBinlog(Protocol):
    """What a server tells of its binlog. Both methods raise a SourceError if it does not answer."""

    def is_compressed(self, position: SourcePosition) -> bool | None:
        """Return whether a compressed transaction is at a position; None if the server has no such event."""

    def has_both(self, event: SourcePosition, later: SourcePosition) -> bool | None:
        """Return whether `later` is in the transaction of `event`; None if the server does not have `event`."""


@dataclass(slots=True)
class BinlogProbe:
    """Knows, from the source or from the configuration, what is at a position of the binlog.

    Attributes:
        compresses: whether transactions may be compressed according to the configuration, which applies if the source
            cannot tell.
        binlog: the source's; None if the mirror has no access.
        must_answer: whether `has_both` fails if the source does not answer. An archive may be older than the source.
    """

    compresses: bool
    binlog: SourceBinlog | None = None
    must_answer: bool = False
    _silent_until: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, config: Config, *, log_grows: bool) -> "BinlogProbe":
        """Return the probe of a mirror. If its log does not grow, it replays an archive, and does not wait."""
        binlog = None if config.source.url is None else _MySqlBinlog(config.source)
        compresses = isinstance(config.log, KafkaLog) and config.log.transactions
        return cls(compresses, binlog, must_answer=log_grows and binlog is not None)

    def may_be_compressed(self, position: SourcePosition) -> bool | None:
        """Return whether the event at a position is, or may be, one of a compressed transaction.

        None if the source cannot tell, and it is expected that it is not one.
        """
        found = self._answer(position, lambda binlog: binlog.is_compressed(position))
        return True if found is None and self.compresses else found

    def has_both(self, event: SourcePosition, later: SourcePosition, *, waits: bool = True) -> bool | None:
        """Return whether `later` is in the transaction of `event` in the source's binlog.

        False means that `later`, which has the same GTID, is a position of another server. None if the source does not
        have `event`, or cannot be asked.

        Raises:
            SourceError: the source does not answer, it `must_answer`, and the caller `waits`.
        """
        if self.binlog is not None and self.must_answer and waits:
            return self.binlog.has_both(event, later)
        return self._answer(event, lambda binlog: binlog.has_both(event, later))

    def _answer(self, position: SourcePosition, ask: Callable[[SourceBinlog], bool | None]) -> bool | None:
        if self.binlog is None:
            return None
        # One table after the other: if the source does not answer, the others need not wait for that too.
        with self._lock:
            if time.monotonic() < self._silent_until:
                return None
            try:
                return ask(self.binlog)
            except ReplicatorError as error:
                self._silent_until = time.monotonic() + _SILENCE_S
                _LOG.warning(
                    "the source does not tell what its binlog has at a position",
                    position=str(position),
                    assumed_compressed=self.compresses,
                    cause=error.message,
                )
                return None


@dataclass(frozen=True, slots=True)
class _MySqlBinlog:
    """The binlog of a MySQL server; it connects for each question, because there are few."""

    source: SourceConfig

    # SQLAlchemy takes a second to import, and hardly any mirror needs it here.

    def is_compressed(self, position: SourcePosition) -> bool | None:
        from replicator.sources.mysql.binlogs import COMPRESSED, event_type, read_binlogs  # noqa: PLC0415
        from replicator.sources.mysql.connection import connect  # noqa: PLC0415

        with connect(self.source, read_timeout=_READ_TIMEOUT_S) as connection:
            name = read_binlogs(connection).named(binlog_number(position.file))
            found = None if name is None else event_type(connection, name, position)
        return None if found is None else found == COMPRESSED

    def has_both(self, event: SourcePosition, later: SourcePosition) -> bool | None:
        from replicator.sources.mysql.binlogs import has_both, read_binlogs  # noqa: PLC0415
        from replicator.sources.mysql.connection import connect  # noqa: PLC0415

        with connect(self.source, read_timeout=_READ_TIMEOUT_S) as connection:
            name = read_binlogs(connection).named(binlog_number(event.file))
            return None if name is None else has_both(connection, name, event, later)
