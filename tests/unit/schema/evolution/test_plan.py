"""Evolution plans for single changes."""

from dataclasses import replace

import pytest

from replicator.errors import UnknownValues, UnloggedChange, UnsupportedChange
from replicator.model.table import Column, TableSchema
from replicator.model.types import INT, LONG, STRING, LakeType, decimal
from replicator.schema.evolution.changes import (
    AddColumn,
    ChangeType,
    DeleteRows,
    DropColumn,
    KeepRows,
    MoveColumn,
    Recreate,
    RenameColumn,
    RequireValues,
    RetireColumn,
    WidenType,
    kept_from_json,
    kept_rows,
    kept_to_json,
)
from replicator.schema.evolution.plan import LakeSide, Plan, Policies, SourceSide, changelog_plan, plan
from replicator.schema.history.partitions import RowCondition

ID = Column("id", LONG, nullable=False)


def schema(*columns: Column, key: tuple[str, ...] = ("id",)) -> TableSchema:
    return TableSchema(columns, key)


def planned(
    lake: dict[str, LakeType],
    source: TableSchema,
    *,
    carried: dict[str, str] | None = None,
    retired: tuple[str, ...] = (),
    policies: Policies | None = None,
    recreated: bool = False,
    changelog: bool = False,
) -> Plan:
    if carried is None:
        carried = {n: n for n in lake if source.column(n) is not None}
    there = LakeSide(lake, frozenset(retired), ("id",))
    here = SourceSide(source, carried, recreated)
    return changelog_plan(there, here, (), policies or {}) if changelog else plan(there, here, policies or {})


USERS = frozenset({"Note"})


@pytest.mark.parametrize("name", ["note", "NOTE"])
def test_column_with_the_name_of_a_users_column_is_refused(name: str) -> None:
    there = LakeSide({"id": LONG, "q": INT}, users=USERS)
    for source, carried in (
        (schema(ID, Column("q", INT), Column(name, INT)), {"id": "id", "q": "q"}),
        (schema(ID, Column(name, INT)), {"id": "id", "q": name}),
    ):
        for planner in (plan, changelog_plan):
            with pytest.raises(UnsupportedChange, match=f"column {name} now, and others added a column Note"):
                planner(there, SourceSide(source, carried))


@pytest.mark.parametrize(("old", "new"), [(INT, LONG), (decimal(10, 2), decimal(14, 2))])
def test_evolution_keeps_a_type_that_became_narrower(old: LakeType, new: LakeType) -> None:
    assert planned({"id": LONG, "q": new}, schema(ID, Column("q", old))).changes == ()


def test_evolution_replaces_a_column_of_another_type_only_if_all_rows_are_known() -> None:
    there, source = {"id": LONG, "q": INT}, schema(ID, Column("q", STRING))
    with pytest.raises(UnknownValues, match="column q is int in the lake and now string in the source"):
        planned(there, source)
    found = plan(LakeSide(there, key=("id",)), SourceSide(source, {"id": "id", "q": "q"}), rows_known=True)
    assert found.changes == (ChangeType("q", "q", INT, STRING), MoveColumn("q", "id"))


@pytest.mark.parametrize("rows_known", [False, True])
def test_column_that_cannot_be_null_any_more_is_checked_unless_all_rows_are_known(rows_known: bool) -> None:
    there = LakeSide({"id": LONG, "q": INT}, key=("id",), nullable=frozenset({"q"}))
    source = SourceSide(schema(ID, Column("p", INT, nullable=False)), {"id": "id", "q": "p"})
    checks = () if rows_known else (RequireValues("p", "q"),)
    assert plan(there, source, rows_known=rows_known).changes == (RenameColumn("q", "p"), *checks)
    assert changelog_plan(there, source).changes == (RenameColumn("q", "p"),)


def test_evolution_renames_carried_columns_and_replaces_others() -> None:
    a, b = Column("a", INT), Column("b", INT)
    swapped = planned(
        {"id": LONG, "a": INT, "b": INT}, schema(ID, b, a), carried={"id": "id", "a": "b", "b": "a"}
    )
    assert swapped.changes == (RenameColumn("a", "b"), RenameColumn("b", "a"))
    again = planned({"id": LONG, "a": INT}, schema(ID, a), carried={"id": "id"})
    assert again.changes == (DropColumn("a"), AddColumn(a, "id"))


def test_evolution_moves_as_few_columns_as_possible() -> None:
    columns = [Column(name, INT) for name in "bcdea"]
    found = planned(dict.fromkeys("abcde", INT), schema(*columns))
    assert found.changes == (MoveColumn("a", "e"),)


def test_evolution_of_a_changelog_retires_columns() -> None:
    a = Column("a", STRING)
    converted = planned({"id": LONG, "a": INT}, schema(ID, a), changelog=True)
    change = ChangeType("a", "a", INT, STRING)
    changes = (RetireColumn("a", "a__was_int"), AddColumn(a, "id"))
    assert converted == Plan(changes, (), ("a__was_int",), (change,))
    dropped = planned({"id": LONG, "a": INT}, schema(ID), changelog=True)
    assert dropped == Plan((RetireColumn("a", "a"),), (), ("a",))
    lake = {"id": LONG, "a": INT, "a__dropped": INT}
    again = planned(lake, schema(ID, a), carried={"id": "id"}, retired=("a", "a__dropped"), changelog=True)
    assert again.changes == (RetireColumn("a", "a__dropped_2"), AddColumn(a, "id"))
    assert set(again.retired) == {"a__dropped", "a__dropped_2"}
    moved = planned({"id": LONG, "a": STRING}, schema(a, ID), changelog=True)
    assert moved.changes == ()


