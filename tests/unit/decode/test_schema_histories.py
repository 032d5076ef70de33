"""Schema histories of tables, from definitions and from events."""

from dataclasses import replace

from replicator.decode.schema_histories import SchemaHistories
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import LONG, STRING
from replicator.schema.history import TableDefinition

TABLE = TableId("shop", "a b")
ID = Column("id", LONG, nullable=False)
FIRST = TableSchema((ID, Column("name", STRING)), ("id",))
SECOND = TableSchema((*FIRST.columns, Column("n", LONG)), ("id",))


def at(pos: int) -> SourcePosition:
    return SourcePosition("b.000001", pos)


def definition(pos: int, schema: TableSchema | None) -> TableDefinition:
    return TableDefinition(TABLE, at(pos), 0, schema)


def versions(histories: SchemaHistories) -> list[tuple[int, bool]]:
    return [(v.position.pos, v.declared) for v in histories.history(TABLE).versions]


def test_revision_changes_with_each_definition() -> None:
    histories, found = SchemaHistories(), [0]
    for pos in (4, 50):
        histories.apply([definition(pos, FIRST)])
        found.append(histories.revision)
    assert len(set(found)) == 3


def test_source_definition_is_ignored_when_the_table_has_a_definition() -> None:
    histories = SchemaHistories()
    assert not histories.is_defined(TABLE)
    histories.define(TABLE, FIRST)
    assert histories.is_defined(TABLE)
    assert histories.history(TABLE).versions[-1].schema == FIRST
    histories.define(TABLE, SECOND)
    assert histories.history(TABLE).versions[-1].schema == FIRST


def test_observed_version_is_added_after_declared_ones() -> None:
    histories = SchemaHistories()
    histories.apply([definition(4, FIRST)])
    assert versions(histories) == [(4, True)]
    histories.observe(TABLE, at(90), 0, SECOND)
    assert versions(histories) == [(4, True), (90, False)]


def test_observed_version_is_replaced_by_a_definition_that_arrives_later() -> None:
    histories = SchemaHistories()
    histories.apply([definition(4, FIRST)])
    histories.observe(TABLE, at(90), 0, SECOND)
    histories.apply([definition(80, SECOND)])
    assert versions(histories) == [(4, True), (80, True)]


def test_topic_of_a_table_is_known_until_the_table_is_dropped() -> None:
    histories = SchemaHistories()
    histories.apply([definition(4, FIRST)])
    assert histories.tables_called("shop.a_b") == {TABLE}
    histories.apply([definition(90, None)])
    assert histories.tables_called("shop.a_b") == set()
    assert histories.defined_columns() == {TABLE: {"id", "name"}}


DROPPED = "ALTER TABLE `a b` DROP PARTITION p0"


def test_statement_that_changed_rows_begins_a_version_even_if_the_columns_are_the_same() -> None:
    histories = SchemaHistories()
    altered = replace(definition(50, FIRST), unlogged=DROPPED)
    histories.apply([definition(4, FIRST)])
    for _ in range(2):
        histories.apply([altered])
    histories.apply([definition(60, FIRST)])
    history = histories.history(TABLE)
    assert [(v.position.pos, v.unlogged) for v in history.versions] == [(4, None), (50, DROPPED)]
    assert history.is_barrier(1, 0)


def test_statement_about_another_table_that_changed_rows_begins_a_version() -> None:
    histories = SchemaHistories()
    statement = TableDefinition(TABLE, at(50), 0, None, unlogged=DROPPED, only_statement=True)
    histories.apply([statement])
    assert versions(histories) == []
    histories = SchemaHistories()
    histories.apply([definition(4, FIRST)])
    for _ in range(2):
        histories.apply([statement])
    histories.apply([definition(60, SECOND)])
    history = histories.history(TABLE)
    assert [(v.position.pos, v.unlogged) for v in history.versions] == [(4, None), (50, DROPPED), (60, None)]
    assert history.carry(0, 2) == {"id": "id", "name": "name"}
    assert histories.defined_columns() == {TABLE: {"id", "name", "n"}}
