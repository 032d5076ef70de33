"""A mirror on a Spark cluster: its executors are processes of their own, and share only the files of the lake."""

import json
import re
from pathlib import Path

from benchmarks.spark_cluster import spark_cluster
from replicator.config import Config, load
from replicator.lake.reading.reader import open_catalog
from replicator.sources.archive.format import Event
from replicator.sources.archive.writer import ArchiveWriter
from tests.oracle.compare import assert_changelog_equals, assert_mirror_equals
from tests.oracle.model import Source
from tests.support.archived_events import append_event
from tests.support.config_files import ARCHIVE_MIRROR
from tests.support.lake_harness import FAST_SPARK
from tests.support.mirror import START_S, MirrorProcess

WORKERS = 2
FAST_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
CONFIG = (
    ARCHIVE_MIRROR
    + """\
[apply]
driver_max_events = 0
max_events = 120
[spark]
master = "{master}"
driver_memory = "512m"
[spark.conf]
"spark.cores.max" = "{workers}"
"spark.scheduler.maxRegisteredResourcesWaitingTime" = "300s"
"spark.driver.host" = "127.0.0.1"
"spark.driver.extraJavaOptions" = "{java}"
"spark.executor.extraJavaOptions" = "{java}"
"spark.executor.memory" = "512m"
"spark.eventLog.enabled" = "true"
"spark.eventLog.dir" = "file://{folder}/spark-events"
"spark.eventLog.compress" = "false"
"""
    + "".join(f'"{name}" = "{value}"\n' for name, value in FAST_SPARK.items())
)
WORKER_FILE = re.compile(r"/[0-9a-f]{32}-[^/]+\.parquet$")
"""The files that Python workers write begin with a label; Iceberg's own with a number."""


def test_backlog_is_decoded_and_written_by_the_workers_of_a_cluster(tmp_path: Path) -> None:
    source = Source(7, partitions=2, with_schemas=False, alters=0)
    source.start(("bigint",), rows=20)
    source.run(150)
    archive(tmp_path / "archive", source)
    with spark_cluster(tmp_path / "cluster", WORKERS) as cluster:
        config = drained(tmp_path, cluster.address)
    with open_catalog(config.lake) as catalog:
        (table,) = source.tables
        assert_mirror_equals(catalog, "shop", table)
        assert_changelog_equals(catalog, "shop", table)
        for namespace in ("shop", "shop_changes"):
            files = catalog.load_table((namespace, table.name)).inspect.data_files()
            assert any(map(WORKER_FILE.search, files["file_path"].to_pylist()))
    assert executors(tmp_path / "spark-events") == {"0", "1"}


def archive(folder: Path, source: Source) -> None:
    """Write what the connector has sent, in several files, which several tasks can read."""
    records = source.delivered(0)
    for start in range(0, len(records), 40):
        with ArchiveWriter(folder, topic_prefix="shop", encoding="json") as writer:
            for time, r in enumerate(records[start : start + 40], start):
                offset = writer.end_offset(r.topic, r.partition) or 0
                append_event(writer, Event(r.topic, r.partition, offset, time, r.key, r.value, ()))


def drained(folder: Path, master: str) -> Config:
    """Drain the archive in `folder` with a process, and return its configuration."""
    for name in ("lake", "spark-events"):
        (folder / name).mkdir()
    path = folder / "replicator.toml"
    path.write_text(CONFIG.format(master=master, workers=WORKERS, java=FAST_JAVA, folder=folder))
    mirror = MirrorProcess(path, folder / "mirror.log", ("--until-caught-up",))
    mirror.start()
    assert mirror.wait(START_S) == 0, mirror.tail()
    return load(path)


def executors(folder: Path) -> set[str]:
    """Return the executors that ended a task without an error, by Spark's log of events."""
    (log,) = folder.glob("*/events_*")
    events = map(json.loads, log.read_text().splitlines())
    return {
        event["Task Info"]["Executor ID"]
        for event in events
        if event["Event"] == "SparkListenerTaskEnd" and event["Task End Reason"]["Reason"] == "Success"
    }
