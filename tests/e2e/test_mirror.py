"""The mirror as a process on the real MySQL, Kafka and Connect, while two writers change ten tables."""

import json
import os
import random
import shutil
import subprocess
import time
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from replicator.catalog import open_catalog
from tests.e2e.conftest import Scene, SceneMaker
from tests.support.mirror import COMMAND, MirrorProcess, running, until

QUICK = """
[apply]
trigger = "1 second"
[spark]
driver_memory = "1g"
# Short lives on few cores: the JVM should start fast rather than get fast.
conf = { "spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" }
"""
FAILPOINTS = (
    "after-changelog-files",
    "between-commits",
    "after-data-files",
    "after-delete-files",
    "before-commit",
    "after-commit",
)
LONG = bool(os.environ.get("REPLICATOR_LONG_TESTS"))
"""Whether to take the time for all kills; without it a few stand for them."""

START_S = 300
"""How long a mirror may take to its first batch on a busy machine."""


def log_events(scene: Scene, table: str) -> Counter[tuple[Any, ...]]:
    """How often the topic of a table has each change."""
    consumer = Consumer(
        {
            "bootstrap.servers": scene.database.endpoints.bootstrap_servers,
            "group.id": "test",
            "enable.auto.commit": False,
        }
    )
    topic, found = scene.topic(table), Counter[tuple[Any, ...]]()
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        ends = {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=20) for p in partitions}
        consumer.assign([TopicPartition(topic, p, low) for p, (low, _) in ends.items()])
        left = {p for p, (low, high) in ends.items() if high > low}
        while left:
            message = consumer.poll(20)
            assert message is not None
            assert message.error() is None
            if value := message.value():
                event = json.loads(value)
                source = event.get("payload", event)["source"]
                found[source["file"], source["pos"], source["row"], event.get("payload", event)["op"]] += 1
            if message.offset() + 1 >= ends[message.partition()][1]:
                left.discard(message.partition())
    finally:
        consumer.close()
    return found


def resent(scene: Scene) -> int:
    """How many changes the log has more than once."""
    return sum(
        n > 1 for t in scene.tables for (_, _, _, op), n in log_events(scene, t.name).items() if op != "r"
    )


