"""Plan the changes that turn a lake table's schema into the one that a schema version needs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

from replicator.errors import UnknownValues, UnloggedChange, UnsupportedChange
from replicator.model.table import Column, TableSchema
from replicator.model.types import LakeType
from replicator.schema.evolution.changes import (
    AddColumn,
    ChangeKey,
    ChangeKind,
    ChangeType,
    DeleteRows,
    DropColumn,
    KeepRows,
    MoveColumn,
    Policy,
    Recreate,
    RenameColumn,
    RequireValues,
    RetireColumn,
    SchemaChange,
    UnloggedPolicy,
    WidenType,
)
from replicator.schema.types.native import fits_in_place

Policies = Mapping[ChangeKind, Policy | UnloggedPolicy]

_READ_AGAIN: Final = "read the table again: replicator heal DATABASE.TABLE"

EVOLVE: Final[Policies] = {}
"""Every kind of change is applied."""


@dataclass(frozen=True, slots=True)
class LakeSide:
    """The current schema of a lake table.

    Attributes:
        columns: name → type, in order; primitive ones only.
        retired: columns that the source dropped.
        key: the key of the schema version that the table has.
        users: the user columns: those that others added. `columns` does not contain them.
        nullable: columns that may be NULL in that version, if known.
    """

    columns: Mapping[str, LakeType]
    retired: frozenset[str] = frozenset()
    key: tuple[str, ...] = ()
    users: frozenset[str] = frozenset()
    nullable: frozenset[str] = frozenset()

    @property
    def live(self) -> tuple[str, ...]:
        """The columns that are not retired."""
        return tuple(name for name in self.columns if name not in self.retired)


@dataclass(frozen=True, slots=True)
class SourceSide:
    """The target schema, as the source has it.

    Attributes:
        schema: its columns, in order, with their types in the lake.
        carried: lake column → its name in `schema`, of columns that continue to exist.
        recreated: whether the table was dropped and recreated.
        unlogged: the statements since then that changed rows without events; `DeleteRows` for those that are followed.
    """

    schema: TableSchema
    carried: Mapping[str, str]
    recreated: bool = False
    unlogged: tuple[KeepRows | DeleteRows, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned evolution.

    Attributes:
        changes: the changes to apply, in this order.
        ignored: changes that are not applied because of the configured policies.
        retired: the retired columns after the changes.
        converted: of a changelog, the changes of type that it keeps old columns for.
    """

    changes: tuple[SchemaChange, ...]
    ignored: tuple[SchemaChange, ...]
    retired: tuple[str, ...]
    converted: tuple[ChangeType, ...] = ()


def plan(
    lake: LakeSide, source: SourceSide, policies: Policies = EVOLVE, *, rows_known: bool = False
) -> Plan:
    """Plan the evolution of a mirror.

    Once the changes were applied, another plan has no changes. With `rows_known`, all rows are then replaced by those
    of the source, so changes of unknown values are allowed.

    Raises:
        UnknownValues: existing rows got values that no log contains.
        UnloggedChange: a statement changed rows without events.
        UnsupportedChange: a change cannot be applied, or its policy is "fail" or "pause".
    """
    found = _Planner(lake, source, policies, additive=False, rows_known=rows_known).plan()
    _refuse_names_of_users(lake, found.changes)
    return found


def changelog_plan(
    lake: LakeSide, source: SourceSide, extra: Sequence[Column] = (), policies: Policies = EVOLVE
) -> Plan:
    """Plan the evolution of a changelog, including the columns `extra` of older events.

    A changelog is never rewritten: a column that the source drops is kept, and one that gets another type is kept under
    another name beside a new column.

    Raises:
        UnsupportedChange: a change cannot be applied, or its policy is "fail".
    """
    planner = _Planner(lake, source, policies, additive=True)
    found = planner.plan()
    added = {c.column.name for c in found.changes if isinstance(c, AddColumn)}
    gone = {c.name for c in found.changes if isinstance(c, RenameColumn)}
    present = (set(lake.columns) - gone) | {c.new for c in found.changes if isinstance(c, RenameColumn)}
    present |= added | {c.kept for c in found.changes if isinstance(c, RetireColumn)}
    last = (*source.schema.names, None)[-2] if source.schema.names else None
    more = [AddColumn(c, last) for c in extra if c.name not in present]
    retired = (*found.retired, *(c.column.name for c in more))
    _refuse_names_of_users(lake, [*found.changes, *more])
    return Plan((*found.changes, *more), found.ignored, retired, tuple(planner.converted))


