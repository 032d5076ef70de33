"""The schema changes of a changelog as far as they concern the rows of a mirror, from which a mirror is rebuilt.

A changelog has each change as the source logged it. Some statements change rows without an event: an added column has
a default, a type is converted, a table is recreated. What they did is recorded here, as a property of the changelog, in
the same commit as the change of its columns. Column names in a step are those after the step.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Final

from replicator.model.recorded import UNLESS_EMPTY, UNLESS_NONE, Record, checked_by, checked_sql
from replicator.schema.evolution.changes import AddColumn, ChangeType, RenameColumn, RetireColumn, SchemaState
from replicator.schema.evolution.plan import Plan
from replicator.schema.history.partitions import RowCondition
from replicator.schema.history.versions import SchemaHistory
from replicator.schema.types.native import cast

STEPS_KEY: Final = "replicator.schema-steps"
"""Table property of a changelog: `SchemaSteps`."""

_REMEMBERED: Final = 1000
_NOTHING: Final[Mapping[int, RowCondition]] = {}
_HARMLESS: Final = ("rename column ", "widen column ", "keep dropped column ", "move column ", "ignored: ")
"""Beginnings of notes about changes that need no step."""


def _checked_expression(sql: str | None) -> str | None:
    return None if sql is None else checked_sql(sql, 1)


def _checked_condition(rows: RowCondition | None) -> RowCondition | None:
    return rows and replace(rows, where=checked_sql(rows.where, len(rows.columns)))


@dataclass(frozen=True, slots=True)
class Added:
    """A column that the source added.

    Attributes:
        at: the binlog key of the statement.
        fill: the value that existing rows got, as text; None for NULL, and for a value that no event contains.
    """

    name: str
    at: int
    fill: str | None


@dataclass(frozen=True, slots=True)
class Converted:
    """A column whose values the source converted.

    Attributes:
        name: the column with the new values.
        kept: the column of the changelog with the old values; `name` if the type of the column did not change.
        was: the name of the column before the step.
        using: Spark SQL that computes the new value from the old one, ``{0}``; None for NULL. If the step has a
            statement `unlogged`, this is a guess, and the changes from `known_from` on have the values that differ.
    """

    name: str
    kept: str
    was: str
    using: Annotated[str | None, checked_by(_checked_expression)]


@dataclass(frozen=True, slots=True)
class SchemaStep:
    """The changes of one version of a source table.

    Attributes:
        at: the binlog key from which rows have the new schema.
        renamed: old name → new name, of columns that continue.
        retired: old name → the name under which the changelog keeps a column that the source dropped or converted.
        key_before: the key before the step if it changed; None if it did not.
        recreated: whether the source table was dropped and recreated, so that no earlier row is left.
        unlogged: the statement with which the version begins if it changed rows without events; None if the mirror
            keeps its rows.
        known_from: the binlog key at which the table was read again. From there on, the changelog has what the
            statement did. None if the table was not read again.
        removed: which rows the statement `unlogged` removed, if the mirror follows it; else None.
    """

    at: int
    added: Annotated[tuple[Added, ...], UNLESS_EMPTY] = ()
    renamed: Annotated[Mapping[str, str], UNLESS_EMPTY] = field(default_factory=dict)
    retired: Annotated[Mapping[str, str], UNLESS_EMPTY] = field(default_factory=dict)
    converted: Annotated[tuple[Converted, ...], UNLESS_EMPTY] = ()
    # A table that had no key has an empty one.
    key_before: Annotated[tuple[str, ...] | None, UNLESS_NONE] = None
    recreated: Annotated[bool, UNLESS_EMPTY] = False
    unlogged: Annotated[str | None, UNLESS_EMPTY] = None
    known_from: Annotated[int | None, UNLESS_EMPTY] = None
    removed: Annotated[RowCondition | None, UNLESS_EMPTY, checked_by(_checked_condition)] = None

    def __bool__(self) -> bool:
        return bool(self.added or self.renamed or self.retired or self.converted or self.recreated) or (
            self.key_before is not None or self.unlogged is not None
        )

    def before(self, name: str) -> str | None:
        """Return the name that a column had before the step; None if the step added it."""
        for converted in self.converted:
            if converted.name == name:
                return converted.was
        if any(added.name == name for added in self.added):
            return None
        old = {new: was for was, new in (*self.renamed.items(), *self.retired.items())}
        return old.get(name, name)


@dataclass(frozen=True, slots=True)
class SchemaSteps(Record):
    """All steps of a changelog, oldest first.

    Attributes:
        key: the key of the source table now.
        complete: whether no earlier step is missing, except harmless ones.
        forgotten: the newest step that is missing because there were too many; None for none.
    """

    WHAT = "schema steps"
    SEPARATORS = (",", ":")
    key: tuple[str, ...]
    steps: tuple[SchemaStep, ...] = ()
    complete: bool = True
    forgotten: Annotated[int | None, UNLESS_NONE] = None

    @property
    def followed(self) -> int | None:
        """The newest statement that the mirror follows by deleting rows; None if there is none."""
        return max((step.at for step in self.steps if step.removed is not None), default=None)

    def followed_by(self, new: Sequence[SchemaStep], key: tuple[str, ...]) -> "SchemaSteps":
        """Return the steps after further ones, with which the key may have changed: with the first one then."""
        carried = self.key
        for step in new:
            carried = tuple(step.renamed.get(name, name) for name in carried)
        if set(carried) != set(key):
            new = [replace(new[0], key_before=self.key), *new[1:]]
        steps = (*self.steps, *filter(None, new))
        if len(steps) <= _REMEMBERED:
            return SchemaSteps(key, steps, self.complete, self.forgotten)
        return SchemaSteps(key, steps[-_REMEMBERED:], False, steps[-_REMEMBERED - 1].at)

    def read_again(self, at: int) -> "SchemaSteps":
        """Return the steps after the table was read again at the binlog key `at`."""
        steps = (
            replace(step, known_from=at)
            if step.unlogged and step.removed is None and step.known_from is None
            else step
            for step in self.steps
        )
        return replace(self, steps=tuple(steps))


def steps_before(state: SchemaState | None, key: tuple[str, ...]) -> SchemaSteps:
    """Return the steps of a changelog that an earlier version of the engine wrote without recording them."""
    notes = () if state is None else state.notes
    lines = [line for note in notes for line in note.changes]
    return SchemaSteps(key, complete=all(line.startswith(_HARMLESS) for line in lines))


def new_steps(
    history: SchemaHistory,
    known_at: int,
    target: int,
    live: Iterable[str],
    planned: Plan,
    *,
    keeps: bool = False,
    removed: Mapping[int, RowCondition] = _NOTHING,
) -> list[SchemaStep]:
    """Return the steps of a changelog from the version at `known_at` to version `target` of its source table.

    One step for each version, so that the changelog says which columns the table had at any position.

    Args:
        live: the columns of the changelog that were not retired before.
        planned: the changes of the changelog, which follow all versions at once.
        keeps: whether the mirror keeps rows that statements changed without events. It cannot keep a column's type.
        removed: `at` of a version → the rows that its statement removes, of statements that the mirror follows.
    """
    news = [i for i in range(target + 1) if history.versions[i].at > known_at]
    if not news:
        return [
            _with_statement(replace(step, unlogged=None))
            for step in _Versions(history, target, target).steps(live, planned)
        ]
    found = _Versions(history, news[0], target).steps(live, planned)
    found = [replace(step, removed=removed.get(step.at)) for step in found]
    return [
        replace(step, unlogged=None) if keeps and step.removed is None and not step.converted else step
        for step in found
    ]


class _Versions:
    """The steps of the versions `first` to `target` of a table, which a changelog follows at once."""

    def __init__(self, history: SchemaHistory, first: int, target: int) -> None:
        self._history = history
        self._first = first
        self._target = target
        versions = history.versions[first : target + 1]
        self._steps = {
            first + i: SchemaStep(v.at, renamed={}, retired={}, recreated=v.recreated, unlogged=v.unlogged)
            for i, v in enumerate(versions)
        }

    def steps(self, live: Iterable[str], planned: Plan) -> list[SchemaStep]:
        """Return a step for each version."""
        known = set(live)
        kept = {c.name: c.kept for c in planned.changes if isinstance(c, RetireColumn)}
        renamed = {c.name: c.new for c in planned.changes if isinstance(c, RenameColumn)}
        converted = {c.was: c for c in planned.converted}
        for name in known:
            if name in converted:
                self._convert(name, converted[name], kept[name])
            else:
                self._continue(name, renamed.get(name, name), kept.get(name))
        for name, now in kept.items():
            if name not in known and name != now:
                self._rename(self._first, name, now)
        fresh = {c.name for c in planned.converted}
        for change in planned.changes:
            if isinstance(change, AddColumn) and change.column.name not in fresh:
                self._add(change)
        return [_with_statement(self._steps[i]) for i in sorted(self._steps)]

    def _names_forward(self, name: str) -> list[tuple[int, str]]:
        """Return (version, name) of a column that the version before the first one has, as long as it exists."""
        found, now = [(self._first - 1, name)], name
        for i in range(self._first, self._target + 1):
            carried = self._history.versions[i].carried
            if now not in carried:
                break
            now = carried[now]
            found.append((i, now))
        return found

    def _names_backward(self, name: str) -> list[tuple[int, str]]:
        """Return (version, name) of a column of the last version, from the version that added it."""
        found = [(self._target, name)]
        for i in range(self._target, self._first, -1):
            before = {now: was for was, now in self._history.versions[i].carried.items()}
            if name not in before:
                break
            name = before[name]
            found.append((i - 1, name))
        return found[::-1]

    def _continue(self, name: str, new: str, kept: str | None) -> None:
        """Add a column that continues as `new`, or that is retired as `kept`."""
        names = self._names_forward(name)
        dropped = len(names) <= self._target - self._first + 1
        if (kept is not None) != dropped or (kept is None and names[-1][1] != new):
            # The configured policies ignore a change, or no version knows the column.
            names = [(self._first - 1, name)]
            if kept is None:
                self._rename(self._first, name, new)
                return
        self._rename_over(names)
        if kept is not None:
            last, now = names[-1]
            self._change(last + 1, retired={now: kept})

    def _convert(self, name: str, change: ChangeType, kept: str) -> None:
        """Add a column whose values the first version converts."""
        names = self._names_backward(change.name)
        complete = names[0][0] == self._first
        now = names[0][1] if complete else change.name
        added = Converted(now, kept, name, cast(change.old, change.new))
        self._change(self._first, converted=(added,), retired={name: kept})
        if complete:
            self._rename_over(names)

    def _add(self, change: AddColumn) -> None:
        names = self._names_backward(change.column.name)
        at, name = names[0]
        self._change(at, added=(Added(name, self._history.versions[at].at, change.column.fill),))
        self._rename_over(names)

    def _rename_over(self, names: Sequence[tuple[int, str]]) -> None:
        for (_, was), (i, now) in pairwise(names):
            self._rename(i, was, now)

    def _rename(self, version: int, was: str, now: str) -> None:
        if was != now:
            self._change(version, renamed={was: now})

    def _change(
        self,
        version: int,
        *,
        added: tuple[Added, ...] = (),
        renamed: Mapping[str, str] | None = None,
        retired: Mapping[str, str] | None = None,
        converted: tuple[Converted, ...] = (),
    ) -> None:
        step = self._steps[version]
        self._steps[version] = replace(
            step,
            added=(*step.added, *added),
            renamed={**step.renamed, **(renamed or {})},
            retired={**step.retired, **(retired or {})},
            converted=(*step.converted, *converted),
        )


def _with_statement(step: SchemaStep) -> SchemaStep:
    """Return a step with a statement that changed rows if it converts a column, also if events alone show that."""
    if not step.converted or step.recreated or step.unlogged is not None:
        return step
    return replace(step, unlogged=f"another type of {step.converted[0].name}")
