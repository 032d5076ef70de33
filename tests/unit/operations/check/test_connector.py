"""Checks of the topics and of the connector's settings."""

import json
import socket
from dataclasses import replace

import pytest

from replicator.config import Config, KafkaLog
from replicator.config.paths import resource
from replicator.errors import LogUnavailable
from replicator.operations.check.connector import check_connector as check
from replicator.operations.check.connector import check_selection, check_topics, losses
from replicator.operations.check.log_facts import TopicFacts, read_topics
from replicator.operations.check.result import CheckResult
from replicator.sources.connector.settings import table_selection
from replicator.sources.connector.state import Connector, ConnectorState, failure_hint
from tests.support.config import minimal_config

SAFE = {
    "connector.class": "io.debezium.connector.mysql.MySqlConnector",
    "topic.prefix": "shop",
    "skipped.operations": "none",
    "bigint.unsigned.handling.mode": "precise",
    "event.converting.failure.handling.mode": "fail",
    "enable.time.adjuster": "false",
    "heartbeat.interval.ms": "1000",
    "schema.history.internal.skip.unparseable.ddl": "true",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
    "value.converter.replace.null.with.default": "false",
}
APICURIO = SAFE | {
    "field.name.adjustment.mode": "avro",
    **{
        f"{side}.converter{name}": value
        for side in ("key", "value")
        for name, value in (
            ("", "io.apicurio.registry.utils.converter.AvroConverter"),
            (".apicurio.registry.as-confluent", "true"),
            (".apicurio.registry.headers.enabled", "false"),
            (".apicurio.registry.use-id", "contentId"),
        )
    },
}
CONFLUENT = SAFE | {
    "field.name.adjustment.mode": "avro",
    "key.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter": "io.confluent.connect.avro.AvroConverter",
    "value.converter.ignore.default.for.nullables": "true",
}


@pytest.fixture
def config() -> Config:
    return minimal_config(
        source={"url": "mysql://u@h/shop", "tables": ["shop.*"]},
        log={"kind": "kafka", "bootstrap_servers": "b:1", "topic_prefix": "p"},
    )


def check_connector(
    found: Connector | None, *, mirror: str = "shop", reads_rows: bool = True, **log: object
) -> list[CheckResult]:
    kafka = {"kind": "kafka", "bootstrap_servers": "b:1", "topic_prefix": "p", "format": "json", **log}
    if kafka["format"] == "avro":
        kafka["registry_url"] = "http://r:1"
    settings = minimal_config(
        mirror={"name": mirror},
        source={"url": "mysql://u@h/shop", "tables": ["shop.*"]},
        log=kafka | ({} if reads_rows else {"connect_url": "http://c:1"}),
    )
    return check(found, settings)


def trouble(results: list[CheckResult]) -> dict[str, CheckResult]:
    return {result.name: result for result in results if result.status != "ok"}


def connector(options: dict[str, str], state: str = "RUNNING", failed: tuple[str, ...] = ()) -> Connector:
    known = ConnectorState("shop", state, {}, failed, "http://connect:8083/connectors/shop")
    return Connector(known, options)


def test_read_topics_reports_the_cause_when_kafka_is_unreachable() -> None:
    with socket.socket() as unused:
        # Bound and not listening, so that no other server can respond there.
        unused.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{unused.getsockname()[1]}"
        log = KafkaLog(kind="kafka", bootstrap_servers=servers, topic_prefix="p")
        with pytest.raises(LogUnavailable, match="Connection refused"):
            read_topics(log)


def test_check_topics_warns_of_compaction_and_short_retention(config: Config) -> None:
    compacted = TopicFacts("p.shop.a", 1, cleanup_policy="compact")
    short = TopicFacts("p.shop.b", 1, retention_ms=3_600_000)
    found = trouble(check_topics((compacted, short), config))
    assert found["log: compaction"].found == "p.shop.a keep only the last event of a key"
    assert found["log: retention"].found == "less than a day on p.shop.b"
    week = check_topics((TopicFacts("p.shop.b", 1, retention_ms=7 * 86_400_000),), config)
    assert week[-1].found == "7 days"


