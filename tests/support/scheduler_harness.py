"""A scheduler with mocks of log and lake."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

from pyspark.errors import PySparkException

from replicator.batch import MirrorContext, TableTask
from replicator.batch.state.driver_limits import DriverLimits, RecordSizes
from replicator.batch.state.misread_rows import MisreadRows
from replicator.batch.state.partition_counts import PartitionCounts
from replicator.batch.state.tagging import Tagging
from replicator.config import SourceConfig
from replicator.decode.json.format import JsonFormat
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.errors import MissingSchema
from replicator.lake.ledger import Progress
from replicator.maintenance.upkeep import Upkeep
from replicator.model.batch_stats import BatchStats
from replicator.model.commit_marker import CommitMarker, PartitionProgress
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import LONG
from replicator.recovery.retries import Retries
from replicator.runner.scheduler import ApplyTask, Scheduler
from replicator.runner.table_states import TableStates
from replicator.sources.change_log import Offsets
from replicator.telemetry import Stopwatch
from tests.support.config import minimal_config

ENDS: Offsets = {"shop.shop.orders": {0: 5}, "shop.shop.users": {0: 5}}


class SchedulerHarness:
    """A mirror with mocks of log and lake; `broken` is table → the error with which its work fails."""

    def __init__(
        self, tmp_path: Path, *, retry_delays: tuple[float, ...] = (0.0, 0.0), **sections: Any
    ) -> None:
        self.broken: dict[str, Exception] = {}
        self.done: list[str] = []
        self.markers: dict[str, CommitMarker] = {}
        self.ledger = Mock()
        self.ledger.progress = self._progress
        self.ledger.load.return_value = {}
        self.ledger.probe.return_value = False
        self.ledger.is_another_topic.return_value = False
        self.ledger.resume_marker_for = lambda table, _topic: self._progress(table).resume_marker
        self.log = Mock(topic_prefix="shop", schema_changes=lambda: ())
        self.log.offsets.return_value = ({topic: {0: 0} for topic in ENDS}, ENDS)
        self.log.fetch.return_value = {}
        self.log.compacted.return_value = frozenset()
        self.log.first_partitions.return_value = None
        self.lake = Mock()
        self.lake.namespace_properties.return_value = {}
        context: Any = SimpleNamespace(
            spark=Mock(),
            config=minimal_config(tmp_path, **{"source": {"tables": ["*.*"]}, **sections}),
            log=self.log,
            lake=self.lake,
            ledger=self.ledger,
            schemas=SchemaTracker(JsonFormat()),
            quarantine=Mock(),
            tagging=Tagging(),
            misread=MisreadRows(),
            partition_counts=PartitionCounts(),
            writer=Mock(),
            driver_limits=DriverLimits(),
            sizes=RecordSizes(),
            ahead=Mock(**{"ranges.return_value": ()}),
        )
        self.work: ApplyTask = self.process
        tables = TableStates(context, Retries(retry_delays), self._source_definition)
        self.upkeep = Mock(spec=Upkeep)
        self.mirror = Scheduler(context, tables=tables, apply=self._work, upkeep=self.upkeep)

    def _work(self, context: MirrorContext, task: TableTask, watch: Stopwatch) -> BatchStats:
        return self.work(context, task, watch)

    def _source_definition(self, _source: SourceConfig, table: TableId) -> TableSchema | None:
        """Return the definition of a table that fails without one; its work succeeds afterwards."""
        known = isinstance(self.broken.get(str(table)), MissingSchema)
        if known:
            del self.broken[str(table)]
        return TableSchema((Column("id", LONG),)) if known else None

    def _progress(self, table: TableId) -> Progress:
        marker = self.markers.get(table.name)
        return Progress(marker, marker, True)

    def process(self, _context: Any, task: TableTask, _watch: Any) -> BatchStats:
        if error := self.broken.get(str(task.table)):
            raise error
        self.done.append(str(task.table))
        progress = {r.partition: PartitionProgress(r.end) for r in task.ranges}
        self.markers[task.table.name] = CommitMarker("shop", 1, 1, {task.topic: progress})
        return BatchStats({"c": 1}, (), 0, 0, (), progress, None, None)


def spark_error(text: str = "this file is odd\nand so on") -> PySparkException:
    return PySparkException(text)
