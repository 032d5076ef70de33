"""Check that topics and connector deliver every change. Pure: from facts to results."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from replicator.config import Config, KafkaLog
from replicator.model.common import listing
from replicator.model.events import ADD_FIELDS
from replicator.operations.check.log_facts import TopicFacts
from replicator.operations.check.result import DAY_S, CheckResult, days, fail, ok, warn
from replicator.sources.connector.policy import Observation
from replicator.sources.connector.settings import differing_selection
from replicator.sources.connector.state import Connector, failure_hint
from replicator.sources.kafka.topic_patterns import topic_pattern

_FLATTENS = "ExtractNewRecordState"
_MYSQL_CONNECTOR = "io.debezium.connector.mysql.MySqlConnector"
_CONVERTERS = {
    "json": ("org.apache.kafka.connect.json.JsonConverter",),
    "avro": ("io.apicurio.registry.utils.converter.AvroConverter", "io.confluent.connect.avro.AvroConverter"),
}
"""The converters for each log format."""


@dataclass(frozen=True, slots=True)
class _Rule:
    """A connector option of which only some values are safe.

    Attributes:
        default: the connector's default.
        good: values that lose nothing.
        reason: the effect of any other value.
        lossy: whether other values lose data, so that a mirror refuses to run unless the option is in log.allow_lossy.
        bearable: values that lose nothing, and are reported as a warning.
    """

    option: str
    default: str
    good: tuple[str, ...]
    reason: str
    lossy: bool = True
    bearable: tuple[str, ...] = ()


_CONFLUENT_FORMAT = {"as-confluent": "true", "headers.enabled": "false", "use-id": "contentId"}
"""Options of Apicurio's converter."""
_SNAPSHOT = "snapshot.mode"
_PRECISION = "time.precision.mode"
_MICROSECONDS = "adaptive_time_microseconds"
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
        _PRECISION,
        _MICROSECONDS,
        (_MICROSECONDS, "microseconds"),
        "times lose microseconds, or the connector fails at years and TIMEs that the mode cannot hold",
    ),
    _Rule(
        "enable.time.adjuster",
        "true",
        ("false",),
        "years 0001 to 0099 are read as two-digit years (1970 to 2069)",
    ),
    _Rule(
        "event.processing.failure.handling.mode",
        "fail",
        ("fail",),
        "events that cannot be processed are dropped",
    ),
    _Rule(
        "inconsistent.schema.handling.mode",
        "fail",
        ("fail",),
        "events of tables with unknown schemas are dropped",
    ),
    _Rule(
        "event.converting.failure.handling.mode",
        "warn",
        ("fail",),
        "values that cannot be converted are dropped",
    ),
    _Rule(
        "schema.history.internal.skip.unparseable.ddl",
        "false",
        ("true",),
        "a statement that Debezium cannot parse stops the connector, in any database",
        lossy=False,
    ),
    _Rule(
        "binary.handling.mode",
        "bytes",
        ("bytes", "base64"),
        "binary values are decoded as Base64",
        lossy=False,
    ),
    _Rule(
        _SNAPSHOT,
        "initial",
        ("initial", "always", "initial_only", "when_needed"),
        "rows written before the connector started are missing",
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
_NULLS = "a NULL in a column that has a default arrives as the default"
_JSON_NULLS = _Rule("value.converter.replace.null.with.default", "true", ("false",), _NULLS)
_CONFLUENT_NULLS = _Rule("value.converter.ignore.default.for.nullables", "false", ("true",), _NULLS)
_LEAVING_OUT = (
    *("column.exclude.list", "column.include.list", "column.mask.", "column.truncate."),
    *("snapshot.select.statement.overrides", "gtid.source.includes", "gtid.source.excludes"),
)
"""Names or prefixes of options that keep columns, rows or values out of the topics."""


def check_topics(
    topics: tuple[TopicFacts, ...], config: Config, *, is_registered: bool = False
) -> list[CheckResult]:
    """Run every check of the topics, in the order of the report.

    A connector that is registered makes the topic of a table with its first event.
    """
    prefix = config.log.topic_prefix
    is_mirrored = mirrored_topics(config)
    tables = [topic for topic in topics if is_mirrored(topic.name)]
    if not tables and is_registered:
        return [ok("log: topics", "none yet; the connector makes that of a table with the first change")]
    if not tables:
        return [
            warn(
                "log: topics",
                f"no topic {prefix}.DATABASE.TABLE matches source.tables",
                "run: replicator connect; if a connector is running, compare log.topic_prefix with its topic.prefix",
            )
        ]
    return [ok("log: topics", f"{len(tables)}: {listing(topic.name for topic in tables)}"), *_kept(tables)]


def mirrored_topics(config: Config) -> Callable[[str], bool]:
    """Return a function that tells whether a topic is that of a mirrored table, judged by its name."""
    prefix = config.log.topic_prefix or ""
    ours = re.compile(topic_pattern(prefix, config.source.tables, config.source.exclude))
    excluded = config.source.excludes
    return lambda topic: bool(ours.fullmatch(topic)) and not excluded(topic.removeprefix(f"{prefix}."))


def _kept(tables: list[TopicFacts]) -> Iterator[CheckResult]:
    compacted = [topic.name for topic in tables if topic.is_compacted]
    if compacted:
        yield fail(
            "log: compaction",
            f"{listing(compacted)} keep only the last event of a key",
            "their tables pause, because deletes may be missing: set cleanup.policy = delete",
        )
    short = [t.name for t in tables if t.expires and 0 <= t.retention_ms < DAY_S * 1000]
    if short:
        yield warn(
            "log: retention",
            f"less than a day on {listing(short)}",
            "a mirror that is stopped for longer loses events: raise retention.ms, or keep them; "
            "run: replicator record --to ARCHIVE",
        )
    elif not compacted:
        kept = min((t.retention_ms for t in tables if t.retention_ms >= 0), default=None)
        yield ok("log: retention", "unlimited" if kept is None else days(kept / 1000))


def check_connector(connector: Connector | None, config: Config) -> list[CheckResult]:
    """Run every check of the connector of a Kafka log, in the order of the report."""
    log = config.log
    if connector is None or not isinstance(log, KafkaLog):
        return [
            warn("connector: registered", "no connector has this topic.prefix", "run: replicator connect")
        ]
    options = connector.options
    rules = [*_rules(options), *_rules_of_format(options, log)]
    return [
        _running(connector, config.mirror.name),
        *(
            _rule(rule, options, log.allow_lossy)
            for rule in rules
            # The mirror may read the rows of new tables.
            if rule.option != _SNAPSHOT or not config.reads_new_tables
        ),
        _heartbeats(options),
        *_transforms(options, log.flattened),
        *_left_out(options, log.allow_lossy),
    ]


def check_selection(connector: Connector | None, config: Config) -> Iterator[CheckResult]:
    """Check that a connector that `replicator connect` registered has the tables of the configuration."""
    if connector is None or connector.name != config.mirror.name:
        return
    if differing := differing_selection(config, connector.options):
        yield warn(
            "connector: tables",
            f"not those of the configuration: {', '.join(differing)} differ",
            "run: replicator connect; if the mirror runs, then: replicator reload",
        )
    else:
        yield ok("connector: tables", "those of the configuration")


def losses(options: Mapping[str, str], allowed: Collection[str]) -> dict[str, str]:
    """Return connector options that lose data and are not allowed → their value and the loss."""
    found = {}
    for rule in _rules(options):
        value = options.get(rule.option, rule.default)
        if rule.lossy and value not in (*rule.good, *rule.bearable) and rule.option not in allowed:
            found[rule.option] = f"{value}: {rule.reason}"
    for option in sorted(options):
        if option.startswith(_LEAVING_OUT) and not _is_allowed(option, allowed):
            found[option] = f"{options[option]}: {_MISSING}"
    return found


def _rules(options: Mapping[str, str]) -> tuple[_Rule, ...]:
    """Return the rules for a connector with these options. Apicurio's converter has no option to keep NULLs."""
    converter = options.get("value.converter", "")
    if "apicurio" in converter:
        return _RULES
    return (*_RULES, _CONFLUENT_NULLS if "confluent" in converter else _JSON_NULLS)


def _rules_of_format(options: Mapping[str, str], log: KafkaLog) -> Iterator[_Rule]:
    """Yield the rules for the events that a log must have."""
    yield _Rule("connector.class", "missing", (_MYSQL_CONNECTOR,), "no other one can be used", lossy=False)
    for side in ("key.converter", "value.converter"):
        # If it is not set, the worker's own converter applies, which cannot be queried.
        if side in options:
            step = f'log.format is "{log.format}"; run: replicator connect'
            yield _Rule(side, "", _CONVERTERS[log.format], step, lossy=False)
        if log.format == "avro" and "apicurio" in options.get(side, ""):
            for name, value in _CONFLUENT_FORMAT.items():
                option = f"{side}.apicurio.registry.{name}"
                yield _Rule(
                    option, "not set", (value,), "only Confluent's wire format can be read", lossy=False
                )
    if log.transactions:
        step = "else equal changes of a compressed transaction look redelivered; replicator connect sets it"
        yield _Rule("provide.transaction.metadata", "false", ("true",), step, lossy=False)
    if log.format == "avro":
        step = "a column whose name Avro does not allow stops the connector"
        option = "field.name.adjustment.mode"
        yield _Rule(option, "none", ("avro", "avro_unicode"), step, lossy=False, bearable=("none",))
    elif options.get("value.converter.schemas.enable", "true") == "false":
        step = "types of events without schemas come from the source's current definition otherwise"
        yield _Rule("include.schema.changes", "true", ("true",), step, lossy=False, bearable=("false",))
        if options.get(_PRECISION) == "microseconds":
            step = "without schemas, other modes cannot be distinguished"
            yield _Rule(_PRECISION, _MICROSECONDS, (_MICROSECONDS,), step, lossy=False)


def _is_allowed(option: str, allowed: Collection[str]) -> bool:
    """Return whether an option, or the prefix of several options of a kind, is in `allowed`."""
    return any(option == name or (name in _LEAVING_OUT and option.startswith(name)) for name in allowed)


def _running(connector: Connector, mirror: str) -> CheckResult:
    name, state = "connector: state", connector.state
    if state.failures:
        cause = state.failures[0]
        # `connect` would register a second connector, if this one has another name than the mirror.
        other = f"restart {connector.name} in Kafka Connect, unless a running mirror restarts it"
        step = failure_hint(cause) if connector.name == mirror else failure_hint(cause, other)
        return fail(name, f"{connector.name} failed: {cause}", step)
    if state.state != "RUNNING":
        step = Observation.of_connector(state).next_step() or "restart it in Kafka Connect"
        return warn(name, f"{connector.name} is {state.state}", step)
    return ok(name, f"{connector.name} is {state.state}")


def _heartbeats(options: Mapping[str, str]) -> CheckResult:
    """Check that the connector reports its position even if the mirrored tables are idle."""
    option = "heartbeat.interval.ms"
    value = options.get(option, "0")
    if value.strip().isdecimal() and int(value) > 0:
        return ok(f"connector: {option}", value)
    return warn(
        f"connector: {option}",
        value if option in options else f"{value} (the default)",
        "set it to 1000: without heartbeats, the connector's position does not advance while the mirrored tables are"
        " idle: run --until-caught-up cannot detect that it has caught up, and pipelines lack the last changes",
    )


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


def _transforms(options: Mapping[str, str], flattened: bool) -> Iterator[CheckResult]:
    """Check what the connector does with its events."""
    transforms = {
        name: options.get(f"transforms.{name}.type", "")
        for part in options.get("transforms", "").split(",")
        if (name := part.strip())
    }
    for name, kind in transforms.items():
        yield from _transform(name, kind, options, flattened)
    if flattened and not any(kind.endswith(_FLATTENS) for kind in transforms.values()):
        yield fail("connector: transforms", "nothing flattens the events", "set log.flattened = false")


def _transform(name: str, kind: str, options: Mapping[str, str], flattened: bool) -> Iterator[CheckResult]:
    label = f"connector: transforms.{name}"
    if kind.endswith(_FLATTENS):
        yield from (
            _flattening(label, kind, options)
            if flattened
            else (
                fail(
                    label,
                    kind,
                    "remove it: it drops before-images, TRUNCATE and, by its defaults, deletes; or set log.flattened",
                ),
            )
        )
    elif kind.rpartition(".")[2] in ("ByLogicalTableRouter", "RegexRouter", "Filter", "ContentBasedRouter"):
        yield warn(label, kind, "verify that it drops no events and keeps the names PREFIX.DATABASE.TABLE")


def _flattening(label: str, kind: str, options: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check that flattened events still contain all required fields."""
    prefix = label.removeprefix("connector: ")
    added = [field.strip() for field in options.get(f"{prefix}.add.fields", "").split(",")]
    lacking = [field for field in ADD_FIELDS if field not in added]
    if lacking:
        yield fail(
            f"{label}.add.fields",
            ",".join(filter(None, added)) or "not set",
            f"add {','.join(lacking)}: without them the order and kind of changes are lost",
        )
    mode = options.get(f"{prefix}.delete.tombstone.handling.mode", "tombstone")
    if not mode.startswith("rewrite"):
        yield fail(f"{label}.delete.tombstone.handling.mode", mode, "set it to rewrite: deletes are lost")
    marks = options.get(f"{prefix}.add.fields.prefix", "__")
    if marks != "__":
        yield fail(f"{label}.add.fields.prefix", marks, "remove it: the fields are recognized by __")
    yield warn(label, kind, "TRUNCATE does not arrive, and the changelog lacks the rows before an UPDATE")


_MISSING = "the mirror cannot contain what is excluded or changed here"


def _left_out(options: Mapping[str, str], allowed: Collection[str]) -> Iterator[CheckResult]:
    """Check options that keep columns or rows out of the topics, intentionally or not."""
    for option in sorted(options):
        if option.startswith(_LEAVING_OUT):
            name = f"connector: {option}"
            if _is_allowed(option, allowed):
                yield warn(name, options[option], _MISSING)
            else:
                yield fail(name, options[option], f"{_MISSING}; remove it, or {_permit(option)}")