def test_evolution_of_a_recreated_table_begins_with_recreate() -> None:
    a = Column("a", STRING)
    found = planned({"id": LONG, "a": INT}, schema(ID, a), recreated=True).changes
    assert found[0] == Recreate()
    assert isinstance(found[1], ChangeType)
    with pytest.raises(UnsupportedChange, match="dropped and recreated"):
        planned({"id": LONG}, schema(ID), recreated=True, policies={"recreate": "fail"})


def test_evolution_applies_the_policies() -> None:
    a, b = Column("a", INT), Column("b", INT)
    lake = {"id": LONG, "a": INT}
    renamed = {"id": "id", "a": "b"}
    with pytest.raises(UnsupportedChange, match="rename column a to b") as caught:
        planned(lake, schema(ID, b), carried=renamed, policies={"rename": "fail"})
    assert 'rename = "evolve"' in (caught.value.hint or "")
    found = planned(lake, schema(ID, b), carried=renamed, policies={"rename": "ignore"})
    assert found == Plan((DropColumn("a"), AddColumn(b, "id")), (RenameColumn("a", "b"),), ())
    found = planned(lake, schema(ID, b), policies={"drop": "ignore", "add": "ignore"})
    assert found == Plan((RetireColumn("a", "a"),), (DropColumn("a"), AddColumn(b, "id")), ("a",))
    found = planned(lake, schema(a, ID), policies={"order": "ignore"})
    assert found.changes == ()
    # A retired column is renamed if a new column has its name.
    found = planned({"id": LONG, "a": INT}, schema(ID, a), carried={"id": "id"}, retired=("a",))
    assert found.changes == (RetireColumn("a", "a__dropped"), AddColumn(a, "id"))
    # Widening changes no value, so the policy for types does not apply.
    wide = planned(lake, schema(ID, Column("a", LONG)), policies={"type": "fail"})
    assert wide.changes == (WidenType("a", INT, LONG),)
    with pytest.raises(UnsupportedChange, match="change type of column a from int to string"):
        planned(lake, schema(ID, Column("a", STRING)), policies={"type": "fail"})


DROPPED = KeepRows("ALTER TABLE t DROP PARTITION p0", 7, "binlog.000001:4")
LAKE = LakeSide({"id": LONG}, key=("id",))
UNLOGGED = SourceSide(schema(ID), {"id": "id"}, unlogged=(DROPPED,))


@pytest.mark.parametrize(
    "policies", [{}, {"unlogged": "reread"}, {"unlogged": "follow"}, {"unlogged": "pause"}]
)
def test_statement_that_changed_rows_is_refused(policies: Policies) -> None:
    with pytest.raises(UnloggedChange, match="DROP PARTITION p0 changed rows at binlog"):
        plan(LAKE, UNLOGGED, policies)


def test_rows_that_a_statement_changed_may_be_kept_or_are_all_known() -> None:
    assert plan(LAKE, UNLOGGED, {"unlogged": "keep"}) == Plan((DROPPED,), (), ())
    assert plan(LAKE, UNLOGGED, rows_known=True) == Plan((), (), ())
    assert changelog_plan(LAKE, UNLOGGED) == Plan((), (), ())


def test_rows_of_a_followed_statement_are_deleted_whatever_else_is_kept() -> None:
    followed = DeleteRows(
        "ALTER TABLE t DROP PARTITION p1", 8, "binlog.000001:5", RowCondition(("id",), "{0} < 5")
    )
    source = replace(UNLOGGED, unlogged=(followed,))
    for policy in ("follow", "keep", "reread"):
        assert plan(LAKE, source, {"unlogged": policy}) == Plan((followed,), (), ())
    with pytest.raises(UnloggedChange, match="DROP PARTITION p0"):
        plan(LAKE, replace(source, unlogged=(followed, DROPPED)), {"unlogged": "follow"})
    assert plan(LAKE, source, rows_known=True) == changelog_plan(LAKE, source) == Plan((), (), ())
    assert followed.rows.of_columns() == "`id` < 5"


def test_column_without_known_values_is_refused_if_the_table_shall_pause() -> None:
    computed = schema(ID, Column("n", INT, fill_unknown=True))
    with pytest.raises(UnknownValues, match="new column n"):
        planned({"id": LONG}, computed, policies={"unlogged": "pause"})
    for policy in ("reread", "keep"):
        (added,) = planned({"id": LONG}, computed, policies={"unlogged": policy}).changes
        assert isinstance(added, AddColumn)
    assert planned({"id": LONG}, computed, policies={"unlogged": "pause"}, changelog=True).changes


def test_kept_rows_are_those_of_the_newest_statements_since_the_table_was_recreated() -> None:
    assert kept_rows((), [DROPPED], is_empty=False) == (DROPPED,)
    assert kept_rows((), [DROPPED], is_empty=True) == ()
    assert kept_rows([DROPPED], [Recreate()], is_empty=False) == ()
    many = [KeepRows(DROPPED.statement, at, "b.1:4") for at in range(300)]
    assert kept_rows([DROPPED], many, is_empty=False) == tuple(many[-100:])
    assert kept_from_json(kept_to_json(many)) == tuple(many)
    assert kept_from_json(None) == ()
