"""Changes of a lake table's schema; each is idempotent."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Final, Literal

from replicator.model.recorded import Record, checked, json_in, named, reading, texts_in
from replicator.model.table import Column
from replicator.model.types import LakeType
from replicator.schema.history.partitions import RowCondition

ChangeKind = Literal["add", "drop", "rename", "type", "order", "key", "recreate", "unlogged"]
"""Kinds of changes that a policy can name. `type` changes replace a column; a widening does not."""

Policy = Literal["evolve", "ignore", "fail"]
UnloggedPolicy = Literal["reread", "follow", "keep", "pause"]
"""Policies for changes of rows that no event has."""


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Add `column` after the column `after`, or first if that is None.

    Existing rows get the column's `fill`, as in the source.
    """

    kind: ClassVar[ChangeKind] = "add"
    column: Column
    after: str | None

    def __str__(self) -> str:
        return f"add column {self.column.name} {self.column.type}"


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Drop a column and its values."""

    kind: ClassVar[ChangeKind] = "drop"
    name: str

    def __str__(self) -> str:
        return f"drop column {self.name}"


@dataclass(frozen=True, slots=True)
class RetireColumn:
    """Keep a column that the source dropped under the name `kept`; it is null in new rows."""

    kind: ClassVar[ChangeKind] = "drop"
    name: str
    kept: str

    def __str__(self) -> str:
        return f"keep dropped column {self.name}" + ("" if self.kept == self.name else f" as {self.kept}")


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Rename a column and keep its values."""

    kind: ClassVar[ChangeKind] = "rename"
    name: str
    new: str

    def __str__(self) -> str:
        return f"rename column {self.name} to {self.new}"


@dataclass(frozen=True, slots=True)
class WidenType:
    """Promote a column in place, such as int to long."""

    kind: ClassVar[ChangeKind] = "type"
    name: str
    old: LakeType
    new: LakeType

    def __str__(self) -> str:
        return f"widen column {self.name} from {self.old} to {self.new}"


@dataclass(frozen=True, slots=True)
class ChangeType:
    """Replace a column by one of another type, with the source's values.

    Attributes:
        name: its name after all renames.
        was: its name before them.
        old, new: its lake types.
    """

    kind: ClassVar[ChangeKind] = "type"
    name: str
    was: str
    old: LakeType
    new: LakeType

    def __str__(self) -> str:
        return f"change type of column {self.name} from {self.old} to {self.new}"


@dataclass(frozen=True, slots=True)
class RequireValues:
    """Check that a column of the lake has no NULLs, because it became NOT NULL: the source would have changed them.

    Attributes:
        name, was: see `ChangeType`.
    """

    kind: ClassVar[ChangeKind] = "type"
    name: str
    was: str

    def __str__(self) -> str:
        return f"require values of column {self.name}"


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Move a column after the column `after`, or to the front if that is None."""

    kind: ClassVar[ChangeKind] = "order"
    name: str
    after: str | None

    def __str__(self) -> str:
        return f"move column {self.name} " + ("first" if self.after is None else f"after {self.after}")


@dataclass(frozen=True, slots=True)
class ChangeKey:
    """Identify rows by other columns; by all of them if `new` is empty."""

    kind: ClassVar[ChangeKind] = "key"
    old: tuple[str, ...]
    new: tuple[str, ...]

    def __str__(self) -> str:
        now = f"change key from ({', '.join(self.old)}) to ({', '.join(self.new)})"
        return now if self.new else f"drop key ({', '.join(self.old)}): all values identify a row"


@dataclass(frozen=True, slots=True)
class Recreate:
    """Delete all rows because the source table was dropped and recreated."""

    kind: ClassVar[ChangeKind] = "recreate"

    def __str__(self) -> str:
        return "dropped and recreated"


@dataclass(frozen=True, slots=True)
class KeepRows:
    """Keep the rows that the mirror has, although a statement changed them in the source without events.

    Attributes:
        at: the binlog key of the statement; see `history.TableDefinition.at`.
        position: the source position of the statement.
    """

    kind: ClassVar[ChangeKind] = "unlogged"
    statement: str
    at: int
    position: str

    def __str__(self) -> str:
        return f"keep rows that no event changed: {self.statement}"


@dataclass(frozen=True, slots=True)
class DeleteRows:
    """Delete the rows that a statement removed in the source without events.

    Attributes:
        at, position: see `KeepRows`.
        rows: the condition for these rows.
    """

    kind: ClassVar[ChangeKind] = "unlogged"
    statement: str
    at: int
    position: str
    rows: RowCondition

    def __str__(self) -> str:
        return f"delete rows of partitions: {self.statement}"


SchemaChange = (
    AddColumn
    | DropColumn
    | RetireColumn
    | RenameColumn
    | WidenType
    | ChangeType
    | RequireValues
    | MoveColumn
    | ChangeKey
    | Recreate
    | KeepRows
    | DeleteRows
)

PENDING_FILLS_KEY: Final = "replicator.pending-fills"
"""Table property: added columns whose earlier rows still lack the source's value."""

