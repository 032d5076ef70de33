"""Commits absorb the newest small files: they write the rows and positions of these again, together with their own."""

from typing import Any

import pyarrow as pa
import pytest

from replicator import failpoints
from replicator.config import Config
from replicator.lake.files.small_files import added_data, added_deletes
from replicator.runner.scheduler import Scheduler
from tests.oracle.model import Record
from tests.support.failpoints import PowerCut
from tests.support.lake_harness import LakeHarness
from tests.support.logs import captured_logs
from tests.support.order_changes import assert_exact, changes, located, table, total
from tests.support.orders_table import DEFINITION, ORDERS, created, event


def config(lake: LakeHarness, **maintenance: Any) -> Config:
    """Return a configuration whose maintenance has nothing to do."""
    return lake.config(maintenance={"merge_files": 1000, "max_snapshots": 1000} | maintenance)


def write(lake: LakeHarness, batches: list[list[Record]]) -> None:
    lake.write([DEFINITION, *(record for batch in batches for record in batch)])


def advance(mirror: Scheduler, batches: list[list[Record]], first: int, last: int) -> None:
    """Apply the batches from `first` to before `last`, each with a commit of its own."""
    for number in range(first, last):
        mirror.advance({ORDERS: {0: sum(map(len, batches[: number + 1]))}})
    assert mirror.summary().paused == {}


def operation(lake: LakeHarness) -> str:
    snapshot = table(lake).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return snapshot.summary.operation.value


def test_many_commits_leave_few_files_without_maintenance(lake: LakeHarness) -> None:
    batches, most = changes(41, batches=14, keys=90), 0
    write(lake, batches)
    mirror = lake.mirror(config(lake))
    with captured_logs() as logs:
        for number in range(14):
            advance(mirror, batches, number, number + 1)
            most = max(most, total(table(lake), "data-files"), total(table(lake), "delete-files"))
    assert [line for line in logs if line["event"] == "maintained"] == []
    assert most <= 5
    assert total(table(lake, "shop_changes"), "data-files") == 14
    assert_exact(lake, batches)


def test_locations_of_absorbed_rows_stay_known(lake: LakeHarness) -> None:
    batches, absorbed = changes(42, batches=8), 0
    write(lake, batches)
    mirror = lake.mirror(config(lake))
    for number in range(8):
        before = 0 if not number else total(table(lake), "data-files")
        advance(mirror, batches, number, number + 1)
        absorbed += total(table(lake), "data-files") <= before
        loaded = mirror.context.lake.load("shop", "orders")
        assert loaded is not None
        known = mirror.context.row_locations.of(loaded, ("id",))
        assert (known.head, known.is_complete, known.unread) == (loaded.snapshot_id, True, [])
        found, searched = known.find(pa.table({"k0": pa.array(range(100), pa.int64())}))
        assert not len(searched)
        expected = located(mirror.context.lake, loaded)
        assert {(f.file.path, int(at)) for f in found for at in f.positions} == expected
    assert absorbed


def test_iceberg_is_told_in_which_manifests_the_absorbed_files_are(lake: LakeHarness) -> None:
    """Else it reads all manifests of the table in each commit."""
    batches = changes(43, batches=4)
    write(lake, batches)
    mirror = lake.mirror(config(lake))
    advance(mirror, batches, 0, 4)
    loaded = mirror.context.lake.load("shop", "orders")
    assert loaded is not None
    small = mirror.context.small_files.of(loaded)
    assert small is not None
    manifests = {str(m.path()) for m in loaded.java.currentSnapshot().allManifests(loaded.java.io())}
    files = [*added_data(loaded, small.data), *added_deletes(loaded, small.deletes)]
    assert len(files) == total(table(lake), "data-files") + total(table(lake), "delete-files") > 1
    assert {str(file.manifestLocation()) for file in files} <= manifests


def test_commit_that_only_inserts_stays_an_append(lake: LakeHarness) -> None:
    batches = [[created(n)] for n in range(1, 5)]
    gone, new = {"id": 1, "name": "new"}, {"id": 9, "name": "new"}
    batches.append([event("d", 300, before=gone), event("c", 301, after=new)])
    write(lake, batches)
    mirror = lake.mirror(config(lake))
    for number in range(4):
        advance(mirror, batches, number, number + 1)
        assert (operation(lake), total(table(lake), "data-files")) == ("append", number + 1)
    advance(mirror, batches, 4, 5)
    assert (operation(lake), total(table(lake), "data-files")) == ("overwrite", 1)
    assert total(table(lake), "position-deletes") == 0
    assert sorted(row["id"] for row in lake.rows("orders")) == [2, 3, 4, 9]


def test_commit_that_only_deletes_absorbs_delete_files(lake: LakeHarness) -> None:
    rows = [created(n) for n in range(1, 7)]
    gone = [[event("d", 300 + n, before={"id": n, "name": "new"})] for n in range(1, 5)]
    batches = [rows, *gone]
    write(lake, batches)
    advance(lake.mirror(config(lake)), batches, 0, 5)
    assert (total(table(lake), "data-files"), total(table(lake), "delete-files")) == (1, 1)
    assert total(table(lake), "position-deletes") == 4
    assert sorted(row["id"] for row in lake.rows("orders")) == [5, 6]


def test_files_of_another_process_are_not_absorbed(lake: LakeHarness) -> None:
    batches = changes(44, batches=9, keys=20)
    write(lake, batches)
    for number in range(0, 9, 3):
        advance(lake.mirror(config(lake)), batches, number, number + 3)
    assert_exact(lake, batches)


def test_nothing_is_absorbed_if_maintenance_is_disabled(lake: LakeHarness) -> None:
    batches = changes(45, batches=5, keys=90)
    write(lake, batches)
    advance(lake.mirror(config(lake, enabled=False)), batches, 0, 5)
    assert total(table(lake), "data-files") == 5
    assert_exact(lake, batches)


@pytest.mark.parametrize("point", ["after-data-files", "after-delete-files", "before-commit"])
def test_crash_before_the_commit_keeps_the_files_that_it_would_absorb(lake: LakeHarness, point: str) -> None:
    batches = changes(46, batches=6, keys=20)
    write(lake, batches)
    mirror = lake.mirror(config(lake))
    advance(mirror, batches, 0, 4)

    def reach(reached: str) -> None:
        if reached == point:
            raise PowerCut

    with pytest.raises(PowerCut), failpoints.on_reach(reach):
        advance(mirror, batches, 4, 5)
    advance(lake.mirror(config(lake)), batches, 4, 6)
    assert_exact(lake, batches)
