"""The names that a column had in the source, according to the executed statements."""

from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import STRING
from replicator.schema.ddl.effects import ColumnMoves
from replicator.schema.history.builder import build_history, with_observed
from replicator.schema.history.versions import SchemaHistory, TableDefinition, column_histories

TABLE = TableId("shop", "users")


def schema(*names: str) -> TableSchema:
    return TableSchema(tuple(Column(name, STRING) for name in names), ())


def defined(
    at: int,
    *names: str,
    renamed: tuple[tuple[str, str], ...] = (),
    dropped: tuple[str, ...] = (),
    snapshot: bool = False,
) -> TableDefinition:
    moves = ColumnMoves(renamed, dropped) if renamed or dropped else None
    position = SourcePosition("b.000001", at)
    return TableDefinition(TABLE, position, 0, schema(*names), moves, snapshot=snapshot)


def gone(at: int, *, snapshot: bool = False) -> TableDefinition:
    return TableDefinition(TABLE, SourcePosition("b.000001", at), 0, None, snapshot=snapshot)


def names(line: SchemaHistory) -> list[dict[str, set[str]]]:
    return [{c: {n.name for n in h.names} for c, h in found.items()} for found in column_histories(line)]


def doubts(line: SchemaHistory) -> dict[str, set[str]]:
    last = column_histories(line)[-1]
    return {c: {n.name for n in h.maybe} for c, h in last.items() if h.maybe}


def test_renamed_column_has_all_its_names_in_every_version() -> None:
    line = build_history(
        [
            defined(1, "id", "a"),
            defined(2, "id", "b", renamed=(("a", "b"),)),
            defined(3, "id", "c", "a", renamed=(("b", "c"),)),
        ]
    )
    assert names(line) == [
        {"id": {"id"}, "a": {"a", "b", "c"}},
        {"id": {"id"}, "b": {"a", "b", "c"}},
        {"id": {"id"}, "c": {"a", "b", "c"}, "a": {"a"}},
    ]
    assert doubts(line) == {}


def test_column_with_the_name_of_a_dropped_one_is_a_different_column() -> None:
    line = build_history(
        [
            defined(1, "id", "a", "b"),
            defined(2, "id", "a", renamed=(("b", "a"),), dropped=("a",)),
            defined(3, "id", dropped=("a",)),
            defined(4, "id", "a"),
        ]
    )
    assert [found.get("a") for found in names(line)] == [{"a"}, {"a", "b"}, None, {"a"}]
    assert doubts(line) == {}


def test_added_column_may_be_the_same_as_one_dropped_at_that_time() -> None:
    line = with_observed(SchemaHistory(), SourcePosition("b.000001", 1), 0, schema("id", "a", "x"))
    line = with_observed(line, SourcePosition("b.000001", 2), 0, schema("id", "b", "x"))
    assert doubts(line) == {"b": {"a"}}
    line = with_observed(line, SourcePosition("b.000001", 3), 0, schema("id", "c", "x"))
    assert doubts(line) == {"c": {"a", "b"}}
    line = with_observed(line, SourcePosition("b.000001", 4), 0, schema("id", "x"))
    line = with_observed(line, SourcePosition("b.000001", 5), 0, schema("id", "x", "y"))
    assert doubts(line) == {}


def test_added_column_may_be_a_missing_one_when_no_statement_explains_it() -> None:
    declared = [defined(1, "id", "a"), defined(2, "id", "b", dropped=("z",))]
    assert doubts(build_history(declared)) == {"b": {"a"}}
    assert doubts(build_history([declared[0], defined(2, "id", "b", dropped=("A",))])) == {}
    assert doubts(build_history([declared[0], defined(2, "id", "b")])) == {"b": {"a"}}


def test_recreated_table_has_no_ambiguous_columns_unless_a_snapshot_read_it() -> None:
    assert doubts(build_history([defined(1, "id", "a"), gone(2), defined(3, "id", "b")])) == {}
    again = [defined(1, "id", "a"), gone(2, snapshot=True), defined(3, "id", "b", snapshot=True)]
    assert doubts(build_history(again)) == {"b": {"a"}}


def test_column_history_compares_source_names_instead_of_avro_names() -> None:
    """A column that an event showed continues in the definition, which has its source name."""
    known = Column("e-mail", STRING, renamed_from="e_mail", source="e-mail")
    line = with_observed(SchemaHistory(), SourcePosition("b.000001", 1), 0, TableSchema((known,), ()))
    later = build_history([defined(2, "contact", renamed=(("e-mail", "contact"),))], line)
    assert names(later)[-1] == {"contact": {"e-mail", "contact"}}
    assert doubts(later) == {}
