"""The local stack itself, on real processes."""

import json
import stat
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests
from confluent_kafka import Consumer, Producer, TopicPartition
from pymysql import connect
from typer.testing import CliRunner

from replicator.cli.stack import app
from replicator.config import load
from replicator.errors import ConnectError, UsageError
from replicator.operations.connector import register
from replicator.operations.stack import PARTS, LocalStack
from replicator.sources.kafka.schema_registry import Registry
from tests.support.mirror import until
from tests.support.source import SourceDatabase

pytestmark = pytest.mark.stack


def read(bootstrap: str, topic: str, count: int, seconds: float = 60) -> list[Any]:
    """Return the first `count` values of a topic's partition 0, parsed; None for a tombstone."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False})
    values: list[Any] = []
    deadline = time.monotonic() + seconds
    try:
        # A subscription would look for a topic that does not exist yet only every five minutes.
        while topic not in consumer.list_topics(timeout=10).topics and time.monotonic() < deadline:
            time.sleep(0.2)
        assert topic in (topics := sorted(consumer.list_topics(timeout=10).topics)), topics
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None:
                assert message.error() is None, message.error()
                text = message.value()
                values.append(None if text is None else json.loads(text))
    finally:
        consumer.close()
    return values


def test_stack_parts_are_healthy_and_its_state_file_is_private(running_stack: LocalStack) -> None:
    assert [(part.part, part.running, part.healthy) for part in running_stack.status()] == [
        (part, True, True) for part in PARTS
    ]
    state = running_stack.folder / "stack.json"
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    assert running_stack.endpoints.mysql_root_password in state.read_text()
    for log in running_stack.folder.glob("*/*.log"):
        assert running_stack.endpoints.mysql_root_password not in log.read_text(errors="replace")


def test_up_changes_nothing_when_the_stack_is_running(running_stack: LocalStack) -> None:
    before = [part.pid for part in running_stack.status()]
    assert LocalStack(running_stack.folder).up() == running_stack.endpoints
    assert [part.pid for part in running_stack.status()] == before


def test_connector_writes_changes_to_kafka(source_database: SourceDatabase, tmp_path: Path) -> None:
    source_database.execute(
        "CREATE TABLE item (id BIGINT UNSIGNED KEY, price DECIMAL(10,2), raw VARBINARY(4), state INT DEFAULT 7)",
        "INSERT INTO item VALUES (18446744073709551615, 12.30, x'00ff', NULL)",
    )
    file = tmp_path / "mirror.toml"
    file.write_text(source_database.config_text(tmp_path))
    first = register(load(file))
    assert (first.existed, dict(first.tasks)) == (False, {0: "RUNNING"})
    topic = f"{source_database.prefix}.{source_database.name}.item"
    # Before anything is truncated: MySQL fails a snapshot whose table is redefined under it.
    assert read(source_database.endpoints.bootstrap_servers, topic, 1)[0]["op"] == "r"
    source_database.execute("UPDATE item SET price = 99.90", "DELETE FROM item")
    source_database.execute("TRUNCATE TABLE item")
    events = read(source_database.endpoints.bootstrap_servers, topic, 5)
    assert [event and event["op"] for event in events] == ["r", "u", "d", None, "t"]
    assert events[0]["after"] == {"id": 18446744073709551615, "price": 12.30, "raw": "AP8=", "state": None}
    assert events[1]["before"]["price"] == 12.3
    ddl = read(source_database.endpoints.bootstrap_servers, source_database.prefix, 1)
    assert ddl[0]["source"]["db"] in ("", source_database.name)

    assert register(load(file)).existed
    for log in (source_database.stack.log("connect"), source_database.stack.log("kafka")):
        assert source_database.endpoints.mysql_password not in log.read_text(errors="replace")


def test_register_fails_with_one_line_when_the_password_is_wrong(
    source_database: SourceDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLICATOR_TEST_PASSWORD", "certainly-wrong")
    file = tmp_path / "mirror.toml"
    file.write_text(source_database.config_text(tmp_path))
    with pytest.raises(ConnectError, match="Access denied") as caught:
        register(load(file))
    assert "\n" not in caught.value.message
    assert "certainly-wrong" not in f"{caught.value.message} {caught.value.hint}"


def test_kafka_keeps_its_data_when_it_is_killed_and_restarted(running_stack: LocalStack) -> None:
    bootstrap = running_stack.endpoints.bootstrap_servers
    topic = f"kept-{time.time_ns()}"
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b'{"n": 1}')
    producer.commit_transaction(30)
    # The commit returns before its marker is in the topic; a reader of committed records waits for that.
    assert read(bootstrap, topic, 1) == [{"n": 1}]

    running_stack.kill("kafka")
    assert [part.part for part in running_stack.status() if not part.running] == ["kafka"]
    running_stack.restart("kafka")
    assert running_stack.endpoints.bootstrap_servers == bootstrap
    assert read(bootstrap, topic, 1) == [{"n": 1}]


def test_mysql_keeps_its_data_when_it_is_killed_and_restarted(source_database: SourceDatabase) -> None:
    source_database.execute("CREATE TABLE kept (id INT PRIMARY KEY)", "INSERT INTO kept VALUES (7)")
    source_database.stack.kill("mysql")
    source_database.stack.restart("mysql")
    assert source_database.rows("SELECT id FROM kept") == [(7,)]


def test_registry_keeps_its_schemas_when_it_is_killed_and_restarted(running_stack: LocalStack) -> None:
    url = running_stack.endpoints.registry_url
    subject, schema = f"kept-{time.time_ns()}-value", '{"type":"record","name":"R","fields":[]}'
    answer = requests.post(f"{url}/subjects/{subject}/versions", json={"schema": schema}, timeout=30)
    number = answer.json()["id"]
    assert Registry(url).schema(number) == schema
    # Its database writes commits later, in order: if a later schema is in the file, so is this one.
    later = subject.replace("kept", "later")
    requests.post(f"{url}/subjects/{later}/versions", json={"schema": schema}, timeout=30).raise_for_status()
    file = running_stack.folder / "registry" / "data" / "registry.mv.db"
    until(lambda: later.encode() in file.read_bytes(), seconds=60, doing="the registry writes its file")
    running_stack.kill("registry")
    running_stack.restart("registry")
    again = Registry(url)
    assert subject in again.subjects()
    assert (again.schema(number), again.schema(2**31 - 1)) == (schema, None)


def test_stack_command_starts_shows_and_stops_a_detached_stack(
    local_stack: LocalStack, tmp_path: Path
) -> None:
    del local_stack  # skips the test if MySQL is not available
    folder = ["--dir", str(tmp_path / "own")]
    run = CliRunner()
    up = run.invoke(app, ["up", *folder, "--only", "mysql", "--json"])
    assert up.exit_code == 0, up.output
    port = json.loads(up.stdout)["mysql_port"]
    shown = run.invoke(app, ["status", *folder, "--json"])
    assert shown.exit_code == 0
    parts = {part["part"]: part for part in json.loads(shown.stdout)["parts"]}
    assert parts["mysql"]["healthy"]
    assert parts["mysql"]["address"] == f"127.0.0.1:{port}"
    assert not parts["kafka"]["running"]
    process = psutil.Process(parts["mysql"]["pid"])

    ran = run.invoke(app, ["sql", *folder, "CREATE DATABASE a; CREATE TABLE a.t (id INT, x VARCHAR(9))"])
    assert (ran.exit_code, ran.stdout) == (0, "")
    ran = run.invoke(app, ["sql", *folder, "INSERT INTO a.t VALUES (1, NULL), (2, '[x]'); SELECT * FROM a.t"])
    assert [line.split() for line in ran.stdout.splitlines()] == [["id", "x"], ["1", "NULL"], ["2", "[x]"]]
    refused = run.invoke(app, ["sql", *folder, "SELEC"])
    assert isinstance(refused.exception, UsageError)
    password = run.invoke(app, ["password", *folder]).stdout.strip()
    connect(host="127.0.0.1", port=port, user="replicator", password=password).close()

    down = run.invoke(app, ["down", *folder])
    assert down.stdout == "Stopped: mysql.\n"
    assert not process.is_running()
    assert run.invoke(app, ["status", *folder]).exit_code == 1
