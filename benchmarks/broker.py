"""The benchmark's Kafka broker; its data stay in the cache, so that a log is written once only."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from replicator.errors import UsageError
from replicator.jvm.jars import default_cache
from replicator.operations.stack import LocalStack


def cache_folder() -> Path:
    """Where broker data and what is known of the logs in it are kept."""
    return default_cache() / "benchmarks"


@contextmanager
def broker(bootstrap: str | None = None) -> Iterator[tuple[str, Path]]:
    """Provide a broker, the given one or a new one: (its address, folder for facts about its logs)."""
    with broker_and_registry(bootstrap, registry=False) as (address, known, _):
        yield address, known


@contextmanager
def broker_and_registry(bootstrap: str | None = None, *, registry: bool) -> Iterator[tuple[str, Path, str]]:
    """As `broker`, and the address of a schema registry where one is wanted; only beside a broker of its own."""
    if bootstrap and registry:
        raise UsageError("Avro needs the broker that the benchmark starts itself", "leave --bootstrap out")
    if bootstrap:
        yield bootstrap, cache_folder() / "loads" / bootstrap.replace(":", "_").replace(",", "_"), ""
        return
    stack = LocalStack(cache_folder() / "broker")
    endpoints = stack.up({"kafka", "registry"} if registry else {"kafka"})
    try:
        yield endpoints.bootstrap_servers, cache_folder() / "loads" / "local", endpoints.registry_url
    finally:
        stack.down()
