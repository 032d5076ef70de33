"""Before a mirror runs, it refuses a connector whose settings lose data."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from replicator.config import Config
from replicator.errors import CheckFailed
from replicator.operations.check import refuse_losses
from replicator.sources.connector.settings import connector_config
from tests.support.config import minimal_config


class Worker:
    """A Kafka Connect worker that responds only to the requests of these tests; `connectors` is its response."""

    def __init__(self) -> None:
        self.connectors: dict[str, Any] = {}
        worker = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = json.dumps(worker.connectors).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def runs(self, config: Config, **options: str) -> None:
        settings = connector_config(config) | {
            name.replace("_", "."): value for name, value in options.items()
        }
        self.connectors = {"shop": {"info": {"config": settings}, "status": {}}}


@pytest.fixture
def worker() -> Iterator[Worker]:
    found = Worker()
    thread = threading.Thread(target=found.server.serve_forever)
    thread.start()
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


def config(url: str | None, **log: Any) -> Config:
    kafka = {"kind": "kafka", "bootstrap_servers": "b:1", "topic_prefix": "p"}
    connect = {} if url is None else {"connect_url": url}
    source = {"url": "mysql://u@h/shop", "tables": ["shop.*"]}
    return minimal_config(source=source, log=kafka | connect | log)


def test_refuse_losses_refuses_a_lossy_option_that_is_not_allowed(worker: Worker) -> None:
    settings = config(worker.url)
    worker.runs(settings, decimal_handling_mode="double", skipped_operations="t")
    with pytest.raises(CheckFailed, match=r"decimal.handling.mode = double.*") as refused:
        refuse_losses(settings)
    assert refused.value.hint is not None
    assert 'allow_lossy = ["skipped.operations", "decimal.handling.mode"]' in refused.value.hint
    refuse_losses(config(worker.url, allow_lossy=["skipped.operations", "decimal.handling.mode"]))
    with pytest.raises(CheckFailed, match="skipped"):
        refuse_losses(config(worker.url, allow_lossy=["decimal.handling.mode"]))
