"""A table with a backlog is read in slices: other tables do not wait, and each change is applied exactly once.

A slice may end anywhere: between a schema change and the events before it, or before a rename.
"""

from contextlib import suppress

import pytest

from replicator.runner.rounds import Rounds
from replicator.runner.scheduler import Scheduler
from tests.oracle.compare import assert_changelog_equals, assert_mirror_equals
from tests.oracle.events import ColumnSpec
from tests.oracle.model import Source
from tests.support.exchanged_tables import A
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.scenario import ID, Scenario, changelog, other_table, row_of, rows, state


def slicing(lake: LakeHarness, max_events: int) -> Scheduler:
    """Return a new mirror whose slices have at most `max_events` events."""
    return lake.mirror(lake.config(apply={"max_events": max_events}))


def to_the_end(mirror: Scheduler) -> None:
    Rounds(mirror, follows=False).advance(mirror.context.log.offsets()[1])
    assert (mirror.summary().paused, mirror.failing) == ({}, False)


def test_other_tables_are_committed_with_the_first_slice_of_a_backlog(lake: LakeHarness) -> None:
    lake.write([other_table("orders", "CREATE", 100, columns=[ID, A])])
    lake.write([other_table("users", "CREATE", 110, columns=[ID, A])])
    lake.write([row_of("orders", 200 + n, id=n, a=n) for n in range(20)])
    lake.write([row_of("users", 500, id=1, a=1)])
    mirror = slicing(lake, 6)
    found: list[tuple[int, int]] = []
    mirror._on_batch = lambda _report: found.append((len(lake.rows("orders")), len(lake.rows("users"))))
    to_the_end(mirror)
    # The tables of the first round share its events. Then the backlog is alone.
    assert found == [(6, 1), (12, 1), (18, 1), (20, 1)]


@pytest.mark.fault(
    "The mirror is killed between the slices of a backlog",
    area="Process",
    on="Iceberg; events of the model",
    outcome="the next process continues with the next slice",
)
@pytest.mark.parametrize("crashes", [(), (2, 5, 9, 14), (1, 3, 4, 6, 7, 8)])
@pytest.mark.parametrize("max_events", [7, 40])
def test_slices_are_exact_when_the_process_is_killed_between_them(
    lake: LakeHarness, crashes: tuple[int, ...], max_events: int
) -> None:
    source = Source(11, partitions=2, with_schemas=False, alters=5)
    source.start(("bigint", "composite"), rows=8)
    source.run(25)
    lake.write(source.delivered(1), gaps=3)
    for crash in crashes:
        with suppress(PowerCut), power_cut(crash):
            to_the_end(slicing(lake, max_events))
    to_the_end(slicing(lake, max_events))
    with lake.catalog() as catalog:
        for table in source.tables:
            assert_mirror_equals(catalog, "shop", table)
            assert_changelog_equals(catalog, "shop", table)


def test_a_schema_change_after_the_newest_event_waits_for_the_last_slice(lake: LakeHarness) -> None:
    """If it were applied after the first slice, the column would be dropped before events that have it."""
    scenario = Scenario([ID, A], with_schemas=False)
    for number in range(7):
        scenario.insert(id=number, a=number)
    scenario.define("ALTER TABLE orders DROP COLUMN a", [ID])
    lake.write(scenario.records)
    mirror = slicing(lake, 3)
    columns: list[list[str]] = []
    mirror._on_batch = lambda _report: columns.append(list(rows(lake)[0]))
    to_the_end(mirror)
    assert columns == [["id", "a"]] * 3 + [["id"]]
    assert [row["a"] for row in changelog(lake)] == list(range(7))
    assert state(lake).at > 0


def test_schema_changes_apply_at_their_position_in_a_backlog(lake: LakeHarness) -> None:
    scenario = Scenario([ID, A], with_schemas=False)
    for number in range(5):
        scenario.insert(id=number, a=number)
    scenario.define(
        "ALTER TABLE orders RENAME COLUMN a TO c, ADD d INT",
        [ID, ColumnSpec("c", "int"), ColumnSpec("d", "int")],
    )
    for number in range(5, 9):
        scenario.insert(id=number, c=number, d=1)
    lake.write(scenario.records)
    to_the_end(slicing(lake, 2))
    assert [(r["id"], r["c"], r["d"]) for r in rows(lake)] == [
        *((n, n, None) for n in range(5)),
        *((n, n, 1) for n in range(5, 9)),
    ]


@pytest.mark.parametrize("started", [False, True])
def test_a_table_is_renamed_after_the_last_slice_of_its_old_name(lake: LakeHarness, started: bool) -> None:
    """The new name has a backlog too, and must wait, whether or not the lake has the table already."""
    columns = [ID, A]
    lake.write([other_table("orders", "CREATE", 100, columns=columns), row_of("orders", 200, id=0, a=0)])
    if started:
        lake.catch_up()
    lake.write([row_of("orders", 200 + n, id=n, a=n) for n in range(1, 8)])
    lake.write([other_table("bills", "ALTER", 300, old="orders", columns=columns)])
    lake.write([row_of("bills", 400 + n, id=n, a=n) for n in range(8, 15)])
    mirror = slicing(lake, 3)
    to_the_end(mirror)
    assert [row["id"] for row in sorted(rows(lake, "bills"), key=lambda r: r["id"])] == list(range(15))
    assert len(lake.rows("bills", "shop_changes")) == 15
    with lake.catalog() as catalog:
        assert {name for _, name in catalog.list_tables("shop")} == {"bills"}
