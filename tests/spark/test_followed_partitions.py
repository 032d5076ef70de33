"""DROP and TRUNCATE PARTITION are followed: the mirror deletes the rows of these partitions, and no others."""

from typing import Any

import pytest

from replicator.config import Config
from replicator.model.moments import parse_as_of
from replicator.operations.rebuild.rebuild import rebuild_tables
from replicator.operations.status.read import read_status
from replicator.runner.scheduler import Scheduler
from tests.oracle.events import ColumnSpec
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import ORDERS
from tests.support.scenario import ID, Scenario, changelog, rows, state

N = ColumnSpec("n", "int")
RANGES = (
    "PARTITION BY RANGE (`id`) (PARTITION p0 VALUES LESS THAN (10), PARTITION `p1` VALUES LESS THAN (20), "
    "PARTITION p2 VALUES LESS THAN MAXVALUE ENGINE = InnoDB)"
)
DROP = "ALTER TABLE orders DROP PARTITION P1"
STRATEGIES = ["split", "merge", "copy-on-write", "equality"]
ways = pytest.mark.parametrize(("cut", "with_schemas"), [("once", False), ("once", True), ("each", False)])


def partitioned(
    clause: str = RANGES,
    *,
    columns: Any = (ID, N),
    key: tuple[str, ...] = ("id",),
    with_schemas: bool = False,
) -> Scenario:
    scenario = Scenario(columns, with_schemas, key)
    scenario.records.clear()
    ddl = f"CREATE TABLE `orders` (\n  `id` bigint NOT NULL\n) ENGINE=InnoDB\n/*!50100 {clause} */"
    scenario.define(ddl, columns, kind="CREATE")
    return scenario


def scenario_with(statement: str, *, with_schemas: bool = False) -> Scenario:
    """Return a table with rows in each partition, the statement, and later changes."""
    scenario = partitioned(with_schemas=with_schemas)
    for number in (1, 10, 15, 19, 20, 30):
        scenario.insert(id=number, n=number)
    scenario.define(statement, [ID, N])
    scenario.insert(id=12, n=12)
    scenario.change("u", before={"id": 20, "n": 20}, after={"id": 20, "n": 21})
    return scenario


AFTER = {1: 1, 12: 12, 20: 21, 30: 30}


def configured(lake: LakeHarness, **table: Any) -> Config:
    return lake.config(schema_changes={"unlogged": "follow"}, table=[{"name": "shop.orders"} | table])


def applied(lake: LakeHarness, scenario: Scenario, cut: str, config: Config | None = None) -> Scheduler:
    """Apply the scenario in one batch, or each record in a batch of a new process."""
    lake.write(scenario.records)
    scenario.records.clear()
    config = config or configured(lake)
    mirror = lake.mirror(config)
    end = mirror.context.log.offsets()[1][ORDERS][0]
    for stop in [end] if cut == "once" else range(1, end + 1):
        mirror = lake.mirror(config)
        mirror.advance({ORDERS: {0: stop}})
    return mirror


def pairs(lake: LakeHarness, namespace: str = "shop") -> dict[Any, Any]:
    return {row["id"]: row["n"] for row in rows(lake, namespace=namespace)}


