"""A small server in place of Kafka Connect, with configured answers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Connect:
    """The answers to each request in order, of which the last one repeats, and the requests that arrived."""

    url: str = ""
    answers: dict[str, list[tuple[int, Any]]] = field(default_factory=dict)
    asked: list[tuple[str, Any]] = field(default_factory=list)
    logins: list[str | None] = field(default_factory=list)
    """The `Authorization` of each request."""

    def reply(self, request: str, status: int, body: Any = None) -> None:
        self.answers.setdefault(request, []).append((status, body))

    def count(self, request: str) -> int:
        """Return how often a request arrived."""
        return [asked for asked, _ in self.asked].count(request)


@contextmanager
def serving() -> Iterator[Connect]:
    """Run the server during the block."""
    told = Connect()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            key = f"{self.command} {self.path}"
            told.asked.append((key, json.loads(self.rfile.read(size) or "null")))
            told.logins.append(self.headers.get("Authorization"))
            known = told.answers.get(key, [(404, {"message": "no such thing"})])
            status, body = known.pop(0) if len(known) > 1 else known[0]
            text = b"" if body is None else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            if 300 <= status < 400:
                self.send_header("Location", body)
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_PUT = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    told.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield told
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
