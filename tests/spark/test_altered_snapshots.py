"""The connector takes its initial snapshot again on a server whose binlog has lower positions, soon after an ALTER.

Rows of a snapshot have no GTID. Their definition, which the snapshot sends too, tells which version they have.
"""

import pytest

from tests.support.altered_snapshots import (
    ADDED,
    OLD,
    SIZES,
    STATEMENTS,
    altered,
    at,
    event,
    existing,
    first_server,
    image,
    play,
    run,
    snapshot,
)
from tests.support.lake_harness import LakeHarness
from tests.support.story_log import StoryLog


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.parametrize("file", [3, 901])
@pytest.mark.fault(
    "The connector takes its initial snapshot again on a server with lower positions, soon after an ALTER TABLE",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the rows have the columns that the snapshot's definition shows",
)
def test_rows_of_a_snapshot_have_its_definition(lake: LakeHarness, kind: str, size: int, file: int) -> None:
    (columns, action), pos = STATEMENTS[kind], 65
    records = [
        *first_server(columns, action),
        *snapshot(file, pos, 50, columns, 1, 2, 3, 4),
        event("c", at(file, pos + 10, 60, 4), columns, 5),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (1, 2, 3, 4, 5)])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.parametrize("file", [3, 901])
@pytest.mark.fault(
    "The connector takes its initial snapshot again on a server with lower positions and without GTIDs, soon after an "
    "ALTER TABLE; changes follow it",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the changes have the columns that the snapshot's definition shows",
)
@pytest.mark.long
def test_changes_after_a_snapshot_have_its_definition_without_gtids(
    lake: LakeHarness, kind: str, size: int, file: int
) -> None:
    (columns, action), pos = STATEMENTS[kind], 65
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 60, 20, 0), OLD, 3),
        altered(at(900, 70, 30, 0), columns, action),
        event("c", at(900, 80, 40, 0), columns, 4),
        *snapshot(file, pos, 50, columns, 1, 2, 3, 4),
        event("c", at(file, pos + 10, 60, 0), columns, 5),
        event("c", at(file + 1, 4, 61, 0), columns, 6),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (1, 2, 3, 4, 5, 6)])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.fault(
    "A fail-over to a server with lower positions, soon after a repeated snapshot that showed an ALTER TABLE",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the changes have the columns that the snapshot's definition shows",
)
def test_changes_of_a_third_server_have_the_definition_of_the_snapshot(
    lake: LakeHarness, kind: str, size: int
) -> None:
    columns, _ = STATEMENTS[kind]
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 60, 20, 1), OLD, 3),
        *snapshot(901, 65, 50, columns, 1, 2, 3),
        event("c", at(901, 75, 60, 5), columns, 4),
        event("c", at(3, 75, 70, 6), columns, 5),
        event("c", at(3, 85, 80, 7), columns, 6),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (1, 2, 3, 4, 5, 6)])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.fault(
    "An ALTER TABLE on a server with lower positions than those of the snapshot; the mirror is behind",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the rows of the snapshot have the columns from before it",
)
def test_rows_of_a_snapshot_do_not_have_a_later_definition(lake: LakeHarness, kind: str, size: int) -> None:
    columns, action = STATEMENTS[kind]
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(3, 60, 20, 1), OLD, 3),
        altered(at(3, 70, 30, 2), columns, action),
        event("c", at(3, 80, 40, 3), columns, 4),
    ]
    play(lake, records, size, columns, [*existing(columns, 1, 2, 3), image(columns, 4)])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.parametrize("file", [3, 901])
@pytest.mark.fault(
    "The connector takes its initial snapshot again on a server with lower positions, and an ALTER TABLE was not sent",
    area="Source",
    on="Iceberg; events by hand",
    outcome="changes from before the snapshot have the columns from before it",
)
@pytest.mark.long
def test_changes_from_before_a_snapshot_do_not_have_its_definition(
    lake: LakeHarness, kind: str, size: int, file: int
) -> None:
    columns, _ = STATEMENTS[kind]
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


def test_table_with_several_partitions_pauses_at_a_repeated_snapshot(lake: LakeHarness) -> None:
    """The order of the events of two partitions is not known."""
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 60, 20, 1), OLD, 3, partition=1),
        *snapshot(901, 65, 50, OLD, 1, 2),
        event("c", at(901, 75, 40, 4), OLD, 4, partition=1),
    ]
    (reason,) = run(lake, records, 100).values()
    assert "its topic has several partitions" in reason


def test_backlog_that_spark_reads_past_a_statement_has_the_definition_of_each_batch(
    lake: LakeHarness,
) -> None:
    """The last records of the table, which show whether a definition is late, are of a later version."""
    lake.driver_max_events, lake.open_log = 0, lambda path: StoryLog(path, {}, None)
    lake.write(first_server(ADDED, STATEMENTS["add"][1]))
    assert lake.catch_up(lake.config(apply={"max_events": 2})).summary().paused == {}
    assert sorted(row["id"] for row in lake.rows("orders")) == [1, 2, 3, 4]
