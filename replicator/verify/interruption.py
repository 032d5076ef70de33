"""End a check from another thread, whatever it waits for: a statement of the source, the lake, or its own limits."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from replicator.config import SourceConfig
from replicator.errors import ReplicatorError
from replicator.sources.mysql.connection import connect
from replicator.sources.mysql.throttle import StopSignal, Throttle

_POLL_S: Final = 0.2
_ANSWER_S: Final = 3.0
"""How long the server may take to end a statement."""


class Interrupted(Exception):  # noqa: N818 - no error
    """The check was ended by another thread."""


class Interruption:
    """Whether a check must end.

    Attributes:
        event: set if it must.
    """

    def __init__(self) -> None:
        self.event = threading.Event()

    def set(self) -> None:
        """Let the check end soon."""
        self.event.set()

    def go_on(self) -> None:
        """Do nothing, unless the check must end.

        Raises:
            Interrupted: it must.
        """
        if self.event.is_set():
            raise Interrupted

    def wait(self, throttle: Throttle, rows: int) -> None:
        """Wait until more than `rows` rows may be read. Raises as `go_on`."""
        throttle.wait(rows, StopSignal(self.event, self.event))
        self.go_on()


@contextmanager
def ending_statements(
    interruption: Interruption, source: SourceConfig, connections: Sequence[Connection]
) -> Iterator[None]:
    """During the block, end the statements of some connections once the check must end.

    Otherwise the check would wait for the end of a statement, which may read a whole table.
    """
    ids = [int(connection.scalar(text("SELECT CONNECTION_ID()"))) for connection in connections]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(_POLL_S):
            if interruption.event.is_set():
                _end(source, ids, connections)
                return

    thread = threading.Thread(target=watch, name="interruption", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _end(source: SourceConfig, ids: Sequence[int], connections: Sequence[Connection]) -> None:
    """End connections on the server, so that it does not complete their statements; else only on this side."""
    try:
        with connect(source, read_timeout=_ANSWER_S) as other:
            for number in ids:
                # It may have ended by itself.
                with suppress(DBAPIError):
                    other.exec_driver_sql(f"KILL {number}")
    except ReplicatorError:
        for connection in connections:
            with suppress(OSError, AttributeError):
                # The server does not answer, and the thread that waits for it would wait on.
                connection.connection.driver_connection._sock.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]  # noqa: SLF001 - no other way
