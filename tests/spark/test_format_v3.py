"""Mirrors of format version 3: deletion vectors in place of position-delete files, with the same guarantees."""

from collections import Counter
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent, FileFormat

from replicator import failpoints
from replicator.config import Config
from replicator.lake.catalog.tables import Lake
from replicator.maintenance.plan import Step
from replicator.maintenance.steps import Maintenance
from replicator.operations.status.read import read_status
from tests.oracle.equality_deletes import entries
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness
from tests.support.order_changes import (
    advance,
    assert_exact,
    changes,
    operation,
    state_after,
    table,
    total,
    write,
)
from tests.support.orders_table import DEFINITION, created, event

BUCKETS = [{"name": "shop.orders", "partition": ["bucket(3, id)"]}]
GRANULARITY = "ALTER TABLE lake.shop.orders SET TBLPROPERTIES ('write.delete.granularity' = '{}')"
REWRITE_DELETES = (
    "CALL lake.system.rewrite_position_delete_files("
    "table => 'shop.orders', options => map('rewrite-all', 'true'))"
)


@pytest.fixture
def lake(lake: LakeHarness) -> LakeHarness:
    lake.format_version = 3
    return lake


def config(lake: LakeHarness, **sections: Any) -> Config:
    return lake.config(**{"maintenance": {"enabled": False}} | sections)


def version_2(lake: LakeHarness, **sections: Any) -> Config:
    return config(lake, apply={"format_version": 2}, **sections)


def formats(lake: LakeHarness) -> Counter[FileFormat]:
    """Return the number of live position deletes by format."""
    found = entries(table(lake), DataFileContent.POSITION_DELETES)
    return Counter(entry.data_file.file_format for entry in found)


def vectors(lake: LakeHarness) -> dict[str, int]:
    """Return data file → number of deleted rows, for the data files with deletion vectors."""
    spark = lake.session(lake.config())
    files = spark.sql(
        "SELECT referenced_data_file AS file, record_count FROM lake.shop.orders.delete_files "
        "WHERE file_format = 'PUFFIN'"
    ).collect()
    # A data file has at most one.
    assert len({row.file for row in files}) == len(files)
    return {row.file: row.record_count for row in files}


def assert_rows(lake: LakeHarness, batches: list[list[Record]]) -> None:
    """Assert that PyIceberg, Spark and the count of `status` find the rows of the source, and that each has an id."""
    assert_exact(lake, batches)
    read = lake.session(lake.config()).sql("SELECT *, _row_id FROM lake.shop.orders").collect()
    assert sorted((row.id, row.name) for row in read) == sorted(state_after(batches).items())
    numbers = {row._row_id for row in read}
    assert len(numbers) == len(read)
    assert None not in numbers


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("driver_max_events", [0, 10_000])
def test_each_data_file_has_one_deletion_vector(
    lake: LakeHarness, driver_max_events: int, partitioned: bool
) -> None:
    lake.driver_max_events = driver_max_events
    batches = changes(31, batches=7, keys=15)
    write(lake, batches)
    advance(lake.mirror(config(lake, table=BUCKETS if partitioned else [])), batches, 0, 7)
    assert table(lake).metadata.format_version == 3
    assert table(lake, "shop_changes").metadata.format_version == 2
    assert formats(lake) == {FileFormat.PUFFIN: len(vectors(lake))}
    assert sum(vectors(lake).values()) == total(table(lake), "position-deletes")
    assert_rows(lake, batches)


def test_later_delete_in_the_same_data_file_replaces_its_deletion_vector(lake: LakeHarness) -> None:
    rows = [created(number) for number in range(1, 6)]
    gone = [event("d", 200 + n, before={"id": n, "name": "new"}) for n in range(1, 5)]
    batches = [rows, gone[:1], gone[1:2], gone[2:]]
    write(lake, batches)
    mirror = lake.mirror(config(lake))
    found = []
    for number in range(4):
        # The last batch is that of a process which does not know the vectors of the others.
        mirror = lake.mirror(config(lake)) if number == 3 else mirror
        advance(mirror, batches, number, number + 1)
        found.append(sorted(vectors(lake).values()))
    assert found == [[], [1], [2], [4]]
    snapshot = table(lake).current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    summary = snapshot.summary.additional_properties
    assert (summary["added-dvs"], summary["removed-dvs"]) == ("1", "1")
    assert_rows(lake, batches)


@pytest.mark.parametrize(("granularity", "driver_max_events"), [("partition", 0), ("file", 10_000)])
def test_deletes_from_before_an_upgrade_are_part_of_the_deletion_vectors(
    lake: LakeHarness, granularity: str, driver_max_events: int
) -> None:
    lake.driver_max_events = driver_max_events
    batches = changes(32, batches=10, keys=12)
    write(lake, batches)
    mirror = lake.mirror(version_2(lake))
    advance(mirror, batches, 0, 5)
    if granularity == "file":
        mirror.context.spark.sql(GRANULARITY.format(granularity))
        mirror.context.spark.sql(REWRITE_DELETES).collect()
    assert table(lake).metadata.format_version == 2
    earlier = formats(lake)[FileFormat.PARQUET]
    upgraded = lake.mirror(config(lake))
    for number in range(5, 10):
        advance(upgraded, batches, number, number + 1)
        assert_rows(lake, batches[: number + 1]) if number == 5 else None
    assert table(lake).metadata.format_version == 3
    assert table(lake, "shop_changes").metadata.format_version == 2
    left = formats(lake)[FileFormat.PARQUET]
    # Only a delete file of a single data file is removed; one of several may still apply to the others.
    assert 0 < left < earlier or (granularity == "file" and left == 0)
    assert vectors(lake)
    assert_rows(lake, batches)
    assert {entry.rows for entry in read_status(config(lake)).tables} == {len(state_after(batches))}


