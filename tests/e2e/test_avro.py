"""A mirror whose events are Avro, with a real schema registry."""

import subprocess

from confluent_kafka import Producer

from replicator.config import load
from replicator.connect import register
from replicator.record import record
from replicator.stack import LocalStack
from tests.e2e.conftest import SceneMaker
from tests.e2e.test_mirror import QUICK, START_S, quarantined
from tests.support.mirror import COMMAND, Comparison, running, until


def test_events_in_avro(scene_maker: SceneMaker, running_stack: LocalStack) -> None:
    """Two writers, new columns and tables, bad records, a registry that goes away; then the same from an archive."""
    url = running_stack.endpoints.registry_url
    log = f'format = "avro"\nregistry_url = "{url}"\npartitions = 2'
    scene = scene_maker(tables=5, log=log, extra=QUICK)
    compare, topic = scene.comparison, scene.topic("t00")
    with running(scene.config, scene.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        with scene.writers(1, 2):
            scene.database.execute("ALTER TABLE t00 ADD COLUMN added INT NOT NULL DEFAULT 7 AFTER number")
            scene.database.execute(
                "CREATE TABLE `odd` (`größe x` INT PRIMARY KEY, `a b` VARCHAR(9), `1st` DECIMAL(50,3))"
            )
            scene.database.execute(
                "INSERT INTO `odd` VALUES (1, 'x', -12345678901234567890123456789012345678901234567.125)"
            )
            producer = Producer({"bootstrap.servers": scene.database.endpoints.bootstrap_servers})
            bad = [b"garbage{", b"\0\xff\xff\xff\xffno such schema", b"\0\0\0\0\1\xff\xff"]
            for value in bad:
                producer.produce(topic, key=b"by hand", value=value)
            assert producer.flush(20) == 0
            until(lambda: len(quarantined(scene)) == len(bad), seconds=240, doing="quarantine")
        compare.await_equal(mirror, 300)
        assert mirror.stop() == 0, mirror.tail()
        # A new process has to ask for every schema.
        running_stack.kill("registry")
        with scene.writers(3):
            mirror.start()
            until(
                lambda: any("registry" in line.get("reason", "") for line in mirror.lines()),
                seconds=START_S,
                doing="the mirror notices that the registry is away",
            )
        running_stack.restart("registry")
        # A converter that found its registry away has ended its task.
        register(load(scene.config))
        compare.await_equal(mirror, 300)
        assert mirror.stop() == 0, mirror.tail()
    assert {row["value"] for row in quarantined(scene)} == set(bad)
    assert compare.assert_changelogs({"t00": {"added": 7}}) > 100

    archive = scene.folder / "archive"
    assert record(load(scene.config), archive, until_caught_up=True).events > 100
    text = scene.config.read_text().replace("/lake", "/other-lake").replace('/state"', '/other-state"')
    other = scene.configured("other.toml", text)
    (scene.folder / "other-lake").mkdir()
    running_stack.kill("registry")
    command = [COMMAND, "replay", "-c", str(other), "--from", str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == 0, done.stderr
    assert Comparison.of(scene.database, other).differences() == {}
