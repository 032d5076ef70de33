"""The columns of an event that are read if columns were renamed, excluded or masked later."""

import pytest

from replicator.decode.decoding import WriterSchema
from replicator.decode.schemas.resolution import ResolvedSchema, resolve
from replicator.errors import UnfitColumns
from replicator.model.column_rules import ColumnRules, RuleSet
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableSchema
from replicator.model.transforms import FixedText
from replicator.model.types import LONG, STRING
from replicator.schema.history.versions import SchemaHistory, SchemaVersion

ID = Column("id", LONG)


def with_rules(rules: RuleSet, *columns: Column) -> WriterSchema:
    """Return a writer schema under `rules`; the table's columns have the current names of its columns."""
    now = TableSchema((ID, *(Column(c.name, c.type) for c in columns)), ("id",))
    writer_schema = WriterSchema(TableSchema((ID, *columns), ("id",)))
    (found,) = (
        ResolvedSchema((writer_schema,), now, now, ())
        .with_rules(ColumnRules((rules,)), "shop.t")
        .writer_schemas
    )
    return found


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
    """Return the decoded schema under `rules`, for events in JSON with schemas."""
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


def test_include_rule_keeps_a_column_only_when_it_lists_all_its_names() -> None:
    schemas = [v.schema for v in RENAMED.versions]
    assert transformed(RENAMED, 1, RuleSet(include=("id", "contact")), *schemas).names == ("id",)
    assert transformed(RENAMED, 1, RuleSet(include=("id", "contact", "email")), *schemas).names == (
        "id",
        "contact",
    )


def test_column_is_refused_when_it_may_be_a_renamed_protected_column() -> None:
    with pytest.raises(
        UnfitColumns, match=r"column contact of shop\.t appeared when email disappeared"
    ) as caught:
        transformed(LOST, 1, RuleSet(exclude=("email",)), LOST.versions[1].schema)
    assert "include" in (caught.value.hint or "")
    assert transformed(LOST, 1, RuleSet(exclude=("email", "contact"))).names == ("id",)
    assert transformed(LOST, 1, RuleSet(include=("id", "contact"))).names == ("id", "contact")
    assert transformed(LOST, 0, RuleSet(exclude=("email",))).names == ("id",)


def test_column_without_a_version_is_refused_when_its_events_lack_a_protected_column() -> None:
    unknown = TableSchema((ID, NEW), ("id",))
    with pytest.raises(UnfitColumns, match=r"column contact of shop\.t appeared when email disappeared"):
        transformed(SchemaHistory(LOST.versions[:1]), 0, RuleSet(exclude=("email",)), unknown)
    assert transformed(SchemaHistory(LOST.versions[:1]), 0, RuleSet(exclude=("other",)), unknown).names == (
        "id",
        "email",
        "contact",
    )
