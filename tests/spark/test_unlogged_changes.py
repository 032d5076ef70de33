"""Statements that change rows without row events: the table is read again, keeps its rows, or pauses, as configured."""

from dataclasses import replace
from typing import Any

import pytest

from replicator.config import Config
from replicator.errors import RowsChanged, UnloggedChange, UnsupportedChange
from replicator.model.moments import parse_as_of
from replicator.model.reread import new_request
from replicator.model.table import TableId
from replicator.operations.rebuild.rebuild import rebuild_tables
from replicator.operations.status.mirror_status import TableStatus
from replicator.operations.status.read import read_status
from replicator.runner.scheduler import Scheduler
from replicator.telemetry import Stopwatch
from tests.oracle.events import ColumnSpec
from tests.oracle.model import SourceTable
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import ORDERS
from tests.support.reread_lake import LakeReread
from tests.support.scenario import ID, Scenario, changelog, rows, state

TABLE = TableId("shop", "orders")
N = ColumnSpec("n", "int")
DROP = "ALTER TABLE orders DROP PARTITION p0"
WAYS = [("once", False), ("once", True), ("each", True)]
ways = pytest.mark.parametrize(("cut", "with_schemas"), WAYS)


def scenario_with(statement: str, *, with_schemas: bool = False) -> Scenario:
    """Return a table of two rows, the statement, and two later changes; row 1 was in the dropped partition."""
    scenario = Scenario([ID, N], with_schemas)
    scenario.insert(id=1, n=1)
    scenario.insert(id=2, n=2)
    scenario.define(statement, [ID, N])
    scenario.insert(id=3, n=3)
    scenario.change("u", before={"id": 2, "n": 2}, after={"id": 2, "n": 20})
    return scenario


def configured(lake: LakeHarness, policy: str) -> Config:
    return lake.config(schema_changes={"unlogged": policy})


def applied(lake: LakeHarness, scenario: Scenario, cut: str, config: Config | None = None) -> Scheduler:
    """Apply the scenario in one batch, or each record in a batch of a new process."""
    lake.write(scenario.records)
    scenario.records.clear()
    mirror = lake.mirror(config)
    end = mirror.context.log.offsets()[1][ORDERS][0]
    for stop in [end] if cut == "once" else range(1, end + 1):
        mirror = lake.mirror(config)
        mirror.advance({ORDERS: {0: stop}})
    return mirror


def status(lake: LakeHarness) -> TableStatus:
    (table,) = read_status(lake.config()).tables
    return table


def pairs(lake: LakeHarness, namespace: str = "shop") -> dict[Any, Any]:
    return {row["id"]: row["n"] for row in rows(lake, namespace=namespace)}


@pytest.mark.fault(
    "Rows change without events: `TRUNCATE`, `DROP`, `EXCHANGE PARTITION`, `IMPORT TABLESPACE`, new expression of a "
    "generated column",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the table pauses before later events, or keeps its rows as configured and `status` says so",
)
@ways
def test_table_pauses_with_all_events_before_the_statement(
    lake: LakeHarness, cut: str, with_schemas: bool
) -> None:
    scenario = scenario_with(DROP, with_schemas=with_schemas)
    mirror = applied(lake, scenario, cut)
    (reason,) = mirror.summary().paused.values()
    assert f"{DROP} changed rows at" in reason
    assert pairs(lake) == {1: 1, 2: 2}
    assert len(changelog(lake)) == 2
    assert status(lake).state == "paused"
    # A restart does not forget it.
    assert lake.catch_up().summary().paused == mirror.summary().paused


@pytest.mark.parametrize(("policy", "error"), [("reread", UnloggedChange), ("pause", UnsupportedChange)])
def test_only_a_command_heals_the_table_if_it_is_configured_to_pause(
    lake: LakeHarness, policy: str, error: type[Exception]
) -> None:
    lake.write(scenario_with(DROP).records)
    mirror = lake.mirror(configured(lake, policy))
    causes: list[Exception] = []
    mirror.tables.on_pause(lambda _table, cause: causes.append(cause))
    mirror.advance(mirror.context.log.offsets()[1])
    assert [type(cause) for cause in causes] == [error]
    assert pairs(lake) == {1: 1, 2: 2}


