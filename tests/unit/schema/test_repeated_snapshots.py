"""The history of a table whose initial snapshot was taken again, on servers with higher and with lower positions."""

from dataclasses import replace

import pytest

from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import INT, LONG
from replicator.schema.history.builder import DefinitionClock, build_history
from replicator.schema.history.versions import SchemaHistory, TableDefinition

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


def history(*definitions: TableDefinition, reads_again: bool = False) -> SchemaHistory:
    clock = DefinitionClock()
    found = (clock.place(d) for d in definitions)
    return build_history([d for d in found if d is not None], reads_again=reads_again)


LAGGING = history(
    read(900, -9, "a"), altered(901, "u:5", "a", "b"), read(3, 9, "a"), altered(4, "u:5", "a", "b")
)
"""The third definition is of a replica that lags behind the second, and then executes it."""


def test_repeated_snapshot_begins_an_epoch_also_if_it_shows_the_same_definition() -> None:
    line = history(read(900, -9, "a"), altered(901, "u:5", "a", "b"), read(903, 9, "a", "b"))
    assert [v.begins_epoch for v in line.versions] == [False, False, True]
    assert line.is_barrier(2, 0)
    assert not LAGGING.is_barrier(0, 0)


def test_versions_of_each_epoch_are_in_their_order() -> None:
    assert [v.begins_epoch for v in LAGGING.versions] == [False, False, True, False]
    assert [LAGGING.epoch_of(i) for i in range(4)] == [0, 0, 2, 2]
    first, second, third, fourth = (v.at for v in LAGGING.versions)
    assert first < second < third < fourth
    assert LAGGING.epoch_after(second) == 2
    assert LAGGING.epoch_after(third) is None


def test_events_of_an_epoch_belong_to_none_of_its_earlier_versions() -> None:
    """Those of the earlier epoch have higher positions."""
    assert LAGGING.index_of(position(3), T0, 2) == 2
    assert LAGGING.index_of(position(4, gtid="u:6"), T0, 2) == 3
    assert LAGGING.index_of(position(3, gtid="u:4"), T0, 2) == 2


@pytest.mark.parametrize("file", [3, 900])
def test_snapshot_that_is_interrupted_twice_begins_two_epochs(file: int) -> None:
    line = history(read(900, -9, "a"), read(file, 9, "a"), read(file, 12, "a"), read(file, 12, "a"))
    assert [v.begins_epoch for v in line.versions] == [False, True, True]
    assert len({v.at for v in line.versions}) == 3


def test_definition_that_only_rebuilds_the_history_of_the_connector_begins_none() -> None:
    again = replace(read(900, 9, "a", "b"), recovered=True)
    line = history(read(900, -9, "a"), again, replace(again, ts_ms=T0 + 99_000))
    assert [v.begins_epoch for v in line.versions] == [False, False]
    assert line.versions[-1].recovered


def test_rows_of_an_epoch_replace_earlier_ones_if_no_source_can_be_read() -> None:
    shown = (read(900, -9, "a"), read(901, 9, "b"))
    archived, read_again = history(*shown).versions[1], history(*shown, reads_again=True).versions[1]
    assert archived.recreated
    assert archived.unlogged is None
    assert not read_again.recreated
    assert "snapshot" in str(read_again.unlogged)
