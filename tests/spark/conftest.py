"""One Spark session for all tests here; each test has a lake of its own in it."""

import contextlib
import logging
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import structlog
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession

from replicator.archive import ArchiveWriter, Event
from replicator.archive.format import Encoding
from replicator.catalog import open_catalog
from replicator.config import Config, parse
from replicator.mirror import Mirror
from replicator.process import open_mirror
from replicator.source.archive import ArchiveChangeLog
from replicator.spark import build_session, catalog_conf
from tests.oracle.avro import AvroTopics
from tests.oracle.model import Record

QUICK = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    # A few rows are faster interpreted than compiled for.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.spark)


@dataclass
class Lab:
    """A lake of a test's own, and archives to fill it from.

    `folder` is where all of it lies; `settings` are sections of the configuration that a test changes.
    """

    base: SparkSession
    folder: Path

    def config(self, **sections: Any) -> Config:
        settings: dict[str, Any] = {
            "mirror": {"name": "shop", "state_dir": "state"},
            "source": {"tables": ["shop.*"]},
            "log": {"kind": "archive", "path": "archive"},
            "lake": {
                "catalog": "jdbc",
                "uri": "jdbc:sqlite:lake/catalog.db",
                "warehouse": "lake",
                "namespace": "shop",
            },
        }
        return parse(settings | sections, base=self.folder)

    def session(self, config: Config) -> SparkSession:
        """A session with this lake's catalog, on the JVM that all tests share."""
        (self.folder / "lake").mkdir(exist_ok=True)
        session = self.base.newSession()
        for name, value in catalog_conf(config.lake).items():
            session.conf.set(name, value)
        # Spark opens a catalog with the settings of the thread's active session, whichever session asked for it.
        session._jvm.org.apache.spark.sql.SparkSession.setActiveSession(session._jsparkSession)
        session.sql("SHOW NAMESPACES IN lake").collect()
        return session

    def write(
        self, records: Sequence[Record], *, gaps: int | None = None, avro: AvroTopics | None = None
    ) -> None:
        """Append records to the archive in their order; with `gaps` (a seed), some offsets are skipped.

        With `avro`, records of JSON with schemas are written in Avro.
        """
        chance = None if gaps is None else random.Random(gaps)
        encoding: Encoding = "json" if avro is None else "avro"
        with ArchiveWriter(self.folder / "archive", topic_prefix="shop", encoding=encoding) as writer:
            if avro is not None:
                records = [avro.encoded(r) for r in records]
                for number, schema in avro.schemas.items():
                    writer.add_schema(number, schema)
            for r in records:
                offset = writer.end_offset(r.topic, r.partition) or 0
                if chance is not None and chance.random() < 0.05:
                    offset += chance.randint(1, 5)
                writer.append(Event(r.topic, r.partition, offset, 1_700_000_000_000, r.key, r.value, ()))

    def mirror(self, config: Config | None = None) -> Mirror:
        """A mirror as a new process would have it, its log checked."""
        config = config or self.config()
        log = ArchiveChangeLog(self.folder / "archive")
        mirror = open_mirror(config, log, self.session(config))
        mirror.check_log(*log.offsets())
        return mirror

    def catch_up(self, config: Config | None = None) -> Mirror:
        """Bring the lake to the archive's end with a new mirror."""
        mirror = self.mirror(config)
        mirror.advance(mirror.engine.log.offsets()[1])
        return mirror

    @contextlib.contextmanager
    def catalog(self) -> Iterator[Catalog]:
        with open_catalog(self.config().lake) as catalog:
            yield catalog

    def rows(self, table: str, namespace: str = "shop") -> list[dict[str, Any]]:
        """A lake table's rows, read by PyIceberg."""
        with self.catalog() as catalog:
            return list(catalog.load_table((namespace, table)).scan().to_arrow().to_pylist())


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    settings: Mapping[str, Any] = {
        "mirror": {"name": "tests", "state_dir": "state"},
        "source": {"tables": ["shop.*"]},
        "log": {"kind": "archive", "path": "archive"},
        "lake": {
            "catalog": "jdbc",
            "uri": "jdbc:sqlite:catalog.db",
            "warehouse": "lake",
            "namespace": "tests",
        },
        "spark": {"master": "local[2]", "driver_memory": "1g", "conf": QUICK},
    }
    session = build_session(parse(dict(settings), base=folder))
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Batch reports are no part of what is tested here."""
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()
    logging.disable(logging.NOTSET)


@pytest.fixture
def lab(spark: SparkSession, tmp_path: Path) -> Lab:
    return Lab(spark, tmp_path)
