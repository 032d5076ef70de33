"""A real S3 server in this process, for tests of object stores."""

import contextlib
import logging
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from moto.server import ThreadedMotoServer
from pyarrow.fs import S3FileSystem


@dataclass(frozen=True, slots=True)
class Bucket:
    """An empty bucket: its URL, the settings of clients, and a client that is not the engine's."""

    url: str
    options: dict[str, str]
    files: S3FileSystem

    @property
    def path(self) -> str:
        """The bucket's path in `files`."""
        return self.url.removeprefix("s3://")

    def configured(self, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
        """Return the settings for `lake.options`, after the variables with the secrets were set."""
        found: dict[str, object] = dict(self.options)
        for number, name in enumerate(("s3.access-key-id", "s3.secret-access-key")):
            monkeypatch.setenv(f"S3_SECRET_{number}", self.options[name])
            found[name] = {"env": f"S3_SECRET_{number}"}
        return found


@contextlib.contextmanager
def s3_bucket() -> Iterator[Bucket]:
    """Run a server with one bucket while the block runs."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        files = S3FileSystem(
            access_key="key",
            secret_key="secret",
            endpoint_override=endpoint,
            region="us-east-1",
            allow_bucket_creation=True,
        )
        name = f"test-{uuid.uuid4().hex[:8]}"
        files.create_dir(name)
        options = {
            "s3.endpoint": endpoint,
            "s3.access-key-id": "key",
            "s3.secret-access-key": "secret",
            "s3.region": "us-east-1",
        }
        yield Bucket(f"s3://{name}", options, files)
    finally:
        server.stop()
