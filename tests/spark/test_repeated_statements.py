"""Statements come again after the connector took its initial snapshot again: of a replica that lags, or by mistake."""

from collections.abc import Sequence

import pytest

from tests.oracle.events import ColumnSpec
from tests.support.altered_snapshots import (
    ADDED,
    DROPPED,
    OLD,
    SIZES,
    STATEMENTS,
    altered,
    at,
    created,
    dropped,
    event,
    existing,
    first_server,
    image,
    play,
    run,
    snapshot,
)
from tests.support.lake_harness import LakeHarness


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.parametrize("file", [3, 901])
@pytest.mark.fault(
    "The connector takes its initial snapshot again from a replica that lags behind an ALTER TABLE",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the columns go back, and the statement is executed again when the replica executes it",
)
def test_replica_that_lags_behind_a_statement_executes_it_again(
    lake: LakeHarness, kind: str, size: int, file: int
) -> None:
    (columns, action), pos = STATEMENTS[kind], 65
    records = [
        *first_server(columns, action),
        *snapshot(file, pos, 50, OLD, 1, 2),
        event("c", at(file, pos + 10, 20, 1), OLD, 3),
        altered(at(file, pos + 20, 30, 2), columns, action),
        event("c", at(file, pos + 30, 40, 3), columns, 4),
        event("c", at(file, pos + 40, 60, 4), columns, 5),
    ]
    wanted = [*existing(columns, 1, 2, 3), *(image(columns, n) for n in (4, 5))]
    play(lake, records, size, columns, wanted)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("columns", [OLD, ADDED, DROPPED], ids=["same", "more", "fewer"])
@pytest.mark.parametrize("file", [3, 901])
@pytest.mark.fault(
    "The connector takes its initial snapshot again from a replica that lags behind a DROP TABLE and CREATE TABLE",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the old rows come back, and go when the replica executes the statements",
)
def test_replica_that_lags_behind_a_new_table_executes_its_statements_again(
    lake: LakeHarness, columns: Sequence[ColumnSpec], size: int, file: int
) -> None:
    pos = 65
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 60, 20, 1), OLD, 3),
        dropped(at(900, 70, 30, 2)),
        created(at(900, 71, 31, 3), columns),
        event("c", at(900, 80, 40, 4), columns, 4),
        *snapshot(file, pos, 50, OLD, 1, 2),
        event("c", at(file, pos + 10, 20, 1), OLD, 3),
        dropped(at(file, pos + 20, 30, 2)),
        created(at(file, pos + 21, 31, 3), columns),
        event("c", at(file, pos + 30, 40, 4), columns, 4),
        event("c", at(file, pos + 40, 60, 5), columns, 5),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (4, 5)])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.parametrize(("file", "pos"), [(3, 75), (901, 45)], ids=["lower", "same-file"])
@pytest.mark.fault(
    "The connector takes its initial snapshot again from a replica that lags behind an ALTER TABLE, and then reads a "
    "third server, with lower positions",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the columns go back, and the statement is executed again when the third server sends it",
)
def test_third_server_sends_a_statement_again_after_the_snapshot_of_a_replica_that_lags(
    lake: LakeHarness, kind: str, size: int, file: int, pos: int
) -> None:
    columns, action = STATEMENTS[kind]
    records = [
        *first_server(columns, action),
        *snapshot(901, 65, 50, OLD, 1, 2),
        event("c", at(file, pos, 20, 1), OLD, 3),
        altered(at(file, pos + 40, 30, 2), columns, action),
        event("c", at(file, pos + 50, 40, 3), columns, 4),
        event("c", at(file, pos + 60, 60, 4), columns, 5),
    ]
    wanted = [*existing(columns, 1, 2, 3), *(image(columns, n) for n in (4, 5))]
    play(lake, records, size, columns, wanted)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", STATEMENTS)
def test_first_server_sends_a_statement_again_after_the_snapshot_of_a_replica_that_lags(
    lake: LakeHarness, kind: str, size: int
) -> None:
    columns, action = STATEMENTS[kind]
    first = first_server(columns, action)
    records = [
        *first,
        *snapshot(3, 65, 50, OLD, 1, 2),
        *first[4:],
        event("c", at(900, 90, 60, 4), columns, 5),
    ]
    wanted = [*existing(columns, 1, 2, 3), *(image(columns, n) for n in (4, 5))]
    play(lake, records, size, columns, wanted)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("columns", [OLD, ADDED, DROPPED], ids=["same", "more", "fewer"])
def test_first_server_creates_a_table_again_after_the_snapshot_of_a_replica_that_lags(
    lake: LakeHarness, columns: Sequence[ColumnSpec], size: int
) -> None:
    first = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 60, 20, 1), OLD, 3),
        dropped(at(900, 70, 30, 2)),
        created(at(900, 71, 31, 3), columns),
        event("c", at(900, 80, 40, 4), columns, 4),
    ]
    records = [
        *first,
        *snapshot(3, 65, 50, OLD, 1, 2),
        *first[4:],
        event("c", at(900, 90, 60, 5), columns, 5),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (4, 5)])


