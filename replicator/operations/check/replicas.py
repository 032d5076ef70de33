"""Check the replicas whose lag limits how fast tables are read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replicator.config import Config
from replicator.errors import PrivilegeError, SourceError
from replicator.operations.check.result import CheckResult, fail, ok, warn
from replicator.sources.mysql.connection import connect_to
from replicator.sources.mysql.replication import ReplicaLag, WatchedServer, read_replica_lag, watched_servers

_ANSWER_S = 10.0


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """A server whose lag is watched.

    Attributes:
        name: its address.
        is_source: whether it is the source, which need not be a replica.
        user: the user that reads the lag.
        lag: None if the server is no replica.
        error: why the lag could not be read; None if it could.
    """

    name: str
    is_source: bool
    user: str
    lag: ReplicaLag | None = None
    error: SourceError | None = None


def read_replicas(config: Config) -> list[ReplicaFacts]:
    """Read the lag of all watched servers; of none if there is no limit."""
    return [_read(watched) for watched in watched_servers(config)]


def _read(watched: WatchedServer) -> ReplicaFacts:
    server = watched.server
    facts = (server.name, not watched.is_replica, server.url.user)
    try:
        with connect_to(server, read_timeout=_ANSWER_S) as connection:
            return ReplicaFacts(*facts, lag=read_replica_lag(connection))
    except SourceError as error:
        return ReplicaFacts(*facts, error=error)


def check_replicas(facts: Sequence[ReplicaFacts], config: Config) -> Iterator[CheckResult]:
    """Check that the lag of each watched server can be read, and that the limit has an effect."""
    limit = config.bootstrap.max_replica_lag
    if limit is None:
        return
    for server in facts:
        yield from _check(server, limit)
    if all(server.is_source and server.error is None and server.lag is None for server in facts):
        yield warn(
            "replicas: lag",
            "the source is no replica, and bootstrap.replica_urls names none",
            "name the replicas, or remove bootstrap.max_replica_lag, which has no effect",
        )


def _check(server: ReplicaFacts, limit: float) -> Iterator[CheckResult]:
    name = f"replicas: {server.name}"
    if isinstance(server.error, PrivilegeError):
        step = f"on this server: GRANT REPLICATION CLIENT ON *.* TO the account of {server.user}"
        yield fail(name, server.error.message, step)
    elif server.error is not None:
        # That the source cannot be reached is another check's result.
        if not server.is_source:
            yield fail(name, server.error.message, server.error.hint or "check bootstrap.replica_urls")
    elif server.lag is None:
        if not server.is_source:
            yield fail(name, "is no replica", "correct bootstrap.replica_urls")
    elif server.lag.seconds is None:
        yield warn(name, "its replication does not run", "START REPLICA there: until then no table is read")
    elif server.lag.seconds > limit:
        yield warn(name, f"{server.lag.seconds} s behind", "nothing to do: tables are read once it is closer")
    else:
        yield ok(name, f"{server.lag.seconds} s behind")
