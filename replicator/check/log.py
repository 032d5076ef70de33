"""Do the topics and the connector carry everything? Pure: from facts to results."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from replicator.check.log_facts import ConnectorFacts, TopicFacts
from replicator.check.result import CheckResult, Status, fail, listing, ok, warn
from replicator.config import Config

_DAY_MS = 86_400_000
_MYSQL_CONNECTOR = "io.debezium.connector.mysql.MySqlConnector"
_JSON_CONVERTER = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(frozen=True, slots=True)
class _Rule:
    """A connector option of which only some values are harmless; `default` is what the connector takes."""

    option: str
    default: str
    good: tuple[str, ...]
    otherwise: Status
    reason: str


_RULES = (
    _Rule(
        "skipped.operations",
        "t",
        ("none",),
        "fail",
        "TRUNCATE and other skipped operations never reach the lake",
    ),
    _Rule("decimal.handling.mode", "precise", ("precise",), "fail", "decimals lose digits or their type"),
    _Rule(
        "event.processing.failure.handling.mode",
        "fail",
        ("fail",),
        "fail",
        "events that cannot be processed vanish",
    ),
    _Rule(
        "inconsistent.schema.handling.mode",
        "fail",
        ("fail",),
        "fail",
        "events of tables with unknown schemas vanish",
    ),
    _Rule(
        "event.converting.failure.handling.mode",
        "warn",
        ("fail",),
        "warn",
        "values that cannot be converted vanish",
    ),
    _Rule(
        "bigint.unsigned.handling.mode",
        "long",
        ("precise",),
        "warn",
        "BIGINT UNSIGNED above 9223372036854775807 turns negative",
    ),
    _Rule(
        "snapshot.mode",
        "initial",
        ("initial", "always", "initial_only", "when_needed"),
        "warn",
        "rows from before the connector's start are missing",
    ),
    _Rule(
        "binary.handling.mode", "bytes", ("bytes", "base64"), "fail", "binary values are decoded as Base64"
    ),
)


def check_topics(topics: tuple[TopicFacts, ...], config: Config) -> list[CheckResult]:
    """Every check of the topics, in the order of the report."""
    prefix = config.log.topic_prefix
    tables = [topic for topic in topics if config.includes(topic.name.removeprefix(f"{prefix}."))]
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


def check_connector(connector: ConnectorFacts | None) -> list[CheckResult]:
    """Every check of the connector, in the order of the report."""
    if connector is None:
        return [warn("connector: registered", "none has this topic.prefix", "run: replicator connect")]
    return [
        _running(connector),
        *(_rule(rule, connector.options) for rule in _RULES),
        *_shape(connector.options),
        *_left_out(connector.options),
    ]


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


def _rule(rule: _Rule, options: Mapping[str, str]) -> CheckResult:
    value = options.get(rule.option, rule.default)
    name = f"connector: {rule.option}"
    if value in rule.good:
        return ok(name, value)
    found = value if rule.option in options else f"{value} (the default)"
    return CheckResult(name, rule.otherwise, found, f"set it to {rule.good[0]}: {rule.reason}")


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
        yield fail(
            "connector: include.schema.changes",
            "false",
            "set it to true: events without schemas get their types from the schema-change topic",
        )
    precision = options.get("time.precision.mode", "adaptive_time_microseconds")
    if schemaless and precision != "adaptive_time_microseconds":
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


def _left_out(options: Mapping[str, str]) -> Iterator[CheckResult]:
    """Options by which columns or rows never reach the topics, on purpose or not."""
    for option in sorted(options):
        if option in ("column.exclude.list", "column.include.list") or option.startswith(
            ("column.mask.", "column.truncate.", "snapshot.select.statement.overrides")
        ):
            yield warn(
                f"connector: {option}",
                options[option],
                "the mirror cannot hold what is left out or masked here",
            )
