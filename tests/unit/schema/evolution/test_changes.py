"""The state of a table's schema, as the lake stores it."""

from replicator.model.table import Column
from replicator.model.types import LakeType
from replicator.schema.evolution.changes import (
    AddColumn,
    DropColumn,
    Recreate,
    RenameColumn,
    unfilled_columns,
)


def column(name: str, *, unknown: bool) -> Column:
    return Column(name, LakeType("string"), "string", True, fill_unknown=unknown)  # type: ignore[arg-type]


def test_unfilled_columns_are_updated_by_renames_and_drops() -> None:
    added = [AddColumn(column("u", unknown=True), None), AddColumn(column("known", unknown=False), "u")]
    assert unfilled_columns((), added, is_empty=False) == ("u",)
    assert unfilled_columns((), added, is_empty=True) == ()
    assert unfilled_columns(("u", "w"), [RenameColumn("u", "v"), DropColumn("w")], is_empty=False) == ("v",)
    assert unfilled_columns(("u",), [Recreate()], is_empty=False) == ()