@pytest.mark.long
def test_a_living_mirror(scene_maker: SceneMaker) -> None:
    """Sixty seconds of two writers; meanwhile a table appears, Kafka goes away, the connector is killed.

    At the end every table equals its source and the changelogs tell one unbroken story.
    """
    scene = scene_maker(log="partitions = 2", extra=QUICK)
    stack, compare = scene.database.stack, scene.comparison
    with running(scene.config, scene.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        with scene.writers(1, 2):
            writing_since = time.monotonic()
            scene.database.execute("CREATE TABLE late (id INT PRIMARY KEY, name VARCHAR(20))")
            scene.database.execute("INSERT INTO late VALUES (1, 'one'), (2, 'two')")
            scene.database.execute("ALTER TABLE t00 ADD COLUMN added INT NOT NULL DEFAULT 7 AFTER id")
            stack.kill("kafka")
            until(
                lambda: any("starting it again" in line.get("event", "") for line in mirror.lines()),
                seconds=240,
                doing="the mirror notices that Kafka is away",
            )
            stack.restart("kafka")
            seen = len(mirror.batches())
            until(
                lambda: len(mirror.batches()) > seen, seconds=240, doing="batches again after Kafka came back"
            )
            stack.kill("connect")
            stack.restart("connect")
            until(lambda: time.monotonic() - writing_since > 60, seconds=240, doing="writing for a minute")
        compare.await_equal(mirror, 300)
        assert mirror.stop() == 0, mirror.tail()
    assert "late" in {t.name for t in compare.tables()}
    assert compare.differences() == {}
    assert compare.assert_changelogs({"t00": {"added": 7}}) > 1000
    assert resent(scene) > 0, "the connector sent nothing again, so this proves little"


def test_killed_anywhere(scene_maker: SceneMaker) -> None:
    """At each boundary of a batch and at random moments, a few or (`LONG`) many; events carry their schemas here."""
    scene = scene_maker(log="schemas = true", extra=QUICK)
    compare, chance = scene.comparison, random.Random(7)
    mirror = MirrorProcess(scene.config, scene.folder / "out.log")
    try:
        with scene.writers(3, 4, pause=0.05):
            for point in FAILPOINTS if LONG else FAILPOINTS[1:2]:
                mirror.start(REPLICATOR_CRASH_AT=f"{point}:{chance.randint(1, 8)}")
                assert mirror.wait(START_S) == -9, f"{point} was not reached\n{mirror.tail()}"
            for number in range(20 if LONG else 2):
                if number % 5 == 0:
                    # Nothing in it is needed.
                    shutil.rmtree(scene.folder / "state", ignore_errors=True)
                mirror.start()
                wanted = 0 if number % 4 == 0 else chance.randint(1, 2)
                until(lambda n=wanted: len(mirror.batches()) >= n, seconds=START_S, doing="batches")
                time.sleep(chance.uniform(0, 6 if not wanted else 1))
                mirror.kill()
        mirror.start()
        compare.await_equal(mirror, 300)
        assert mirror.stop() == 0, mirror.tail()
    finally:
        mirror.kill()
    assert compare.assert_changelogs() > 500


@pytest.mark.long
def test_one_mirror_at_a_time(scene_maker: SceneMaker) -> None:
    """A second process is refused on this machine; one that comes from elsewhere makes one of the two stop."""
    scene = scene_maker(tables=4, extra=QUICK)
    compare = scene.comparison
    with running(scene.config, scene.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        again = subprocess.run(
            [COMMAND, "run", "-c", str(scene.config)],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert again.returncode == 2
        assert "is already running" in again.stderr
        assert "next:" in again.stderr
        elsewhere = scene.configured(
            "elsewhere.toml", scene.config.read_text().replace('/state"', '/other-state"')
        )
        with running(elsewhere, scene.folder / "elsewhere.log") as other, scene.writers(5):
            until(
                lambda: mirror.process.poll() is not None or other.process.poll() is not None,
                seconds=START_S,
                doing="one of two mirrors gives way",
            )
        loser, winner = (mirror, other) if mirror.process.poll() is not None else (other, mirror)
        assert loser.wait(120) == 3
        assert "another process writes" in loser.tail()
    config, output = winner.config, scene.folder / "winner.log"
    with running(config, output) as mirror:
        compare.await_equal(mirror, START_S)
    compare.assert_changelogs()


def test_bad_records_go_to_quarantine(scene_maker: SceneMaker) -> None:
    scene = scene_maker(tables=2, extra=QUICK)
    compare = scene.comparison
    topic = scene.topic("t00")
    with running(scene.config, scene.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        producer = Producer({"bootstrap.servers": scene.database.endpoints.bootstrap_servers})
        bad = [b"garbage{", b'{"schema":{},"payload":{}}', b'{"op":"c","after":{"id":null}}', b"\xff\x00"]
        for value in bad:
            producer.produce(topic, key=b"by hand", value=value)
        assert producer.flush(20) == 0
        with scene.writers(6):
            until(lambda: len(quarantined(scene)) == len(bad), seconds=240, doing="quarantine")
        compare.await_equal(mirror, 300)
        assert mirror.stop() == 0
    assert {row["value"] for row in quarantined(scene)} == set(bad)
    assert all(
        row["topic"] == topic and row["key"] == b"by hand" and row["reason"] for row in quarantined(scene)
    )
    status = subprocess.run(
        [COMMAND, "status", "-c", str(scene.config), "--json"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert "quarantine" in status.stdout
    compare.assert_changelogs()


def quarantined(scene: Scene) -> list[dict[str, Any]]:
    with open_catalog(scene.comparison.config.lake) as catalog:
        name = (scene.comparison.config.lake.ops_namespace, "quarantine")
        if not catalog.table_exists(name):
            return []
        return list(catalog.load_table(name).scan().to_arrow().to_pylist())


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["split", "merge"])
def test_on_a_cluster_of_two_workers(scene_maker: SceneMaker, strategy: str) -> None:
    """Executors in processes of their own: nothing may rest on one JVM's memory."""
    extra = f"""
[apply]
strategy = "{strategy}"
[spark]
master = "local-cluster[2,1,1024]"
driver_memory = "1g"
conf = {{ "spark.executor.memory" = "512m" }}
"""
    scene = scene_maker(tables=3, extra=extra)
    mirror = MirrorProcess(scene.config, scene.folder / "out.log", ("--until-caught-up",))
    for seed in (7, 8):
        with scene.writers(seed):
            mirror.start()
            assert mirror.wait(400) == 0, mirror.tail()
    mirror.start()
    assert mirror.wait(400) == 0, mirror.tail()
    assert scene.comparison.differences() == {}
    assert scene.comparison.assert_changelogs() > 0
