"""Any sequence of schema changes, redelivered or not, in any batches, produces the source's schema and row.

The source here is one row, whose columns have numbers that no rename changes. The lake applies plans to its row.
Statements are parsed, so the names test the quoting too.
"""

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from replicator.decode.decoding import WriterSchema
from replicator.decode.schemas.resolution import resolve
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import INT, LONG, STRING, LakeType
from replicator.schema.ddl.tables import column_moves, parse
from replicator.schema.evolution.changes import (
    AddColumn,
    ChangeType,
    DropColumn,
    MoveColumn,
    RenameColumn,
    RetireColumn,
    WidenType,
)
from replicator.schema.evolution.plan import LakeSide, Plan, SourceSide, changelog_plan, plan
from replicator.schema.history.builder import build_history
from replicator.schema.history.versions import SchemaHistory, TableDefinition
from tests.oracle.events import quoted

T = TableId("shop", "t")
NAMES = ("a", "A b", "c`d", "it's", "größe", "_pos", "after", "x")
KINDS: dict[str, LakeType] = {"INT": INT, "BIGINT": LONG, "VARCHAR(20)": STRING}


@dataclass(frozen=True)
class Live:
    """A column of the source: its number, name, type, and value in the row."""

    number: int
    name: str
    kind: str
    value: object
    fill: str | None = None


@dataclass(frozen=True)
class Step:
    """One statement; indices wrap around."""

    do: str
    which: int
    other: int
    name: str


class SourceModel:
    """The source's one row, and its definitions."""

    def __init__(self) -> None:
        self.columns = [Live(0, "id", "INT", 1), Live(1, "a", "INT", 5), Live(2, "x", "VARCHAR(20)", "y")]
        self.count, self.pos = 3, 100
        self.definitions = [self.definition("CREATE TABLE t (...)")]
        self.history = [list(self.columns)]

    def definition(self, ddl: str) -> TableDefinition:
        columns = tuple(Column(c.name, KINDS[c.kind], fill=c.fill) for c in self.columns)
        schema = TableSchema(columns, ("id",)).without_reserved()
        source_types = {c.name: k.kind for c, k in zip(schema.columns, self.columns, strict=True)}
        self.pos += 100
        at = SourcePosition("b.000001", self.pos)
        return TableDefinition(T, at, 0, schema, column_moves(parse(ddl), T), source_types)

    def take(self, step: Step) -> None:
        ddl = getattr(self, step.do)(step)
        if ddl is not None:
            self.definitions.append(self.definition(f"ALTER TABLE t {ddl}"))
            self.history.append(list(self.columns))

    def names(self) -> set[str]:
        return {c.name.casefold() for c in self.columns}

    def at(self, index: int) -> int:
        """Return the index of a column other than the key."""
        return 1 + index % (len(self.columns) - 1)

    def add(self, step: Step) -> str | None:
        if step.name.casefold() in self.names():
            return None
        fill = f"f{self.count}" if step.other % 2 else None
        column = Live(self.count, step.name, "VARCHAR(20)", fill, fill)
        self.columns.insert(self.at(step.which), column)
        self.count += 1
        return f"ADD COLUMN {quoted(step.name)} VARCHAR(20) AFTER `id`"

    def drop(self, step: Step) -> str | None:
        if len(self.columns) < 3:
            return None
        return f"DROP {quoted(self.columns.pop(self.at(step.which)).name)}"

    def rename(self, step: Step) -> str | None:
        i = self.at(step.which)
        old = self.columns[i]
        if step.name.casefold() in self.names() - {old.name.casefold()} or step.name == old.name:
            return None
        self.columns[i] = replace(old, name=step.name)
        return f"CHANGE {quoted(old.name)} {quoted(step.name)} {old.kind} COMMENT 'DROP x, y'"

    def swap(self, step: Step) -> str | None:
        i, j = self.at(step.which), self.at(step.other)
        if i == j:
            return None
        a, b = self.columns[i], self.columns[j]
        self.columns[i], self.columns[j] = replace(a, name=b.name), replace(b, name=a.name)
        a_name, b_name = quoted(a.name), quoted(b.name)
        return f"RENAME COLUMN {a_name} TO {b_name}, RENAME COLUMN {b_name} TO {a_name}"

    def again(self, step: Step) -> str:
        """Drop a column, and add one with the same name."""
        i = self.at(step.which)
        old = self.columns[i]
        self.columns[i] = Live(self.count, old.name, old.kind, None)
        self.count += 1
        return f"DROP COLUMN {quoted(old.name)}, ADD {quoted(old.name)} {old.kind}"

    def replaced(self, step: Step) -> str | None:
        """Drop a column, and rename another one to its name."""
        i, j = self.at(step.which), self.at(step.other)
        if i == j:
            return None
        gone = self.columns[i]
        old = self.columns[j]
        self.columns[j] = replace(old, name=gone.name)
        del self.columns[i]
        return f"DROP {quoted(gone.name)}, RENAME COLUMN {quoted(old.name)} TO {quoted(gone.name)}"

    def move(self, step: Step) -> str:
        column = self.columns.pop(self.at(step.which))
        self.columns.insert(self.at(step.other) if len(self.columns) > 1 else 1, column)
        return f"MODIFY {quoted(column.name)} {column.kind} FIRST"

    def widen(self, step: Step) -> str | None:
        return self.retyped(step, "INT", "BIGINT", lambda value: value)

    def to_text(self, step: Step) -> str | None:
        return self.retyped(step, "INT", "VARCHAR(20)", lambda value: None if value is None else str(value))

    def retyped(self, step: Step, old: str, new: str, convert: object) -> str | None:
        i = self.at(step.which)
        column = self.columns[i]
        if column.kind != old:
            return None
        assert callable(convert)
        self.columns[i] = replace(column, kind=new, value=convert(column.value))
        return f"MODIFY COLUMN {quoted(column.name)} {new}"


