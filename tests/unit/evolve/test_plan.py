"""Additive evolution."""

import pytest

from replicator.errors import UnsupportedChange
from replicator.evolve.plan import merged, plan, target_schema
from replicator.model.schema_change import (
    AddColumn,
    WidenType,
    fills_from_json,
    fills_to_json,
    pending_fills,
)
from replicator.model.table import Column, TableSchema
from replicator.model.types import DOUBLE, FLOAT, INT, LONG, STRING, LakeType, decimal


def schema(*columns: Column) -> TableSchema:
    return TableSchema(columns, ("id",))


ID = Column("id", LONG, nullable=False)


def test_nothing_to_do() -> None:
    assert plan({"id": LONG, "q": INT}, schema(ID, Column("q", INT))) == ()


def test_added_columns_stand_where_the_source_has_them() -> None:
    first, last = Column("first", INT), Column("last", STRING, fill="x")
    found = plan({"id": LONG, "gone": INT}, schema(first, ID, last))
    assert found == (AddColumn(first, None), AddColumn(last, "id"))
    assert [str(c) for c in found] == ["add column first int", "add column last string"]


@pytest.mark.parametrize(
    ("old", "new"),
    [(INT, LONG), (FLOAT, DOUBLE), (decimal(10, 2), decimal(14, 2))],
)
def test_widening(old: LakeType, new: LakeType) -> None:
    assert plan({"id": LONG, "q": old}, schema(ID, Column("q", new))) == (WidenType("q", old, new),)
    # The other way round the lake is wide enough.
    assert plan({"id": LONG, "q": new}, schema(ID, Column("q", old))) == ()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (INT, STRING),
        (STRING, INT),
        (LONG, DOUBLE),
        (decimal(10, 2), decimal(12, 4)),
        (INT, decimal(10, 0)),
    ],
)
def test_what_cannot_be_widened_is_said(old: LakeType, new: LakeType) -> None:
    with pytest.raises(UnsupportedChange, match=f"q is {old}".replace("(", r"\(").replace(")", r"\)")):
        plan({"id": LONG, "q": old}, schema(ID, Column("q", new)))


def test_a_plan_that_was_executed_is_empty() -> None:
    lake = {"id": LONG, "gone": INT, "q": INT}
    source = schema(Column("new", STRING), ID, Column("q", LONG))
    after = target_schema(lake, source)
    assert plan({c.name: c.type for c in after.columns}, source) == ()


def test_merged_schemas_hold_the_rows_of_all() -> None:
    first = schema(ID, Column("q", INT))
    second = schema(ID, Column("q", LONG), Column("extra", INT, fill="7"))
    found = merged([first, second])
    assert {c.name: c.type for c in found.columns} == {"id": LONG, "q": LONG, "extra": INT}
    assert found.column("extra") == Column("extra", INT, fill="7")
    # Partitions run at paces of their own, so schemas may come in another order than they were made in.
    other = merged([second, first])
    assert other.column("q") == Column("q", LONG)
    assert other.column("extra") == Column("extra", INT, fill="7")
    assert merged([first]) is first


def test_fills_as_text() -> None:
    changes = [
        AddColumn(Column("a`b", STRING, fill="it's"), None),
        AddColumn(Column("n", INT), None),
        WidenType("q", INT, LONG),
    ]
    fills = pending_fills(changes)
    assert fills == {"a`b": "it's"}
    assert fills_from_json(fills_to_json(fills)) == fills
    assert fills_from_json(None) == {}
