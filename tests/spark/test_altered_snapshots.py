"""The connector takes its initial snapshot again on a server whose binlog has lower positions, soon after an ALTER.

Rows of a snapshot have no GTID. Their definition, which the snapshot sends too, tells which version they have.
"""

import pytest

from tests.support.altered_snapshots import (
    OLD,
    STATEMENTS,
    at,
    event,
    first_server,
    image,
    play,
    snapshot,
)
from tests.support.lake_harness import LakeHarness


@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.fault(
    "The connector takes its initial snapshot again on a server with lower positions, soon after an ALTER TABLE",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the rows have the columns that the snapshot's definition shows",
)
def test_rows_of_a_snapshot_have_its_definition(lake: LakeHarness, kind: str) -> None:
    (columns, action), file, pos = STATEMENTS[kind], 3, 65
    records = [
        *first_server(columns, action),
        *snapshot(file, pos, 50, columns, 1, 2, 3, 4),
        event("c", at(file, pos + 10, 60, 4), columns, 5),
    ]
    play(lake, records, -1, columns, [image(columns, n) for n in (1, 2, 3, 4, 5)])


@pytest.mark.parametrize("size", [-3, 100])
@pytest.mark.parametrize("file", [3, 901])
@pytest.mark.fault(
    "The connector takes its initial snapshot again on a server with lower positions, and an ALTER TABLE was not sent",
    area="Source",
    on="Iceberg; events by hand",
    outcome="changes from before the snapshot have the columns from before it",
)
@pytest.mark.long
def test_changes_from_before_a_snapshot_do_not_have_its_definition(
    lake: LakeHarness, size: int, file: int
) -> None:
    columns, _ = STATEMENTS["rename"]
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 60, 20, 1), OLD, 3),
        event("c", at(900, 70, 30, 2), OLD, 4),
        *snapshot(file, 65, 50, columns, 1, 2, 3, 4),
        event("c", at(file, 75, 60, 5), columns, 5),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (1, 2, 3, 4, 5)])
    changes = [r for r in lake.rows("orders", "shop_changes") if r["_change"]["op"] == "c" and r["id"] < 5]
    assert sorted((r["name"], r["extra"]) for r in changes) == [("n3", 3), ("n4", 4)]
