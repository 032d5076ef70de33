"""Before which versions of a table a batch is split, because an evolution compares only its first and last version."""

import pytest

from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import INT, LONG, STRING, TIMESTAMP, LakeType
from replicator.schema.history import SchemaHistory, TableDefinition
from replicator.schema.history_builder import build_history, with_observed

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
        (INT, "INT", "INT NOT NULL"),
        (STRING, "ENUM('a', 'b')", "ENUM('a')"),
    ],
)
def test_change_that_loses_values_is_followed_alone_if_the_column_gets_its_type_back(
    lake_type: LakeType, was: str, now: str
) -> None:
    assert ends(history(lake_type, was, now, was)) == [0, 1, 2]


def test_change_that_loses_values_is_followed_alone_if_other_changes_are_in_between() -> None:
    added = Column("n", INT)
    line = build_history(
        [
            defined(1, INT, "INT"),
            defined(2, INT, "TINYINT"),
            defined(3, INT, "TINYINT", added),
            defined(4, INT, "INT", added),
        ]
    )
    assert ends(line) == [0, 2, 3]


def test_change_that_loses_values_is_followed_alone_if_the_later_type_is_not_known() -> None:
    line = history(TIMESTAMP, "DATETIME(6)", "DATETIME")
    schema = TableSchema((*line.versions[-1].schema.columns, Column("n", INT)), ("id",))
    assert ends(with_observed(line, SourcePosition("b.000001", 9), 0, schema)) == [0, 1, 2]


def test_changes_that_lose_no_values_are_followed_at_once() -> None:
    assert ends(history(INT, "TINYINT", "SMALLINT", "INT")) == [2]
    assert ends(history(STRING, "VARCHAR(5)", "VARCHAR(9)", "TEXT")) == [2]
    # What the lake has already is not lost again.
    assert ends(history(INT, "INT", "TINYINT", "SMALLINT", "INT"), since=1) == [3]
