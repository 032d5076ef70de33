"""Which value a column has in changelog rows of any time, and which columns it had at a position."""

import pytest

from replicator.errors import UnsupportedChange
from replicator.schema.evolution.row_plan import (
    RowPlan,
    has_changed_since,
    plan_rows,
)
from replicator.schema.evolution.steps import Added, Converted, SchemaStep, SchemaSteps
from replicator.schema.history.partitions import RowCondition
from replicator.schema.history.versions import BEGINNING

COLUMNS = ["id", "price", "note", "price__was_int", "old"]
RETIRED = ["price__was_int", "old"]
STEPS = SchemaSteps(
    ("code",),
    (
        SchemaStep(10, added=(Added("price", 10, "7"),)),
        SchemaStep(20, renamed={"text": "note"}, retired={"old": "old"}),
        SchemaStep(
            30,
            retired={"price": "price__was_int"},
            converted=(Converted("price", "price__was_int", "price", "CAST({0} AS STRING)"),),
        ),
        SchemaStep(40, renamed={"id": "code"}, key_before=("id", "note")),
        SchemaStep(50, renamed={"code": "id"}),
    ),
)
STEPS = SchemaSteps(("id",), STEPS.steps)


def planned(until: int | None = None) -> RowPlan:
    return plan_rows(COLUMNS, RETIRED, STEPS, until)


@pytest.mark.parametrize(
    ("until", "names", "stored"),
    [
        (60, ["id", "price", "note"], ["id", "price", "note"]),
        (45, ["code", "price", "note"], ["id", "price", "note"]),
        (30, ["id", "price", "note"], ["id", "price", "note"]),
        (29, ["id", "price", "note"], ["id", "price__was_int", "note"]),
        (19, ["id", "price", "text", "old"], ["id", "price__was_int", "note", "old"]),
        (9, ["id", "text", "old"], ["id", "note", "old"]),
    ],
)
def test_columns_are_those_of_the_position(until: int, names: list[str], stored: list[str]) -> None:
    columns = planned(until).columns
    assert [column.name for column in columns] == names
    assert [column.stored for column in columns] == stored


def test_eras_have_the_keys_of_their_time() -> None:
    first, second = planned().eras
    assert (first.start, [c.stored for c in first.key]) == (BEGINNING, ["id", "note"])
    assert (second.start, [c.stored for c in second.key]) == (40, ["id"])
    assert planned().key == ("id",)
    (only,) = planned(39).eras
    assert [column.name for column in only.key] == ["id", "note"]
    assert planned(39).key == ("id", "note")


def test_rows_from_before_a_recreation_do_not_count() -> None:
    steps = SchemaSteps(
        ("id",), (SchemaStep(10, added=(Added("a", 10, "7"),)), SchemaStep(20, recreated=True))
    )
    plan = plan_rows(["id", "a"], [], steps)
    assert plan.recreated_at == 20
    assert [column.earlier for column in plan.columns] == [(), ()]
    assert plan_rows(["id", "a"], [], steps, 15).recreated_at is None


def test_unknown_history_is_refused() -> None:
    with pytest.raises(UnsupportedChange, match="did not record"):
        plan_rows(["id"], [], SchemaSteps(("id",), complete=False))
    unknown = SchemaStep(20, converted=(Converted("a", "a", "a", None),))
    with pytest.raises(UnsupportedChange, match="converted column a"):
        plan_rows(["id", "a"], [], SchemaSteps(("id",), (unknown,)))
    assert plan_rows(["id", "a"], [], SchemaSteps(("id",), (unknown,)), 10).columns[1].earlier == ()


ROWS_CHANGED = SchemaSteps(
    ("id",),
    (
        SchemaStep(10, unlogged="ALTER TABLE t DROP PARTITION p0", known_from=20),
        SchemaStep(30, unlogged="ALTER TABLE t TRUNCATE PARTITION p1"),
    ),
)


@pytest.mark.parametrize(
    ("until", "refused"),
    [
        (9, None),
        (10, "DROP PARTITION p0 changed rows .* read again only at"),
        (19, "DROP PARTITION p0 changed rows .* read again only at"),
        (20, None),
        (29, None),
        (30, "TRUNCATE PARTITION p1 changed rows .* was not read again"),
        (None, "TRUNCATE PARTITION p1 changed rows .* was not read again"),
    ],
)
def test_positions_from_statements_to_the_next_reread_are_refused(
    until: int | None, refused: str | None
) -> None:
    if refused is None:
        assert [c.name for c in plan_rows(["id"], [], ROWS_CHANGED, until).columns] == ["id"]
    else:
        with pytest.raises(UnsupportedChange, match=refused):
            plan_rows(["id"], [], ROWS_CHANGED, until)


def test_rows_that_the_mirror_kept_are_rebuilt() -> None:
    assert [c.name for c in plan_rows(["id"], [], ROWS_CHANGED, None, kept=[30]).columns] == ["id"]
    assert has_changed_since(ROWS_CHANGED, 29)


def test_rows_that_a_statement_removed_end_an_era_of_the_same_key() -> None:
    rows = RowCondition(("n",), "({0} < 5)")
    steps = SchemaSteps(
        ("k2",),
        (
            SchemaStep(10, renamed={"k": "k1"}),
            SchemaStep(20, unlogged="ALTER TABLE t DROP PARTITION p0", removed=rows),
            SchemaStep(30, renamed={"k1": "k2", "n": "m"}),
        ),
    )
    plan = plan_rows(("k2", "m"), (), steps)
    first, second = plan.eras
    assert (first.start, [c.stored for c in first.key], first.removed) == (BEGINNING, ["k2"], None)
    assert (second.start, [c.stored for c in second.key], second.removed) == (20, ["k2"], rows.where)
    assert [c.stored for c in second.removed_by] == ["m"]
    assert [c.name for c in first.key] == ["k1"]
    assert len(plan_rows(("k2", "m"), (), steps, until=19).eras) == 1
