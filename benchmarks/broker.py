"""The benchmark's Kafka broker; its data stay in the cache, so that a log is written once only."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from replicator.jars import default_cache
from replicator.stack import LocalStack


def cache_folder() -> Path:
    """Where broker data and what is known of the logs in it are kept."""
    return default_cache() / "benchmarks"


@contextmanager
def broker(bootstrap: str | None = None) -> Iterator[tuple[str, Path]]:
    """A given broker, or one that runs meanwhile: (its address, folder for what is known of its logs)."""
    if bootstrap:
        yield bootstrap, cache_folder() / "loads" / bootstrap.replace(":", "_").replace(",", "_")
        return
    stack = LocalStack(cache_folder() / "broker")
    endpoints = stack.up({"kafka"})
    try:
        yield endpoints.bootstrap_servers, cache_folder() / "loads" / "local"
    finally:
        stack.down()