def _refuse_names_of_users(lake: LakeSide, changes: Sequence[SchemaChange]) -> None:
    """Check that no column gets the name of a user column. Spark ignores letter case.

    Raises:
        UnsupportedChange: a column gets such a name.
    """
    users = {name.casefold(): name for name in lake.users}
    for name in new_names(changes):
        if (theirs := users.get(name.casefold())) is not None:
            raise UnsupportedChange(
                f"the source has a column {name} now, and others added a column {theirs} to the lake table",
                f"rename or drop the column {theirs} in the lake; then run: replicator reload",
            )


def new_names(changes: Sequence[SchemaChange]) -> Iterator[str]:
    """Yield the names of new and renamed columns."""
    for change in changes:
        match change:
            case AddColumn(column=column):
                yield column.name
            case RenameColumn(new=name):
                yield name
            case RetireColumn(name=name, kept=kept) if kept != name:
                yield kept
            case _:
                pass


class _Planner:
    def __init__(
        self,
        lake: LakeSide,
        source: SourceSide,
        policies: Policies,
        *,
        additive: bool,
        rows_known: bool = False,
    ) -> None:
        self.lake, self.source, self.policies, self.additive = lake, source, policies, additive
        self.rows_known = rows_known
        self.ignored: list[SchemaChange] = []
        self.converted: list[ChangeType] = []
        live = set(lake.live)
        wanted = set(source.schema.names)
        carried = {was: now for was, now in source.carried.items() if was in live and now in wanted}
        if self._policy("rename") == "ignore":
            dismissed = {was: now for was, now in carried.items() if was != now}
            self.ignored += [RenameColumn(was, now) for was, now in dismissed.items()]
            carried = {was: now for was, now in carried.items() if was == now}
        self.carried = carried
        # Column of the source → column of the lake that has its values.
        self.origin = {now: was for was, now in carried.items()}
        self.retired = list(dict.fromkeys(n for n in lake.columns if n in lake.retired))

    def plan(self) -> Plan:
        types = self._types()
        kept = self._kept()
        self._refuse_conversions(types)
        names = self._names({c.name for c in types if isinstance(c, RetireColumn)})
        adds = self._adds()
        fresh = {c.name for c in types if isinstance(c, ChangeType)}
        moves = [] if self.additive else self._moves(adds, fresh)
        changes = self._wanted([Recreate()]) if self.source.recreated and not self.additive else []
        changes += kept
        changes += names
        changes += [c for c in types if not isinstance(c, RetireColumn)]
        # In the source's order, so that the column after which another is placed has its final position already.
        order = {name: i for i, name in enumerate(self.source.schema.names)}
        changes += sorted([*adds, *self._wanted(moves)], key=lambda c: order[_placed(c)])
        changes += self._wanted(self._key())
        return Plan(tuple(changes), tuple(self.ignored), tuple(self.retired))

    def _policy(self, kind: ChangeKind) -> Policy | UnloggedPolicy:
        return self.policies.get(kind, "evolve")

    def _kept(self) -> list[SchemaChange]:
        """Return the statements that changed rows without events if the mirror follows them, or keeps the rows.

        Raises:
            UnloggedChange: it does neither.
        """
        unlogged = self.source.unlogged
        if self.additive or self.rows_known:
            return []
        unknown = [change for change in unlogged if isinstance(change, KeepRows)]
        if not unknown or keeps_rows(self.policies):
            return [*unlogged]
        first = unknown[0]
        raise UnloggedChange(
            f"{first.statement} changed rows at {first.position}, and no event tells which",
            f'{_READ_AGAIN}; or keep the rows: set schema_changes = {{ unlogged = "keep" }} for the table and run: '
            "replicator reload",
        )

    def _wanted(self, changes: Sequence[SchemaChange]) -> list[SchemaChange]:
        """Return those of `changes` that the policies allow.

        Raises:
            UnsupportedChange: the policy of one is "fail".
        """
        found: list[SchemaChange] = []
        for change in changes:
            match self._policy(change.kind):
                case "fail" if not isinstance(change, WidenType):
                    raise UnsupportedChange(
                        f'schema change in the source: {change}; the policy for {change.kind} is "fail"',
                        f'to apply it, set schema_changes = {{ {change.kind} = "evolve" }} for the table '
                        "and run: replicator reload",
                    )
                case "ignore" if not isinstance(change, WidenType):
                    self.ignored.append(change)
                case _:
                    found.append(change)
        return found

    def _names(self, converted: set[str]) -> list[SchemaChange]:
        """Plan dropped, retired and renamed columns; `converted` ones are retired in favor of new columns."""
        found: list[SchemaChange] = []
        wanted = set(self.source.schema.names)
        taken = wanted | set(self.lake.columns) | self.lake.users
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
            if was in self.lake.nullable and not column.nullable and not self._needs_no_values:
                found.append(RequireValues(column.name, was))
            old = self.lake.columns[was]
            if fits_in_place(old, column.type):
                found += [] if old.holds(column.type) else [WidenType(column.name, old, column.type)]
                continue
            change = ChangeType(column.name, was, old, column.type)
            wanted = self._wanted([change])
            if self.additive:
                self.converted.append(change)
                found.append(RetireColumn(was, was))
                del self.origin[column.name], self.carried[was]
            else:
                found += wanted
        return found

    @property
    def _needs_no_values(self) -> bool:
        """Whether existing rows stay as they are, are replaced, or are deleted."""
        return self.additive or self.rows_known or self.source.recreated

    def _refuse_conversions(self, types: Sequence[SchemaChange]) -> None:
        """Raise UnknownValues if existing rows got values of another type, which no event has."""
        for change in types:
            if isinstance(change, ChangeType) and not self._needs_no_values:
                raise UnknownValues(
                    f"column {change.was} is {change.old} in the lake and now {change.new} in the source: no event has "
                    "the new values of existing rows",
                    _READ_AGAIN,
                )

    def _adds(self) -> list[SchemaChange]:
        found: list[SchemaChange] = []
        previous: str | None = None
        for column in self.source.schema.columns:
            if column.name not in self.origin:
                if column.fill_unknown and not self._needs_no_values:
                    self._refuse_unfilled(column.name)
                found += self._wanted([AddColumn(column, previous)])
                if not (found and found[-1] == AddColumn(column, previous)):
                    continue
            previous = column.name
        return found

    def _refuse_unfilled(self, name: str) -> None:
        """Raise UnknownValues if the table must pause for a column whose values in existing rows no event has."""
        if self.policies.get("unlogged") == "pause":
            raise UnknownValues(
                f"no event has the values that existing rows got in the new column {name}",
                _READ_AGAIN,
            )

    def _moves(self, adds: Sequence[SchemaChange], fresh: set[str]) -> list[SchemaChange]:
        """Plan moves that bring the columns into the source's order: few of them, and none of most columns.

        `fresh` columns are moved to the positions of those that they replace.
        """
        added = {c.column.name for c in adds if isinstance(c, AddColumn)}
        wanted = [name for name in self.source.schema.names if name in self.origin]
        present = [self.carried[n] for n in self.lake.columns if n in self.carried]
        blocks = SequenceMatcher(None, present, wanted, autojunk=False).get_matching_blocks()
        staying = {name for start, _, size in blocks for name in present[start : start + size]}
        found: list[SchemaChange] = []
        previous: str | None = None
        for name in self.source.schema.names:
            if name in fresh or (name in self.origin and name not in staying):
                found.append(MoveColumn(name, previous))
            if name in self.origin or name in added:
                previous = name
        return found

    def _key(self) -> list[SchemaChange]:
        key = tuple(self.carried.get(name, name) for name in self.lake.key)
        wanted = self.source.schema.key
        if self.additive or set(key) == set(wanted):
            return []
        lacking = [n for n in wanted if n not in self.origin and not self.source.recreated]
        if lacking and self.lake.columns and not self.rows_known:
            raise UnknownValues(
                f"the key is now ({', '.join(wanted)}), and {', '.join(lacking)} was added with it: "
                "no event contains its values in existing rows",
                _READ_AGAIN,
            )
        return [ChangeKey(key, wanted)] if key else []


def keeps_rows(policies: Policies) -> bool:
    """Return whether a mirror keeps rows that statements changed in the source without events."""
    return policies.get("unlogged") == "keep"


def heals_rows(policies: Policies) -> bool:
    """Return whether the mirror may read a table again by itself, once a change made its rows unknown."""
    return policies.get("unlogged", "reread") in ("reread", "follow")


def follows_rows(policies: Policies) -> bool:
    """Return whether a mirror deletes the rows of partitions that statements removed in the source without events."""
    return policies.get("unlogged") == "follow"


def _placed(change: SchemaChange) -> str:
    """Return the column that a change adds or moves."""
    return change.column.name if isinstance(change, AddColumn) else getattr(change, "name", "")


def _word(lake_type: LakeType) -> str:
    """Return a type as part of a column name."""
    if lake_type.name == "decimal":
        return f"decimal_{lake_type.precision}_{lake_type.scale}"
    return lake_type.name