def test_check_connector_fails_when_it_must_number_events_and_does_not() -> None:
    name = "connector: provide.transaction.metadata"
    missing = trouble(check_connector(connector(SAFE), transactions=True))[name]
    assert (missing.status, missing.found) == ("fail", "false (the default)")
    numbering = connector(SAFE | {"provide.transaction.metadata": "true"})
    assert trouble(check_connector(numbering, transactions=True)) == {}


def test_check_selection_warns_when_the_tables_have_changed_since_connect(config: Config) -> None:
    selection = {name: value for name, value in table_selection(config).items() if value}
    assert [r.status for r in check_selection(connector(SAFE | selection), config)] == ["ok"]
    [result] = check_selection(connector(SAFE | selection | {"table.include.list": "crm"}), config)
    assert (result.status, "table.include.list" in result.found) == ("warn", True)
    assert "replicator connect" in result.next_step
    assert list(check_selection(None, config)) == []
    theirs = connector(SAFE)
    theirs = replace(theirs, state=replace(theirs.state, name="theirs"))
    assert list(check_selection(theirs, config)) == []


def test_check_connector_reports_a_missing_paused_or_failed_connector() -> None:
    assert trouble(check_connector(None))["connector: registered"].status == "warn"
    paused = trouble(check_connector(connector(SAFE, "PAUSED")))["connector: state"]
    assert (paused.status, paused.next_step) == (
        "warn",
        "resume it in Kafka Connect: PUT http://connect:8083/connectors/shop/resume",
    )
    starting = trouble(check_connector(connector(SAFE, "UNASSIGNED")))["connector: state"]
    assert (starting.status, starting.next_step) == ("warn", "restart it in Kafka Connect")
    broken = connector(SAFE, failed=("java.lang.X: boom",))
    failed = trouble(check_connector(broken, mirror="shop"))["connector: state"]
    assert (failed.status, failed.found) == ("fail", "shop failed: java.lang.X: boom")
    assert failed.next_step == failure_hint("java.lang.X: boom")
    assert "run: replicator connect" in failed.next_step


@pytest.mark.parametrize("cause", ["java.lang.X: boom", "Account is locked", "Failed to read next byte"])
def test_next_step_omits_connect_when_another_connector_failed(cause: str) -> None:
    """`replicator connect` would register a second connector beside the one with another name."""
    broken = connector(SAFE, failed=(cause,))
    found = trouble(check_connector(broken, mirror="crm"))["connector: state"]
    assert "restart shop in Kafka Connect, unless a running mirror restarts it" in found.next_step
    assert "replicator connect" not in found.next_step


@pytest.mark.parametrize(
    ("value", "found"), [(None, "0 (the default)"), ("0", "0"), ("-1", "-1"), ("often", "often")]
)
def test_check_connector_warns_when_heartbeats_are_disabled_or_invalid(value: str | None, found: str) -> None:
    option = "heartbeat.interval.ms"
    options = {k: v for k, v in SAFE.items() if k != option} | ({} if value is None else {option: value})
    results = trouble(check_connector(connector(options)))
    assert list(results) == [f"connector: {option}"]
    warning = results[f"connector: {option}"]
    assert (warning.status, warning.found) == ("warn", found)
    assert "set it to 1000" in warning.next_step


@pytest.mark.parametrize(
    ("option", "value", "status"),
    [
        ("skipped.operations", None, "fail"),
        ("skipped.operations", "t", "fail"),
        ("skipped.operations", "d", "fail"),
        ("decimal.handling.mode", "double", "fail"),
        ("decimal.handling.mode", "string", "warn"),
        ("event.processing.failure.handling.mode", "skip", "fail"),
        ("inconsistent.schema.handling.mode", "warn", "fail"),
        ("event.converting.failure.handling.mode", None, "fail"),
        ("event.converting.failure.handling.mode", "skip", "fail"),
        ("enable.time.adjuster", None, "fail"),
        ("bigint.unsigned.handling.mode", None, "fail"),
        ("bigint.unsigned.handling.mode", "long", "fail"),
        ("snapshot.mode", "no_data", "warn"),
        ("binary.handling.mode", "hex", "fail"),
        ("connector.class", "io.debezium.connector.postgresql.PostgresConnector", "fail"),
        ("value.converter", "org.apache.kafka.connect.storage.StringConverter", "fail"),
        ("include.schema.changes", "false", "warn"),
        ("time.precision.mode", "connect", "fail"),
        ("time.precision.mode", "isostring", "fail"),
        ("time.precision.mode", "nanoseconds", "fail"),
        ("column.exclude.list", "shop.users.email", "fail"),
        ("column.mask.hash.SHA-256.with.salt.x", "shop.users.email", "fail"),
        ("snapshot.select.statement.overrides.shop.users", "SELECT 1", "fail"),
    ],
)
def test_check_connector_reports_options_that_lose_data(option: str, value: str | None, status: str) -> None:
    options = {key: safe for key, safe in SAFE.items() if key != option} | (
        {} if value is None else {option: value}
    )
    found = trouble(check_connector(connector(options)))
    assert list(found) == [f"connector: {option}"]
    assert found[f"connector: {option}"].status == status


