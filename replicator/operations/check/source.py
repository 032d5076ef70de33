"""Check that the MySQL server can be mirrored. Pure: from facts and configuration to results."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from replicator.config import Config, KafkaLog
from replicator.config.unmatched import unmatched_exclusions, unmatched_sections, unmatched_tables
from replicator.model.common import counted, listing
from replicator.model.table import topic_name
from replicator.operations.check.log_facts import TopicFacts
from replicator.operations.check.result import DAY_S, CheckResult, days, fail, ok, warn
from replicator.operations.check.source_facts import SourceFacts, TableFacts

_SKEW_SECONDS = 5.0
_OLDEST = (8, 0, 14)
_CASCADES_LOGGED_SINCE = (9, 6)
_LOG_CASCADES = (
    "use MySQL 9.6 or newer with innodb_native_foreign_keys = OFF, or let the application change the children itself; "
    'or set cascades = "reread" in [source], which reads these tables again when rows of their parents are deleted or '
    "updated; without it, find and correct such rows with: replicator verify --repair"
)
_SHARED = "all events of a compressed transaction have one position"


def check_source(facts: SourceFacts, config: Config) -> list[CheckResult]:
    """Run every check of the source, in the order of the report."""
    return [
        _version(facts),
        *(variable.check(facts) for variable in _BINLOG),
        *_replica(facts),
        _compression(facts, config),
        _retention(facts),
        _time_zone(facts),
        _clock(facts),
        *_privileges(facts),
        *_tables(facts, config),
        *_lost_nulls(facts, config),
    ]


def _parsed_version(facts: SourceFacts) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", facts.variables.get("version", ""))
    return tuple(int(number or 0) for number in found.groups()) if found else (0,)


def _version(facts: SourceFacts) -> CheckResult:
    name, version = "source: version", facts.variables.get("version", "unknown")
    if "mariadb" in (version + facts.variables.get("version_comment", "")).lower():
        return fail(
            name, f"MariaDB {version}", "MariaDB's binlog differs; the source must be MySQL 8.0.14 or newer"
        )
    if _parsed_version(facts) < _OLDEST:
        return fail(name, f"MySQL {version}", "upgrade the server to MySQL 8.0.14 or newer")
    return ok(name, f"MySQL {version}")


@dataclass(frozen=True, slots=True)
class _Variable:
    """A variable of the server of which only some values are suitable.

    Attributes:
        good: the values, in upper case.
        default: what holds on a server without the variable.
        warns: whether a mirror works with other values too.
    """

    name: str
    good: tuple[str, ...]
    step: str
    default: str
    warns: bool = False

    def check(self, facts: SourceFacts) -> CheckResult:
        """Check the value of the server."""
        value = facts.variables.get(self.name, self.default)
        if value.upper() in self.good:
            return ok(f"source: {self.name}", value or "none")
        return (warn if self.warns else fail)(f"source: {self.name}", value, self.step)


_ON = ("ON", "1")
_BINLOG = (
    _Variable("log_bin", _ON, "start mysqld with --log-bin and a --server-id above 0", "OFF"),
    # The variable does not exist on servers that only support row format.
    _Variable(
        "binlog_format",
        ("ROW",),
        "SET PERSIST binlog_format = 'ROW'  (statements alone do not identify the changed rows)",
        "ROW",
    ),
    _Variable(
        "binlog_row_image",
        ("FULL",),
        "SET PERSIST binlog_row_image = 'FULL'  (other images leave out unchanged columns)",
        "FULL",
    ),
    _Variable(
        "binlog_row_value_options",
        ("",),
        "SET PERSIST binlog_row_value_options = ''  (partial JSON updates cannot be mirrored)",
        "",
    ),
    _Variable(
        "binlog_row_metadata",
        ("FULL", ""),
        "SET PERSIST binlog_row_metadata = 'FULL'  (binlog files then carry column names)",
        "MINIMAL",
        warns=True,
    ),
    _Variable(
        "gtid_mode",
        ("ON",),
        "set gtid_mode and enforce_gtid_consistency ON: without GTIDs, a failover requires a new snapshot",
        "OFF",
        warns=True,
    ),
    _Variable(
        "lower_case_table_names",
        ("0",),
        "write table names in CREATE TABLE and RENAME TABLE as SHOW TABLES does: Debezium uses the letter case of "
        "these statements in topics, so a table with another one is another table for the mirror",
        "0",
        warns=True,
    ),
)


def _replica(facts: SourceFacts) -> Iterator[CheckResult]:
    if facts.is_replica:
        # Before MySQL 8.0.26, the variable had another name.
        old = facts.variables.get("log_slave_updates", "ON")
        step = "start this replica with --log-replica-updates=ON: its binlog lacks what it replicates"
        yield _Variable("log_replica_updates", _ON, step, old).check(facts)


def _compression(facts: SourceFacts, config: Config) -> CheckResult:
    name = "source: binlog_transaction_compression"
    value = facts.variables.get("binlog_transaction_compression", "OFF")
    if value.upper() in ("OFF", ""):
        return ok(name, value or "OFF")
    if not isinstance(config.log, KafkaLog):
        return warn(
            name, value, "changes are lost in a replay, unless the events in the archive are numbered"
        )
    off = "SET PERSIST binlog_transaction_compression = OFF"
    if config.log.flattened:
        return fail(name, value, f"{off}  ({_SHARED}, and flattened events have no numbers)")
    if config.log.transactions:
        return ok(name, f"{value}, and the connector numbers the events")
    return fail(
        name,
        value,
        f"set log.transactions = true and run: replicator connect; or {off}  ({_SHARED})",
    )


def _retention(facts: SourceFacts) -> CheckResult:
    name = "source: binlog retention"
    seconds = int(facts.variables.get("binlog_expire_logs_seconds", "0") or 0)
    purges = facts.variables.get("binlog_expire_logs_auto_purge", "ON").upper() != "OFF"
    if seconds == 0 or not purges:
        return ok(name, "kept until purged manually")
    found = days(seconds)
    if seconds < 3 * DAY_S:
        return warn(
            name,
            found,
            "SET PERSIST binlog_expire_logs_seconds = 604800  (a connector down for longer needs a new snapshot)",
        )
    return ok(name, found)


def _time_zone(facts: SourceFacts) -> CheckResult:
    zone = facts.variables.get("time_zone", "SYSTEM")
    system = facts.variables.get("system_time_zone", "")
    found = f"{zone} ({system})" if zone == "SYSTEM" else zone
    if zone != "SYSTEM" or system in ("UTC", "GMT", "Etc/UTC", ""):
        return ok("source: time zone", found)
    return warn(
        "source: time zone",
        found,
        f"{system} may be ambiguous: SET PERSIST time_zone = '+00:00', or a full name such as 'Europe/Berlin'",
    )


def _clock(facts: SourceFacts) -> CheckResult:
    found = f"{facts.clock_ahead:+.1f} s relative to this machine"
    if abs(facts.clock_ahead) <= _SKEW_SECONDS:
        return ok("source: clock", found)
    return warn("source: clock", found, "lag compares both clocks: run an NTP client on both machines")


def _privileges(facts: SourceFacts) -> Iterator[CheckResult]:
    grants = facts.grants
    needed = (
        ("REPLICATION SLAVE", ("REPLICATION SLAVE",), True),
        ("REPLICATION CLIENT", ("REPLICATION CLIENT",), True),
        ("RELOAD", ("RELOAD", "FLUSH_TABLES"), True),
        ("SHOW DATABASES", ("SHOW DATABASES",), False),
    )
    for name, enough, required in needed:
        yield _privilege(facts, name, grants.globally(*enough), required, f"GRANT {name} ON *.*")
    yield _privilege(
        facts,
        "LOCK TABLES",
        grants.locks_tables(),
        required=False,
        grant="GRANT LOCK TABLES ON *.*",
    )
    unreadable = [table for table in facts.tables if not table.is_readable]
    if unreadable:
        databases = sorted({table.database for table in unreadable})
        step = "; ".join(f"GRANT SELECT ON `{database}`.* TO {_account(facts)}" for database in databases)
        yield fail("source: SELECT", f"missing on {listing(unreadable)}", step)
    elif facts.tables:
        yield ok("source: SELECT", f"granted on {counted(len(facts.tables), 'table')}")


def _privilege(facts: SourceFacts, name: str, granted: bool, required: bool, grant: str) -> CheckResult:
    if granted:
        return ok(f"source: {name}", "granted")
    return (fail if required else warn)(f"source: {name}", "missing", f"{grant} TO {_account(facts)}")


def _account(facts: SourceFacts) -> str:
    user, _, host = facts.user.rpartition("@")
    return f"'{user}'@'{host}'"


def _tables(facts: SourceFacts, config: Config) -> Iterator[CheckResult]:
    name = "source: tables"
    names = {str(table) for table in facts.tables}
    every = names.union(facts.excluded)
    missing = unmatched_tables(config, every)
    if not facts.tables or missing:
        found = f"no table matches {listing(missing)}" if missing else "every table is excluded"
        yield fail(name, found, "correct the names, and give the user SELECT on the tables")
    else:
        yield ok(name, f"{len(facts.tables)}: {listing(sorted(names))}")
    if unmatched := [*unmatched_exclusions(config, every), *unmatched_sections(config, every)]:
        yield fail(
            "source: patterns",
            f"no table matches {listing(unmatched)}",
            "correct the names (a renamed table: its current name), or remove the entries; only * and ? are wildcards",
        )
    yield from _keys(facts, config)
    yield from _histories(facts, config)
    yield from _collisions(facts, config)
    yield from _losses(facts, config)


def keyless_tables(facts: SourceFacts, config: Config) -> list[TableFacts]:
    """Return the tables that have a key neither in the source nor in the configuration."""
    return [t for t in facts.tables if not t.has_primary_key and not config.table(str(t)).key]


def check_partitions(
    facts: SourceFacts, topics: Sequence[TopicFacts], config: Config
) -> Iterator[CheckResult]:
    """Check that the rows of tables without a key are ordered: that they are in one partition of their topic.

    A topic that does not exist yet will have the number of partitions that is configured.
    """
    if not isinstance(config.log, KafkaLog):
        return
    log, partitions = config.log, {topic.name: topic.partitions for topic in topics}
    spread = [
        str(table)
        for table in keyless_tables(facts, config)
        if config.table(str(table)).keyless == "identity"
        and partitions.get(f"{log.topic_prefix}.{topic_name(table.id)}", log.partitions) > 1
    ]
    if spread:
        yield fail(
            "source: keyless tables",
            f"the topics of {listing(spread)} have several partitions, so the order of their events is unknown",
            'set key = [...] or keyless = "changelog" in a [[table]]; if their topics do not exist yet: '
            "set log.partitions = 1, then run: replicator connect",
        )


def _keys(facts: SourceFacts, config: Config) -> Iterator[CheckResult]:
    keyless = [str(table) for table in keyless_tables(facts, config)]
    pausing = [table for table in keyless if config.table(table).keyless == "pause"]
    if pausing:
        yield fail(
            "source: primary keys",
            f"none on {listing(pausing)}",
            "add a primary key, or set key = [...] or keyless in a [[table]], or name the table in source.exclude",
        )
    elif keyless:
        yield warn(
            "source: primary keys",
            f"none on {listing(keyless)}",
            "rows are identified by all their values, which is slower and needs a topic of one partition; "
            "a primary key, or key = [...] in a [[table]], is better",
        )
    elif facts.tables:
        yield ok("source: primary keys", "every table has one")


def _histories(facts: SourceFacts, config: Config) -> Iterator[CheckResult]:
    wanted = [section for section in config.tables if section.history is not None]
    names = {section.name for section in wanted}
    if keyless := [str(table) for table in keyless_tables(facts, config) if str(table) in names]:
        yield fail(
            "source: histories",
            f"no primary key on {listing(keyless)}, so nothing tells which versions are of one row",
            "add a primary key, or set key = [...] in the [[table]]; or remove its history",
        )
    elif facts.variables.get("gtid_mode", "OFF") != "ON" and any(s.history == "scd2" for s in wanted):
        yield warn(
            "source: histories",
            "without GTIDs, nothing tells which changes are of one transaction: each event makes a version",
            "set gtid_mode and enforce_gtid_consistency ON",
        )
    elif wanted:
        yield ok("source: histories", f"{len(wanted)}: {listing(sorted(names))}")


def _collisions(facts: SourceFacts, config: Config) -> Iterator[CheckResult]:
    by_name: dict[str, list[TableFacts]] = defaultdict(list)
    for table in facts.tables:
        by_name[table.name.casefold()].append(table)
    alike = [tables for tables in by_name.values() if len(tables) > 1]
    same = [
        tables for tables in alike if config.lake.folds_case or len({t.name for t in tables}) < len(tables)
    ]
    if same:
        yield fail(
            "source: table names",
            f"{_alike(same)} would be the same table in the lake",
            "mirror them with two configurations, each with its own namespace",
        )
    elif alike:
        yield warn(
            "source: table names",
            f"{_alike(alike)} differ only in letter case",
            "nothing to do if all engines that read the lake distinguish letter case; "
            "otherwise mirror them with two configurations, each with its own namespace",
        )


def _alike(groups: Sequence[Sequence[TableFacts]]) -> str:
    return listing(" and ".join(map(str, tables)) for tables in groups)


def _lost_nulls(facts: SourceFacts, config: Config) -> Iterator[CheckResult]:
    defaulted = [f"{table}.{column}" for table in facts.tables for column in table.defaulted]
    if not defaulted or not isinstance(config.log, KafkaLog) or not config.log.nulls_are_lost:
        return
    say = warn if config.log.defaults_are_accepted else fail
    yield say(
        "source: nullable columns with defaults",
        f"a NULL arrives as the default, because of Apicurio's converter: {listing(defaulted)}",
        "make them NOT NULL or drop their defaults; or use JSON, or Confluent's converter and registry",
    )


def _losses(facts: SourceFacts, config: Config) -> Iterator[CheckResult]:
    wide = [f"{table}.{column}" for table in facts.tables for column in table.wide_decimals]
    if wide:
        yield warn(
            "source: decimals", f"more than 38 digits: {listing(wide)}", "nothing to do: kept as strings"
        )
    garbled = [f"{table}.{column}" for table in facts.tables for column in table.garbled]
    if garbled:
        yield warn(
            "source: character sets",
            f"Debezium decodes letters of {listing(garbled)} wrongly; the mirror corrects them",
            "convert the columns to utf8mb4 if others read the topics too",
        )
    cascading = [str(table) for table in facts.tables if table.cascades]
    if cascading and not _logs_cascades(facts):
        name, found = "source: foreign keys", f"rows of {listing(cascading)} change by cascade"
        if config.rereads_cascades:
            yield ok(name, f"{found}; then [heal] decides when these tables are read again")
        else:
            yield warn(name, f"{found}, which this server does not write to its binlog", _LOG_CASCADES)


def _logs_cascades(facts: SourceFacts) -> bool:
    native = facts.variables.get("innodb_native_foreign_keys", "OFF")
    return _parsed_version(facts) >= _CASCADES_LOGGED_SINCE and native.upper() in ("OFF", "0")
