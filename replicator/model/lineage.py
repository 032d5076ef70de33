"""How a source table's definition changed over time, and which column of one time is which of another.

A column keeps its identity when it is renamed, moved or retyped, and loses it when it is dropped: one of the same
name that is added later is another column. So names are compared only between neighbours in time, where the
statement that was executed is known, and carried on from there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from replicator.model.conversion import needs_rewrite
from replicator.model.position import FILE_SHIFT, SourcePosition
from replicator.model.table import Column, TableId, TableSchema


@dataclass(frozen=True, slots=True)
class ColumnMoves:
    """What one statement did to column names: `renamed` as (old, new), and those `dropped`; a name may be in both."""

    renamed: tuple[tuple[str, str], ...] = ()
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """How a table was defined from `position` on.

    Attributes:
        schema: None where the table was dropped there.
        moves: what the statement says about columns; None where it says nothing, or there was none.
        natives: column → the source's type, such as ``DATETIME(3)``, by the names in `schema`.
        other_name: the table's name before, where it was renamed there; of one without a schema, its name after.
        snapshot: read by a connector's snapshot, which drops and creates tables in words only.
    """

    table: TableId
    position: SourcePosition
    ts_ms: int
    schema: TableSchema | None
    moves: ColumnMoves | None = None
    natives: Mapping[str, str] = field(default_factory=dict)
    other_name: TableId | None = None
    snapshot: bool = False

    @property
    def at(self) -> int:
        """The position as decoded frames have it (`hi`)."""
        return place(self.position)


def place(position: SourcePosition) -> int:
    """Binlog file number and position in one number, which orders events of one server."""
    number, pos, _ = position.order
    return (number << FILE_SHIFT) + pos


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A table's definition between two changes.

    Attributes:
        at: the first place (`place`) where it holds.
        position, ts_ms: the same for people, and the source's time.
        carried: name in the version before → name here, of the columns that go on.
        anew: the table was dropped and created again: no row from before is left.
        natives: see `TableDefinition`.
        left_as: what the table is called now that had this name before, and was renamed; then `anew` too.
        took_over_from: the table that took this one's name and place, as tools do that copy tables.
        renamed_from: what the table was called before; its rows went along.
        told: the source's definition says so; else it was seen in the events, and a column that went while another
            came is taken for dropped.
    """

    at: int
    position: SourcePosition
    ts_ms: int
    schema: TableSchema
    carried: Mapping[str, str]
    anew: bool = False
    natives: Mapping[str, str] = field(default_factory=dict)
    left_as: TableId | None = None
    took_over_from: TableId | None = None
    renamed_from: TableId | None = None
    told: bool = True


@dataclass(frozen=True, slots=True)
class Gone:
    """The end of a table: it was dropped, or is called `renamed_to` now. Places as in `SchemaVersion`."""

    at: int
    position: SourcePosition
    ts_ms: int
    renamed_to: TableId | None

    def __str__(self) -> str:
        return (
            "dropped in the source"
            if self.renamed_to is None
            else f"renamed to {self.renamed_to} in the source"
        )


BEGINNING: Final = -1
"""A place before all others."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """The versions of a table, oldest first; a place before the first belongs to the first.

    Attributes:
        gone: its end, None while the source has it.
        own: the first version that has the table's present name; those before are of what it was renamed from.
    """

    versions: tuple[SchemaVersion, ...] = ()
    gone: Gone | None = None
    own: int = 0

    def __bool__(self) -> bool:
        return bool(self.versions)

    def index_at(self, at: int) -> int:
        """The version in force at a place."""
        return max((i for i, v in enumerate(self.versions) if v.at <= at), default=0)

    @property
    def own_versions(self) -> tuple[SchemaVersion, ...]:
        """The versions under the table's present name."""
        return self.versions[self.own :]

    def after(self, at: int) -> tuple[SchemaVersion, ...]:
        """The versions that came after a place."""
        return tuple(v for v in self.versions if v.at > at)

    def carry(self, old: int, new: int) -> dict[str, str]:
        """Column of version `old` → its name in version `new`; those that were dropped meanwhile are left out."""
        names = {name: name for name in self.versions[old].schema.names}
        for version in self.versions[old + 1 : new + 1]:
            names = {n: version.carried[now] for n, now in names.items() if now in version.carried}
        return names

    def last_name(self, old: int, new: int, name: str) -> str | None:
        """What a column of version `old` is called in `new`, or was called when it went; None where another is now."""
        now = name
        for at in range(old + 1, new + 1):
            if now not in self.versions[at].carried:
                later = any(now in v.schema.names for v in self.versions[at : new + 1])
                return None if later else now
            now = self.versions[at].carried[now]
        return now

    def _last_names(self, since: int, index: int) -> Iterator[str]:
        """What each column that some version from `since` to `index` has is called at last, or was when it went."""
        live = set(self.versions[since].schema.names)
        for version in self.versions[since + 1 : index + 1]:
            yield from live - version.carried.keys()
            live = set(version.schema.names)
        yield from live

    def carry_lake(self, at: int, new: int, live: Iterable[str]) -> dict[str, str]:
        """The same for the `live` columns of a lake table that was made to fit the source at a place.

        Columns that no version of that time has are followed by their names alone.
        """
        if not self.versions or self.versions[0].at > at:
            old, known = -1, frozenset[str]()
            carried: dict[str, str] = {}
        else:
            old = min(self.index_at(at), new)
            known = frozenset(self.versions[old].schema.names)
            carried = self.carry(old, new)
        target, taken = set(self.versions[new].schema.names), set(carried.values())
        found: dict[str, str] = {}
        for name in live:
            if name in known:
                if name in carried:
                    found[name] = carried[name]
            elif name in target and name not in taken:
                found[name] = name
        return found

    def added(self, new: int) -> dict[str, Column]:
        """Column of version `new` → what it was like when it was added; the table always had those not named here."""
        found: dict[str, Column] = {}
        names = {name: name for name in self.versions[new].schema.names}
        for version in reversed(self.versions[1 : new + 1]):
            before = {now: was for was, now in version.carried.items()}
            columns = {c.name: c for c in version.schema.columns}
            found |= {name: columns[then] for name, then in names.items() if then not in before}
            names = {name: before[then] for name, then in names.items() if then in before}
        return found

    def is_barrier(self, index: int, since: int) -> bool:
        """Whether what comes from version `index` on must not be applied together with what came before it.

        `since` is the version that the lake has then.
        """
        version = self.versions[index]
        if index == 0:
            return False
        old = self.versions[index - 1]
        if version.anew or _keys(old.schema.key, version.carried) != set(version.schema.key):
            return True
        fresh = set(version.schema.names) - set(version.carried.values())
        if any(fresh.intersection(v.schema.names) for v in self.versions[since:index]):
            return True
        called = [*self._last_names(since, index)]
        if len(set(called)) < len(called):
            return True
        return any(
            _converted(old, was, version, now)
            for was, now in version.carried.items()
            if was in old.schema.names
        )


