"""A mirror that maintains its tables between its batches stays equal to the source, with few files and snapshots."""

import random
from typing import Any

import pytest

from replicator import failpoints
from replicator.config import Config
from replicator.lake.rows.locations import rewritten_files
from tests.oracle.events import ColumnSpec, Place, schema_change_event
from tests.oracle.model import Record
from tests.support.failpoints import PowerCut
from tests.support.lake_harness import LakeHarness
from tests.support.logs import captured_logs
from tests.support.order_changes import advance, apply, assert_exact, changes, table, total, write
from tests.support.orders_table import DEFINITION, ORDERS, event

MAINTENANCE: dict[str, Any] = {
    "merge_files": 4,
    "max_snapshots": 8,
    "max_lag": "100000 days",
    "max_share": 1,
    "slice_time": "1 hour",
}
"""The events are old, so that a mirror of them always counts as far behind its source. No slice ends by its time."""


def config(lake: LakeHarness, maintenance: dict[str, Any] | None = None, **sections: Any) -> Config:
    return lake.config(maintenance=MAINTENANCE | (maintenance or {}), **sections)


def assert_small(lake: LakeHarness) -> None:
    for namespace in ("shop", "shop_changes"):
        found = table(lake, namespace)
        assert total(found, "data-files") < 10
        assert total(found, "delete-files") < 10
        # Iceberg's branches of a merge leave snapshots too.
        assert len(found.metadata.snapshots) < 20


@pytest.mark.parametrize("driver_max_events", [0, 10_000])
def test_tables_stay_small_and_exact_over_many_commits(lake: LakeHarness, driver_max_events: int) -> None:
    lake.driver_max_events = driver_max_events
    batches = changes(1, batches=11)
    apply(lake, config(lake), batches)
    assert_exact(lake, batches)
    assert_small(lake)


@pytest.mark.long
def test_maintenance_continues_over_several_slices_when_each_may_rewrite_few_bytes(lake: LakeHarness) -> None:
    batches = changes(8, batches=10)
    write(lake, batches)
    mirror = lake.mirror(config(lake, {"enabled": False}))
    advance(mirror, batches, 0, 8)
    assert total(table(lake, "shop_changes"), "data-files") == 8
    mirror, files = lake.mirror(config(lake, {"slice_bytes": "1 B"})), []
    for number in (8, 9):
        advance(mirror, batches, number, number + 1)
        files.append(total(table(lake, "shop_changes"), "data-files"))
    assert files == [6, 4]
    assert_exact(lake, batches)


@pytest.mark.parametrize("strategy", ["merge", "copy-on-write"])
@pytest.mark.long
def test_table_stays_exact_with_other_write_strategies_when_files_are_merged(
    lake: LakeHarness, strategy: str
) -> None:
    batches = changes(3, batches=10)
    apply(lake, config(lake, apply={"strategy": strategy}), batches)
    assert_exact(lake, batches)


def test_deleted_rows_are_removed_from_data_files_when_they_are_many(lake: LakeHarness) -> None:
    rows = [event("c", 100 + n, after={"id": n, "name": "new"}) for n in range(20)]
    gone = [event("d", 200 + n, before={"id": n, "name": "new"}) for n in range(12)]
    batches = [rows, *([one] for one in gone)]
    apply(lake, config(lake), batches)
    assert_exact(lake, batches)
    # A merge follows after each fourth commit.
    records, deletes = total(table(lake), "records"), total(table(lake), "position-deletes")
    assert records - deletes == 8
    assert deletes < 4


def test_rows_are_not_located_when_another_commit_changed_rows_meanwhile(lake: LakeHarness) -> None:
    lake.write([DEFINITION, *(record for batch in changes(9, batches=2) for record in batch)])
    mirror = lake.mirror(config(lake, {"enabled": False}))
    mirror.advance({ORDERS: {0: 6}})
    before = mirror.context.lake.load("shop", "orders")
    assert before is not None
    assert before.snapshot_id is not None
    mirror.advance({ORDERS: {0: 12}})
    after = mirror.context.lake.load("shop", "orders")
    assert after is not None
    assert rewritten_files(after, before.snapshot_id) is None


