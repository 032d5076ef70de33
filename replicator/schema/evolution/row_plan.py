"""Plan how changelog rows of all times become rows of a mirror at one moment. Pure.

A changelog row has the columns of its time. What the source did to rows without an event (a default of an added column,
a conversion, a new key, a recreated table) is in the changelog's schema steps. From these follow, for each column of
the mirror, its value in rows from before each step, and in which part of the history which columns identify a row.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from replicator.errors import UnsupportedChange
from replicator.model.common import quoted
from replicator.model.position import PackedPosition, SourcePosition
from replicator.model.types import LakeType, spark_sql_name
from replicator.schema.evolution.steps import SchemaStep, SchemaSteps
from replicator.schema.history.versions import BEGINNING, GENERATION_SHIFT


@dataclass(frozen=True, slots=True)
class Earlier:
    """The value of a column in rows from before a schema change.

    Attributes:
        at: the binlog key of the change.
        fill: the value that existing rows got when the column was added, as text.
        source: the changelog column with the old values; None if the column was added.
        using: Spark SQL that computes the value from the old one, ``{0}``.
    """

    at: int
    fill: str | None = None
    source: str | None = None
    using: str | None = None


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """A column: its name, the changelog column with its values, and the values from before changes, newest first."""

    name: str
    stored: str
    earlier: tuple[Earlier, ...] = ()


@dataclass(frozen=True, slots=True)
class KeyEra:
    """A part of the history in which the same columns identify a row; none if the table had no key.

    It ends where the key changed, and where a statement removed rows without events.

    Attributes:
        start: the binlog key at which it begins.
        removed: which of the earlier rows a statement removed at its beginning, in Spark SQL; None for none. ``{0}``,
            ``{1}`` … are the columns `removed_by`.
    """

    start: int
    key: tuple[ColumnPlan, ...]
    removed: str | None = None
    removed_by: tuple[ColumnPlan, ...] = ()


@dataclass(frozen=True, slots=True)
class RowPlan:
    """How the rows of a changelog become those of a mirror.

    Attributes:
        columns: the columns of the mirror.
        eras: oldest first.
        recreated_at: the binlog key at which the source table was last recreated: earlier changes do not count.
    """

    columns: tuple[ColumnPlan, ...]
    eras: tuple[KeyEra, ...]
    recreated_at: int | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify a row at the end."""
        return tuple(column.name for column in self.eras[-1].key)

    @property
    def compares_positions(self) -> bool:
        """Whether rows from before and after some position must be handled differently."""
        return len(self.eras) > 1 or self.recreated_at is not None or any(c.earlier for c in self.columns)


def plan_rows(
    columns: Sequence[str],
    retired: Collection[str],
    steps: SchemaSteps,
    until: int | None = None,
    kept: Collection[int] = (),
) -> RowPlan:
    """Return the plan for a changelog with `columns`, of which `retired` ones are not in the source any more.

    With `until`, a binlog key, the columns are those of that time: of the newest step at or before it. `kept` are the
    binlog keys of statements after which the mirror kept its rows.

    Raises:
        UnsupportedChange: the schema steps are not recorded completely, or the result of a conversion or of another
            statement is not known.
    """
    if not steps.complete:
        raise UnsupportedChange(
            "the changelog was written by a version that did not record what the source did to existing rows",
            "take a new snapshot of the table: the changelog is complete from there on",
        )
    _refuse_unknown_rows(steps.steps, until, kept)
    history = steps.steps
    names, key = [name for name in columns if name not in retired], steps.key
    last = len(history)
    while last and until is not None and history[last - 1].at > until:
        last -= 1
        step = history[last]
        names = list(dict.fromkeys([*_before(step, names), *step.retired]))
        key = _key_before(step, key)
    known, stored = history[:last], set(columns)
    tracked = (_track(name, history, last) for name in names)
    return RowPlan(
        # Of a column that was added and dropped between two batches, the changelog has no values.
        tuple(column for column in tracked if column.stored in stored),
        _eras(history, last, key),
        max((step.at for step in known if step.recreated), default=None),
    )


def _refuse_unknown_rows(steps: Sequence[SchemaStep], until: int | None, kept: Collection[int]) -> None:
    """Raise UnsupportedChange if a statement changed rows without events, and no re-read by `until` shows which."""
    for step in steps:
        if (
            step.unlogged is None
            or step.removed is not None
            or step.at in kept
            or (until is not None and step.at > until)
        ):
            continue
        if step.known_from is None or (until is not None and until < step.known_from):
            raise UnsupportedChange(
                f"{step.unlogged} changed rows at {_position(step.at)}, no event tells which, and the table was "
                + (
                    "not read again"
                    if step.known_from is None
                    else f"read again only at {_position(step.known_from)}"
                ),
                "choose a position before the first one or from the last one on"
                if step.known_from is not None
                else "read the table again: replicator heal DATABASE.TABLE; or choose an earlier position: --as-of",
            )


