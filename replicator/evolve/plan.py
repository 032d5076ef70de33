"""What must be done to a lake table so that it has a newer version of its source's schema: a pure plan."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from replicator.errors import UnsupportedChange
from replicator.model.conversion import needs_rewrite, rewriting
from replicator.model.schema_change import (
    AddColumn,
    ChangeKey,
    ChangeKind,
    ChangeType,
    DropColumn,
    MoveColumn,
    Policy,
    Recreate,
    RenameColumn,
    RetireColumn,
    SchemaChange,
    WidenType,
)
from replicator.model.table import Column, TableSchema
from replicator.model.types import LakeType

Policies = Mapping[ChangeKind, Policy]

EVOLVE: Final[Policies] = {}
"""Every kind is followed."""


@dataclass(frozen=True, slots=True)
class LakeSide:
    """A lake table as it is.

    Attributes:
        columns: in order; primitive ones only.
        retired: those that the source no longer has.
        key: the key of the source's version that the table has.
        natives: column → the source's type in that version, as far as it is known.
    """

    columns: Mapping[str, LakeType]
    retired: frozenset[str] = frozenset()
    key: tuple[str, ...] = ()
    natives: Mapping[str, str] = field(default_factory=dict)

    @property
    def live(self) -> tuple[str, ...]:
        """The columns that the source has."""
        return tuple(name for name in self.columns if name not in self.retired)


@dataclass(frozen=True, slots=True)
class SourceSide:
    """The source's table as it is to be.

    Attributes:
        schema: its columns, in order, with the types that the lake is to have.
        carried: column of the lake → its name in `schema`, of those that go on.
        natives: column → the source's type, as far as it is known.
        anew: the table was dropped and created again.
    """

    schema: TableSchema
    carried: Mapping[str, str]
    natives: Mapping[str, str] = field(default_factory=dict)
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Changes to make, in this order; `ignored` ones are not made, as configured. `retired`: see `LakeSide`, after."""

    changes: tuple[SchemaChange, ...]
    ignored: tuple[SchemaChange, ...]
    retired: tuple[str, ...]


def plan(lake: LakeSide, source: SourceSide, policies: Policies = EVOLVE) -> Plan:
    """What makes a mirror fit the source.

    Planning again after the changes were made gives no changes.

    Raises:
        UnsupportedChange: a change cannot be followed, or is configured to stop the table.
    """
    return _Planner(lake, source, policies, additive=False).plan()


def changelog_plan(
    lake: LakeSide, source: SourceSide, extra: Sequence[Column] = (), policies: Policies = EVOLVE
) -> Plan:
    """What makes a changelog fit the source and hold the columns `extra` of older events.

    A changelog is never rewritten: columns that the source drops stay, and one whose values would have to be converted
    stays under another name, beside a new one.
    """
    found = _Planner(lake, source, policies, additive=True).plan()
    added = {c.column.name for c in found.changes if isinstance(c, AddColumn)}
    gone = {c.name for c in found.changes if isinstance(c, RenameColumn)}
    present = (set(lake.columns) - gone) | {c.new for c in found.changes if isinstance(c, RenameColumn)}
    present |= added | {c.kept for c in found.changes if isinstance(c, RetireColumn)}
    last = (*source.schema.names, None)[-2] if source.schema.names else None
    more = [AddColumn(c, last) for c in extra if c.name not in present]
    return Plan((*found.changes, *more), found.ignored, (*found.retired, *(c.column.name for c in more)))


