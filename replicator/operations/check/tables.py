"""Check what rules and reads of tables need: columns that exist, replicas that keep up."""

from collections.abc import Iterator

from replicator.config import ColumnRuleBook, Config
from replicator.config.unmatched import unmatched_columns
from replicator.errors import PrivilegeError, SourceError
from replicator.model.column_rules import ColumnRules
from replicator.model.common import counted, listing
from replicator.model.table import SourceName
from replicator.model.transforms import KeyedHash
from replicator.operations.check.result import CheckResult, fail, ok, warn
from replicator.operations.check.source_facts import SourceFacts, TableFacts
from replicator.sources.mysql.connection import connect_to
from replicator.sources.mysql.replication import read_replica_lag, watched_servers


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
    return [n for n in key if not isinstance(rules.rule_of(n), KeyedHash | None)]


def _unlisted(ruled: list[tuple[TableFacts, ColumnRules]]) -> list[str]:
    """Return columns for which their tables would pause."""
    return [
        f"{table}.{name}"
        for table, rules in ruled
        for name in rules.unlisted(SourceName(column, column) for column in table.columns)
    ]


_ANSWER_S = 10.0


def check_replicas(config: Config, limit: float) -> Iterator[CheckResult]:
    """Check that the lag of each watched server can be read, and that the limit has an effect.

    The source need not be a replica, and another check tells whether it can be reached.
    """
    servers = watched_servers(config)
    for watched in servers:
        name = f"replicas: {watched.server.name}"
        try:
            with connect_to(watched.server, read_timeout=_ANSWER_S) as connection:
                lag = read_replica_lag(connection)
        except PrivilegeError as error:
            user = watched.server.url.user
            step = f"on this server: GRANT REPLICATION CLIENT ON *.* TO the account of {user}"
            yield fail(name, error.message, step)
        except SourceError as error:
            if watched.is_replica:
                yield fail(name, error.message, error.hint or "check bootstrap.replica_urls")
        else:
            if lag is not None:
                yield _lag(name, lag.seconds, limit)
            elif watched.is_replica:
                yield fail(name, "is no replica", "correct bootstrap.replica_urls")
            elif len(servers) == 1:
                yield warn(
                    "replicas: lag",
                    "the source is no replica, and bootstrap.replica_urls names none",
                    "name the replicas, or remove bootstrap.max_replica_lag, which has no effect",
                )


def _lag(name: str, seconds: int | None, limit: float) -> CheckResult:
    if seconds is None:
        return warn(name, "its replication does not run", "START REPLICA there: until then no table is read")
    if seconds > limit:
        return warn(name, f"{seconds} s behind", "nothing to do: tables are read once it is closer")
    return ok(name, f"{seconds} s behind")