@pytest.mark.long
def test_table_of_version_3_keeps_it_when_2_is_configured(lake: LakeHarness) -> None:
    batches = changes(33, batches=4, keys=10)
    write(lake, batches)
    advance(lake.mirror(config(lake)), batches, 0, 2)
    advance(lake.mirror(version_2(lake)), batches, 2, 4)
    assert table(lake).metadata.format_version == 3
    assert formats(lake).keys() == {FileFormat.PUFFIN}
    assert_rows(lake, batches)


def test_tables_may_override_the_format_version(lake: LakeHarness) -> None:
    lake.write([DEFINITION, created(1)])
    lake.catch_up(config(lake, table=[{"name": "shop.orders", "format_version": 2}]))
    assert table(lake).metadata.format_version == 2


def test_commit_of_another_engine_between_files_and_commit_makes_the_batch_be_planned_again(
    lake: LakeHarness,
) -> None:
    """The other commit replaces the deletion vectors that the staged ones contain."""
    batches = changes(35, batches=6, keys=10)
    write(lake, batches)
    mirror = lake.mirror(config(lake))
    advance(mirror, batches, 0, 4)
    acted: list[str] = []

    def reach(at: str) -> None:
        if at == "after-delete-files" and not acted:
            acted.append(at)
            mirror.context.spark.sql(
                "CALL lake.system.rewrite_data_files(table => 'shop.orders', "
                "options => map('rewrite-all', 'true'))"
            ).collect()

    with failpoints.on_reach(reach):
        advance(mirror, batches, 4, 6)
    assert acted
    assert_rows(lake, batches)


def row_ids(lake: LakeHarness) -> dict[int, tuple[int, int]]:
    """Return the key of each row → its id, and the sequence number of its last update."""
    read = lake.session(lake.config()).sql(
        "SELECT id, _row_id, _last_updated_sequence_number AS updated FROM lake.shop.orders"
    )
    return {row.id: (row._row_id, row.updated) for row in read.collect()}


@pytest.mark.parametrize("driver_max_events", [0, 10_000])
@pytest.mark.long
def test_tables_stay_small_and_exact_and_rows_keep_their_ids(
    lake: LakeHarness, driver_max_events: int
) -> None:
    lake.driver_max_events = driver_max_events
    batches = changes(36, batches=10, keys=40)
    write(lake, batches)
    settings = config(lake, maintenance={"merge_files": 3, "max_snapshots": 8, "max_lag": "100000 days"})
    mirror, merges = lake.mirror(settings), 0
    for number in range(10):
        before, since = (row_ids(lake), last_sequence(lake)) if number else ({}, 0)
        advance(mirror, batches, number, number + 1)
        merges += operation(lake) == "replace"
        for key, (row_id, updated) in row_ids(lake).items():
            # A row without a change keeps its id although its file was rewritten.
            assert updated > since or before[key] == (row_id, updated)
    assert merges
    assert total(table(lake), "data-files") < 8
    assert total(table(lake), "delete-files") < 8
    assert_rows(lake, batches)
    assert not any(found.overdue for found in read_status(settings).maintenance)


def last_sequence(lake: LakeHarness) -> int:
    snapshot = table(lake).current_snapshot()
    return 0 if snapshot is None else snapshot.sequence_number or 0


def test_deletion_vectors_alone_make_no_merge_due(lake: LakeHarness) -> None:
    """Each data file has one for ever, unless rows are removed from the file; a merge would change nothing."""
    rows = [created(10 * batch + i) for batch in range(6) for i in range(8)]
    gone = [event("d", 900 + b, before={"id": 10 * b, "name": "new"}) for b in range(6)]
    batches = [*([rows[i : i + 8] for i in range(0, 48, 8)]), gone]
    write(lake, batches)
    advance(lake.mirror(config(lake)), batches, 0, 7)
    assert len(vectors(lake)) == 6
    settings = config(lake, maintenance={"enabled": False, "merge_files": 5, "delete_ratio": 0.5}, table=[])
    due = {found.table: found.due for found in read_status(settings).maintenance}
    assert due["shop.orders"] == (Step.MERGE_DATA,)


@pytest.mark.parametrize("upgraded", [False, True])
@pytest.mark.long
def test_deleted_rows_are_removed_from_data_files(lake: LakeHarness, upgraded: bool) -> None:
    """Also those of delete files from before an upgrade, some of which deletion vectors repeat."""
    batches = changes(37, batches=8, keys=12)
    write(lake, batches)
    if upgraded:
        advance(lake.mirror(version_2(lake)), batches, 0, 4)
    advance(lake.mirror(config(lake)), batches, 4 if upgraded else 0, 8)
    tables = Lake(lake.session(lake.config()))
    loaded = tables.load("shop", "orders")
    assert loaded is not None
    settings = lake.config(maintenance={"delete_ratio": 0.001}).maintenance
    report = Maintenance(tables, loaded, settings).run(Step.FOLD_DELETES)
    assert report.rewritten
    assert total(table(lake), "delete-files") == 0
    assert total(table(lake), "records") == len(state_after(batches))
    assert_rows(lake, batches)