@ways
def test_table_that_keeps_its_rows_continues_and_status_says_so(
    lake: LakeHarness, cut: str, with_schemas: bool
) -> None:
    scenario = scenario_with(DROP, with_schemas=with_schemas)
    config = configured(lake, "keep")
    assert applied(lake, scenario, cut, config).summary().paused == {}
    assert pairs(lake) == {1: 1, 2: 20, 3: 3}
    assert [kept.statement for kept in status(lake).kept] == [DROP]
    assert [note.changes for note in state(lake).notes] == [(f"keep rows that no event changed: {DROP}",)]
    context = lake.mirror(config).context
    rebuild_tables(context.config, context.lake, (), as_of=None, to="then")
    assert pairs(lake, "then") == pairs(lake)
    scenario.change("t")
    scenario.insert(id=4, n=4)
    assert applied(lake, scenario, "once", config).summary().paused == {}
    assert pairs(lake) == {4: 4}
    assert status(lake).kept == ()


def test_statement_after_the_newest_event_pauses_the_table(lake: LakeHarness) -> None:
    scenario = Scenario([ID, N], with_schemas=False)
    scenario.insert(id=1, n=1)
    scenario.define("ALTER TABLE orders TRUNCATE PARTITION ALL", [ID, N])
    lake.write(scenario.records)
    assert lake.catch_up().summary().paused.keys() == {"shop.orders"}
    assert pairs(lake) == {1: 1}


@pytest.mark.parametrize("at", range(1, 9))
def test_mirror_that_is_killed_at_the_statement_continues_exactly(lake: LakeHarness, at: int) -> None:
    config = configured(lake, "keep")
    lake.write(scenario_with(DROP).records)
    try:
        with power_cut(at):
            lake.catch_up(config)
    except PowerCut:
        assert lake.catch_up(config).summary().paused == {}
    assert pairs(lake) == {1: 1, 2: 20, 3: 3}
    assert [kept.statement for kept in status(lake).kept] == [DROP]
    assert len(changelog(lake)) == 5


@pytest.mark.parametrize("ddl", ["ALTER TABLE orders MODIFY n INT AS (id + 1) STORED", DROP])
def test_statement_that_gives_no_definition_is_noticed(lake: LakeHarness, ddl: str) -> None:
    scenario = Scenario([ID, N], with_schemas=False)
    scenario.insert(id=1, n=1)
    scenario.execute(ddl)
    lake.write(scenario.records)
    assert lake.catch_up().summary().paused.keys() == {"shop.orders"}


def reread(lake: LakeHarness, scenario: Scenario, request: Any, **source: Any) -> LakeReread:
    """Return a re-read of a source with the rows `source`, after all changes of the scenario."""
    found = {(int(k[1:]),): {"id": int(k[1:]), "n": v} for k, v in source.items()}
    table = SourceTable("orders", ("id",), [*scenario.columns], found)
    return LakeReread(
        lake.mirror(), table, request, ("mysql-bin.000001", scenario.pos + 1, 1_800_000_000_000)
    )


def test_table_that_is_read_again_is_that_of_the_source_and_continues(lake: LakeHarness) -> None:
    scenario = scenario_with(DROP)
    assert applied(lake, scenario, "once").summary().paused
    paused_at = scenario.pos
    read = reread(lake, scenario, replace(new_request(TABLE, DROP), held=True), r2=20, r3=3)
    read.read([read.table])
    read.complete()
    assert read.publish() == 3
    scenario.pos += 100
    scenario.insert(id=4, n=4)
    assert applied(lake, scenario, "once").summary().paused == {}
    assert pairs(lake) == {2: 20, 3: 3, 4: 4}
    context = lake.mirror().context
    rebuild_tables(context.config, context.lake, (), as_of=None, to="then")
    assert pairs(lake, "then") == pairs(lake)
    before = parse_as_of("mysql-bin.000001:499")
    rebuild_tables(context.config, context.lake, (), as_of=before, to="before")
    assert pairs(lake, "before") == {1: 1, 2: 2}
    gap = parse_as_of(f"mysql-bin.000001:{paused_at}")
    with pytest.raises(UnsupportedChange, match=r"DROP PARTITION p0 changed rows .* read again only at"):
        rebuild_tables(context.config, context.lake, (), as_of=gap, to="gap")
    rebuild_tables(context.config, context.lake, (), as_of=None, to=None)
    assert pairs(lake) == {2: 20, 3: 3, 4: 4}