def _position(at: int) -> SourcePosition:
    return PackedPosition(at & ((1 << GENERATION_SHIFT) - 1), 0).unpack()


def has_changed_since(steps: SchemaSteps, until: int) -> bool:
    """Return whether the source changed the table's columns or key after a binlog key."""
    return any(step.at > until for step in steps.steps)


def _eras(history: Sequence[SchemaStep], last: int, key: tuple[str, ...]) -> tuple[KeyEra, ...]:
    """Return the eras of the first `last` steps; `key` is the key after them."""
    found: list[KeyEra] = []
    end = last
    for index in range(last - 1, -1, -1):
        step = history[index]
        if step.key_before is not None or step.removed is not None:
            columns = tuple(_track(name, history, end) for name in key)
            found.append(_era(history, index, columns))
            for later in reversed(history[index:end]):
                key = _key_before(later, key)
            end = index
    found.append(KeyEra(BEGINNING, tuple(_track(name, history, end) for name in key)))
    return tuple(reversed(found))


def _era(history: Sequence[SchemaStep], index: int, key: tuple[ColumnPlan, ...]) -> KeyEra:
    """Return the era that begins with step `index`."""
    step = history[index]
    if step.removed is None:
        return KeyEra(step.at, key)
    columns = tuple(_track(name, history, index + 1) for name in step.removed.columns)
    return KeyEra(step.at, key, step.removed.where, columns)


def _track(name: str, history: Sequence[SchemaStep], end: int) -> ColumnPlan:
    """Return the plan for the column that is called `name` after the first `end` steps."""
    earlier: list[Earlier] = []
    now: str | None = name
    for index in range(end - 1, -1, -1):
        step = history[index]
        added = next((a for a in step.added if a.name == now), None)
        converted = next((c for c in step.converted if c.name == now), None)
        if step.recreated:
            # No row from before is left.
            break
        if added is not None:
            earlier.append(Earlier(added.at, fill=added.fill))
            break
        if converted is not None:
            if converted.using is None and step.unlogged is None:
                raise UnsupportedChange(
                    f"the source converted column {converted.was}, and the result for existing rows is not known",
                    "take a new snapshot of the table: the changelog is complete from there on",
                )
            source = _stored(converted.kept, history[index + 1 :])
            earlier.append(Earlier(step.at, source=source, using=converted.using))
        now = None if now is None else step.before(now)
    return ColumnPlan(name, _stored(name, history[end:]), tuple(earlier))


def _stored(name: str, later: Iterable[SchemaStep]) -> str:
    """Return the present name of the changelog column that was called `name` before the steps `later`."""
    for step in later:
        name = step.renamed.get(name, step.retired.get(name, name))
    return name


def _before(step: SchemaStep, names: Iterable[str]) -> list[str]:
    return [old for name in names if (old := step.before(name)) is not None]


def _key_before(step: SchemaStep, key: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(_before(step, key)) if step.key_before is None else step.key_before


def value_sql(column: ColumnPlan, types: Mapping[str, LakeType], values: str, position: str) -> str:
    """Return Spark SQL for the value of a column in a changelog row of any time.

    Args:
        types: those of the changelog's columns.
        values: the name of the struct with the values of these columns.
        position: Spark SQL of the binlog key of the change.
    """

    def value(stored: str, left: int) -> str:
        """Return the value in terms of the schema before the `left` newest changes."""
        own = quoted(values, stored)
        if left == len(column.earlier):
            return own
        earlier = column.earlier[left]
        if earlier.source is None or earlier.using is None:
            old = _literal(earlier.fill, types[stored])
        else:
            old = earlier.using.format(f"({value(earlier.source, left + 1)})")
        return f"CASE WHEN {position} >= {earlier.at} THEN {own} ELSE {old} END"

    return value(column.stored, 0)


def _literal(text: str | None, lake_type: LakeType) -> str:
    """Return Spark SQL for a value that is written as text; as bytes, because a text may have any characters."""
    kind = spark_sql_name(lake_type)
    if text is None:
        return f"CAST(NULL AS {kind})"
    return f"CAST(CAST(X'{text.encode().hex()}' AS STRING) AS {kind})"
