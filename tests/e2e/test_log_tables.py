"""Log tables beside a mirror, on the real Kafka: `replicator run`, killed before a commit, and started again."""

import json
import subprocess
import uuid
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from replicator.config import KafkaLog, load
from replicator.errors import LakeUnavailable
from replicator.lake.reading.reader import open_catalog
from tests.support.mirror import COMMAND, FAST_MIRROR, START_S, MirrorProcess, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder

SECTION = """
[[log_table]]
topic = "{topic}"
table = "logs.clicks"
event_time = "at"
partition = "day"
record = ["partition", "offset", "timestamp", "key", "headers"]

[pipelines]
every = "1 second"
"""
COUNTED = "SELECT kafka_partition, count(*) AS n, max(id) AS last FROM logs.clicks GROUP BY kafka_partition"
JOINED = "SELECT c.id, s.label FROM logs.clicks c JOIN {namespace}.still s ON s.id = c.id"


def rows(mirrored: MirroredDatabase, name: tuple[str, str] = ("logs", "clicks")) -> list[dict[str, Any]]:
    try:
        with open_catalog(load(mirrored.config).lake) as catalog:
            if not catalog.table_exists(name):
                return []
            found: list[dict[str, Any]] = catalog.load_table(name).scan().to_arrow().to_pylist()
            return found
    except LakeUnavailable:
        # The first batch creates the catalog.
        return []


def test_events_are_appended_once_beside_a_mirror_that_is_killed(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    topic = f"clicks-{uuid.uuid4().hex}"
    prepare = [
        "CREATE TABLE still (id INT PRIMARY KEY, label VARCHAR(9))",
        "INSERT INTO still VALUES (1, 'a'), (149, 'b')",
    ]
    extra = FAST_MIRROR + SECTION.format(topic=topic)
    mirrored = mirror_database(tables=0, seed_rows=False, extra=extra, prepare=prepare)
    log, lake = load(mirrored.config).log, load(mirrored.config).lake
    folder = mirrored.config.parent / "pipelines"
    folder.mkdir()
    (folder / "counted.sql").write_text(COUNTED)
    (folder / "joined.sql").write_text(JOINED.format(namespace=lake.namespace))
    assert isinstance(log, KafkaLog)
    client: dict[str, Any] = {"bootstrap.servers": log.bootstrap_servers}
    # The client ends its requests with itself.
    admin, producer = AdminClient(client), Producer(client)
    for created in admin.create_topics([NewTopic(topic, 3, 1)]).values():
        created.result()

    def send(first: int, count: int, **more: Any) -> None:
        for number in range(first, first + count):
            value = json.dumps({"id": number, "at": "2026-11-29T10:00:00Z", **more})
            producer.produce(topic, value, f"k{number}", partition=number % 3, headers={"n": str(number)})
        producer.flush(30)

    mirror = MirrorProcess(mirrored.config, mirrored.folder / "out.log")
    send(0, 100)
    mirror.start(REPLICATOR_CRASH_AT="after-log-files:2")
    until(lambda: len(rows(mirrored)) == 100, seconds=START_S, doing="the first events")
    send(100, 50, device={"os": "linux"})
    producer.produce(topic, b"no JSON", partition=0)
    producer.flush(30)
    mirror.wait(START_S)
    assert len(rows(mirrored)) == 100
    mirror.start()
    until(lambda: len(rows(mirrored)) >= 150, seconds=START_S, doing="the events after the kill")
    found = sorted(rows(mirrored), key=lambda row: row["id"])
    assert [row["id"] for row in found] == list(range(150))
    assert len({(row["kafka_partition"], row["kafka_offset"]) for row in found}) == 150
    assert {row["device"] and row["device"]["os"] for row in found[:100]} == {None}
    assert {row["device"]["os"] for row in found[100:]} == {"linux"}
    assert found[7]["kafka_key"] == b"k7"
    assert json.loads(found[7]["kafka_headers"]) == [{"key": "n", "value": "7"}]

    def results() -> list[set[tuple[Any, ...]]]:
        assert mirror.is_alive(), mirror.tail()
        names = {"counted": ("kafka_partition", "n", "last"), "joined": ("id", "label")}
        return [
            {
                tuple(row[column] for column in columns)
                for row in rows(mirrored, (lake.pipelines_namespace, name))
            }
            for name, columns in names.items()
        ]

    wanted = [{(0, 50, 147), (1, 50, 148), (2, 50, 149)}, {(1, "a"), (149, "b")}]
    until(lambda: results() == wanted, seconds=START_S, doing="the results over the log table")
    status = subprocess.run(
        [COMMAND, "status", "--json", "-c", str(mirrored.config)], capture_output=True, check=False
    )
    [entry] = json.loads(status.stdout)["log_tables"]
    assert (entry["state"], entry["rows"], entry["quarantined"]) == ("current", 150, 1)
    assert entry["watermark_ms"] == 1_795_946_400_000
    assert mirror.stop() == 0, mirror.tail()