PENDING_CLEAR_KEY: Final = "replicator.pending-clear"
"""Table property: where the table was recreated (a `Truncate`), while rows from before must still be deleted."""

UNFILLED_KEY: Final = "replicator.unfilled-columns"
"""Table property: columns that the source added with an expression, whose value no event contains; they are null in
earlier rows.
"""

KEPT_KEY: Final = "replicator.kept-rows"
"""Table property: the newest statements that changed rows without events, and that the mirror did not follow (see
`KeepRows`). Rows from before them may differ from the source.
"""

FOLLOWED_KEY: Final = "replicator.followed-statement"
"""Table property of a mirror: `at` of the newest statement (see `DeleteRows`) whose removed rows it has deleted."""

SCHEMA_KEY: Final = "replicator.schema"
"""Table property: a `SchemaState`."""

_REMEMBERED: Final = 100


@dataclass(frozen=True, slots=True)
class ChangeNote:
    """A schema change that was applied to a lake table, for messages and status.

    Attributes:
        position: the source position of the change.
        ts_ms: when the source changed, milliseconds since the epoch.
        made_ms: when the lake table was changed, milliseconds since the epoch.
        changes: descriptions of the single changes.
        declared: whether a definition of the source declared it; otherwise it was observed in events.
    """

    position: str
    ts_ms: int
    made_ms: int
    changes: tuple[str, ...]
    declared: Annotated[bool, named("told")] = True


@dataclass(frozen=True, slots=True)
class SchemaState(Record):
    """The schema version that a lake table has; its JSON is described in schemas/schema-state-v1.json.

    Attributes:
        at: the binlog key at which the version begins; see `history.TableDefinition.at`.
        retired: columns of the lake table that the source dropped.
        gone: how the source table was removed, as text; None while it exists.
        notes: the newest changes, oldest first.
    """

    WHAT = "schema state"
    at: int
    retired: tuple[str, ...] = ()
    gone: str | None = None
    notes: Annotated[tuple[ChangeNote, ...], named("changes")] = field(default=(), compare=False)

    def to_json(self) -> str:
        """Return it as one line of JSON, with the newest changes."""
        return Record.to_json(replace(self, notes=self.notes[-_REMEMBERED:]))


def pending_fills(changes: Iterable[SchemaChange]) -> dict[str, str]:
    """Return column → value for the rows that exist when `changes` are applied."""
    return {
        c.column.name: c.column.fill
        for c in changes
        if isinstance(c, AddColumn) and c.column.fill is not None
    }


def renamed_fills(fills: Mapping[str, str], changes: Sequence[SchemaChange]) -> dict[str, str]:
    """Return `fills` adapted to columns that `changes` rename or drop before they are filled."""
    names = {c.name: c.new for c in changes if isinstance(c, RenameColumn)}
    gone = {c.name for c in changes if isinstance(c, DropColumn)}
    return {names.get(name, name): value for name, value in fills.items() if name not in gone}


def unfilled_columns(
    known: Iterable[str], changes: Sequence[SchemaChange], *, is_empty: bool
) -> tuple[str, ...]:
    """Return the columns that are null in earlier rows after `changes`; `known` are those before."""
    if any(isinstance(c, Recreate) for c in changes):
        known = ()
    names = {c.name: c.new for c in changes if isinstance(c, RenameColumn)}
    gone = {c.name for c in changes if isinstance(c, DropColumn)}
    found = {names.get(name, name) for name in known if name not in gone}
    if not is_empty:
        found |= {c.column.name for c in changes if isinstance(c, AddColumn) and c.column.fill_unknown}
    return tuple(sorted(found))


def kept_rows(
    known: Iterable[KeepRows], changes: Sequence[SchemaChange], *, is_empty: bool
) -> tuple[KeepRows, ...]:
    """Return the statements that the mirror did not follow (`KEPT_KEY`), after `changes`; `known` are those before."""
    if any(isinstance(c, Recreate) for c in changes):
        known = ()
    new = () if is_empty else (c for c in changes if isinstance(c, KeepRows))
    return (*known, *new)[-_REMEMBERED:]


def kept_to_json(kept: Iterable[KeepRows]) -> str:
    """Return the value of `KEPT_KEY`."""
    return json.dumps([{"statement": k.statement, "at": k.at, "position": k.position} for k in kept])


def kept_from_json(text: str | None) -> tuple[KeepRows, ...]:
    """Read what `kept_to_json` wrote; None means no statements."""
    with reading("the record of kept rows"):
        found = () if text is None else json_in(text)
        return tuple(checked(KeepRows(k["statement"], k["at"], k["position"])) for k in found)


def fills_to_json(fills: Mapping[str, str]) -> str:
    return json.dumps(dict(fills), sort_keys=True)


def fills_from_json(text: str | None) -> dict[str, str]:
    """Read what `fills_to_json` wrote; None means no fills."""
    return {} if text is None else texts_in(text)
