"""Before which versions of a table a batch is split, because an evolution compares only its first and last version."""

import pytest

from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import INT, LONG, STRING, TIMESTAMP, LakeType
from replicator.schema.history.builder import build_history, with_observed
from replicator.schema.history.versions import SchemaHistory, TableDefinition

TABLE = TableId("shop", "orders")


def history(lake_type: LakeType, *declared: str) -> SchemaHistory:
    """Return the history of a table whose column `c` is declared in several ways, one after another."""
    return build_history([defined(at, lake_type, text) for at, text in enumerate(declared, start=1)])


def defined(at: int, lake_type: LakeType, declared: str, *more: Column) -> TableDefinition:
    native = declared.removesuffix(" NOT NULL")
    column = Column("c", lake_type, nullable=native == declared)
    position = SourcePosition("b.000001", at)
    schema = TableSchema((Column("id", LONG, nullable=False), column, *more), ("id",))
    return TableDefinition(TABLE, position, 0, schema, source_types={"id": "BIGINT", "c": native})


def ends(line: SchemaHistory, since: int = 0) -> list[int]:
    """Return the versions to which a table is evolved in turn."""
    found = []
    for index in range(since + 1, len(line.versions)):
        if line.is_barrier(index, since):
            found.append(index - 1)
            since = index - 1
    return [*found, len(line.versions) - 1]


@pytest.mark.parametrize(
    ("lake_type", "was", "now"),
    [
        (TIMESTAMP, "DATETIME(6)", "DATETIME"),
        (STRING, "VARCHAR(9)", "CHAR(9)"),
        (INT, "INT", "TINYINT"),
        (STRING, "ENUM('a', 'b')", "ENUM('a')"),
    ],
)
def test_batch_is_split_before_a_change_of_type_after_which_the_table_is_read_again(
    lake_type: LakeType, was: str, now: str
) -> None:
    line = history(lake_type, was, now, was)
    assert ends(line) == [0, 2]
    assert line.versions[1].unlogged == f"ALTER TABLE orders …, with {was} changed to {now} in c,"
    assert line.versions[2].unlogged is None


def test_change_to_not_null_is_followed_alone() -> None:
    assert ends(history(INT, "INT", "INT NOT NULL", "INT")) == [0, 1, 2]
    assert ends(history(INT, "INT", "INT NOT NULL", "INT"), since=1) == [2]
    added = Column("n", INT)
    line = build_history(
        [defined(1, INT, "INT"), defined(2, INT, "INT NOT NULL"), defined(3, INT, "INT", added)]
    )
    assert ends(line) == [0, 1, 2]


def test_batch_is_split_before_another_type_in_the_lake_that_only_events_show() -> None:
    line = history(INT, "INT")
    schema = TableSchema((Column("id", LONG), Column("c", STRING)), ("id",))
    assert ends(with_observed(line, SourcePosition("b.000001", 9), 0, schema)) == [0, 1]


def test_changes_that_lose_no_values_are_followed_at_once() -> None:
    assert ends(history(INT, "TINYINT", "SMALLINT", "INT")) == [2]
    assert ends(history(STRING, "VARCHAR(5)", "VARCHAR(9)", "TEXT")) == [2]
    # What the lake has already is not lost again.
    assert ends(history(INT, "INT", "TINYINT", "SMALLINT", "INT"), since=1) == [3]
