"""The connector takes its initial snapshot again from a replica that lags behind the changes it has sent before.

The rows of the mirror go back to the replica's state, and the changes that the replica gets then are applied again.
"""

from collections.abc import Sequence

import pytest

from replicator.runner.scheduler import Scheduler
from tests.oracle.events import Place
from tests.oracle.model import Record
from tests.spark.test_snapshots import read, row
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, ORDERS, ids

ROWS = read(900, 50, 10, 1, 2, 3)
SENT = [
    row("c", 4, Place(900, 60, 0, 11_000)),
    row("d", 4, Place(900, 70, 0, 11_000)),
    row("c", 5, Place(900, 80, 0, 12_000)),
]


def again(file: int, pos: int) -> list[Record]:
    """Return the rows of a replica that has none of the changes, and then all of them, from this position on."""
    return [
        *read(file, pos, 30, 1, 2, 3),
        row("c", 4, Place(file, pos + 10, 0, 11_000)),
        row("d", 4, Place(file, pos + 20, 0, 11_000)),
        row("c", 5, Place(file, pos + 30, 0, 12_000)),
    ]


@pytest.mark.parametrize("changelog", [True, False])
@pytest.mark.parametrize("size", [pytest.param(1, marks=pytest.mark.long), 20])
@pytest.mark.parametrize(("file", "pos"), [(900, 50), (3, 70)])
@pytest.mark.fault(
    "The connector takes its initial snapshot again from a replica that lags behind what it has sent",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the rows go back to the replica's state, and the changes that follow are applied again",
)
def test_changes_after_the_snapshot_of_a_lagging_replica_are_applied_again(
    lake: LakeHarness, size: int, file: int, pos: int, *, changelog: bool
) -> None:
    records = [*ROWS, *SENT, *again(file, pos), row("c", 6, Place(file, pos + 40, 0, 31_000))]
    _mirror(lake, records, size, changelog=changelog)
    assert ids(lake) == [1, 2, 3, 5, 6]
    if changelog:
        kept = [r["_change"]["op"] for r in lake.rows("orders", "shop_changes")]
        assert sorted(kept) == sorted(["r"] * 6 + ["c", "c", "d"] * 2 + ["c"])


def _mirror(
    lake: LakeHarness,
    records: Sequence[Record],
    size: int,
    *,
    changelog: bool = True,
    definition: Record = DEFINITION,
) -> Scheduler:
    lake.write([definition, *records])
    mirror = lake.mirror(lake.config(apply={"changelog": changelog}))
    for end in [*range(size, len(records), size), len(records)]:
        mirror.advance({ORDERS: {0: end}})
    assert mirror.summary().paused == {}
    return mirror
