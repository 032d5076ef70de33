"""Provide the benchmark's Kafka broker. Its data stay in the cache, so that a log is written only once."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from replicator.errors import UsageError
from replicator.jvm.jars import default_cache
from replicator.operations.stack import LocalStack


def cache_folder() -> Path:
    """Return the folder of broker data and of facts about the logs in it."""
    return default_cache() / "benchmarks"


@contextmanager
def broker(bootstrap: str | None = None) -> Iterator[tuple[str, Path]]:
    """Provide a broker, the given one or a new one: (its address, folder for facts about its logs)."""
    with broker_and_registry(bootstrap, registry=False) as (address, known, _):
        yield address, known


@contextmanager
def broker_and_registry(bootstrap: str | None = None, *, registry: bool) -> Iterator[tuple[str, Path, str]]:
    """Provide what `broker` does, and the address of a new schema registry if `registry`; only with a new broker."""
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