def rebuilt(lake: LakeHarness, as_of: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of a mirror that is rebuilt from the changelog in another namespace."""
    context = lake.mirror(configured(lake)).context
    name = "then" if as_of is None else f"then{as_of.rpartition(':')[2]}"
    bound = None if as_of is None else parse_as_of(as_of)
    rebuild_tables(context.config, context.lake, (), as_of=bound, to=name)
    return rows(lake, namespace=name)


@ways
def test_rows_of_dropped_partitions_are_deleted(lake: LakeHarness, cut: str, with_schemas: bool) -> None:
    scenario = scenario_with(DROP, with_schemas=with_schemas)
    assert applied(lake, scenario, cut).summary().paused == {}
    assert pairs(lake) == AFTER
    assert [note.changes for note in state(lake).notes] == [
        ("delete rows of partitions: ALTER TABLE orders DROP PARTITION P1",)
    ]
    (table,) = read_status(lake.config()).tables
    assert (table.state, table.kept) == ("current", ())
    assert rebuilt(lake) == rows(lake)
    assert {r["id"] for r in rebuilt(lake, "mysql-bin.000001:950")} == {1, 10, 15, 19, 20, 30}
    assert {r["id"] for r in rebuilt(lake, "mysql-bin.000001:1050")} == {1, 20, 30}


@pytest.mark.fault(
    "Rows change without events: `DROP` and `TRUNCATE PARTITION` of plain columns, followed as configured",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the mirror deletes exactly the rows of these partitions, once, and so does a rebuild",
)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_each_strategy_deletes_exactly_these_rows(lake: LakeHarness, strategy: str) -> None:
    config = configured(lake, strategy=strategy)
    scenario = scenario_with("ALTER TABLE orders TRUNCATE PARTITION p0, p1")
    scenario.change("u", before={"id": 30, "n": 30}, after={"id": 30, "n": 31})
    assert applied(lake, scenario, "once", config).summary().paused == {}
    assert pairs(lake) == {12: 12, 20: 21, 30: 31}
    # Partition p1 is still there, and p0 is dropped while it is empty.
    scenario.insert(id=10, n=10)
    scenario.define("ALTER TABLE orders DROP PARTITION p0", [ID, N])
    scenario.insert(id=3, n=3)
    scenario.define("ALTER TABLE orders TRUNCATE PARTITION P1", [ID, N])
    scenario.insert(id=4, n=4)
    assert applied(lake, scenario, "once", config).summary().paused == {}
    assert pairs(lake) == {4: 4, 20: 21, 30: 31}
    assert rebuilt(lake) == rows(lake)


@pytest.mark.parametrize("at", range(1, 13))
def test_mirror_that_is_killed_at_the_statement_continues_exactly(lake: LakeHarness, at: int) -> None:
    lake.write(scenario_with(DROP).records)
    try:
        with power_cut(at):
            lake.catch_up(configured(lake))
    except PowerCut:
        assert lake.catch_up(configured(lake)).summary().paused == {}
    assert pairs(lake) == AFTER
    assert len(changelog(lake)) == 9
    assert rebuilt(lake) == rows(lake)


def test_statement_that_is_delivered_again_deletes_nothing_more(lake: LakeHarness) -> None:
    scenario = scenario_with("ALTER TABLE orders TRUNCATE PARTITION p1")
    again = scenario.records[7]
    assert again.value is not None
    assert b"TRUNCATE PARTITION" in again.value
    applied(lake, scenario, "once")
    scenario.records.append(again)
    scenario.insert(id=16, n=16)
    assert applied(lake, scenario, "once").summary().paused == {}
    assert pairs(lake) == AFTER | {16: 16}


def test_statement_whose_definition_is_late_is_not_followed(lake: LakeHarness) -> None:
    scenario = partitioned()
    scenario.insert(id=1, n=1)
    scenario.pos += 500
    scenario.insert(id=2, n=2)
    applied(lake, scenario, "once")
    scenario.pos -= 400
    scenario.define("ALTER TABLE orders TRUNCATE PARTITION p0", [ID, N])
    (reason,) = applied(lake, scenario, "once").summary().paused.values()
    assert "no event tells which" in reason
    assert pairs(lake) == {1: 1, 2: 2}


@pytest.mark.parametrize(
    "clause",
    [
        "PARTITION BY HASH (id) PARTITIONS 4",
        "PARTITION BY RANGE (id + 0) (PARTITION p1 VALUES LESS THAN (10))",
        "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (10))",
        "PARTITION BY LIST (id) (PARTITION p1 VALUES IN (1, 2))",
        "",
    ],
)
def test_other_partitions_are_read_again(lake: LakeHarness, clause: str) -> None:
    scenario = partitioned(clause)
    scenario.insert(id=1, n=1)
    scenario.define(DROP, [ID, N])
    assert applied(lake, scenario, "once").summary().paused.keys() == {"shop.orders"}
    assert pairs(lake) == {1: 1}
    # The changelog has passed the statement without its rows: it stays so.
    assert lake.catch_up(configured(lake)).summary().paused.keys() == {"shop.orders"}


@pytest.mark.long
def test_tables_without_a_key_lose_all_copies(lake: LakeHarness) -> None:
    scenario = partitioned(
        "PARTITION BY RANGE (n) (PARTITION p1 VALUES LESS THAN (2), PARTITION p2 VALUES LESS THAN (3))",
        key=(),
    )
    for number, value in [(1, 1), (1, 1), (2, None), (3, 2), (3, 2), (4, 1)]:
        scenario.insert(id=number, n=value)
    scenario.change("d", before={"id": 4, "n": 1})
    scenario.define(DROP, [ID, N])
    scenario.insert(id=5, n=2)
    scenario.change("d", before={"id": 3, "n": 2})
    assert applied(lake, scenario, "once").summary().paused == {}
    assert [(r["id"], r["n"]) for r in rows(lake)] == [(3, 2), (5, 2)]
    assert rebuilt(lake) == rows(lake)
    assert len(rebuilt(lake, "mysql-bin.000001:1050")) == 6 - 1


DATES = (
    "PARTITION BY RANGE COLUMNS(d) (PARTITION p1 VALUES LESS THAN ('2024-02-01'), "
    "PARTITION p2 VALUES LESS THAN (MAXVALUE))"
)


@pytest.mark.parametrize("zero", [False, True])
@pytest.mark.parametrize(
    ("kind", "day"), [("date", 1), ("seconds", 86_400_000), ("datetime", 86_400_000_000)]
)
@pytest.mark.long
def test_dates_are_followed_unless_one_may_be_a_zero_date(
    lake: LakeHarness, kind: str, day: int, zero: bool
) -> None:
    columns = (ID, ColumnSpec("d", kind, False))
    # A zero date in the key would pause the table for another reason.
    scenario = partitioned(DATES, columns=columns, key=("id",))
    first = 19_754 * day
    for number, value in [(1, 19_000 * day), (2, first - 1), (3, first), (4, 20_000 * day)]:
        scenario.insert(id=number, d=value)
    if zero:
        scenario.insert(id=5, d=0)
    scenario.define(DROP, columns)
    assert bool(applied(lake, scenario, "once").summary().paused) == zero
    assert [r["id"] for r in rows(lake)] == ([1, 2, 3, 4, 5] if zero else [3, 4])
    if not zero:
        assert rebuilt(lake) == rows(lake)


@pytest.mark.parametrize("changelog", [True, False])
@pytest.mark.long
def test_values_that_the_mirror_lacks_are_not_compared(lake: LakeHarness, changelog: bool) -> None:
    scenario = partitioned("PARTITION BY RANGE (n) (PARTITION p1 VALUES LESS THAN (2))")
    scenario.insert(id=1, n=1)
    scenario.define(DROP, [ID, N])
    config = lake.config(
        schema_changes={"unlogged": "follow"},
        table=[{"name": "shop.orders", "columns": {"mask": {"n": {"null": True}}}, "changelog": changelog}],
    )
    assert applied(lake, scenario, "once", config).summary().paused.keys() == {"shop.orders"}
