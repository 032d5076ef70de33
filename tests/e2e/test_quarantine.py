"""Protected columns and quarantined events on the real stack, and the commands for them."""

import hmac
import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from replicator.config import load
from replicator.lake.reading.reader import open_catalog
from replicator.operations.connector import register
from tests.support.mirror import COMMAND, FAST_MIRROR, until
from tests.support.source import SourceDatabase

KEY = "a-key-of-the-tests-0123456789abcdef"
CREATE = """
CREATE TABLE users (
    id INT PRIMARY KEY, email VARCHAR(60), salary DECIMAL(30,12), photo VARBINARY(20), born DATE, seen DATETIME(6),
    woken TIMESTAMP(3) NULL, number INT, card VARCHAR(20), note TEXT, secret VARCHAR(20), plain VARCHAR(20)
) CHARACTER SET utf8mb4
"""
SECRETS = (
    "ada@example.org",
    "größe@example.org",
    "only for us",
    "4111-1111",
    "no lake may have this",
    "5000000000",
)
HASHED = ("id", "email", "salary", "photo", "born", "seen", "woken", "number")


def hashed(text: str | bytes | None) -> str | None:
    if text is None:
        return None
    return hmac.new(KEY.encode(), text.encode() if isinstance(text, str) else text, "sha256").hexdigest()


def expected(database: SourceDatabase) -> list[dict[str, Any]]:
    """Return the rows that the lake must have, computed from the result of `SELECT`."""
    in_utc = {"seen": "seen", "woken": "CONVERT_TZ(woken, @@time_zone, '+00:00')"}
    shown = {
        name: f"TRIM(TRAILING '.' FROM TRIM(TRAILING '0' FROM CAST({text} AS CHAR)))"
        for name, text in in_utc.items()
    }
    columns = [shown.get(c, c if c == "photo" else f"CAST({c} AS CHAR)") for c in HASHED]
    rows = []
    for *values, card, plain in database.rows(f"SELECT {', '.join(columns)}, card, plain FROM users"):
        row: dict[str, Any] = dict(zip(HASHED, map(hashed, values), strict=True))
        masked = None if card is None else "*" * (len(card) - 4) + card[-4:]
        rows.append(row | {"card": masked, "note": None, "plain": plain})
    return sorted(rows, key=lambda r: r["id"])


class Users:
    """The source table `users`, and the mirror's commands."""

    def __init__(self, database: SourceDatabase, folder: Path) -> None:
        self.database, self.folder = database, folder
        self.config = folder / "mirror.toml"
        self.topic = f"{database.prefix}.{database.name}.users"
        (folder / "lake").mkdir()
        self.config.write_text(
            database.config_text(folder, FAST_MIRROR)
            + f"""
[columns]
hash = {json.dumps(HASHED)}
hash_key = {{ env = "HASH_KEY" }}
exclude = ["SECRET"]
[[table]]
name = "{database.name}.users"
columns = {{ mask = {{ card = {{ keep_last = 4 }}, note = {{ null = true }} }} }}
"""
        )

    def replicator(self, *arguments: str, code: int = 0) -> str:
        command = [COMMAND, *arguments, "-c", str(self.config)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert ran.returncode == code, ran.stdout + ran.stderr
        assert not [s for s in (*SECRETS, KEY) if s in ran.stdout + ran.stderr]
        return ran.stdout

    def rows(self, namespace: str = "") -> list[dict[str, Any]]:
        with open_catalog(load(self.config).lake) as catalog:
            table = catalog.load_table((self.database.name + namespace, "users"))
            return sorted(table.scan().to_arrow().to_pylist(), key=lambda r: r["id"])

    def produce(self, *values: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.database.endpoints.bootstrap_servers})
        for value in values:
            producer.produce(self.topic, key=b"no lake may have this", value=value)
        assert producer.flush(20) == 0

    def events(self, topic: str) -> list[Mapping[str, Any]]:
        """Return the events of a topic, parsed; an empty list if the topic does not exist."""
        servers = self.database.endpoints.bootstrap_servers
        consumer = Consumer({"bootstrap.servers": servers, "group.id": "test", "enable.auto.commit": False})
        try:
            if topic not in consumer.list_topics(timeout=20).topics:
                return []
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
            consumer.assign([TopicPartition(topic, 0, low)])
            found: list[Mapping[str, Any]] = []
            for _ in range(high - low):
                message = consumer.poll(20)
                assert message is not None
                value = message.value() or b""
                if value.startswith(b"{"):
                    found.append(json.loads(value))
            return found
        finally:
            consumer.close()


