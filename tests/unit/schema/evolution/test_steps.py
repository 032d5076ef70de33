"""Schema steps of a changelog: their text, and what is recorded when several versions are followed at once."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableSchema
from replicator.model.types import LONG, STRING
from replicator.schema.evolution.changes import ChangeNote, SchemaState
from replicator.schema.evolution.plan import LakeSide, SourceSide, changelog_plan
from replicator.schema.evolution.steps import (
    Added,
    Converted,
    SchemaStep,
    SchemaSteps,
    new_steps,
    steps_before,
)
from replicator.schema.history.partitions import RowCondition
from replicator.schema.history.versions import SchemaHistory, SchemaVersion
from tests.support.lake_schemas import validate

FULL = SchemaSteps(
    ("id",),
    (
        SchemaStep(1, added=(Added("a", 1, "it's"), Added("b", 1, None)), renamed={"x": "y"}),
        SchemaStep(2, retired={"p": "p__was_int"}, converted=(Converted("p", "p__was_int", "p", "{0}"),)),
        SchemaStep(3, key_before=("id", "y"), recreated=True),
        SchemaStep(4, unlogged="ALTER TABLE t TRUNCATE PARTITION p0", known_from=9),
        SchemaStep(5, unlogged="ALTER TABLE t DROP PARTITION p1"),
        SchemaStep(6, unlogged="ALTER TABLE t DROP PARTITION p2", removed=RowCondition(("y",), "({0} < 5)")),
    ),
    complete=False,
)


def test_steps_survive_their_text_and_conform_to_their_schema() -> None:
    validate(json.loads(FULL.to_json()), "schema-steps-v1.json")
    assert SchemaSteps.from_json(FULL.to_json()) == FULL
    newer = json.dumps(json.loads(FULL.to_json()) | {"version": 2})
    with pytest.raises(ValueError, match="version 2"):
        SchemaSteps.from_json(newer)


def version(
    at: int, carried: Mapping[str, str], *columns: Column, key: tuple[str, ...] = ("id",)
) -> SchemaVersion:
    return SchemaVersion(at, SourcePosition("b.000001", at), at, TableSchema(columns, key), carried)


ID = Column("id", LONG)
HISTORY = SchemaHistory(
    (
        version(1, {}, ID, Column("a", LONG), Column("b", STRING)),
        version(10, {"id": "id", "a": "c", "b": "b"}, ID, Column("c", LONG), Column("b", STRING)),
        version(20, {"id": "id", "c": "d"}, ID, Column("d", LONG), Column("new", STRING, fill="x")),
        version(
            30,
            {"id": "id", "d": "d", "new": "newer"},
            ID,
            Column("d", LONG),
            Column("newer", STRING, fill="x"),
        ),
    )
)


def followed(known_at: int, target: int) -> list[SchemaStep]:
    known = HISTORY.versions[HISTORY.index_at(known_at)].schema
    lake = LakeSide({c.name: c.type for c in known.columns}, key=("id",))
    carried = HISTORY.carry(HISTORY.index_at(known_at), target)
    planned = changelog_plan(lake, SourceSide(HISTORY.versions[target].schema, carried))
    return new_steps(HISTORY, known_at, target, lake.live, planned)


def test_each_version_has_its_step_even_if_several_are_followed_at_once() -> None:
    expected = [
        SchemaStep(10, renamed={"a": "c"}, retired={}),
        SchemaStep(20, added=(Added("new", 20, "x"),), renamed={"c": "d"}, retired={"b": "b"}),
        SchemaStep(30, renamed={"new": "newer"}, retired={}),
    ]
    assert followed(1, 3) == expected
    assert [*followed(1, 1), *followed(10, 2), *followed(20, 3)] == expected


def test_a_reread_tells_what_earlier_statements_did_to_rows() -> None:
    validate(json.loads(FULL.read_again(12).to_json()), "schema-steps-v1.json")
    steps = FULL.read_again(12).steps
    assert [step.known_from for step in steps] == [None, None, None, 9, 12, None]


@pytest.mark.parametrize("keeps", [False, True])
def test_statement_that_changed_rows_is_a_step_unless_the_mirror_keeps_them(keeps: bool) -> None:
    statement = "ALTER TABLE t DROP PARTITION p0"
    first = version(1, {}, ID)
    dropped = replace(version(10, {"id": "id"}, ID), unlogged=statement)
    history = SchemaHistory((first, dropped, version(20, {"id": "id"}, ID, Column("a", LONG))))
    lake = LakeSide({"id": LONG}, key=("id",))
    planned = changelog_plan(lake, SourceSide(history.versions[2].schema, {"id": "id"}))
    found = new_steps(history, 1, 2, ["id"], planned, keeps=keeps)
    assert [step.unlogged for step in found] == [None if keeps else statement, None]
    assert len(SchemaSteps(("id",)).followed_by(found, ("id",)).steps) == (1 if keeps else 2)


def test_removed_rows_are_recorded_with_the_step_of_the_statement() -> None:
    first = version(1, {}, ID)
    dropped = replace(version(10, {"id": "id"}, ID), unlogged="ALTER TABLE t DROP PARTITION p0")
    history = SchemaHistory((first, dropped))
    planned = changelog_plan(LakeSide({"id": LONG}, key=("id",)), SourceSide(dropped.schema, {"id": "id"}))
    rows = RowCondition(("id",), "({0} < 5)")
    (step,) = new_steps(history, 1, 1, ["id"], planned, removed={10: rows})
    assert (step.unlogged, step.removed) == (dropped.unlogged, rows)


@pytest.mark.parametrize(
    ("line", "complete"),
    [
        ("rename column a to b", True),
        ("keep dropped column a", True),
        ("add column a int", False),
        ("change type of column a from int to text", False),
    ],
)
def test_changelogs_of_earlier_versions_are_complete_without_changes_of_rows(
    line: str, complete: bool
) -> None:
    state = SchemaState(5, notes=(ChangeNote("p", 1, 2, (line,)),))
    assert steps_before(state, ("id",)) == SchemaSteps(("id",), complete=complete)
    assert steps_before(None, ()).complete


def test_only_the_newest_steps_are_remembered() -> None:
    steps = SchemaSteps(("id",))
    for at in range(1, 1001):
        steps = steps.followed_by([SchemaStep(at, recreated=True)], ("id",))
    assert (steps.complete, steps.forgotten) == (True, None)
    steps = steps.followed_by([SchemaStep(at, recreated=True) for at in (1001, 1002)], ("id",))
    assert (steps.complete, steps.forgotten, steps.steps[0].at) == (False, 2, 3)
    validate(json.loads(steps.to_json()), "schema-steps-v1.json")
    steps = SchemaSteps.from_json(steps.to_json()).followed_by([], ("id",))
    assert (steps.complete, steps.forgotten) == (False, 2)