def test_check_connector_accepts_a_connector_without_rows_if_the_mirror_reads_them() -> None:
    options = SAFE | {"snapshot.mode": "no_data"}
    assert trouble(check_connector(connector(options), reads_rows=False)) == {}


LOSSY = SAFE | {"decimal.handling.mode": "double", "column.mask.with.5.chars": "shop.users.email"}


def test_losses_are_reported_with_their_effect() -> None:
    assert losses(SAFE, ()) == {}
    assert losses(LOSSY, ())["decimal.handling.mode"].startswith("double: ")
    assert losses({}, ()).keys() >= {"skipped.operations", "bigint.unsigned.handling.mode"}


def test_check_connector_reports_each_configured_transform() -> None:
    options = SAFE | {
        "transforms": "flat, route",
        "transforms.flat.type": "io.debezium.transforms.ExtractNewRecordState",
        "transforms.route.type": "org.apache.kafka.connect.transforms.RegexRouter",
    }
    found = trouble(check_connector(connector(options)))
    assert {name: result.status for name, result in found.items()} == {
        "connector: transforms.flat": "fail",
        "connector: transforms.route": "warn",
    }


@pytest.mark.parametrize("options", [APICURIO, CONFLUENT])
def test_check_connector_accepts_converters_of_both_registries(options: dict[str, str]) -> None:
    assert trouble(check_connector(connector(options), format="avro")) == {}
    found = trouble(check_connector(connector(options), format="json"))
    assert {name for name, result in found.items() if result.status == "fail"} == {
        "connector: key.converter",
        "connector: value.converter",
    }


@pytest.mark.parametrize(
    ("options", "option", "value", "status"),
    [
        (SAFE, "value.converter", "org.apache.kafka.connect.json.JsonConverter", "fail"),
        (APICURIO, "value.converter.apicurio.registry.use-id", "globalId", "fail"),
        (APICURIO, "key.converter.apicurio.registry.headers.enabled", "true", "fail"),
        (CONFLUENT, "value.converter.ignore.default.for.nullables", "false", "fail"),
        (CONFLUENT, "field.name.adjustment.mode", "none", "warn"),
    ],
)
def test_check_connector_reports_wrong_avro_options(
    options: dict[str, str], option: str, value: str, status: str
) -> None:
    found = trouble(check_connector(connector(options | {option: value}), format="avro"))
    assert found[f"connector: {option}"].status == status


FLAT = SAFE | json.loads(resource("connectors/flattened.json").read_text())


def test_check_connector_requires_the_fields_and_deletes_of_flattened_events() -> None:
    def failures(options: dict[str, str], *, flattened: bool = True) -> set[str]:
        found = trouble(check_connector(connector(options), flattened=flattened))
        return {n.removeprefix("connector: transforms") for n, r in found.items() if r.status == "fail"}

    assert failures(FLAT) == set()
    assert failures(FLAT, flattened=False) == {".unwrap"}
    assert failures(SAFE) == {""}
    bare = FLAT | {
        "transforms.unwrap.add.fields": "op, source.file",
        "transforms.unwrap.add.fields.prefix": "x_",
    }
    del bare["transforms.unwrap.delete.tombstone.handling.mode"]
    assert failures(bare) == {
        ".unwrap.add.fields",
        ".unwrap.add.fields.prefix",
        ".unwrap.delete.tombstone.handling.mode",
    }