class _Planner:
    def __init__(self, lake: LakeSide, source: SourceSide, policies: Policies, *, additive: bool) -> None:
        self.lake, self.source, self.policies, self.additive = lake, source, policies, additive
        self.ignored: list[SchemaChange] = []
        live = set(lake.live)
        wanted = set(source.schema.names)
        carried = {was: now for was, now in source.carried.items() if was in live and now in wanted}
        if self._policy("rename") == "ignore":
            dismissed = {was: now for was, now in carried.items() if was != now}
            self.ignored += [RenameColumn(was, now) for was, now in dismissed.items()]
            carried = {was: now for was, now in carried.items() if was == now}
        self.carried = carried
        # The column of the lake that has the values of a column of the source.
        self.origin = {now: was for was, now in carried.items()}
        self.retired = list(dict.fromkeys(n for n in lake.columns if n in lake.retired))

    def plan(self) -> Plan:
        types = self._types()
        names = self._names({c.name for c in types if isinstance(c, RetireColumn)})
        adds = self._adds()
        fresh = {c.name for c in types if _is_new_field(c) and isinstance(c, ChangeType)}
        moves = [] if self.additive else self._moves(adds, fresh)
        changes = self._wanted([Recreate()]) if self.source.anew and not self.additive else []
        changes += names
        changes += [c for c in types if not isinstance(c, RetireColumn)]
        # In the source's order, so that what a column is put behind is in its own place already.
        places = {name: i for i, name in enumerate(self.source.schema.names)}
        changes += sorted([*adds, *self._wanted(moves)], key=lambda c: places[_placed(c)])
        changes += self._wanted(self._key())
        return Plan(tuple(changes), tuple(self.ignored), tuple(self.retired))

    def _policy(self, kind: ChangeKind) -> Policy:
        return self.policies.get(kind, "evolve")

    def _wanted(self, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
        """Those of `changes` that are to be made. Raises where one is configured to stop the table."""
        found: list[SchemaChange] = []
        for change in changes:
            match self._policy(change.kind):
                case "fail" if not isinstance(change, WidenType):
                    raise UnsupportedChange(
                        f"the source changed: {change}; the configuration says to stop here",
                        f'to follow it, set schema_changes = {{ {change.kind} = "evolve" }} for the table '
                        "and start the mirror again",
                    )
                case "ignore" if not isinstance(change, WidenType):
                    self.ignored.append(change)
                case _:
                    found.append(change)
        return found

    def _names(self, converted: set[str]) -> list[SchemaChange]:
        """Dropped, retired and renamed columns; `converted` ones go on as new columns beside the old."""
        found: list[SchemaChange] = []
        wanted = set(self.source.schema.names)
        taken = wanted | set(self.lake.columns)
        for name in self.lake.columns:
            if name in self.lake.retired:
                if name in wanted:
                    found.append(self._kept_as(name, f"{name}__dropped", taken))
            elif name in converted:
                old = self.lake.columns[name]
                found.append(self._kept_as(name, f"{name}__was_{_word(old)}", taken))
            elif name not in self.carried:
                found += self._gone(name, wanted, taken)
            elif (now := self.carried[name]) != name:
                found += self._wanted([RenameColumn(name, now)])
        return found

    def _gone(self, name: str, wanted: set[str], taken: set[str]) -> list[SchemaChange]:
        if self.additive or self._policy("drop") == "ignore":
            if not self.additive:
                self.ignored.append(DropColumn(name))
            elif self._policy("drop") == "fail":
                self._wanted([DropColumn(name)])
            return [self._kept_as(name, f"{name}__dropped" if name in wanted else name, taken)]
        return self._wanted([DropColumn(name)])

    def _kept_as(self, name: str, kept: str, taken: set[str]) -> RetireColumn:
        free, number = kept, 1
        while free != name and free in taken:
            number += 1
            free = f"{kept}_{number}"
        taken.add(free)
        self.retired = [*(n for n in self.retired if n != name), free]
        return RetireColumn(name, free)

    def _types(self) -> list[SchemaChange]:
        found: list[SchemaChange] = []
        for column in self.source.schema.columns:
            was = self.origin.get(column.name)
            if was is None:
                continue
            change = self._type_change(was, column)
            if change is None:
                continue
            if isinstance(change, ChangeType) and self.additive:
                self._wanted([change])
                if change.old != change.new:
                    found.append(RetireColumn(was, was))
                    del self.origin[column.name], self.carried[was]
                continue
            found += self._wanted([change])
        return found

    def _type_change(self, was: str, column: Column) -> SchemaChange | None:
        old, native = self.lake.columns[was], self.lake.natives.get(was)
        now = self.source.natives.get(column.name)
        if self.source.anew and not self.additive:
            # No row is left whose value would have to be converted.
            told = f"{old} to {column.type}"
            return (
                None if old == column.type else ChangeType(column.name, was, old, column.type, "NULL", told)
            )
        if not needs_rewrite(old, column.type, native, now):
            return WidenType(column.name, old, column.type) if not old.holds(column.type) else None
        told = f"{native or old} to {now or column.type}"
        using = rewriting(old, column.type, native, now)
        if self.additive:
            return ChangeType(column.name, was, old, column.type, using or "NULL", told)
        if using is None:
            raise UnsupportedChange(
                f"column {was} is {old} in the lake and now {column.type} in the source ({told}): what the source "
                "made of the values that were there is not known exactly",
                "drop the table in the lake, mirror and changelog, and bootstrap it again",
            )
        return ChangeType(column.name, was, old, column.type, using, told)

    def _adds(self) -> list[SchemaChange]:
        found: list[SchemaChange] = []
        previous: str | None = None
        for column in self.source.schema.columns:
            if column.name not in self.origin:
                found += self._wanted([AddColumn(column, previous)])
                if not (found and found[-1] == AddColumn(column, previous)):
                    continue
            previous = column.name
        return found

    def _moves(self, adds: Sequence[SchemaChange], fresh: set[str]) -> list[SchemaChange]:
        """Columns to move, as few as possible; the others are in the source's order already.

        `fresh` ones take the places of those that they replace.
        """
        added = {c.column.name for c in adds if isinstance(c, AddColumn)}
        wanted = [name for name in self.source.schema.names if name in self.origin]
        rank = {name: i for i, name in enumerate(wanted)}
        present = [rank[self.carried[n]] for n in self.lake.columns if n in self.carried]
        staying = _longest_increasing(present)
        found: list[SchemaChange] = []
        previous: str | None = None
        for name in self.source.schema.names:
            if name in fresh or (name in self.origin and rank[name] not in staying):
                found.append(MoveColumn(name, previous))
            if name in self.origin or name in added:
                previous = name
        return found

    def _key(self) -> list[SchemaChange]:
        key = tuple(self.carried.get(name, name) for name in self.lake.key)
        if self.additive or not key or set(key) == set(self.source.schema.key):
            return []
        lacking = [n for n in self.source.schema.key if n not in self.origin and not self.source.anew]
        if lacking:
            raise UnsupportedChange(
                f"the key is now ({', '.join(self.source.schema.key)}), and {', '.join(lacking)} was added with it: "
                "no event says which values the rows have that were there",
                "drop the table in the lake, mirror and changelog, and bootstrap it again",
            )
        return [ChangeKey(key, self.source.schema.key)]


def _placed(change: SchemaChange) -> str:
    """The column that an addition or a move is about."""
    return change.column.name if isinstance(change, AddColumn) else getattr(change, "name", "")


def _is_new_field(change: SchemaChange) -> bool:
    """Whether a column is replaced by one of another type."""
    return isinstance(change, ChangeType) and change.old != change.new


def _word(lake_type: LakeType) -> str:
    """A type as part of a name."""
    if lake_type.name == "decimal":
        return f"decimal_{lake_type.precision}_{lake_type.scale}"
    return lake_type.name


def _longest_increasing(numbers: Sequence[int]) -> set[int]:
    """The numbers of a longest increasing subsequence."""
    best: list[tuple[int, ...]] = []
    longest: tuple[int, ...] = ()
    for number in numbers:
        before: tuple[int, ...] = ()
        for other in best:
            if other[-1] < number and len(other) > len(before):
                before = other
        best.append((*before, number))
        if len(best[-1]) > len(longest):
            longest = best[-1]
    return set(longest)
