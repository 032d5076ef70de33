"""The definitions that initial snapshots of a connector read."""

import pytest

from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import LONG
from replicator.schema.history import TableDefinition
from replicator.schema.snapshot_definitions import SnapshotDefinitions

A, B = TableId("shop", "a"), TableId("shop", "b")
SCHEMA = TableSchema((Column("id", LONG, nullable=False),), ("id",))


def definition(
    table: TableId, pos: int, ts_ms: int, *, snapshot: bool = True, last: bool = False, server_id: int = 0
) -> TableDefinition:
    position = SourcePosition("binlog.000001", pos, 0, server_id)
    return TableDefinition(table, position, ts_ms, SCHEMA, snapshot=snapshot, ends_snapshot=last)


def added(*definitions: TableDefinition) -> SnapshotDefinitions:
    found = SnapshotDefinitions()
    for each in definitions:
        found.add([each])
    return found


def test_newest_definition_counts_and_is_repeated() -> None:
    found = added(definition(A, 5, 1), definition(B, 5, 2)).newest
    assert {t: (d.ts_ms, d.is_repeated, d.has_no_rows) for t, d in found.items()} == {
        A: (1, False, False),
        B: (2, False, False),
    }
    found = added(definition(A, 5, 1), definition(A, 5, 9)).newest
    assert (found[A].ts_ms, found[A].is_repeated) == (9, True)


def test_table_that_was_created_after_a_snapshot_is_repeated_in_the_next_one() -> None:
    assert added(definition(A, 5, 1, snapshot=False), definition(A, 9, 3)).newest[A].is_repeated


@pytest.mark.parametrize(
    "other",
    [
        definition(A, 5, 1),
        definition(A, 9, 0),
        definition(A, 9, 3, server_id=7),
        definition(A, 9, 3, snapshot=False),
    ],
)
def test_redelivered_and_other_definitions_do_not_count(other: TableDefinition) -> None:
    found = added(definition(A, 5, 1), other).newest[A]
    assert (found.position.pos, found.ts_ms, found.is_repeated) == (5, 1, False)


def test_snapshot_that_ends_with_a_definition_has_no_rows_of_any_table() -> None:
    first = [definition(A, 5, 1), definition(B, 5, 2)]
    for pos in (5, 7):
        # Also if nothing was written between two snapshots.
        found = added(*first, definition(A, pos, 3), definition(B, pos, 4, last=True)).newest
        assert [found[t].has_no_rows for t in (A, B)] == [True, True]
    # Only the tables of this snapshot.
    found = added(*first, definition(B, 9, 4, last=True)).newest
    assert [found[t].has_no_rows for t in (A, B)] == [False, True]
    # A later one has rows again.
    found = added(*first, definition(A, 9, 3, last=True), definition(A, 9, 5)).newest
    assert not found[A].has_no_rows


def test_removed_tables_are_no_definitions() -> None:
    gone = TableDefinition(A, SourcePosition("binlog.000001", 5), 1, None, snapshot=True)
    assert added(gone).newest == {}
