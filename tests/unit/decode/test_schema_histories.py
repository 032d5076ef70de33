"""Schema histories of tables, from definitions and from events."""

from dataclasses import replace
from typing import Any

import pytest

from replicator.decode.schemas.histories import SchemaHistories
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import LONG, STRING
from replicator.schema.ddl.effects import PartitionChange, PartitionLayout
from replicator.schema.history.versions import TableDefinition

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


def test_source_definition_is_ignored_when_the_table_has_a_definition() -> None:
    histories = SchemaHistories()
    assert not histories.is_defined(TABLE)
    histories.define(TABLE, FIRST)
    assert histories.is_defined(TABLE)
    assert histories.history(TABLE).versions[-1].schema == FIRST
    histories.define(TABLE, SECOND)
    assert histories.history(TABLE).versions[-1].schema == FIRST


def test_table_whose_name_is_misread_does_not_exist() -> None:
    """Another table may share its topic."""
    misread = replace(definition(5, FIRST), table=TableId("shop", "t\ufffdr"))
    histories = SchemaHistories()
    histories.apply([misread])
    assert not histories.is_defined(misread.table)
    assert histories.tables_called("shop.t_r") == set()


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


SPELT = TableId("Shop", "A b")
"""The name of the table in another letter case, which some servers ignore."""
EXCHANGED = "ALTER TABLE x EXCHANGE PARTITION p0 WITH TABLE `A b`"


def statement(pos: int, table: TableId = SPELT, **changes: Any) -> TableDefinition:
    return TableDefinition(table, at(pos), 0, None, only_statement=True, **changes)


def unlogged(histories: SchemaHistories, table: TableId = TABLE) -> list[tuple[int, str | None]]:
    return [(v.position.pos, v.unlogged) for v in histories.history(table).versions]


def test_statement_counts_for_the_table_whose_name_differs_in_letter_case_only() -> None:
    histories = SchemaHistories()
    histories.apply([definition(4, FIRST)])
    for _ in range(2):
        histories.apply([statement(50, unlogged=EXCHANGED)])
    assert unlogged(histories) == [(4, None), (50, EXCHANGED)]
    assert unlogged(histories, SPELT) == []


def test_statement_counts_for_the_table_with_exactly_that_name_if_there_is_one() -> None:
    histories = SchemaHistories()
    histories.apply([definition(4, FIRST)])
    histories.apply([replace(definition(5, FIRST), table=SPELT)])
    histories.apply([statement(50, unlogged=EXCHANGED)])
    assert unlogged(histories) == [(4, None)]
    assert unlogged(histories, SPELT) == [(5, None), (50, EXCHANGED)]


def test_partitions_of_another_letter_case_are_not_followed_but_forgotten() -> None:
    """Rows are deleted from the lake only if it is certain which table the statement names."""
    layout = PartitionChange("define", layout=PartitionLayout("id", (("p10", 10), ("p20", 20))))
    drop = PartitionChange("replace", ("p10",))
    source_types = {"id": "BIGINT", "name": "TEXT"}
    removed = {}
    for table in (TABLE, SPELT):
        histories = SchemaHistories()
        created = replace(definition(4, FIRST), partitions=layout, source_types=source_types)
        histories.apply([created])
        histories.apply([statement(50, table, unlogged=DROPPED, partitions=drop)])
        history = histories.history(TABLE)
        removed[table] = (
            history.versions[-1].unlogged,
            history.versions[-1].removed is None,
            history.partitions,
        )
    assert removed[TABLE][:2] == (DROPPED, False)
    assert removed[SPELT] == (DROPPED, True, None)


@pytest.mark.parametrize(
    ("new_name", "text"),
    [(None, "DROP TABLE `A b`"), (TableId("Shop", "c"), "RENAME TABLE `A b` TO `c`")],
)
def test_table_that_may_be_gone_is_read_again(new_name: TableId | None, text: str) -> None:
    """It cannot be taken for removed: on most servers, the other letter case names another table."""
    histories = SchemaHistories()
    histories.apply([definition(4, FIRST)])
    gone = replace(definition(50, None), table=SPELT, other_name=new_name)
    histories.apply([replace(gone, position=at(45), snapshot=True), gone])
    assert unlogged(histories) == [(4, None), (50, text)]
    assert histories.history(TABLE).gone is None


def test_table_with_another_known_letter_case_is_not_gone_with_it() -> None:
    histories = SchemaHistories()
    histories.apply([definition(4, FIRST)])
    histories.apply([replace(definition(5, FIRST), table=SPELT)])
    histories.apply([replace(definition(50, None), table=SPELT)])
    assert unlogged(histories) == [(4, None)]


def test_version_that_a_new_process_observes_is_later_than_that_of_the_lake_if_its_events_are() -> None:
    lake = SchemaHistories()
    lake.observe(TABLE, SourcePosition("b.000900", 4), 100, FIRST)
    known = lake.history(TABLE).versions[-1].at
    for ts_ms, is_later in ((200, True), (100, False)):
        histories = SchemaHistories()
        histories.follow(TABLE, known, until_ms=100)
        histories.follow(TABLE, known * 2, until_ms=0)
        histories.observe(TABLE, SourcePosition("b.000003", 4), ts_ms, FIRST)
        history = histories.history(TABLE)
        assert history.lacks(known) != is_later
        assert (history.versions[0].at > known) == is_later


def test_history_lacks_a_version_that_is_later_than_all_definitions_and_the_removal() -> None:
    histories = SchemaHistories()
    assert not histories.history(TABLE).lacks(1)
    histories.apply([definition(4, FIRST)])
    defined = histories.history(TABLE)
    histories.apply([definition(9, None)])
    removed = histories.history(TABLE)
    at_4 = defined.versions[0].at
    assert [defined.lacks(at_4 + n) for n in (0, 5)] == [False, True]
    assert [removed.lacks(at_4 + n) for n in (0, 5, 6)] == [False, False, True]
