"""Do the topics and the connector carry everything? Pure: from facts to results."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from replicator.check.log_facts import ConnectorFacts, TopicFacts
from replicator.check.result import CheckResult, fail, listing, ok, warn
from replicator.config import Config
from replicator.source.pattern import topic_pattern

_DAY_MS = 86_400_000
_MYSQL_CONNECTOR = "io.debezium.connector.mysql.MySqlConnector"
_JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(frozen=True, slots=True)
class _Rule:
    """A connector option of which only some values are harmless.

    Attributes:
        default: what the connector takes where the option is not set.
        good: values that lose nothing.
        reason: what happens under the others.
        lossy: whether they lose something, so that a mirror refuses to run unless the option is in log.allow_lossy.
        bearable: values that lose nothing either, but are worth a word.
    """

    option: str
    default: str
    good: tuple[str, ...]
    reason: str
    lossy: bool = True
    bearable: tuple[str, ...] = ()


_RULES = (
    _Rule("skipped.operations", "t", ("none",), "TRUNCATE and other skipped operations never reach the lake"),
    _Rule(
        "decimal.handling.mode",
        "precise",
        ("precise",),
        "decimals become text, or lose digits as doubles",
        bearable=("string",),
    ),
    _Rule(
        "bigint.unsigned.handling.mode",
        "long",
        ("precise",),
        "BIGINT UNSIGNED above 9223372036854775807 turns negative",
    ),
    _Rule(
        "time.precision.mode",
        "adaptive_time_microseconds",
        ("adaptive_time_microseconds", "microseconds"),
        "times lose microseconds, or the connector fails at years and TIMEs that the mode cannot hold",
    ),
    _Rule("enable.time.adjuster", "true", ("false",), "years from 0001 to 0099 are moved to our time"),
    _Rule(
        "event.processing.failure.handling.mode", "fail", ("fail",), "events that cannot be processed vanish"
    ),
    _Rule(
        "inconsistent.schema.handling.mode", "fail", ("fail",), "events of tables with unknown schemas vanish"
    ),
    _Rule(
        "event.converting.failure.handling.mode", "warn", ("fail",), "values that cannot be converted vanish"
    ),
    _Rule(
        "value.converter.replace.null.with.default",
        "true",
        ("false",),
        "a NULL in a column that has a default arrives as the default",
    ),
    _Rule(
        "binary.handling.mode",
        "bytes",
        ("bytes", "base64"),
        "binary values are decoded as Base64",
        lossy=False,
    ),
    _Rule(
        "snapshot.mode",
        "initial",
        ("initial", "always", "initial_only", "when_needed"),
        "rows from before the connector's start are missing",
        lossy=False,
        bearable=(
            "no_data",
            "never",
            "recovery",
            "schema_only",
            "schema_only_recovery",
            "custom",
            "configuration_based",
        ),
    ),
)
_LEAVING_OUT = (
    *("column.exclude.list", "column.include.list", "column.mask.", "column.truncate."),
    *("snapshot.select.statement.overrides", "gtid.source.includes", "gtid.source.excludes"),
)
"""Options, or how they begin, by which columns, rows or values never reach the topics."""


def check_topics(topics: tuple[TopicFacts, ...], config: Config) -> list[CheckResult]:
    """Every check of the topics, in the order of the report."""
    prefix = config.log.topic_prefix
    excluded = config.source.excludes
    ours = re.compile(topic_pattern(prefix or "", config.source.tables, config.source.exclude))
    tables = [
        topic
        for topic in topics
        if ours.fullmatch(topic.name) and not excluded(topic.name.removeprefix(f"{prefix}."))
    ]
    if not tables:
        return [
            warn(
                "log: topics",
                f"none called {prefix}.DATABASE.TABLE fits source.tables",
                "run: replicator connect; where the connector runs already, check log.topic_prefix",
            )
        ]
    return [ok("log: topics", f"{len(tables)}: {listing(topic.name for topic in tables)}"), *_kept(tables)]


def _kept(tables: list[TopicFacts]) -> Iterator[CheckResult]:
    compacted = [topic.name for topic in tables if "compact" in topic.cleanup_policy]
    if compacted:
        yield warn(
            "log: compaction",
            f"{listing(compacted)} keep only the last event of a key",
            "the changelog then lacks what was compacted away: set cleanup.policy = delete",
        )
    short = [t.name for t in tables if "delete" in t.cleanup_policy and 0 <= t.retention_ms < _DAY_MS]
    if short:
        yield warn(
            "log: retention",
            f"less than a day on {listing(short)}",
            "a mirror that is stopped for longer loses events: raise retention.ms, or run: replicator record",
        )
    elif not compacted:
        kept = min((t.retention_ms for t in tables if t.retention_ms >= 0), default=None)
        yield ok("log: retention", "for ever" if kept is None else f"{kept / _DAY_MS:.3g} days")


def check_connector(connector: ConnectorFacts | None, allowed: Collection[str] = ()) -> list[CheckResult]:
    """Every check of the connector, in the order of the report; `allowed` are the losses of log.allow_lossy."""
    if connector is None:
        return [warn("connector: registered", "none has this topic.prefix", "run: replicator connect")]
    return [
        _running(connector),
        *(_rule(rule, connector.options, allowed) for rule in _RULES),
        *_shape(connector.options),
        *_left_out(connector.options, allowed),
    ]


def losses(options: Mapping[str, str], allowed: Collection[str]) -> dict[str, str]:
    """Options under which a connector loses data and which are not allowed → their value and what is lost."""
    found = {}
    for rule in _RULES:
        value = options.get(rule.option, rule.default)
        if rule.lossy and value not in (*rule.good, *rule.bearable) and rule.option not in allowed:
            found[rule.option] = f"{value}: {rule.reason}"
    for option in sorted(options):
        if option.startswith(_LEAVING_OUT) and not _is_allowed(option, allowed):
            found[option] = f"{options[option]}: {_MISSING}"
    return found


def _is_allowed(option: str, allowed: Collection[str]) -> bool:
    """Whether an option, or what several options of a kind begin with, is in `allowed`."""
    return any(option == name or (name in _LEAVING_OUT and option.startswith(name)) for name in allowed)


def _running(connector: ConnectorFacts) -> CheckResult:
    name = "connector: state"
    if connector.failed_tasks:
        return fail(
            name,
            f"{connector.name} failed: {connector.failed_tasks[0]}",
            f"mend the cause, then POST /connectors/{connector.name}/restart?includeTasks=true",
        )
    if connector.state != "RUNNING":
        return warn(name, f"{connector.name} is {connector.state}", "resume or restart it in Kafka Connect")
    return ok(name, f"{connector.name} is {connector.state}")


def _rule(rule: _Rule, options: Mapping[str, str], allowed: Collection[str]) -> CheckResult:
    value = options.get(rule.option, rule.default)
    name = f"connector: {rule.option}"
    if value in rule.good:
        return ok(name, value)
    found = value if rule.option in options else f"{value} (the default)"
    step = f"set it to {rule.good[0]}: {rule.reason}"
    if value in rule.bearable or rule.option in allowed:
        return warn(name, found, step)
    return fail(name, found, f"{step}; or {_permit(rule.option)}" if rule.lossy else step)


def _permit(option: str) -> str:
    return f'allow the loss: allow_lossy = ["{option}"] in [log]'


def _shape(options: Mapping[str, str]) -> Iterator[CheckResult]:
    """What the events look like."""
    kind = options.get("connector.class", "")
    if kind != _MYSQL_CONNECTOR:
        yield fail("connector: connector.class", kind or "missing", f"must be {_MYSQL_CONNECTOR}")
    for option in ("key.converter", "value.converter"):
        # Where it is not set, the worker's own converter holds, which cannot be asked for.
        if option in options and options[option] != _JSON_CONVERTER:
            yield fail(f"connector: {option}", options[option], f"must be {_JSON_CONVERTER}")
    schemaless = options.get("value.converter.schemas.enable", "true") == "false"
    if schemaless and options.get("include.schema.changes", "true") == "false":
        yield warn(
            "connector: include.schema.changes",
            "false",
            "set it to true: types of events without schemas come from the source as it is now, not as it was then",
        )
    precision = options.get("time.precision.mode", "adaptive_time_microseconds")
    if schemaless and precision == "microseconds":
        yield fail(
            "connector: time.precision.mode",
            precision,
            "leave it out: without schemas other modes cannot be told apart",
        )
    for name in filter(None, (part.strip() for part in options.get("transforms", "").split(","))):
        yield from _transform(name, options.get(f"transforms.{name}.type", ""))


def _transform(name: str, kind: str) -> Iterator[CheckResult]:
    label = f"connector: transforms.{name}"
    if kind.endswith("ExtractNewRecordState"):
        yield fail(label, kind, "remove it: it drops before-images and, by its defaults, deletes")
    elif kind.rpartition(".")[2] in ("ByLogicalTableRouter", "RegexRouter", "Filter", "ContentBasedRouter"):
        yield warn(
            label, kind, "make sure that it drops no events and leaves the names PREFIX.DATABASE.TABLE"
        )


_MISSING = "the mirror cannot hold what is left out or changed here"


def _left_out(options: Mapping[str, str], allowed: Collection[str]) -> Iterator[CheckResult]:
    """Options by which columns or rows never reach the topics, on purpose or not."""
    for option in sorted(options):
        if option.startswith(_LEAVING_OUT):
            name = f"connector: {option}"
            if _is_allowed(option, allowed):
                yield warn(name, options[option], _MISSING)
            else:
                yield fail(name, options[option], f"{_MISSING}; remove it, or {_permit(option)}")
