"""The history of a table whose initial snapshot was taken again, on servers with higher and with lower positions."""

from dataclasses import replace

from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import INT, LONG
from replicator.schema.binlog_order import SnapshotPlace, binlog_key
from replicator.schema.definition_clock import DefinitionClock
from replicator.schema.history import ColumnMoves, SchemaHistory, TableDefinition
from replicator.schema.history_builder import build_history
from replicator.schema.table_keys import KeyChange

T0 = 1_700_000_000_000
ID = Column("id", LONG, nullable=False)


def position(file: int, server_id: int = 1, gtid: str | None = None) -> SourcePosition:
    return SourcePosition(f"binlog.{file:06d}", 100, 0, server_id, gtid)


def altered(file: int, gtid: str, *columns: str) -> TableDefinition:
    schema = TableSchema((ID, *(Column(name, INT) for name in columns)), ("id",))
    return TableDefinition(TableId("shop", "orders"), position(file, gtid=gtid), T0, schema)


def read(file: int, second: int, *columns: str) -> TableDefinition:
    found = altered(file, "", *columns)
    return replace(found, position=position(file, 0), ts_ms=T0 + second * 1000, snapshot=True)


def place(file: int, second: int) -> SnapshotPlace:
    return SnapshotPlace(binlog_key(position(file)), T0 + second * 1000)


def history(*definitions: TableDefinition) -> SchemaHistory:
    clock = DefinitionClock()
    found = (clock.place(d) for d in definitions)
    return build_history([d for d in found if d is not None])


LAGGING = history(
    read(900, -9, "a"), altered(901, "u:5", "a", "b"), read(3, 9, "a"), altered(4, "u:5", "a", "b")
)
"""The third definition is of a replica that lags behind the second, and then executes it."""


def test_snapshot_that_shows_the_same_definition_adds_no_version() -> None:
    line = history(read(900, -9, "a"), altered(901, "u:5", "a", "b"), read(3, 9, "a", "b"))
    assert [v.read_at for v in line.versions] == [frozenset(), {place(3, 9)}]
    assert not line.is_barrier(1, 0)


def test_version_that_a_repeated_snapshot_read_is_a_barrier() -> None:
    assert [v.is_read for v in LAGGING.versions] == [True, False, True, False]
    assert LAGGING.is_barrier(2, 0)
    assert not LAGGING.is_barrier(0, 0)


def test_version_knows_the_snapshots_before_it() -> None:
    first, second = place(900, -9), place(3, 9)
    assert [v.read_before for v in LAGGING.versions] == [set(), {first}, {first}, {first, second}]


def test_snapshot_that_begins_again_at_one_position_shows_the_version_again() -> None:
    line = history(read(900, -9, "a"), altered(901, "u:5", "a", "b"), read(3, 9, "a"), read(3, 12, "a"))
    assert [v.reads for v in line.versions] == [{place(900, -9)}, set(), {place(3, 9), place(3, 12)}]
    assert line.first_read_of(2) == place(3, 9)
    assert line.versions[2].read_before == {place(900, -9)}


def test_snapshot_of_another_server_at_one_position_may_show_another_definition() -> None:
    first, second = read(900, -9, "a"), read(900, 9, "a", "b")
    snapshots = [(replace(d, schema=None), d) for d in (first, second)]
    line = history(*snapshots[0], *snapshots[1], *snapshots[0], *snapshots[1])
    assert [v.reads for v in line.versions] == [{place(900, -9)}, {place(900, 9)}]
    assert line.is_barrier(1, 0)
    assert line.last_read_before(1) == line.first_read_of(1) == place(900, 9)
    assert [line.index_of(position(900, 0), T0 + s * 1000) for s in (-8, 10)] == [0, 1]


def test_rows_of_each_snapshot_have_their_version() -> None:
    first, second = (position(file, 0) for file in (900, 3))
    assert [LAGGING.index_of(p, T0) for p in (first, second)] == [0, 2]


