"""Log tables over topics in memory, in the lake of one test."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from replicator.config import Config
from replicator.lake.catalog.tables import Lake
from replicator.lake.quarantine import Quarantine
from replicator.log_tables.batch import Appended
from replicator.log_tables.service import LogTables, Result
from tests.support.lake_harness import LakeHarness
from tests.support.log_topics import MemoryTopics

TOPIC = "clicks"
TABLE = "logs.clicks"


@dataclass
class LogLake:
    """Log tables of one test.

    Attributes:
        settings: those of the only log table, besides topic and table.
    """

    lake: LakeHarness
    settings: dict[str, Any] = field(default_factory=dict)
    apply: dict[str, Any] = field(default_factory=dict)
    topics: MemoryTopics = field(default_factory=MemoryTopics)

    @property
    def config(self) -> Config:
        return self.lake.config(
            log={"kind": "kafka", "bootstrap_servers": "nowhere:9092", "topic_prefix": "shop"},
            source={"url": "mysql://root@nowhere:3306/shop", "tables": ["shop.*"]},
            apply=self.apply,
            log_table=[{"topic": TOPIC, "table": TABLE, **self.settings}],
        )

    def send(self, *values: str | bytes | None, partition: int = 0) -> None:
        self.topics.topic(TOPIC).send(*values, partition=partition)

    def open(self) -> LogTables:
        """Open the tables as a new process would."""
        config = self.config
        lake = Lake(self.lake.session(config))
        lake.ensure_namespace("shop_ops")
        return LogTables(config, lake, self.topics, Quarantine(lake, "shop_ops", config.mirror.name))

    def catch_up(self) -> list[Result]:
        return self.open().catch_up()

    def appended(self) -> list[Appended]:
        results = self.catch_up()
        assert all(isinstance(result, Appended) for result in results), results
        return [result for result in results if isinstance(result, Appended)]

    def rows(self) -> list[dict[str, Any]]:
        found = self.lake.rows("clicks", "logs")
        return sorted(found, key=lambda row: (row["kafka_partition"], row["kafka_offset"]))

    def values(self, *names: str) -> list[Any]:
        return [row[names[0]] if len(names) == 1 else tuple(row[n] for n in names) for row in self.rows()]

    def places(self) -> Counter[tuple[int, int]]:
        """Return how often the table and the quarantine have each offset."""
        quarantine: list[dict[str, Any]] = []
        with self.lake.catalog() as catalog:
            if catalog.table_exists(("shop_ops", "quarantine")):
                quarantine = self.lake.rows("quarantine", "shop_ops")
        return Counter(
            [(row["kafka_partition"], row["kafka_offset"]) for row in self.rows()]
            + [(row["partition"], row["offset"]) for row in quarantine]
        )

    def sent(self) -> Counter[tuple[int, int]]:
        records = self.topics.topic(TOPIC).records
        return Counter((p, o) for p, every in records.items() for o, r in enumerate(every) if r is not None)

    def reasons(self) -> dict[tuple[int, int], str]:
        return {
            (row["partition"], row["offset"]): row["reason"]
            for row in self.lake.rows("quarantine", "shop_ops")
        }

    def property(self, key: str) -> str | None:
        with self.lake.catalog() as catalog:
            return catalog.load_table(("logs", "clicks")).properties.get(key)


@pytest.fixture
def logs(lake: LakeHarness) -> Callable[..., LogLake]:
    def make(apply: dict[str, Any] | None = None, **settings: Any) -> LogLake:
        return LogLake(lake, settings, apply or {})

    return make
