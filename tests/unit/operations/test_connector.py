"""The connector's settings, and its registration at Kafka Connect (a small server with configured answers)."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replicator.config import Config, SourceConfig, parse
from replicator.errors import ConfigError, ConnectError
from replicator.model.events import SOURCE
from replicator.operations.connector import register
from replicator.sources.connector.settings import ONLY_CAPTURED, connector_config, table_patterns
from tests.support.kafka_connect import Connect, serving

PASSWORD = "hunter2-secret"
TEXT = """
[mirror]
name = "shop"
[source]
url = "mysql://cdc@db.example:3307/shop"
password = { env = "SHOP_PASSWORD" }
tables = ["shop.*", "crm.client_?"]
exclude = ["shop.tmp_*"]
[log]
kind = "kafka"
bootstrap_servers = "broker:9092"
topic_prefix = "my-shop"
CONNECT_URL
[lake]
catalog = "jdbc"
uri = "jdbc:sqlite:catalog.db"
warehouse = "lake"
namespace = "shop"
"""


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)


def config(extra: str = "", log: str = "") -> Config:
    text = TEXT.replace("CONNECT_URL", log) + extra
    return parse(tomllib.loads(text), base=Path("/mirrors"))


def test_connector_config_flattens_events_when_configured() -> None:
    """The transform has all fields that `model.events` requires; without it, `connect` would remove the transform."""
    plain, settings = connector_config(config()), connector_config(config(log="flattened = true"))
    assert "transforms" not in plain
    assert set(settings["transforms.unwrap.add.fields"].split(",")) == {
        "op",
        *(f"source.{name}" for name in SOURCE),
    }
    assert settings["transforms.unwrap.delete.tombstone.handling.mode"] == "rewrite"


def test_connector_config_has_no_setting_that_loses_data() -> None:
    settings = connector_config(config())
    assert settings["skipped.operations"] == "none"
    assert settings["decimal.handling.mode"] == "precise"
    assert settings["bigint.unsigned.handling.mode"] == "precise"
    assert settings["event.converting.failure.handling.mode"] == "fail"
    assert settings["value.converter.decimal.format"] == "NUMERIC"
    assert settings["value.converter.replace.null.with.default"] == "false"
    assert settings["value.converter.schemas.enable"] == "false"
    assert settings["tombstones.on.delete"] == "true"


def test_connector_config_has_signal_table_and_transactions_when_configured() -> None:
    plain = connector_config(config())
    assert "signal.data.collection" not in plain
    assert "provide.transaction.metadata" not in plain
    text = TEXT.replace("[log]", 'signal_table = "ops.signals"\n[log]\ntransactions = true')
    settings = connector_config(parse(tomllib.loads(text.replace("CONNECT_URL", "")), base=Path("/mirrors")))
    assert settings["signal.data.collection"] == "ops.signals"
    assert settings["table.include.list"] == plain["table.include.list"] + ",ops\\.signals"
    assert settings["database.include.list"] == "shop,crm,ops"
    assert settings["provide.transaction.metadata"] == "true"


def test_connector_config_has_the_values_of_the_mirror_configuration() -> None:
    settings = connector_config(config(log="schemas = true\npartitions = 3"))
    assert settings["database.hostname"] == "db.example"
    assert settings["database.port"] == "3307"
    assert settings["database.user"] == "cdc"
    assert settings["database.password"] == PASSWORD
    assert settings["database.include.list"] == "shop,crm"
    assert settings["topic.prefix"] == "my-shop"
    assert settings["topic.creation.schema.include"] == r"^my\-shop$"
    assert settings["topic.creation.default.partitions"] == "3"
    assert settings["key.converter.schemas.enable"] == settings["value.converter.schemas.enable"] == "true"
    assert {settings[f"topic.creation.schema.retention.{unit}"] for unit in ("ms", "bytes")} == {"-1"}
    assert settings["schema.history.internal.kafka.topic"] == "__debezium-schema-history.my-shop"
    assert not any("$" in value.removesuffix("$") and "(?!" not in value for value in settings.values())
    assert all(isinstance(value, str) for value in settings.values())


APICURIO = 'format = "avro"\nregistry_url = "http://registry:8080/apis/ccompat/v7"\n'
CONFLUENT = 'format = "avro"\nregistry_url = "http://registry:8081"\n'
LOGIN = 'registry_user = "cdc"\nregistry_password = { env = "REGISTRY_PASSWORD" }\n'


def test_connector_config_has_the_converter_of_the_configured_registry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", "sesame")
    for side in ("key.converter", "value.converter"):
        apicurio = connector_config(config(log=APICURIO))
        assert apicurio[side] == "io.apicurio.registry.utils.converter.AvroConverter"
        assert apicurio[f"{side}.apicurio.registry.url"] == "http://registry:8080/apis/registry/v2"
        assert apicurio[f"{side}.apicurio.registry.as-confluent"] == "true"
        assert connector_config(config(log=APICURIO + LOGIN))[f"{side}.apicurio.auth.password"] == "sesame"
        confluent = connector_config(config(log=CONFLUENT))
        assert confluent[side] == "io.confluent.connect.avro.AvroConverter"
        assert confluent[f"{side}.schema.registry.url"] == "http://registry:8081"
        assert confluent[f"{side}.ignore.default.for.nullables"] == "true"
        login = connector_config(config(log=CONFLUENT + LOGIN))
        assert login[f"{side}.basic.auth.user.info"] == "cdc:sesame"
    for settings in (apicurio, confluent):
        assert settings["schema.name.adjustment.mode"] == settings["field.name.adjustment.mode"] == "avro"
        assert not any("auth." in name for name in settings)
        assert not any("json" in value.lower() for value in settings.values())


def test_connector_config_propagates_column_names_that_avro_does_not_allow() -> None:
    patterns = connector_config(config(log=APICURIO))["column.propagate.source.type"].split(",")
    names = {
        "shop.t.größe": True,
        "shop.t.a b": True,
        "shop.t.1st": True,
        "shop.t.plain_9": False,
        "shop.t._x": False,
    }
    assert {name: any(re.fullmatch(p, name, re.ASCII) for p in patterns) for name in names} == names


def test_table_patterns_match_the_included_tables() -> None:
    include, exclude = ("shop.*", "crm.client_?", "odd.a,b"), ("shop.tmp_*", "shop.log")
    patterns = re.split(r"(?<!\\),", table_patterns(include, exclude))
    names = [
        "shop.orders",
        "shop.tmp_1",
        "shop.log",
        "shop.logs",
        "crm.client_1",
        "crm.client_12",
        "odd.a,b",
        "xshop.a",
    ]
    matched = [name for name in names if any(re.fullmatch(pattern, name) for pattern in patterns)]
    assert matched == ["shop.orders", "shop.logs", "crm.client_1", "odd.a,b"]


def test_connector_config_includes_a_database_for_every_dot_of_a_pattern() -> None:
    dotted = connector_config(
        config().model_copy(
            update={"source": SourceConfig(url=config().source.url, tables=("my.shop.*", "shop.t"))}
        )
    )
    assert dotted["database.include.list"] == r"my,my\.shop,shop"


def test_connector_config_uses_the_same_security_for_the_schema_history() -> None:
    settings = connector_config(config())
    assert not any("security" in name for name in settings)
    secured = config('[log.options]\n"security.protocol" = "SASL_SSL"\n')
    found = connector_config(secured)
    assert found["schema.history.internal.producer.security.protocol"] == "SASL_SSL"
    assert found["schema.history.internal.consumer.security.protocol"] == "SASL_SSL"


# Kafka Connect


@pytest.fixture
def connect() -> Iterator[Connect]:
    with serving() as server:
        yield server


STATUS, PUT = "GET /connectors/shop/status", "PUT /connectors/shop/config"
TOPICS = "GET /connectors/shop/topics"
SENT = {"shop": {"topics": ["shop"]}}


def state(word: str, trace: str | None = None) -> dict[str, Any]:
    task = {"id": 0, "state": word} | ({"trace": trace} if trace else {})
    return {"connector": {"state": "RUNNING"}, "tasks": [task]}


def there(connect: Connect, log: str = "") -> Config:
    return config(log=f'connect_url = "{connect.url}/"\n{log}')


def test_register_creates_a_connector_and_waits_until_it_runs(connect: Connect) -> None:
    connect.reply(STATUS, 404, {"message": "No status found"})
    connect.reply(STATUS, 200, {"connector": {"state": "UNASSIGNED"}, "tasks": []})
    connect.reply(STATUS, 200, state("RUNNING"))
    connect.reply(PUT, 409, {"message": "Cannot complete request momentarily due to stale configuration"})
    connect.reply(PUT, 201, {})
    connect.reply(TOPICS, 200, {"shop": {"topics": []}})
    connect.reply(TOPICS, 200, SENT)
    done = register(there(connect))
    assert connect.count(TOPICS) == 2
    assert (done.name, done.existed, dict(done.tasks)) == ("shop", False, {0: "RUNNING"})
    puts = [body for request, body in connect.asked if request == PUT]
    assert puts == [connector_config(there(connect))] * 2


@pytest.mark.parametrize(
    ("log", "bootstrap", "mode"),
    [
        ('connect_url = "http://127.0.0.1:1"', "", "no_data"),
        ('connect_url = "http://127.0.0.1:1"', '[bootstrap]\nby = "connector"', "initial"),
        ("", "", "initial"),
    ],
)
def test_connector_reads_rows_only_if_the_mirror_does_not(log: str, bootstrap: str, mode: str) -> None:
    assert connector_config(config(log=log, extra=bootstrap))["snapshot.mode"] == mode


CONFIG, STOP, RESUME = (
    "GET /connectors/shop/config",
    "PUT /connectors/shop/stop",
    "PUT /connectors/shop/resume",
)
STOPPED: dict[str, Any] = {"connector": {"state": "STOPPED"}, "tasks": []}


def order(connect: Connect, *requests: str) -> list[str]:
    """Return these requests in the order in which they arrived."""
    return [request for request, _ in connect.asked if request in requests]


def test_register_stops_a_connector_before_it_changes_its_settings(connect: Connect) -> None:
    connect.reply(
        CONFIG, 200, connector_config(there(connect)) | {"table.include.list": "crm", "name": "shop"}
    )
    still = {"connector": {"state": "STOPPED"}, "tasks": [{"id": 0, "state": "RUNNING"}]}
    for status in (state("RUNNING"), still, STOPPED, state("RUNNING")):
        connect.reply(STATUS, 200, status)
    for request in (STOP, PUT, RESUME):
        connect.reply(request, 200, {})
    assert register(there(connect)).existed
    assert order(connect, STOP, PUT, RESUME) == [STOP, PUT, RESUME]
    before = [request for request, _ in connect.asked]
    # Its task had stopped.
    assert before[: before.index(PUT)].count(STATUS) == 3


def test_register_does_not_stop_a_connector_that_has_the_settings(connect: Connect) -> None:
    connect.reply(CONFIG, 200, connector_config(there(connect)) | {"name": "shop"})
    connect.reply(STATUS, 200, state("RUNNING"))
    connect.reply(PUT, 200, {})
    register(there(connect))
    assert order(connect, STOP, PUT, RESUME) == [PUT]


def test_register_notices_a_table_that_fails_the_snapshot_after_its_task_has_run(connect: Connect) -> None:
    """Each slow start showed the task as running twice before it had read the definitions."""
    trace = "java.sql.SQLException: Unable to open underlying table which is differently defined"
    connect.reply(STATUS, 404)
    for _ in range(4):
        connect.reply(STATUS, 200, state("RUNNING"))
    for _ in range(7):
        connect.reply(STATUS, 200, state("FAILED", trace))
    connect.reply(STATUS, 200, STOPPED)
    connect.reply(STATUS, 200, state("RUNNING"))
    for request in (STOP, PUT, RESUME):
        connect.reply(request, 200, {})
    connect.reply(CONFIG, 200, connector_config(there(connect)))
    connect.reply(TOPICS, 200, {})
    for _ in range(3):
        connect.reply(TOPICS, 200, {"shop": {"topics": []}})
    connect.reply(TOPICS, 200, SENT)
    register(there(connect))
    last = [body for request, body in connect.asked if request == PUT][-1]
    assert last == connector_config(there(connect)) | ONLY_CAPTURED


def test_register_resumes_a_connector_that_an_interrupted_call_has_stopped(connect: Connect) -> None:
    connect.reply(CONFIG, 200, connector_config(there(connect)))
    connect.reply(STATUS, 200, STOPPED)
    connect.reply(STATUS, 200, state("RUNNING"))
    connect.reply(PUT, 200, {})
    connect.reply(RESUME, 202)
    assert register(there(connect)).resumed
    assert order(connect, STOP, PUT, RESUME) == [PUT, RESUME]


def test_register_changes_nothing_and_fails_at_once_when_the_connector_is_paused(connect: Connect) -> None:
    connect.reply(CONFIG, 200, {"name": "shop"})
    failed = {"id": 0, "state": "FAILED", "trace": "org.apache.X: gone"}
    connect.reply(STATUS, 200, {"connector": {"state": "PAUSED"}, "tasks": [failed]})
    with pytest.raises(ConnectError) as caught:
        register(there(connect))
    assert (caught.value.message, caught.value.hint) == (
        "the connector shop is PAUSED; nothing was changed",
        f"resume it in Kafka Connect: PUT {connect.url}/connectors/shop/resume",
    )
    assert [request for request, _ in connect.asked] == [STATUS]


def test_register_shows_first_line_and_root_cause_when_a_task_fails(connect: Connect) -> None:
    trace = (
        "org.apache.kafka.connect.errors.ConnectException: An exception occurred.\n"
        "\tat io.debezium.X(X.java:1)\n"
        f"Caused by: java.sql.SQLException: Access denied for {PASSWORD}; you need RELOAD\n\tat y\n"
    )
    connect.reply(STATUS, 200, state("FAILED", trace))
    connect.reply(PUT, 200, {})
    connect.reply("POST /connectors/shop/restart?includeTasks=true&onlyFailed=true", 204)
    with pytest.raises(ConnectError) as caught:
        register(there(connect))
    assert caught.value.message == (
        "the connector shop failed: An exception occurred. (Access denied for ***; you need RELOAD)"
    )
    assert "RELOAD" in (caught.value.hint or "")


def test_register_reports_refused_settings_in_one_line_without_the_password(connect: Connect) -> None:
    connect.reply(STATUS, 404)
    message = (
        "Connector configuration is invalid and contains the following 1 error(s):\n"
        f"Unable to connect: Access denied for user with {PASSWORD}\n"
        "You can also find the above list of errors at the endpoint `/connector-plugins/{name}/validate`"
    )
    connect.reply(PUT, 400, {"error_code": 400, "message": message})
    with pytest.raises(ConnectError) as caught:
        register(there(connect))
    assert caught.value.message.endswith(
        "refused the connector: Unable to connect: Access denied for user with ***"
    )


def test_register_reports_no_secret_of_the_registry(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REGISTRY_PASSWORD", "sesame")
    connect.reply(STATUS, 404)
    connect.reply(PUT, 400, {"message": f"Invalid value cdc:sesame, or sesame, beside {PASSWORD}"})
    with pytest.raises(ConnectError) as caught:
        register(there(connect, CONFLUENT + LOGIN))
    assert caught.value.message.endswith("Invalid value ***, or ***, beside ***")


def test_register_names_the_cause_found_by_validation_when_connect_fails(connect: Connect) -> None:
    connect.reply(STATUS, 404)
    connect.reply(PUT, 500, {"message": 'Cannot invoke "ConfigValueInfo.errors()" because it is null'})
    found = {"name": "database.hostname", "errors": ["Access denied for user 'cdc' (using password: YES)"]}
    sound = {"name": "tasks.max", "errors": []}
    connect.reply(
        "PUT /connector-plugins/MySqlConnector/config/validate",
        200,
        {"configs": [{"value": found}, {"value": sound}, {"value": None}]},
    )
    with pytest.raises(
        ConnectError, match=r"refused the connector: database\.hostname: Access denied"
    ) as caught:
        register(there(connect))
    assert "source.password" in (caught.value.hint or "")


def test_register_fails_when_the_worker_is_unreachable_or_not_configured() -> None:
    with pytest.raises(ConnectError, match="cannot reach Kafka Connect at"):
        register(config(log='connect_url = "http://127.0.0.1:9"'))
    with pytest.raises(ConfigError, match=r"log\.connect_url is not set"):
        register(config())