@pytest.mark.parametrize(("crash", "format_version"), [(1, 2), (2, 2), (3, 2), (2, 3)])
def test_mirror_stays_exact_when_the_process_ends_between_maintenance_steps(
    lake: LakeHarness, crash: int, format_version: int
) -> None:
    lake.format_version = format_version
    batches = changes(6, batches=12)
    reached = 0

    def reach(point: str) -> None:
        nonlocal reached
        reached += point == "after-maintenance-step"
        if reached == crash:
            raise PowerCut

    with pytest.raises(PowerCut), failpoints.on_reach(reach):
        apply(lake, config(lake), batches)
    lake.catch_up(config(lake))
    assert_exact(lake, batches)


def merges(logs: list[Any]) -> set[str]:
    """Return the steps of all maintenance in `logs`."""
    return {step for line in logs if line["event"] == "maintained" for step in line["steps"]}


def test_process_merges_its_own_small_files_without_spark(lake: LakeHarness) -> None:
    batches = changes(21, batches=18)
    with captured_logs() as logs:
        apply(lake, config(lake, {"max_snapshots": 1000}), batches)
    assert merges(logs) == {"merge small files"}
    assert_exact(lake, batches)
    assert total(table(lake), "data-files") <= 4
    assert total(table(lake), "delete-files") <= 4


def test_small_files_are_merged_exactly_after_an_alter(lake: LakeHarness) -> None:
    """The files have columns, names and types from before the ALTER; field ids tell which column is which."""
    chance, records, rows = random.Random(3), [DEFINITION], dict[int, dict[str, Any]]()
    wider = (ColumnSpec("id", "bigint", False), ColumnSpec("title", "varchar"), ColumnSpec("extra", "int"))
    for pos in range(101, 161):
        if pos == 130:
            altered = schema_change_event(
                Place(1, 129),
                "orders",
                wider,
                ["id"],
                kind="ALTER",
                ddl="ALTER TABLE orders RENAME COLUMN name TO title, ADD COLUMN extra INT",
            )
            records.append(Record("shop", 0, None, altered))
            rows = {n: {"id": n, "title": row["name"], "extra": None} for n, row in rows.items()}
        number = chance.randint(1, 15)
        after = (
            {"id": number, "name": f"v{pos}"}
            if pos < 130
            else {"id": number, "title": f"v{pos}", "extra": pos}
        )
        before, rows[number] = rows.get(number), after
        records.append(event("c" if before is None else "u", pos, before=before, after=after))
    lake.write(records)
    mirror = lake.mirror(config(lake, {"max_snapshots": 1000}))
    with captured_logs() as logs:
        for end in range(5, 61, 5):
            mirror.advance({ORDERS: {0: end}})
    assert mirror.summary().paused == {}
    assert "merge small files" in merges(logs)
    found = {row["id"]: row for row in lake.rows("orders")}
    assert {n: (row["title"], row["extra"]) for n, row in found.items()} == {
        n: (row["title"], row["extra"]) for n, row in rows.items()
    }


def test_changelog_and_mirror_stay_small_with_the_default_settings(lake: LakeHarness) -> None:
    batches = changes(31, batches=30)
    settings = lake.config(maintenance={"max_lag": "100000 days", "max_snapshots": 8})
    with captured_logs() as logs:
        apply(lake, settings, batches)
    assert_exact(lake, batches)
    assert merges(logs) == {"merge small files", "delete snapshots"}
    for namespace in ("shop", "shop_changes"):
        assert total(table(lake, namespace), "data-files") <= 10
        assert total(table(lake, namespace), "delete-files") <= 10
