"""A proxy between clients and a server. It can lose an answer, and lead to another server from some time on."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class LosingProxy:
    """Forward connections to `server`, a port of this machine.

    A lost answer is to a request that the server executed; the client does not learn that.

    Attributes:
        server: the port; another one is that of new connections.
        lost: number of answers that were lost.
    """

    server: int
    lost: int = 0
    _pattern: bytes | None = None
    _listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def port(self) -> int:
        """The port to connect to."""
        return int(self._listener.getsockname()[1])

    def lose_answer_to(self, pattern: bytes) -> None:
        """Close the connection instead of forwarding the answer to the next request that contains `pattern`."""
        with self._lock:
            self._pattern = pattern

    def lose_nothing(self) -> None:
        """Forward all answers from now on."""
        with self._lock:
            self._pattern = None

    def forward(self) -> None:
        """Forward connections until `close`."""
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.server))
            except OSError:
                # As a load balancer does while no server answers.
                client.close()
                continue
            connection = _Connection(self, client, server)
            for side in (connection.requests, connection.answers):
                threading.Thread(target=side, daemon=True).start()

    def close(self) -> None:
        """Accept no more connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _matches(self, request: bytes) -> bool:
        with self._lock:
            if self._pattern is None or self._pattern not in request:
                return False
            self._pattern = None
            self.lost += 1
            return True


@dataclass
class _Connection:
    proxy: LosingProxy
    client: socket.socket
    server: socket.socket
    loses: bool = False

    def requests(self) -> None:
        """Forward what the client sends."""
        with contextlib.suppress(OSError):
            while data := self.client.recv(1 << 20):
                # Set before the server can answer.
                self.loses = self.loses or self.proxy._matches(data)
                self.server.sendall(data)
        self._close()

    def answers(self) -> None:
        """Forward what the server sends, up to an answer that is to be lost."""
        with contextlib.suppress(OSError):
            while (data := self.server.recv(1 << 20)) and not self.loses:
                self.client.sendall(data)
        self._close()

    def _close(self) -> None:
        for side in (self.client, self.server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()


@contextlib.contextmanager
def losing_proxy(server: int) -> Iterator[LosingProxy]:
    """Run a proxy to a server while the block runs."""
    proxy = LosingProxy(server)
    threading.Thread(target=proxy.forward, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.close()