class LakeModel:
    """The one row of a lake table, to which plans are applied."""

    def __init__(self, schema: TableSchema, values: dict[str, object], at: int) -> None:
        self.types = {c.name: c.type for c in schema.columns}
        self.values, self.at, self.retired = values, at, frozenset[str]()

    def side(self, history: SchemaHistory) -> LakeSide:
        version = history.versions[history.index_at(self.at)]
        return LakeSide(self.types, self.retired, version.schema.key)

    def follow(self, history: SchemaHistory, target: int, *, additive: bool) -> None:
        version = history.versions[target]
        there = self.side(history)
        schema = resolve(history, [], 0, target).schema
        here = SourceSide(schema, history.carry_lake(self.at, target, there.live))
        is_read_again = any(v.unlogged for v in history.versions[history.index_at(self.at) + 1 : target + 1])
        found = changelog_plan(there, here) if additive else plan(there, here, rows_known=is_read_again)
        self.make(found)
        self.at = version.at
        # After the plan was applied, no change is left.
        there = self.side(history)
        here = replace(here, carried=history.carry_lake(self.at, target, there.live))
        assert (changelog_plan(there, here) if additive else plan(there, here)).changes == ()

    def make(self, found: Plan) -> None:
        names, types, values = {}, dict(self.types), dict(self.values)
        order = list(self.types)
        for change in found.changes:
            match change:
                case DropColumn(name=name):
                    order.remove(name)
                case RenameColumn(name=name, new=new_name) | RetireColumn(name=name, kept=new_name):
                    names[name] = new_name
                case _:
                    pass
        self.types = {names.get(n, n): types[n] for n in order}
        self.values = {names.get(n, n): values[n] for n in order}
        assert len(self.types) == len(order)
        for change in found.changes:
            match change:
                case AddColumn(column=column, after=after):
                    assert column.name not in self.types
                    self.insert(column.name, after, column.type, column.fill)
                case WidenType(name=name, new=new):
                    self.types[name] = new
                case ChangeType(name=name, new=new):
                    value = self.values[name]
                    self.types[name], self.values[name] = new, None if value is None else str(value)
                case MoveColumn(name=name, after=after):
                    self.insert(name, after, self.types.pop(name), self.values.pop(name))
                case _:
                    pass
        self.retired = frozenset(found.retired)

    def insert(self, name: str, after: str | None, lake_type: LakeType, value: object) -> None:
        names = list(self.types)
        names.insert(0 if after is None else names.index(after) + 1, name)
        types, values = self.types | {name: lake_type}, self.values | {name: value}
        self.types = {n: types[n] for n in names}
        self.values = {n: values[n] for n in names}


