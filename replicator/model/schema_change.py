"""Changes of a lake table's schema, each safe to repeat."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from replicator.model.table import Column
from replicator.model.types import LakeType

ChangeKind = Literal["add", "drop", "rename", "type", "order", "key", "recreate"]
"""What a policy is about. `type` are changes that need the rows there to be written anew; widening needs none."""

Policy = Literal["evolve", "ignore", "fail"]


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Add `column` after the column called `after`, or first where that is None.

    Rows that are already there get the column's `fill`, as in the source.
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
    """Keep a column that the source dropped, under the name `kept`; new rows have null there."""

    kind: ClassVar[ChangeKind] = "drop"
    name: str
    kept: str

    def __str__(self) -> str:
        return f"keep dropped column {self.name}" + ("" if self.kept == self.name else f" as {self.kept}")


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Rename a column; its values stay."""

    kind: ClassVar[ChangeKind] = "rename"
    name: str
    new: str

    def __str__(self) -> str:
        return f"rename column {self.name} to {self.new}"


@dataclass(frozen=True, slots=True)
class WidenType:
    """Promote a column in place, for instance int to long."""

    kind: ClassVar[ChangeKind] = "type"
    name: str
    old: LakeType
    new: LakeType

    def __str__(self) -> str:
        return f"widen column {self.name} from {self.old} to {self.new}"


@dataclass(frozen=True, slots=True)
class ChangeType:
    """Give a column another type, or other values of its type.

    Attributes:
        name: what it is called after all renames.
        was: what it is called before them.
        using: Spark SQL that computes a new value from the old one, which stands for ``{0}``.
        told: the change as the source has it, for people.
    """

    kind: ClassVar[ChangeKind] = "type"
    name: str
    was: str
    old: LakeType
    new: LakeType
    using: str
    told: str

    def __str__(self) -> str:
        return f"change type of column {self.name} from {self.told}"


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Move a column behind the column called `after`, or to the front where that is None."""

    kind: ClassVar[ChangeKind] = "order"
    name: str
    after: str | None

    def __str__(self) -> str:
        return f"move column {self.name} " + ("first" if self.after is None else f"after {self.after}")


@dataclass(frozen=True, slots=True)
class ChangeKey:
    """Tell rows apart by other columns from now on."""

    kind: ClassVar[ChangeKind] = "key"
    old: tuple[str, ...]
    new: tuple[str, ...]

    def __str__(self) -> str:
        return f"change key from ({', '.join(self.old)}) to ({', '.join(self.new)})"


@dataclass(frozen=True, slots=True)
class Recreate:
    """The table was dropped and created again: rows from before are gone."""

    kind: ClassVar[ChangeKind] = "recreate"

    def __str__(self) -> str:
        return "dropped and created again"


SchemaChange = (
    AddColumn
    | DropColumn
    | RetireColumn
    | RenameColumn
    | WidenType
    | ChangeType
    | MoveColumn
    | ChangeKey
    | Recreate
)

PENDING_FILLS_KEY: Final = "replicator.pending-fills"
"""Table property: columns that were added, whose rows already there still lack the source's value."""

PENDING_CLEAR_KEY: Final = "replicator.pending-clear"
"""Table property: the table was created again there (as `Truncate`), and rows from before are still to be removed."""

SCHEMA_KEY: Final = "replicator.schema"
"""Table property: a `SchemaState`."""

_REMEMBERED: Final = 100


@dataclass(frozen=True, slots=True)
class ChangeNote:
    """What was done to a lake table because its source changed.

    Attributes:
        position: where the source changed, for people.
        ts_ms: when it did, milliseconds since the epoch.
        made_ms: when the lake followed.
        changes: what was done, one line each.
        told: whether a definition of the source says so; else it was seen in the events.
    """

    position: str
    ts_ms: int
    made_ms: int
    changes: tuple[str, ...]
    told: bool = True


@dataclass(frozen=True, slots=True)
class SchemaState:
    """Which version of its source's schema a lake table has; as JSON: schemas/schema-state-v1.json.

    Attributes:
        at: the place (`lineage.place`) from which on the source has that version.
        retired: columns of the lake that the source no longer has.
        gone: what became of the source's table where it is no more, in words.
        notes: the newest changes, oldest first.
    """

    at: int
    retired: tuple[str, ...] = ()
    gone: str | None = None
    notes: tuple[ChangeNote, ...] = field(default=(), compare=False)

    def to_json(self) -> str:
        notes = [
            {
                "position": n.position,
                "ts_ms": n.ts_ms,
                "made_ms": n.made_ms,
                "changes": list(n.changes),
                "told": n.told,
            }
            for n in self.notes[-_REMEMBERED:]
        ]
        return json.dumps(
            {
                "version": 1,
                "at": self.at,
                "retired": list(self.retired),
                "gone": self.gone,
                "changes": notes,
            }
        )

    @classmethod
    def from_json(cls, text: str) -> "SchemaState":
        """Read what `to_json` wrote.

        Raises:
            ValueError: a newer engine wrote it.
        """
        value: dict[str, Any] = json.loads(text)
        if value.get("version") != 1:
            raise ValueError(f"schema state of version {value.get('version')!r}, this engine reads 1")
        notes = tuple(
            ChangeNote(n["position"], n["ts_ms"], n["made_ms"], tuple(n["changes"]), n["told"])
            for n in value["changes"]
        )
        return cls(value["at"], tuple(value["retired"]), value["gone"], notes)


def pending_fills(changes: Iterable[SchemaChange]) -> dict[str, str]:
    """Column → value for the rows that are already there when `changes` are made."""
    return {
        c.column.name: c.column.fill
        for c in changes
        if isinstance(c, AddColumn) and c.column.fill is not None
    }


def renamed_fills(fills: Mapping[str, str], changes: Sequence[SchemaChange]) -> dict[str, str]:
    """`fills` of columns that are renamed or dropped before they were filled."""
    names = {c.name: c.new for c in changes if isinstance(c, RenameColumn)}
    gone = {c.name for c in changes if isinstance(c, DropColumn)}
    return {names.get(name, name): value for name, value in fills.items() if name not in gone}


def fills_to_json(fills: Mapping[str, str]) -> str:
    return json.dumps(dict(fills), sort_keys=True)


def fills_from_json(text: str | None) -> dict[str, str]:
    """Read what `fills_to_json` wrote; no text, no fills."""
    return {} if text is None else {str(k): str(v) for k, v in json.loads(text).items()}