@ways
@pytest.mark.long
def test_table_whose_column_gets_another_type_is_read_again_and_can_be_rebuilt(
    lake: LakeHarness, cut: str, with_schemas: bool
) -> None:
    """The re-read corrects the values of which a plain cast has others than MySQL."""
    scenario = Scenario([ID, N], with_schemas)
    scenario.insert(id=1, n=1)
    scenario.insert(id=2, n=2)
    text = ColumnSpec("n", "varchar")
    scenario.define("ALTER TABLE orders MODIFY n VARCHAR(200)", [ID, text])
    scenario.insert(id=3, n="3")
    (reason,) = applied(lake, scenario, cut).summary().paused.values()
    assert "ALTER TABLE orders …, with INT changed to VARCHAR(200) in n, changed rows at" in reason
    assert pairs(lake) == {1: 1, 2: 2}
    paused_at = scenario.pos
    read = reread(lake, scenario, replace(new_request(TABLE, reason), held=True), r1="1", r2="02", r3="3")
    read.read([read.table])
    read.complete()
    assert read.publish() == 2
    scenario.pos += 100
    scenario.insert(id=4, n="four")
    assert applied(lake, scenario, "once").summary().paused == {}
    assert pairs(lake) == {1: "1", 2: "02", 3: "3", 4: "four"}
    assert [r["n__was_int"] for r in changelog(lake)][:2] == [1, 2]
    context = lake.mirror().context
    rebuild_tables(context.config, context.lake, (), as_of=None, to="then")
    assert pairs(lake, "then") == pairs(lake)
    rebuild_tables(context.config, context.lake, (), as_of=parse_as_of("mysql-bin.000001:499"), to="before")
    assert pairs(lake, "before") == {1: 1, 2: 2}
    with pytest.raises(UnsupportedChange, match=r"in n, changed rows .* read again only at"):
        rebuild_tables(
            context.config, context.lake, (), as_of=parse_as_of(f"mysql-bin.000001:{paused_at}"), to="gap"
        )


@pytest.mark.parametrize("policy", ["reread", "keep"])
@pytest.mark.parametrize("later_events", [False, True])
@pytest.mark.long
def test_statement_while_the_table_is_read_lets_reading_begin_again(
    lake: LakeHarness, policy: str, later_events: bool
) -> None:
    scenario = Scenario([ID, N], with_schemas=False)
    scenario.insert(id=1, n=1)
    applied(lake, scenario, "once", configured(lake, policy))
    request = new_request(TABLE, "heal")
    read = reread(lake, scenario, request, r1=1)
    read.read([read.table])
    scenario.pos += 100
    scenario.define(DROP, [ID, N])
    if later_events:
        scenario.insert(id=2, n=2)
    lake.write(scenario.records)
    scenario.records.clear()
    lake.catch_up(configured(lake, policy))
    late = reread(lake, scenario, request, r1=1)
    late.complete()
    with pytest.raises(
        RowsChanged, match="changed while it was read, by ALTER TABLE orders DROP PARTITION p0"
    ):
        late.reread.catch_up({}, 25, Stopwatch())
    source = {"r2": 2} if later_events else {}
    # The mirror waits at the statement, or has passed it.
    again = reread(lake, scenario, replace(request, held=policy == "reread"), **source)
    again.read([again.table])
    again.complete()
    again.publish()
    assert lake.catch_up(configured(lake, policy)).summary().paused == {}
    assert pairs(lake) == ({2: 2} if later_events else {})
    assert status(lake).kept == ()
