"""Check what rules and reads of tables need: columns that exist, replicas that keep up."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replicator.config import ColumnRuleBook, Config
from replicator.config.unmatched import unmatched_columns
from replicator.errors import PrivilegeError, SourceError
from replicator.model.column_rules import ColumnRules
from replicator.model.common import counted
from replicator.model.table import SourceName
from replicator.model.transforms import KeyedHash
from replicator.operations.check.result import CheckResult, fail, listing, ok, warn
from replicator.operations.check.source_facts import SourceFacts, TableFacts
from replicator.sources.mysql.connection import connect_to
from replicator.sources.mysql.replication import ReplicaLag, WatchedServer, read_replica_lag, watched_servers


def check_columns(facts: SourceFacts, config: Config) -> Iterator[CheckResult]:
    """Yield the checks of the column rules; none if there are no rules."""
    book = ColumnRuleBook(config)
    ruled = [(table, rules) for table in facts.tables if (rules := book.of(str(table)))]
    lost = [f"{table}.{name}" for table, rules in ruled for name in _lost_keys(table, rules, config)]
    if lost:
        yield fail(
            "columns: keys",
            f"excluded or masked: {listing(lost)}",
            "hash key columns instead, or remove them from the rules",
        )
    if unlisted := _unlisted(ruled):
        yield fail(
            "columns: unlisted",
            f'these tables would pause (unlisted = "pause"): no rule lists {listing(unlisted)}',
            "add these columns to include, exclude, hash or mask",
        )
    if unmatched := unmatched_columns(config, {str(table): table.columns for table in facts.tables}):
        # A column whose name is misspelt in a rule would be written to the lake in clear text.
        yield fail(
            "columns: rules",
            f"no column matches {listing(unmatched)}",
            "correct the names (a renamed column: its current name), or remove the rules; only * and ? are wildcards",
        )
    elif ruled and not lost and not unlisted:
        yield ok("columns: rules", f"match {counted(len(ruled), 'table')}")


def _lost_keys(table: TableFacts, rules: ColumnRules, config: Config) -> list[str]:
    key = config.table(str(table)).key or table.key_columns
    return [n for n in key if rules.leaves_out(n) or not isinstance(rules.transform(n), KeyedHash | None)]


def _unlisted(ruled: list[tuple[TableFacts, ColumnRules]]) -> list[str]:
    """Return columns for which their tables would pause."""
    return [
        f"{table}.{name}"
        for table, rules in ruled
        for name in rules.unlisted(SourceName(column, column) for column in table.columns)
    ]


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
