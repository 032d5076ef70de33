"""A real mirror continues from the archive after Kafka has deleted what it lacks."""

import json
import signal
import subprocess

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from replicator.operations.check import run_checks
from replicator.sources.archive.reader import ArchiveReader
from tests.support import topics
from tests.support.mirror import COMMAND, FAST_MIRROR, START_S, MirrorProcess, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.rereads import changes

SLICES = """[apply]
max_events = 300
driver_max_events = 50"""
"""The backlog takes several batches. Their first slices are for Spark, the smaller ones for the driver."""
HEALING = f"""
[bootstrap]
by = "mirror"
[heal]
mode = "auto"
min_interval = "1 second"
{FAST_MIRROR.replace("[apply]", SLICES)}
"""


@pytest.mark.fault(
    "Kafka deletes events that the archive has",
    area="Log",
    on="MySQL, Debezium, Kafka, archive",
    outcome="they are read from the archive",
)
@pytest.mark.long
def test_mirror_continues_from_the_archive_after_kafka_has_deleted_its_events(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=3, log='archive = "archive"', extra=HEALING)
    mirror = MirrorProcess(mirrored.config, mirrored.folder / "out.log", ("--until-caught-up",))
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()

    before = written(mirrored)
    with mirrored.writers(1, 2):
        until(lambda: written(mirrored) > before + 1_200, seconds=START_S, doing="events are in the topics")
    mirrored.database.execute(
        "ALTER TABLE t00 ADD COLUMN later INT DEFAULT 7", "UPDATE t00 SET later = 8 LIMIT 9"
    )
    archive_everything(mirrored)
    delete_archived(mirrored, leave=3)
    # These are in Kafka only.
    mirrored.database.execute("UPDATE t00 SET later = 9 LIMIT 9", "DELETE FROM t01 LIMIT 2")
    checked = {result.name: result for result in run_checks(mirrored.comparison.config)}
    assert checked["log: archive"].status == "ok", checked["log: archive"]

    logged = []
    mirror.start(REPLICATOR_CRASH_AT="before-commit:5")
    assert mirror.wait(START_S) == -signal.SIGKILL, mirror.tail()
    logged += mirror.lines()
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    logged += mirror.lines()

    assert mirrored.comparison.differences() == {}
    assert mirrored.comparison.assert_changelogs({"t00": {"later": 7}}) > 1_200
    assert [changes(mirrored, table.name, "h") for table in mirrored.tables] == [[], [], []]
    assert [line for line in logged if line.get("event") in {"re-read requested", "table paused"}] == []


def written(mirrored: MirroredDatabase) -> int:
    """Return the number of records that were ever written to the mirror's topics."""
    at = mirrored.database
    return sum(topics.ends(at.endpoints.bootstrap_servers, at.prefix).values())


def archive_everything(mirrored: MirroredDatabase) -> None:
    """Record until the archive has a change that is made now, and so everything from before it."""
    mark, archive = "archived", mirrored.folder / "archive"
    mirrored.database.execute(f"UPDATE t00 SET label = '{mark}' LIMIT 1")

    def is_archived() -> bool:
        command = [COMMAND, "record", "-c", str(mirrored.config), "--to", str(archive), "--until-caught-up"]
        subprocess.run(command, check=True, timeout=START_S)
        events = ArchiveReader(archive).events(mirrored.topic("t00"), 0)
        rows = (json.loads(event.value or b"{}").get("after") or {} for event in events)
        return any(row.get("label") == mark for row in rows)

    until(is_archived, seconds=START_S, doing="the archive has everything")


def delete_archived(mirrored: MirroredDatabase, *, leave: int) -> None:
    """Delete from Kafka what the archive has, definitions included, except the last events of each table."""
    ends = ArchiveReader(mirrored.folder / "archive").end_offsets()
    prefix = mirrored.database.prefix
    wanted = [
        TopicPartition(topic, partition, max(1, end - (0 if topic == prefix else leave)))
        for (topic, partition), end in ends.items()
    ]
    assert len(wanted) == 4
    # Without a reference to the client, its answers would never arrive.
    client = AdminClient({"bootstrap.servers": mirrored.database.endpoints.bootstrap_servers})
    for future in client.delete_records(wanted).values():
        future.result(timeout=60)