def test_versions_from_a_repeated_snapshot_on_come_after_its_rows() -> None:
    assert [LAGGING.last_read_before(i) for i in range(4)] == [None, None, place(3, 9), place(3, 9)]
    assert [LAGGING.first_read_of(i) for i in range(4)] == [None, None, place(3, 9), None]
    shown = (read(900, -9, "a"), altered(901, "u:5", "a", "b"), read(3, 9, "a", "b"))
    again = history(*shown, replace(altered(4, "u:5", "a"), key_change=KeyChange(created=True)))
    assert [again.last_read_before(i) for i in range(3)] == [None, None, place(3, 9)]
    assert history(*shown, altered(4, "u:6")).last_read_before(2) is None
    assert not SchemaHistory().repeated_reads


def test_newest_snapshot_ends_the_versions_before_it() -> None:
    reads = [read(3, 9, "a", "b"), read(4, 19, "a", "b"), read(2, 29, "a")]
    line = history(read(900, -9, "a"), altered(901, "u:5", "a", "b"), *reads)
    assert [line.last_read_before(i) for i in range(3)] == [None, None, place(2, 29)]
    # The GTID of the second version's statement tells which changes come before it.
    assert [line.first_read_of(i) for i in range(3)] == [None, None, place(2, 29)]
    plain = replace(altered(901, "", "a", "b"), position=position(901))
    without = history(read(900, -9, "a"), plain, *reads)
    assert [without.first_read_of(i) for i in range(3)] == [None, place(3, 9), place(2, 29)]


def test_history_until_a_version_keeps_one_of_the_current_name() -> None:
    second = LAGGING.versions[1].at
    assert LAGGING.until(second).versions == LAGGING.versions[:2]
    assert LAGGING.until(None) is LAGGING
    assert LAGGING.until(LAGGING.versions[-1].at) is LAGGING
    assert replace(LAGGING, own=2).until(second).versions == LAGGING.versions[:3]


def renamed(file: int, second: int, gtid: str | None = None) -> TableDefinition:
    found = replace(altered(file, "", "b"), position=position(file, gtid=gtid), ts_ms=T0 + second * 1000)
    return replace(found, moves=ColumnMoves(renamed=(("a", "b"),)))


def test_statement_that_follows_a_snapshot_that_showed_it_changed_rows_without_events() -> None:
    shown = [read(900, -9, "a"), read(901, 9, "b")]
    late = history(*shown, renamed(5, 0, "u:5"))
    assert "which a snapshot had shown" in str(late.versions[-1].unlogged)
    assert late.is_barrier(2, 0)
    for harmless in (renamed(902, 20, "u:5"), replace(renamed(5, 0, "u:5"), moves=None)):
        assert len(history(*shown, harmless).versions) == 2


def test_statement_without_gtid_that_comes_again_after_a_snapshot_changed_rows_without_events() -> None:
    again = {
        gtid: history(
            read(900, -9, "a"), renamed(901, 0, gtid), read(902, 9, "b"), renamed(901, 0, gtid)
        ).versions
        for gtid in ("u:5", None)
    }
    assert [v.unlogged is None for v in again["u:5"]] == [True, True]
    assert [v.unlogged is None for v in again[None]] == [True, True, False]


def test_statement_that_removes_values_again_is_a_barrier() -> None:
    statements = [altered(901, "u:5"), altered(902, "u:6", "a")]
    line = history(read(900, -9, "a"), *statements, read(903, 9, "a"), *statements)
    assert [v.schema.names for v in line.versions[1:]] == [("id",), ("id", "a")] * 2
    assert [line.loses_values_again(i) for i in range(5)] == [False, False, False, True, False]
    assert line.is_barrier(3, 2)


def test_snapshot_at_the_position_of_the_first_that_shows_its_definition_is_known() -> None:
    line = history(read(900, -9, "a"), read(900, 9, "a"), renamed(901, 20))
    assert line.versions[0].reads == {place(900, -9), place(900, 9)}
    assert line.last_read_before(1) == place(900, 9)
    assert line.is_barrier(1, 0)
