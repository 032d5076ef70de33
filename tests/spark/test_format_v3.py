"""Mirrors of format version 3: deletion vectors in place of position-delete files, with the same guarantees."""

from collections import Counter
from typing import Any

import pytest
from pyiceberg.manifest import DataFileContent, FileFormat

from replicator import failpoints
from replicator.config import Config
from replicator.lake.catalog import Lake, LakeTable
from replicator.operations.status import read_status
from replicator.runner.scheduler import Scheduler
from tests.oracle.equality_deletes import entries
from tests.oracle.model import Record
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.order_changes import assert_exact, changes, state_after, table, total
from tests.support.orders_table import DEFINITION, ORDERS, created, event

BUCKETS = [{"name": "shop.orders", "partition": ["bucket(3, id)"]}]


def config(lake: LakeHarness, version: int = 3, **sections: Any) -> Config:
    sections["apply"] = {"format_version": version, **sections.get("apply", {})}
    sections.setdefault("maintenance", {"enabled": False})
    return lake.config(**sections)


def advance(mirror: Scheduler, batches: list[list[Record]], first: int, last: int) -> None:
    """Apply the batches from `first` to before `last`, each with a commit of its own."""
    for number in range(first, last):
        mirror.advance({ORDERS: {0: sum(map(len, batches[: number + 1]))}})
    assert mirror.summary().paused == {}


def write(lake: LakeHarness, batches: list[list[Record]]) -> None:
    lake.write([DEFINITION, *(record for batch in batches for record in batch)])


def delete_files(lake: LakeHarness) -> Counter[FileFormat]:
    """Return the number of live position deletes by format."""
    found = entries(table(lake), DataFileContent.POSITION_DELETES)
    return Counter(entry.data_file.file_format for entry in found)


def assert_rows(lake: LakeHarness, batches: list[list[Record]]) -> None:
    """Assert that PyIceberg, Spark and the count of `status` find the rows of the source."""
    assert_exact(lake, batches)
    read = lake.session(lake.config()).read.table("lake.shop.orders").collect()
    assert sorted((row.id, row.name) for row in read) == sorted(state_after(batches).items())


def assert_one_vector_each(lake: LakeHarness) -> None:
    """Assert that there are only deletion vectors, and at most one for each data file."""
    spark = lake.session(lake.config())
    files = spark.sql("SELECT file_format, referenced_data_file AS file FROM lake.shop.orders.delete_files")
    found = [(row.file_format, row.file) for row in files.collect()]
    assert found
    assert {kind for kind, _ in found} == {"PUFFIN"}
    assert max(Counter(found).values()) == 1


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("driver_max_events", [0, 10_000])
def test_each_data_file_has_one_deletion_vector(
    lake: LakeHarness, driver_max_events: int, partitioned: bool
) -> None:
    lake.driver_max_events = driver_max_events
    batches = changes(31, batches=7, keys=15)
    write(lake, batches)
    mirror = lake.mirror(config(lake, table=BUCKETS if partitioned else []))
    advance(mirror, batches, 0, 7)
    assert table(lake).metadata.format_version == 3
    assert table(lake, "shop_changes").metadata.format_version == 2
    assert_one_vector_each(lake)
    assert_rows(lake, batches)