def _keys(key: Sequence[str], carried: Mapping[str, str]) -> set[str | None]:
    return {carried.get(name) for name in key}


def _converted(old: SchemaVersion, was: str, new: SchemaVersion, now: str) -> bool:
    """Whether the source rewrote the values of a column in a way that its lake type does not follow by itself."""
    before, after = old.schema.column(was), new.schema.column(now)
    if before is None or after is None:
        return False
    return needs_rewrite(before.type, after.type, old.natives.get(was), new.natives.get(now))


def lineage(definitions: Sequence[TableDefinition], past: Lineage | None = None) -> Lineage:
    """The versions that `definitions` of one table, in the order of their positions, make.

    `past` is what the table went through under another name, where the first of them renamed it.
    """
    versions: list[SchemaVersion] = [] if past is None else list(past.versions)
    own, gone = len(versions), None
    for d in definitions:
        if versions and d.at <= versions[-1].at:
            continue  # It is sent again. Names that were exchanged once would be exchanged back.
        begun = len(versions) > own
        if d.schema is None:
            if begun and not d.snapshot:
                gone = Gone(d.at, d.position, d.ts_ms, d.other_name)
            continue
        if not begun:
            carried = carried_names(versions[-1].schema, d.schema, d.moves) if versions else {}
            version = _version(d, d.schema, carried)
            versions.append(replace(version, took_over_from=None, renamed_from=d.other_name))
        elif gone is not None and d.other_name is None:
            last = versions[-1].schema
            carried = {n: n for n in d.schema.names if n in last.names}
            version = _version(d, d.schema, carried)
            versions.append(replace(version, anew=not d.snapshot, left_as=gone.renamed_to))
        else:
            last, carried = versions[-1].schema, carried_names(versions[-1].schema, d.schema, d.moves)
            same = (d.schema, dict(d.natives)) == (last, dict(versions[-1].natives))
            if not same or _moved(carried, d.schema) or gone is not None or d.other_name is not None:
                versions.append(_version(d, d.schema, carried))
        gone = None
    return Lineage(tuple(versions), gone, own)


def _moved(carried: Mapping[str, str], schema: TableSchema) -> bool:
    return any(was != now for was, now in carried.items()) or len(carried) < len(schema.columns)


def _version(d: TableDefinition, schema: TableSchema, carried: Mapping[str, str]) -> SchemaVersion:
    return SchemaVersion(
        d.at, d.position, d.ts_ms, schema, carried, natives=d.natives, took_over_from=d.other_name
    )


def carried_names(old: TableSchema, new: TableSchema, moves: ColumnMoves | None) -> dict[str, str]:
    """Column of `old` → its name in `new`, as `moves` tell; without them a name means the same column.

    The source does not tell apart names that differ in letter case only.
    """
    here = {c.written.casefold(): c.name for c in new.columns}
    moves = moves or ColumnMoves()
    renamed = {was.casefold(): now.casefold() for was, now in moves.renamed}
    dropped = {name.casefold() for name in moves.dropped}
    found: dict[str, str] = {}
    for column in old.columns:
        name = column.written.casefold()
        if name in renamed:
            now = here.get(renamed[name])
        elif name in dropped:
            now = None
        else:
            now = here.get(name)
        if now is not None and now not in found.values():
            found[column.name] = now
    return found


def seen(line: Lineage, at: SourcePosition, ts_ms: int, schema: TableSchema) -> Lineage:
    """`line` with a version that only the events show."""
    last = line.versions[-1].schema if line else TableSchema(())
    version = SchemaVersion(place(at), at, ts_ms, schema, carried_names(last, schema, None), told=False)
    return replace(line, versions=(*line.versions, version))