steps = st.builds(
    Step,
    do=st.sampled_from(
        ["add", "add", "drop", "rename", "rename", "swap", "again", "replaced", "move", "widen", "to_text"]
    ),
    which=st.integers(0, 9),
    other=st.integers(0, 9),
    name=st.sampled_from(NAMES),
)


def segments(history: SchemaHistory, known: int, target: int) -> list[int]:
    """Return the versions to which the lake is evolved in order: the ends of a batch's schema segments."""
    ends, since = [], known
    for i in range(known + 1, target + 1):
        if history.is_barrier(i, since):
            ends.append(i - 1)
            since = i - 1
    return [*ends, target]


def lake_names(schema: TableSchema) -> dict[str, str]:
    """Return source name → lake name."""
    return {c.written: c.name for c in schema.columns}


@settings(max_examples=400, deadline=None)
@given(
    story=st.lists(steps, max_size=9),
    cuts=st.lists(st.integers(0, 9), max_size=4),
    again=st.lists(st.integers(0, 9), max_size=3),
)
def test_schema_changes_in_any_sequence_produce_the_schema_and_row_of_the_source(
    story: list[Step], cuts: list[int], again: list[int]
) -> None:
    source = SourceModel()
    for step in story:
        source.take(step)
    sent = list(source.definitions)
    for i in sorted({n % len(sent) for n in again}, reverse=True):
        sent.insert(i, sent[i])
    history = build_history(sent)
    first = history.versions[0].schema
    start: dict[str, object] = {"id": 1, "a": 5, "x": "y"}
    mirror, changes = (LakeModel(first, dict(start), history.versions[0].at) for _ in range(2))
    newest = len(history.versions) - 1
    for stop in [*sorted(n % (newest + 1) for n in cuts), newest]:
        for end in segments(history, history.index_at(mirror.at), stop):
            mirror.follow(history, end, additive=False)
            changes.follow(history, end, additive=True)
    last = lake_names(history.versions[-1].schema)
    assert mirror.values == {last[c.name]: c.value for c in source.columns}
    assert list(mirror.types) == [last[c.name] for c in source.columns]
    assert mirror.types == {last[c.name]: KINDS[c.kind] for c in source.columns}
    assert set(last.values()) <= set(changes.types)
    # Old values are only in their own columns, or in retired ones.
    for column in source.columns:
        assert changes.values[last[column.name]] in (column.value, None)


@settings(max_examples=300, deadline=None)
@given(story=st.lists(steps, max_size=7), since=st.integers(0, 7))
def test_events_of_any_schema_version_are_stored_in_their_columns(story: list[Step], since: int) -> None:
    source = SourceModel()
    for step in story:
        source.take(step)
    history = build_history(source.definitions)
    places = {d.at: columns for d, columns in zip(source.definitions, source.history, strict=True)}
    versions = [
        {lake: c.number for c, lake in zip(places[v.at], v.schema.names, strict=True)}
        for v in history.versions
    ]
    newest = len(versions) - 1
    for version in range(since % (newest + 1), newest + 1):
        own = history.versions[version]
        first, end = history.boundary(version), None if version == newest else history.boundary(version + 1)
        found = resolve(history, [WriterSchema(own.schema, first=first, end=end)], 0, newest)
        (writer_schema,) = found.writer_schemas
        written = {c.written: c.name for c in own.schema.columns}
        for column in writer_schema.schema.columns:
            number = versions[version][written[column.written]]
            if column.name in versions[newest]:
                assert versions[newest][column.name] == number
            else:
                assert number not in versions[newest].values()
        assert {versions[version][written[c.written]] for c in writer_schema.schema.columns} >= set(
            versions[version].values()
        ) & set(versions[newest].values())
