"""The client of a schema registry, with a small server in its place."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from replicator.errors import DecodeError, LogUnavailable, RegistryRefused
from replicator.sources.kafka.schema_registry import Registry, writer_id
from tests.support.kafka_connect import serving


class FakeRegistry(HTTPServer):
    """A server with answers by path, (code, document); `asked` has the requested paths."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[str] = []
        self.login: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/api"


class _Handler(BaseHTTPRequestHandler):
    server: FakeRegistry

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        code, document = self.server.answers.get(
            self.path, (404, {"error_code": 40403, "message": "Schema not found"})
        )
        wanted = self.server.login
        if wanted is not None and self.headers.get("Authorization") != wanted:
            code, document = 401, {}
        self.send_response(code)
        if code == 302:
            self.send_header("Location", str(document))
        self.end_headers()
        self.wfile.write(document if isinstance(document, bytes) else json.dumps(document).encode())

    def log_message(self, *args: Any) -> None:
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[FakeRegistry]:
    with FakeRegistry() as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def test_registry_requests_a_schema_once_and_a_missing_one_again(server: FakeRegistry) -> None:
    server.answers["/api/schemas/ids/7"] = (200, {"schema": '"string"'})
    registry = Registry(server.url + "/")
    assert [registry.schema(7), registry.schema(7), registry.schema(8), registry.schema(8)] == [
        '"string"'
    ] * 2 + [None] * 2
    assert server.asked == ["/api/schemas/ids/7"] + ["/api/schemas/ids/8"] * 2


def test_registry_sends_the_login(server: FakeRegistry) -> None:
    server.login = "Basic " + base64.b64encode(b"me:secret").decode()
    server.answers["/api/subjects"] = (200, ["a-value"])
    assert Registry(server.url, ("me", "secret")).subjects() == ["a-value"]
    with pytest.raises(RegistryRefused, match=r"refuses the login \(401\)") as caught:
        Registry(server.url, ("me", "wrong")).subjects()
    assert "wrong" not in str(caught.value) + str(caught.value.hint)


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        ((500, {}), LogUnavailable, "failed: 500"),
        ((404, b"<html>"), RegistryRefused, "not the API of a schema registry"),
        ((200, {"schema": "syntax", "schemaType": "PROTOBUF"}), DecodeError, "not Avro"),
        ((200, {"schema": "{}", "references": [{"name": "x"}]}), DecodeError, "references others"),
        ((200, b"<html>"), RegistryRefused, "not the API of a schema registry"),
        ((200, b"[" * 100_000), RegistryRefused, "not the API of a schema registry"),
        ((200, {"schema": 5}), DecodeError, "schema is not a text"),
    ],
)
def test_registry_refuses_responses_without_an_avro_schema(
    server: FakeRegistry, answer: tuple[int, Any], error: type[Exception], reason: str
) -> None:
    server.answers["/api/schemas/ids/1"] = answer
    with pytest.raises(error, match=reason):
        Registry(server.url).schema(1)


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b"\0\0\0\1\2x", 258),
        (b"\0\xff\xff\xff\xffx", 2**32 - 1),
        (b"\0\0\0\1\2", None),
        (b"{}", None),
        (b"", None),
        (None, None),
    ],
)
def test_writer_id_returns_the_schema_id_of_an_avro_record(data: bytes | None, wanted: int | None) -> None:
    assert writer_id(data) == wanted


def test_registry_does_not_follow_a_redirect(server: FakeRegistry) -> None:
    with serving() as other:
        server.answers["/api/schemas/ids/7"] = (302, other.url + "/schemas/ids/7")
        with pytest.raises(RegistryRefused, match=f"redirects to {other.url}/schemas/ids/7"):
            Registry(server.url, ("me", "secret")).schema(7)
        assert other.asked == []