@pytest.fixture
def users(source_database: SourceDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Users:
    monkeypatch.setenv("HASH_KEY", KEY)
    assert os.environ["HASH_KEY"] == KEY
    return Users(source_database, tmp_path)


@pytest.mark.long
def test_protected_values_are_absent_from_lake_tables_and_command_output(users: Users) -> None:
    database = users.database
    database.execute(
        CREATE,
        "INSERT INTO users VALUES (1, 'ada@example.org', 0.000000000001, X'00FF', '2000-02-29', "
        "'2020-01-02 03:04:05.1', '2020-01-02 03:04:05.25', 7, '4111-1111', 'only for us', 'only for us', 'seen')",
    )
    register(load(users.config))
    until(lambda: users.events(users.topic), seconds=60, doing="the snapshot")
    database.execute(
        "INSERT INTO users VALUES (2, 'größe@example.org', -12345678901234567.5, '', '1969-12-31', "
        "'1969-12-31 23:59:59.999999', NULL, -7, '4111-1111', 'only for us', 'only for us', NULL)",
        "INSERT INTO users (id) VALUES (3), (4)",
        "UPDATE users SET email = 'ada@example.org' WHERE id = 3",
        "DELETE FROM users WHERE id = 4",
    )
    until(lambda: len(users.events(users.topic)) == 6, seconds=60, doing="the changes")
    (first, *_) = users.events(users.topic)
    # The event is bad until a definition says that the column is a BIGINT.
    large = {"id": 5, "number": 5_000_000_000, "secret": "no lake may have this"}
    source = dict(first["source"]) | {"file": "binlog.999999", "pos": 4, "snapshot": "false"}
    users.produce(
        json.dumps({"before": None, "after": large, "source": source, "op": "c", "ts_ms": 1}).encode(),
        b"no lake may have this",
    )
    users.replicator("run", "--until-caught-up")
    assert users.rows() == expected(database)
    assert len(users.rows("_changes")) == 7

    waiting = json.loads(users.replicator("quarantine", "list", "--json"))["events"]
    assert [(e["table"], e["state"], e["key"], e["value"]) for e in waiting] == [
        (f"{database.name}.users", "waiting", None, None)
    ] * 2
    definitions = len(users.events(database.prefix))
    database.execute("ALTER TABLE users MODIFY number BIGINT")
    until(lambda: len(users.events(database.prefix)) > definitions, seconds=60, doing="the new definition")

    done = json.loads(users.replicator("quarantine", "replay", "--json", code=1))
    assert done["replayed"] == [waiting[0]["id"]]
    assert [left["id"] for left in done["left"]] == [waiting[1]["id"]]
    added = next(row for row in users.rows() if row["id"] == hashed("5"))
    assert added["number"] == hashed("5000000000")
    assert len(users.rows("_changes")) == 8
    assert "1 event dropped" in users.replicator("quarantine", "drop", "--id", waiting[1]["id"], "--yes")
    assert json.loads(users.replicator("quarantine", "list", "--json"))["events"] == []

    database.execute(
        "INSERT INTO users (id, number) VALUES (5, 5000000000), (6, 6)", "DELETE FROM users WHERE id = 6"
    )
    until(lambda: len(users.events(users.topic)) == 10, seconds=60, doing="the last changes")
    users.replicator("run", "--until-caught-up")
    assert users.rows() == expected(database)
    (table,) = json.loads(users.replicator("status", "--json"))["tables"]
    assert (table["state"], table["quarantined"], table["changes"]) == ("current", 0, 11)
