"""A lake for one test, with the archive that fills it."""

import contextlib
import os
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from replicator.batch import MirrorContext
from replicator.config import CATALOG_NAME, Config
from replicator.jvm.class_data_sharing import class_archive
from replicator.jvm.jars import POSTGRESQL, jars
from replicator.jvm.settings import catalog_conf
from replicator.jvm.spark import build_session
from replicator.lake.reading.reader import open_catalog
from replicator.runner.build import open_context, open_scheduler
from replicator.runner.scheduler import Scheduler
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.sources.archive.format import Encoding, Event
from replicator.sources.archive.writer import ArchiveWriter
from replicator.sources.change_log import ChangeLog
from tests.oracle.avro import AvroTopics
from tests.oracle.compare import rows_of
from tests.oracle.model import Record
from tests.support.archived_events import append_event
from tests.support.config import minimal_config

FAST_SPARK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # For a few rows, interpreting expressions is faster than compiling them.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

_LONG_RUN = "REPLICATOR_LAW_EXAMPLES"
_JAVA_OPTIONS = "-XX:+UseParallelGC -XX:TieredStopAtLevel=1"
"""In a run of some minutes, the optimizing compiler uses a third of all CPU time; only hours repay that."""

_TIME = re.compile(rb'"ts_ms": ?(\d{1,15})\b')
"""A time in an event, in milliseconds since the epoch."""


def _written_class_archive(java: Path, libraries: list[Path]) -> Any:
    """Return the archive of Java's classes. One of several workers does not write it: no later process would use it."""
    found = class_archive(java, libraries)
    if found.writes and "PYTEST_XDIST_WORKER" in os.environ:
        return SimpleNamespace(java_options=tuple, keep=lambda _: None)
    return found


@contextlib.contextmanager
def spark_session(folder: Path) -> Iterator[SparkSession]:
    """Run a small Spark session, whose JVM the lakes of all tests share."""
    (folder / "lake").mkdir()
    conf = FAST_SPARK | {"spark.driver.extraClassPath": os.pathsep.join(map(str, jars(POSTGRESQL)))}
    if _LONG_RUN not in os.environ:
        conf["spark.driver.extraJavaOptions"] = _JAVA_OPTIONS
    # Java keeps something of the session of each test.
    spark = {"master": "local[2]", "driver_memory": "2g", "conf": conf}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("replicator.jvm.launch.class_archive", _written_class_archive)
        session = build_session(minimal_config(folder, spark=spark))
    try:
        yield session
    finally:
        session.stop()


@dataclass
class LakeHarness:
    """Keep the lake of one test, the archive that fills it and its configuration in `folder`.

    Attributes:
        driver_max_events: `apply.driver_max_events` of every configuration; None for the default.
        format_version: `apply.format_version` of every configuration that does not set it; None for the default.
        open_log: opens the archive as a log.
        adapt: replaces services of every mirror's context.
        schedule: creates the scheduler of every mirror.
        sent_ms: when the last record was sent, milliseconds since the epoch.
    """

    base: SparkSession
    folder: Path
    driver_max_events: int | None = None
    format_version: int | None = None
    open_log: Callable[[Path], ChangeLog] = ArchiveChangeLog
    adapt: Callable[[MirrorContext], MirrorContext] = lambda context: context
    schedule: Callable[[MirrorContext], Scheduler] = open_scheduler
    sent_ms: int = 0

    def config(self, **sections: Any) -> Config:
        """Return the minimal configuration with other `sections`, for this folder."""
        if self.driver_max_events is not None:
            sections["apply"] = sections.get("apply", {}) | {"driver_max_events": self.driver_max_events}
        if self.format_version is not None:
            sections["apply"] = {"format_version": self.format_version} | sections.get("apply", {})
        return minimal_config(self.folder, **sections)

    def session(self, config: Config) -> SparkSession:
        """Open a session with this lake's catalog, on the JVM that all tests share."""
        (self.folder / "lake").mkdir(exist_ok=True)
        session = self.base.newSession()
        for name, value in catalog_conf(config.lake).items():
            session.conf.set(name, value)
        # Spark opens a catalog with the settings of the thread's active session, whichever session asked for it.
        jvm: Any = session._jvm
        jvm.org.apache.spark.sql.SparkSession.setActiveSession(session._jsparkSession)
        session._jsparkSession.sessionState().catalogManager().catalog(CATALOG_NAME)
        return session

    def write(
        self,
        records: Sequence[Record],
        *,
        gaps: int | None = None,
        avro: AvroTopics | None = None,
        partitions: Mapping[str, int] | None = None,
    ) -> None:
        """Append records to the archive in order; with `gaps` (a seed), some offsets are skipped.

        With `avro`, records of JSON with schemas are written in Avro. `partitions` are the numbers of partitions of
        topics, as `replicator record` notes them.
        """
        chance = None if gaps is None else random.Random(gaps)
        times = self._sending_times(records)
        encoding: Encoding = "json" if avro is None else "avro"
        with ArchiveWriter(self.folder / "archive", topic_prefix="shop", encoding=encoding) as writer:
            if avro is not None:
                records = [avro.encoded(r) for r in records]
                for number, schema in avro.schemas.items():
                    writer.add_schema(number, schema)
            for topic, count in (partitions or {}).items():
                writer.add_topic(topic, partitions=count)
            for r, time in zip(records, times, strict=True):
                offset = writer.end_offset(r.topic, r.partition) or 0
                if chance is not None and chance.random() < 0.05:
                    offset += chance.randint(1, 5)
                append_event(writer, Event(r.topic, r.partition, offset, time, r.key, r.value, ()))

    def _sending_times(self, records: Sequence[Record]) -> list[int]:
        """Return when the connector sent each of `records`: not before what it read, and one after the other."""
        found: list[int] = []
        for r in records:
            times = map(int, _TIME.findall(r.value or b""))
            self.sent_ms = max(self.sent_ms + 1, *times, 0)
            found.append(self.sent_ms)
        return found

    def mirror(self, config: Config | None = None) -> Scheduler:
        """Create a mirror as a new process would, after the check of its log."""
        config = config or self.config()
        log = self.open_log(self.folder / "archive")
        mirror = self.schedule(self.adapt(open_context(config, log, self.session(config))))
        mirror.check_log()
        return mirror

    def catch_up(self, config: Config | None = None) -> Scheduler:
        """Advance the lake to the end of the archive with a new mirror."""
        mirror = self.mirror(config)
        mirror.advance(mirror.context.log.offsets()[1])
        return mirror

    @contextlib.contextmanager
    def catalog(self) -> Iterator[Catalog]:
        with open_catalog(self.config().lake) as catalog:
            yield catalog

    def rows(self, table: str, namespace: str = "shop") -> list[dict[str, Any]]:
        """Return a lake table's rows, not read by the engine."""
        with self.catalog() as catalog:
            return rows_of(catalog.load_table((namespace, table)))
