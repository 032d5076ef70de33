"""Generations of the binlog in the order of definitions."""

from dataclasses import replace

import pytest

from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import INT
from replicator.schema.history.builder import DefinitionClock
from replicator.schema.history.versions import TableDefinition

T0 = 1_700_000_000_000
ORDERS, BILLS = TableId("shop", "orders"), TableId("shop", "bills")


def defined(
    file: int, gtid: str | None = None, *, ts_ms: int = T0, table: TableId = ORDERS, pos: int = 100
) -> TableDefinition:
    position = SourcePosition(f"binlog.{file:06d}", pos, 0, 1, gtid)
    return TableDefinition(table, position, ts_ms, TableSchema(()))


def placed(*definitions: TableDefinition) -> list[int]:
    clock = DefinitionClock()
    return [clock.place(d).at for d in definitions]


def test_definitions_of_one_server_have_their_positions() -> None:
    given = [defined(1, "a:1"), defined(1, "a:2", pos=200), defined(2, "a:3"), defined(2, pos=300)]
    assert placed(*given) == [d.at for d in given]


def test_definition_of_another_server_is_later_whatever_its_position_is() -> None:
    ats = placed(defined(900, "a:50"), defined(7, "b:3"), defined(8, "b:4"), defined(2, "a:60"))
    assert ats == sorted(ats)
    assert len(set(ats)) == 4


def test_redelivered_definition_keeps_its_place_also_from_another_server() -> None:
    first, second, third = placed(defined(900, "a:50"), defined(7, "a:50"), defined(900, "a:50"))
    assert first == second == third


def read(file: int, *, ts_ms: int, pos: int = 100) -> TableDefinition:
    """Return a definition of an initial snapshot."""
    found = defined(file, ts_ms=ts_ms, pos=pos)
    return replace(found, snapshot=True, position=replace(found.position, server_id=0))


@pytest.mark.parametrize("file", [7, 900, 901])
def test_statement_is_executed_again_after_the_snapshot_of_a_replica_that_lags(file: int) -> None:
    given = [
        defined(900, "a:50", pos=50),
        read(file, ts_ms=T0 + 1000),
        defined(file, "a:50", pos=200),
        defined(file, "a:50", pos=200),
    ]
    first, snapshot, again, redelivered = placed(*given)
    assert first is not None
    assert snapshot is not None
    assert again is not None
    assert first < snapshot < again == redelivered


def test_snapshot_of_another_server_is_later_whatever_its_time_is() -> None:
    first, snapshot = placed(defined(70, "a:50"), read(3, ts_ms=T0 - 90_000))
    assert first is not None
    assert snapshot is not None
    assert snapshot > first


def differing(second: int, column: str, table: TableId = ORDERS) -> TableDefinition:
    """Return a definition that a snapshot read at one position."""
    schema = TableSchema((Column(column, INT),))
    return replace(read(50, ts_ms=T0 + second * 1000), schema=schema, table=table)


def test_snapshot_at_the_position_of_the_first_is_one_generation() -> None:
    snapshots = [
        [differing(s, name, table) for table in (ORDERS, BILLS)] for s, name in ((1, "a"), (50, "a"))
    ]
    ats = placed(*snapshots[0], *snapshots[1], *snapshots[0])
    assert ats[:2] == ats[4:]
    assert ats[2] == ats[3]
    assert ats[0] != ats[2]


@pytest.mark.parametrize("pos", [80, 120])
@pytest.mark.parametrize("gtid", ["a:50", None])
def test_statement_is_redelivered_after_a_recovery_of_the_definitions(gtid: str | None, pos: int) -> None:
    """The position is that at which the connector continues."""
    recovered = replace(read(5, ts_ms=T0 + 1000, pos=pos), recovered=True)
    first, _, again = placed(defined(5, gtid, pos=100), recovered, defined(5, gtid, pos=100))
    assert first == again


def test_definition_of_a_snapshot_that_is_sent_again_is_redelivered() -> None:
    """A blocking ad-hoc snapshot sends it with its first time."""
    given = [
        read(900, ts_ms=T0, pos=50),
        replace(read(900, ts_ms=T0 + 1, pos=50), table=BILLS),
        defined(7, "a:50", ts_ms=T0 + 2000),
        read(900, ts_ms=T0, pos=50),
    ]
    first, _, _, again = placed(*given)
    assert first == again


def test_generation_does_not_depend_on_records_that_the_topic_lost() -> None:
    all_of_them = [
        defined(900, "a:50"),
        defined(7, "b:3", ts_ms=T0 + 9000),
        defined(2, "c:3", ts_ms=T0 + 20_000),
    ]
    assert placed(*all_of_them)[2] == placed(*all_of_them[1:])[1]
