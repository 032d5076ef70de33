"""Archives in every kind of storage."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from replicator.sources.archive.storage import Storage, open_storage
from tests.support.s3 import Bucket, s3_bucket

OpenStorage = Callable[[], Storage]


@pytest.fixture(scope="session")
def s3() -> Iterator[Bucket]:
    """Provide a bucket on a real server; tests use folders of their own."""
    with s3_bucket() as bucket:
        yield bucket


@pytest.fixture(params=["disk", "s3"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenStorage:
    """Return a function that opens the storage of one archive, as another process would."""
    monkeypatch.setenv("REPLICATOR_CACHE", str(tmp_path / "cache"))
    if request.param == "disk":
        return lambda: open_storage(tmp_path / "archive")
    bucket: Bucket = request.getfixturevalue("s3")
    return lambda: open_storage(f"{bucket.url}/{tmp_path.name}", lambda: bucket.options)
