"""A table that fails costs the other tables nothing: only its own state is read again from the lake."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from replicator.batch import MirrorContext, TableTask, apply_task
from replicator.errors import LakeUnavailable
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.ledger import Ledger
from replicator.model.batch_stats import BatchStats
from replicator.operations.status.read import read_status
from replicator.recovery.retries import Retries
from replicator.runner.rounds import Rounds
from replicator.runner.scheduler import Scheduler
from replicator.runner.table_states import TableStates
from replicator.telemetry import Stopwatch
from tests.oracle.events import ColumnSpec
from tests.support.lake_harness import LakeHarness
from tests.support.scenario import ID, other_table, row_of

NAMES = ["orders", "users", "bills", "items"]


class CountingLake(Lake):
    """A lake that counts how often each table is loaded."""

    def __init__(self, spark: Any) -> None:
        super().__init__(spark)
        self.loads: Counter[str] = Counter()

    def load(self, namespace: str, name: str) -> LakeTable | None:
        self.loads[name] += 1
        return super().load(namespace, name)

    def taken(self) -> dict[str, int]:
        """Return the numbers since the last call, by table."""
        found, self.loads = dict(self.loads), Counter()
        return found


class Failing:
    """Fails for the tables in `names`, at the end of their batch."""

    def __init__(self, lake: LakeHarness) -> None:
        self.names: set[str] = set()
        lake.adapt = self._counting
        lake.schedule = lambda context: Scheduler(
            context, tables=TableStates(context, Retries((0.0, 0.0))), apply=self._apply
        )

    @staticmethod
    def _counting(context: MirrorContext) -> MirrorContext:
        lake = CountingLake(context.spark)
        return replace(context, lake=lake, ledger=Ledger(lake, context.config))

    def _apply(self, context: MirrorContext, task: TableTask, watch: Stopwatch) -> BatchStats:
        if task.table.name in self.names:
            context.spark.sql("SELECT raise_error('this is odd')").collect()
        return apply_task(context, task, watch)


def loads(mirror: Scheduler) -> dict[str, int]:
    lake = mirror.context.lake
    assert isinstance(lake, CountingLake)
    return lake.taken()


@pytest.fixture
def failing(lake: LakeHarness) -> Failing:
    """Fill a lake of four tables, and write two further events of each."""
    columns = [ID, ColumnSpec("a", "int")]
    lake.write([other_table(name, "CREATE", 100 + n, columns=columns) for n, name in enumerate(NAMES)])
    lake.write([row_of(name, 200 + n, id=1, a=1) for n, name in enumerate(NAMES)])
    lake.catch_up()
    lake.write([row_of(name, 300 + 10 * k + n, id=k, a=1) for k in (2, 3) for n, name in enumerate(NAMES)])
    return Failing(lake)


def ends(last: int) -> dict[str, dict[int, int]]:
    return {f"shop.shop.{name}": {0: last} for name in NAMES}


def test_a_failing_table_is_the_only_one_that_is_read_again(lake: LakeHarness, failing: Failing) -> None:
    mirror = lake.mirror(lake.config(maintenance={"enabled": False}))
    assert loads(mirror) == dict.fromkeys(NAMES, 2)
    mirror.advance(ends(2))
    batch = loads(mirror)
    failing.names = {"orders"}
    mirror.advance(ends(3))
    assert mirror.failing
    found = loads(mirror)
    # Mirror and changelog are read again. One other table shows that the lake answers.
    assert found.pop("orders") == 2
    probed = [name for name, count in found.items() if count > batch[name]]
    assert len(probed) == 1
    assert found[probed[0]] == batch[probed[0]] + 3
    failing.names = set()
    rounds = Rounds(mirror, follows=True)
    rounds.advance(ends(3))
    assert set(loads(mirror)) == {"orders"}
    assert not mirror.failing
    for name in NAMES:
        assert sorted(row["id"] for row in lake.rows(name)) == [1, 2, 3]


@pytest.mark.fault(
    "The engine fails for every table of a batch",
    area="Lake",
    on="Iceberg; events by hand",
    outcome="these tables are retried, and then paused; the others continue",
)
def test_tables_that_fail_alone_in_a_batch_are_no_outage(lake: LakeHarness, failing: Failing) -> None:
    mirror = lake.mirror()
    failing.names = {"orders", "users"}
    odd = {topic: offsets for topic, offsets in ends(3).items() if topic.endswith(("orders", "users"))}
    mirror.advance(odd)
    assert mirror.failing
    mirror.advance(ends(3))
    for name in set(NAMES) - failing.names:
        assert sorted(row["id"] for row in lake.rows(name)) == [1, 2, 3]
    mirror.advance(ends(3))
    assert {str(table) for table in mirror.tables.paused} == {"shop.orders", "shop.users"}
    paused = {t.source: t.reason for t in read_status(mirror.context.config).tables if t.state == "paused"}
    assert paused.keys() == {"shop.orders", "shop.users"}
    assert all("this is odd" in str(reason) for reason in paused.values())


@pytest.mark.fault(
    "The lake's storage can be read, and not written",
    area="Lake",
    on="Iceberg; events by hand",
    outcome="the batch ends and is repeated; no table pauses",
)
def test_an_outage_of_writing_is_no_failure_of_the_tables_that_noticed_it(
    lake: LakeHarness, failing: Failing
) -> None:
    mirror = lake.mirror()
    failing.names = {"orders", "users"}
    created = mirror.context.lake.load("shop", "bills")
    assert created is not None
    mirror.context.lake.check_writable(created)
    folders = [lake.folder / "lake" / "shop" / name / "data" for name in ("bills", "items")]
    assert not list(folders[0].glob("replicator-probe-*"))
    for folder in folders:
        folder.rename(folder.with_suffix(".away"))
        folder.write_text("no folder")
    odd = {topic: offsets for topic, offsets in ends(3).items() if topic.endswith(("orders", "users"))}
    for _ in range(4):
        with pytest.raises(LakeUnavailable, match="cannot be written"):
            mirror.advance(odd)
    assert not mirror.tables.paused


@pytest.mark.fault(
    "The lake's storage does not answer, and the catalog does",
    area="Lake",
    on="Iceberg; events by hand",
    outcome="the batch ends and is repeated; no table pauses",
)
def test_an_outage_of_the_storage_is_no_failure_of_the_table_that_noticed_it(
    lake: LakeHarness, failing: Failing
) -> None:
    """The catalog still answers. Only one table has events, so nothing but another table shows the outage."""
    mirror = lake.mirror()
    failing.names = {"orders"}
    folders = [lake.folder / "lake" / namespace for namespace in ("shop", "shop_changes")]
    for folder in folders:
        folder.rename(folder.with_suffix(".away"))
    with pytest.raises(LakeUnavailable):
        mirror.advance({"shop.shop.orders": {0: 3}})
    assert not mirror.failing
    for folder in folders:
        folder.with_suffix(".away").rename(folder)
    failing.names = set()
    mirror.forget_markers()
    mirror.check_log()
    mirror.advance(ends(3))
    assert sorted(row["id"] for row in lake.rows("orders")) == [1, 2, 3]
