"""What of an event is read where columns were renamed, left out or masked since."""

import pytest

from replicator.decode.event_frame import WriterSchema
from replicator.decode.schema_resolution import ResolvedSchema, resolve
from replicator.errors import UnfitColumns
from replicator.model.column_rules import Blank, ColumnRules, FixedText, RuleSet
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableSchema
from replicator.model.types import LONG, STRING
from replicator.schema.history import SchemaHistory, SchemaVersion

ID = Column("id", LONG)


def with_rules(rules: RuleSet, *columns: Column, superseded_columns: tuple[Column, ...] = ()) -> WriterSchema:
    """An epoch under `rules`; the table's columns are called as the epoch's are by now."""
    now = TableSchema((ID, *(Column(c.name, c.type) for c in columns)), ("id",))
    writer_schema = WriterSchema(TableSchema((ID, *columns), ("id",)), superseded_columns=superseded_columns)
    (found,) = (
        ResolvedSchema((writer_schema,), now, now, ())
        .with_rules(ColumnRules((rules,)), "shop.t")
        .writer_schemas
    )
    return found


def test_masks_apply_by_the_current_name_of_a_column() -> None:
    found = with_rules(
        RuleSet(masks=(("mail", FixedText("-")),)), Column("mail", STRING, renamed_from="address")
    )
    assert found.schema.columns[1].transform == FixedText("-")
    assert found.schema.columns[1].written == "address"


def test_excluded_column_is_not_read_when_only_its_current_name_matches() -> None:
    """Not for marks either: a table that was written by another rule pauses, so no mark of such an event is known."""
    for rules in (RuleSet(exclude=("mail",)), RuleSet(masks=(("mail", Blank()),))):
        found = with_rules(rules, Column("mail", STRING, renamed_from="address"))
        assert [c.written for c in found.columns] == ["id"]


def test_excluded_column_is_not_read_for_marks() -> None:
    rules = RuleSet(exclude=("secret",), masks=(("mail", FixedText("-")),))
    gone = Column("secret", STRING), Column("mail", STRING)
    found = with_rules(
        rules, Column("secret", STRING), Column("mail", STRING, renamed_from="m"), superseded_columns=gone
    )
    assert [c.written for c in found.columns] == ["id", "m", "mail"]
    assert found.superseded_columns[0].transform == FixedText("-")


def version(
    at: int, *columns: Column, carried: dict[str, str], unexplained: str | None = None
) -> SchemaVersion:
    schema = TableSchema((ID, *columns), ("id",))
    gone = frozenset() if unexplained is None else frozenset({unexplained})
    return SchemaVersion(
        at, SourcePosition("b.000001", at), 0, schema, carried | {"id": "id"}, unexplained=gone
    )


def transformed(
    line: SchemaHistory, target: int, rules: RuleSet, *writer_schemas: TableSchema
) -> TableSchema:
    """The frame under `rules`, of events in JSON with schemas."""
    found = resolve(
        line,
        [WriterSchema(schema, number) for number, schema in enumerate(writer_schemas, start=1)],
        0,
        target,
    )
    return found.with_rules(ColumnRules((rules,)), "shop.t").decoded_schema


OLD, NEW = Column("email", STRING), Column("contact", STRING)
RENAMED = SchemaHistory((version(1, OLD, carried={}), version(2, NEW, carried={"email": "contact"})))
LOST = SchemaHistory((version(1, OLD, carried={}), version(2, NEW, carried={}, unexplained="email")))


@pytest.mark.parametrize("target", [0, 1])
@pytest.mark.parametrize("named", ["email", "contact"])
def test_column_rules_apply_to_earlier_and_later_names(target: int, named: str) -> None:
    schemas = [v.schema for v in RENAMED.versions[: target + 1]]
    assert transformed(RENAMED, target, RuleSet(exclude=(named,)), *schemas).names == ("id",)
    found = transformed(RENAMED, target, RuleSet(masks=((named, FixedText("-")),)), *schemas)
    assert found.columns[1].transform == FixedText("-")


def test_include_must_list_all_names_of_a_column() -> None:
    schemas = [v.schema for v in RENAMED.versions]
    assert transformed(RENAMED, 1, RuleSet(include=("id", "contact")), *schemas).names == ("id",)
    assert transformed(RENAMED, 1, RuleSet(include=("id", "contact", "email")), *schemas).names == (
        "id",
        "contact",
    )


def test_column_is_refused_when_it_may_be_a_protected_one() -> None:
    with pytest.raises(
        UnfitColumns, match=r"column contact of shop\.t appeared when email disappeared"
    ) as caught:
        transformed(LOST, 1, RuleSet(exclude=("email",)), LOST.versions[1].schema)
    assert "include" in (caught.value.hint or "")
    assert transformed(LOST, 1, RuleSet(exclude=("email", "contact"))).names == ("id",)
    assert transformed(LOST, 1, RuleSet(include=("id", "contact"))).names == ("id", "contact")
    assert transformed(LOST, 0, RuleSet(exclude=("email",))).names == ("id",)


def test_column_without_a_version_may_be_any_that_its_events_lack() -> None:
    unknown = TableSchema((ID, NEW), ("id",))
    with pytest.raises(UnfitColumns, match=r"column contact of shop\.t appeared when email disappeared"):
        transformed(SchemaHistory(LOST.versions[:1]), 0, RuleSet(exclude=("email",)), unknown)
    assert transformed(SchemaHistory(LOST.versions[:1]), 0, RuleSet(exclude=("other",)), unknown).names == (
        "id",
        "email",
        "contact",
    )
