"""A mirror whose events are Avro, with a real schema registry."""

import pytest
from confluent_kafka import Producer

from replicator.config import load
from replicator.operations.connector import register
from replicator.operations.stack import LocalStack
from tests.support.mirror import FAST_MIRROR, START_S, running, until
from tests.support.mirrored_database import MirroredDatabaseBuilder, quarantined


@pytest.mark.fault(
    "The schema registry is killed",
    area="Servers",
    on="MySQL, Debezium, Kafka, schema registry",
    outcome="the mirror waits, and continues",
)
@pytest.mark.fault(
    "Another program writes garbage into a topic",
    area="Events",
    on="MySQL, Debezium, Kafka",
    outcome="it is quarantined, and the table continues",
)
def test_mirror_equals_the_source_with_avro_events(
    mirror_database: MirroredDatabaseBuilder, running_stack: LocalStack
) -> None:
    """Two writers, new columns and tables, bad records, an unavailable registry."""
    url = running_stack.endpoints.registry_url
    log = f'format = "avro"\nregistry_url = "{url}"\npartitions = 2'
    mirrored = mirror_database(tables=2, log=log, extra=FAST_MIRROR)
    compare, topic = mirrored.comparison, mirrored.topic("t00")
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        compare.await_equal(mirror, START_S)
        with mirrored.writers(1, 2):
            mirrored.database.execute("ALTER TABLE t00 ADD COLUMN added INT NOT NULL DEFAULT 7 AFTER number")
            mirrored.database.execute(
                "CREATE TABLE `odd` (`größe x` INT PRIMARY KEY, `a b` VARCHAR(9), `1st` DECIMAL(50,3))"
            )
            mirrored.database.execute(
                "INSERT INTO `odd` VALUES (1, 'x', -12345678901234567890123456789012345678901234567.125)"
            )
            producer = Producer({"bootstrap.servers": mirrored.database.endpoints.bootstrap_servers})
            bad = [b"garbage{", b"\0\xff\xff\xff\xffno such schema", b"\0\0\0\0\1\xff\xff"]
            for value in bad:
                producer.produce(topic, key=b"by hand", value=value)
            assert producer.flush(20) == 0
            until(lambda: len(quarantined(mirrored)) == len(bad), seconds=240, doing="quarantine")
        compare.await_equal(mirror, 300)
        mirrored.assert_verified()
        assert mirror.stop() == 0, mirror.tail()
        # A new process must request every schema.
        running_stack.kill("registry")
        with mirrored.writers(3):
            mirror.start()
            until(
                lambda: any("registry" in line.get("reason", "") for line in mirror.lines()),
                seconds=START_S,
                doing="the mirror notices that the registry is away",
            )
        running_stack.restart("registry")
        # A converter whose registry was unavailable has ended its task.
        register(load(mirrored.config))
        compare.await_equal(mirror, 300)
        assert mirror.stop() == 0, mirror.tail()
    assert {row["value"] for row in quarantined(mirrored)} == set(bad)
    assert compare.assert_changelogs({"t00": {"added": 7}}) > 100
