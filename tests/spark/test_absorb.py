"""Commits absorb the newest small files: they write the rows and positions of these again, together with their own."""

from typing import Any

import pytest

from replicator.config import Config
from replicator.lake.files.small_files import in_manifests
from tests.support.lake_harness import LakeHarness
from tests.support.logs import captured_logs
from tests.support.order_changes import advance, assert_exact, changes, operation, table, total, write
from tests.support.orders_table import created, event


def config(lake: LakeHarness, **maintenance: Any) -> Config:
    """Return a configuration whose maintenance has nothing to do."""
    return lake.config(maintenance={"merge_files": 1000, "max_snapshots": 1000} | maintenance)


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


@pytest.mark.long
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
    files = [*in_manifests(loaded, small.data), *in_manifests(loaded, small.deletes)]
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