@pytest.mark.parametrize("file", [1, 3, 900, 901])
@pytest.mark.parametrize("server", [3, 901])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.fault(
    "The offsets of the connector are set back to before its last snapshot and a DROP TABLE and CREATE TABLE",
    area="Source",
    on="Iceberg; events by hand",
    outcome="the table has all rows, or pauses and is read again",
)
def test_table_that_is_created_again_because_offsets_were_set_back_loses_nothing(
    lake: LakeHarness, size: int, server: int, file: int
) -> None:
    again = 20 if file == server else 0
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 60, 20, 1), OLD, 3),
        dropped(at(900, 70, 30, 2)),
        created(at(900, 71, 31, 3), OLD),
        event("c", at(900, 80, 40, 4), OLD, 4),
        *snapshot(server, 65, 50, OLD, 4, 5),
        event("c", at(server, 75, 60, 6), OLD, 6),
        dropped(at(file, again + 70, 30, 2)),
        created(at(file, again + 71, 31, 3), OLD),
        *(event("c", at(file, again + 80 + n, n * 10, n), OLD, n) for n in (4, 5, 6)),
        event("c", at(file, again + 90, 61, 7), OLD, 7),
    ]
    paused = run(lake, records, size)
    if paused:
        assert "came again, after later changes" in paused["shop.orders"]
    else:
        assert sorted(row["id"] for row in lake.rows("orders")) == [4, 5, 6, 7]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("server", [3, 901])
def test_changes_in_partitions_without_rows_of_the_snapshot_show_that_offsets_were_set_back(
    lake: LakeHarness, size: int, server: int
) -> None:
    later = event("c", at(server, 75, 70, 6), OLD, 6, partition=1)
    records = [
        *snapshot(900, 50, 10, OLD, 1, 2),
        event("c", at(900, 60, 20, 1), OLD, 3),
        dropped(at(900, 70, 30, 2)),
        created(at(900, 71, 31, 3), OLD),
        event("c", at(900, 80, 40, 4), OLD, 4),
        *snapshot(server, 65, 50, OLD, 4, 5),
        later,
        dropped(at(server, 20, 30, 2)),
        created(at(server, 21, 31, 3), OLD),
        event("c", at(server, 30, 40, 4), OLD, 4),
        event("c", at(server, 40, 50, 5), OLD, 5),
        later,
        event("c", at(server, 90, 71, 7), OLD, 7),
    ]
    if paused := run(lake, records, size):
        # In small batches of a mirror that is behind, a partition without rows of the snapshot is ahead of it.
        reasons = (
            "came again",
            "the order of changes in partitions without rows of the snapshot is not known",
        )
        assert any(reason in paused["shop.orders"] for reason in reasons)
    else:
        assert sorted(row["id"] for row in lake.rows("orders")) == [4, 5, 6, 7]


@pytest.mark.parametrize("size", SIZES)
def test_definition_that_comes_late_is_not_taken_for_one_of_offsets_that_were_set_back(
    lake: LakeHarness, size: int
) -> None:
    columns, action = STATEMENTS["retype"]
    records = [
        *first_server(columns, action),
        *snapshot(901, 65, 50, OLD, 1, 2),
        event("c", at(901, 75, 20, 1), OLD, 3),
        event("c", at(901, 95, 40, 3), columns, 4),
        altered(at(901, 85, 30, 2), columns, action),
        event("c", at(901, 105, 60, 4), columns, 5),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (1, 2, 3, 4, 5)])


@pytest.mark.parametrize("size", [1, 9, 12, 100, -3, -100])
@pytest.mark.parametrize("kind", ["drop", "retype"])
@pytest.mark.parametrize("repeated", [True, False])
def test_statement_is_executed_again_after_the_second_repeated_snapshot(
    lake: LakeHarness, kind: str, size: int, *, repeated: bool
) -> None:
    """The changes from between the two are no reason to take the replica for one that did not lag."""
    columns, action = STATEMENTS[kind]
    records = [
        *snapshot(900, 20, 5, OLD, 1, 2),
        *(snapshot(900, 50, 10, OLD, 1, 2) if repeated else []),
        event("c", at(900, 60, 20, 1), OLD, 3),
        altered(at(900, 70, 30, 2), columns, action),
        event("c", at(900, 80, 40, 3), columns, 4),
        *snapshot(901, 65, 50, OLD, 1, 2),
        event("c", at(901, 75, 20, 1), OLD, 3),
        altered(at(901, 85, 30, 2), columns, action),
        event("c", at(901, 95, 40, 3), columns, 4),
        event("c", at(901, 105, 60, 4), columns, 5),
    ]
    play(lake, records, size, columns, [image(columns, n) for n in (1, 2, 3, 4, 5)])
