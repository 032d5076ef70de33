"""Find out which positions of the source's binlog are those of compressed transactions.

All events of a compressed transaction have one position. Unless events are numbered, an event that was sent again looks
there like one of a later statement. Elsewhere, each row has a position of its own.
"""

import threading
from collections.abc import Callable
from typing import Final

from replicator.config import Config, KafkaLog, SourceConfig
from replicator.errors import SourceUnavailable
from replicator.model.position import SourcePosition, binlog_number
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.compression")
_READ_TIMEOUT_S: Final = 60

_Key = tuple[int, int, int]
"""File number, offset and server."""

Ask = Callable[[SourcePosition], bool | None]
"""Return whether a compressed transaction is at a position; None if the server has no such event.

Raises a SourceError if it does not answer.
"""


class CompressedPositions:
    """Knows, from the source or from the configuration, which positions are those of compressed transactions.

    No batch waits for the source: it is asked beside, and the table is tried again.
    """

    def __init__(self, ask: Ask | None, *, expected: bool) -> None:
        """`ask` the source; `expected` tells what is at each position if it cannot be asked, or refuses to answer."""
        self._ask = ask
        self._expected = expected
        self._lock = threading.Lock()
        self._known: dict[_Key, bool] = {}
        self._wanted: dict[_Key, SourcePosition] = {}
        self._is_asking = False

    @classmethod
    def of(cls, config: Config, *, log_grows: bool) -> "CompressedPositions":
        """Return what is known to a mirror. An archive may be older than the source, which is not asked then."""
        source = config.source if log_grows and config.source.url is not None else None
        expected = isinstance(config.log, KafkaLog) and config.log.transactions
        return cls(None if source is None else lambda at: _is_compressed(source, at), expected=expected)

    def may_be_at(self, position: SourcePosition) -> bool:
        """Return whether a compressed transaction is, or may be, at a position.

        Raises:
            SourceUnavailable: the source has not answered yet.
        """
        if self._ask is None:
            return self._expected
        key = (binlog_number(position.file), position.pos, position.server_id)
        with self._lock:
            if (known := self._known.get(key)) is not None:
                return known
            self._wanted[key] = position
            if not self._is_asking:
                self._is_asking = True
                threading.Thread(
                    target=self._find, args=(self._ask,), name="compression", daemon=True
                ).start()
        raise SourceUnavailable(
            f"MySQL is being asked whether the transaction at {position} is compressed",
            "wait; if it lasts, check that MySQL can be reached: replicator check",
        )

    def _find(self, ask: Ask) -> None:
        """Ask for all positions that are wanted."""
        while True:
            with self._lock:
                if not self._wanted:
                    self._is_asking = False
                    return
                key, position = self._wanted.popitem()
            try:
                found = ask(position) is not False
            except SourceUnavailable:
                continue  # It is wanted again when the table is tried again.
            except Exception as error:  # noqa: BLE001 - a table must not wait for ever
                _LOG.warning(
                    "MySQL does not tell whether a transaction is compressed",
                    position=str(position),
                    assumed_compressed=self._expected,
                    cause=str(error),
                )
                found = self._expected
            with self._lock:
                self._known[key] = found


def _is_compressed(source: SourceConfig, position: SourcePosition) -> bool | None:
    # SQLAlchemy takes a second to import, and hardly any mirror needs it here.
    from replicator.sources.mysql.binlogs import COMPRESSED, event_type, read_binlogs  # noqa: PLC0415
    from replicator.sources.mysql.connection import connect  # noqa: PLC0415

    with connect(source, read_timeout=_READ_TIMEOUT_S) as connection:
        number = binlog_number(position.file)
        name = next((name for name in read_binlogs(connection) if binlog_number(name) == number), None)
        found = None if name is None else event_type(connection, name, position)
    return None if found is None else found == COMPRESSED
