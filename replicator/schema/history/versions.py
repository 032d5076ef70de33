"""Versions of a source table's definition, with the identity and the names of each column over time.

A column keeps its identity when it is renamed, moved or retyped, and loses it when it is dropped: a column of the same
name that is added later is another one. So names are compared only between consecutive versions, for which the executed
statement is known; longer mappings are composed of these.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from replicator.model.column_history import ColumnHistory
from replicator.model.position import SourcePosition
from replicator.model.table import Column, SourceName, TableId, TableSchema
from replicator.schema.ddl.effects import ColumnMoves, KeyChange, PartitionChange, PartitionLayout
from replicator.schema.history.keys import TableKeys
from replicator.schema.history.order import Boundary, VersionStart, binlog_key
from replicator.schema.history.partitions import PartitionCondition
from replicator.schema.types.native import fits_in_place, keeps_values

GENERATION_SHIFT: Final = 63
"""Bits of `TableDefinition.at` for the position."""


@dataclass(frozen=True, slots=True)
class TableDefinition:
    """The definition of a table from `position` on.

    Attributes:
        schema: None if the table was dropped at this position.
        moves: the statement's effect on column names; None if it has none, or if there was no statement.
        source_types: column → source type, such as ``DATETIME(3)``; names as in `schema`.
        other_name: the table's previous name if it was renamed at this position; without a schema, its new name.
        snapshot: whether a connector's snapshot read it; its DROP and CREATE statements were not executed.
        passing: whether the table had the name `other_name` only within a statement; no definition has that name.
        key_change: the statement's effect on the table's keys.
        keys: the keys before the statement, if the table has them from another one: that like which it was created, or
            that replaced it.
        only_statement: whether there is only a statement, which changed keys or rows; `schema` is None, and the columns
            are those of the previous definition.
        unlogged: the statement if it changed rows of the table without events.
        generated: casefolded name of each column that the statement defines → whether it is a generated one.
        partitions: the statement's effect on the table's partitions; None if it has none.
        whole_database: whether all tables of the database were dropped; `table` has no name then.
        generation: the generation of the binlog; see `DefinitionClock`.
        recollated: whether the statement may give columns another character set or collation.
        recovered: whether the connector read it only to rebuild its schema history, and continued where it had ended.
    """

    table: TableId
    position: SourcePosition
    ts_ms: int
    schema: TableSchema | None
    moves: ColumnMoves | None = None
    source_types: Mapping[str, str] = field(default_factory=dict)
    other_name: TableId | None = None
    snapshot: bool = False
    passing: bool = False
    key_change: KeyChange = field(default_factory=KeyChange)
    keys: TableKeys | None = None
    only_statement: bool = False
    unlogged: str | None = None
    generated: Mapping[str, bool] = field(default_factory=dict)
    partitions: PartitionChange | None = None
    whole_database: bool = False
    generation: int = 0
    recollated: bool = False
    recovered: bool = False

    @property
    def is_read(self) -> bool:
        """Whether an initial snapshot read it; only then, as in rows, the id of the server is missing."""
        return self.snapshot and not self.position.server_id and not self.recovered

    @property
    def at(self) -> int:
        """The binlog key, which orders definitions also of several servers: generation, then position."""
        return (self.generation << GENERATION_SHIFT) + binlog_key(self.position)

    @property
    def start(self) -> VersionStart:
        """What events are compared with."""
        return VersionStart(binlog_key(self.position), self.position.gtid, self.ts_ms)


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """A table's definition between two schema changes.

    Attributes:
        at: where it begins among definitions; see `TableDefinition.at`. Events have no such number: use `start`.
        position, ts_ms: the position at which it begins, and the source time in milliseconds since the epoch.
        carried: name in the previous version → name in this one, of columns that continue to exist.
        recreated: whether the table was dropped and recreated, so that no earlier row is left.
        source_types: see `TableDefinition`.
        renamed_to: what the former table of this name is called now, as `old` after `RENAME TABLE t TO old, new TO t`;
            `recreated` is then set too.
        replaced: what the table that now has this name was called before, as `new` in that statement.
        renamed_from: what this table was called before, if it kept its rows and its mirror.
        declared: whether the source declared the version. If not, it was observed in events; then a column that
            disappeared while another appeared is taken for dropped.
        unexplained: columns of the previous version that this one lacks although no statement dropped them.
        event_key: the columns that Debezium uses as the key of events.
        weak_key: whether these columns, or others that are the key of events, do not identify rows: they may be NULL,
            or their key was dropped. `schema` has no key then.
        unlogged: the statement with which the version begins if it changed rows of the table without events.
        generated: the generated columns, as far as statements show them.
        removed: which rows the statement `unlogged` removed; None if the definition of the table does not tell.
        begins_epoch: whether it begins with the definition of a repeated initial snapshot: what is known of earlier
            events tells nothing of later ones.
        recovered: see `TableDefinition`.
        is_read: whether it begins with the definition of an initial snapshot.
        read_before: see `VersionStart`.
    """

    at: int
    position: SourcePosition
    ts_ms: int
    schema: TableSchema
    carried: Mapping[str, str]
    recreated: bool = False
    source_types: Mapping[str, str] = field(default_factory=dict)
    renamed_to: TableId | None = None
    replaced: TableId | None = None
    renamed_from: TableId | None = None
    declared: bool = True
    unexplained: frozenset[str] = frozenset()
    event_key: tuple[str, ...] = ()
    weak_key: bool = False
    unlogged: str | None = None
    generated: frozenset[str] = frozenset()
    removed: PartitionCondition | None = None
    begins_epoch: bool = False
    recovered: bool = False
    is_read: bool = False
    read_before: frozenset[int] = frozenset()

    @property
    def start(self) -> VersionStart:
        """What its events are compared with."""
        return VersionStart(binlog_key(self.position), self.position.gtid, self.ts_ms, self.read_before)

    @property
    def is_given(self) -> bool:
        """Whether it was read from the source because the log has no definition; see `SchemaHistories.define`."""
        return self.declared and not self.position.pos

    def key(self, of_events: tuple[str, ...]) -> tuple[str, ...]:
        """Return the columns that identify rows: the key of events if the source's definition has none."""
        return () if self.weak_key else self.schema.key or of_events


@dataclass(frozen=True, slots=True)
class TableRemoval:
    """The removal of a table: it was dropped, or renamed to `renamed_to`. Other fields as in `SchemaVersion`."""

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
"""A value of `at` before all others."""


@dataclass(frozen=True, slots=True)
class SchemaHistory:
    """The versions of a table, oldest first; what is before the first version belongs to the first.

    Attributes:
        gone: the table's removal; None while the source has it.
        own: index of the first version with the table's current name; earlier ones have names that it had before.
        keys: the table's keys now.
        partitions: the table's partitions now; None if they are not known.
    """

    versions: tuple[SchemaVersion, ...] = ()
    gone: TableRemoval | None = None
    own: int = 0
    keys: TableKeys = field(default_factory=TableKeys)
    partitions: PartitionLayout | None = None

    def __bool__(self) -> bool:
        return bool(self.versions)

    def index_at(self, at: int) -> int:
        """Return the index of the version in effect at `at`, which is the `at` of a definition."""
        return max((i for i, v in enumerate(self.versions) if v.at <= at), default=0)

    def index_of(self, position: SourcePosition, ts_ms: int, first: int = 0, *, is_row: bool = False) -> int:
        """Return the index of the version to which an event belongs: `first`, or a later one.

        `ts_ms` is its source time, 0 if unknown. For `is_row`, see `VersionStart.is_before`.
        """
        starts = ((i, self.versions[i].start) for i in range(len(self.versions) - 1, first, -1))
        return next((i for i, start in starts if start.is_before(position, ts_ms, is_row=is_row)), first)

    def boundary(self, index: int) -> Boundary:
        """Return where version `index` begins in the log."""
        versions = self.versions[index:]
        return Boundary(versions[0].at, tuple(v.start for v in versions))

    @property
    def versions_of_current_name(self) -> tuple[SchemaVersion, ...]:
        """The versions with the table's current name."""
        return self.versions[self.own :]

    def epoch_of(self, index: int) -> int:
        """Return the index of the version with which the epoch of version `index` begins."""
        return max((i for i in range(1, index + 1) if self.versions[i].begins_epoch), default=0)

    def epoch_after(self, at: int) -> int | None:
        """Return the index of the first version after `at` that begins an epoch; None if there is none."""
        return next((i for i, v in enumerate(self.versions) if v.at > at and v.begins_epoch), None)

    def until(self, at: int | None) -> "SchemaHistory":
        """Return the history without versions that begin after `at` (None: the end), but with one of its own name."""
        kept = tuple(v for i, v in enumerate(self.versions) if at is None or v.at <= at or i <= self.own)
        return self if len(kept) == len(self.versions) else replace(self, versions=kept)

    def after(self, at: int) -> tuple[SchemaVersion, ...]:
        """Return the versions that begin after `at`."""
        return tuple(v for v in self.versions if v.at > at)

    def lacks(self, at: int) -> bool:
        """Return whether the version at `at`, which a lake table has, is later than all known ones."""
        newest = max((v.at for v in self.versions), default=at)
        return at > (newest if self.gone is None else max(newest, self.gone.at))

    def carry(self, old: int, new: int) -> dict[str, str]:
        """Return column of version `old` → its name in version `new`, without columns dropped in between."""
        names = {name: name for name in self.versions[old].schema.names}
        for version in self.versions[old + 1 : new + 1]:
            names = {n: version.carried[now] for n, now in names.items() if now in version.carried}
        return names

    def last_name(self, old: int, new: int, name: str) -> str | None:
        """Return a column's name in version `new`, or its last name if it was dropped since version `old`.

        None if another column has that name later.
        """
        now = name
        for at in range(old + 1, new + 1):
            if now not in self.versions[at].carried:
                later = any(now in v.schema.names for v in self.versions[at : new + 1])
                return None if later else now
            now = self.versions[at].carried[now]
        return now

    def _last_names(self, since: int, index: int) -> Iterator[str]:
        """Yield the last name of each column of the versions from `since` to `index`, dropped ones included."""
        live = set(self.versions[since].schema.names)
        for version in self.versions[since + 1 : index + 1]:
            yield from live - version.carried.keys()
            live = set(version.schema.names)
        yield from live

    def carry_lake(self, at: int, new: int, live: Iterable[str]) -> dict[str, str]:
        """Return column → name in version `new`, of the `live` columns of a lake table with the schema at `at`.

        Columns that the version at `at` lacks are matched by name only.
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
        """Return column of version `new` → its definition when it was added, without columns of the first version."""
        found: dict[str, Column] = {}
        names = {name: name for name in self.versions[new].schema.names}
        for version in reversed(self.versions[1 : new + 1]):
            before = {now: was for was, now in version.carried.items()}
            columns = {c.name: c for c in version.schema.columns}
            found |= {name: columns[then] for name, then in names.items() if then not in before}
            names = {name: before[then] for name, then in names.items() if then in before}
        return found

    def is_barrier(self, index: int, since: int) -> bool:
        """Return whether a batch must be split before version `index`.

        `since` is the version that the lake table has then: the known one, or the one before the last barrier.
        """
        version = self.versions[index]
        if index == 0:
            return False
        old = self.versions[index - 1]
        if (
            version.recreated
            or version.begins_epoch
            or version.unlogged is not None
            or carried_key(old.schema.key, version.carried) != set(version.schema.key)
        ):
            return True
        fresh = set(version.schema.names) - set(version.carried.values())
        if any(fresh.intersection(v.schema.names) for v in self.versions[since:index]):
            return True
        called = [*self._last_names(since, index)]
        if len(set(called)) < len(called):
            return True
        # A version in which a column cannot be NULL any more is checked alone: the next one may let it be NULL again.
        return bool(changed_columns(old, version)) or any(
            i > max(since, 0) and _needs_values(self.versions[i - 1], self.versions[i])
            for i in (index - 1, index)
        )


def carried_key(key: Sequence[str], carried: Mapping[str, str]) -> set[str | None]:
    """Return the names that key columns have in the next version; None stands for dropped ones."""
    return {carried.get(name) for name in key}


def changed_columns(old: SchemaVersion, new: SchemaVersion) -> list[tuple[str, str]]:
    """Return (name, new name) of the columns whose values in existing rows may be other ones because of new types."""
    before, after = ({c.name: c.type for c in v.schema.columns} for v in (old, new))
    return [
        (was, now)
        for was, now in new.carried.items()
        if was in before
        and now in after
        and not (
            fits_in_place(before[was], after[now])
            and keeps_values(old.source_types.get(was), new.source_types.get(now))
        )
    ]


def may_recompute(old: SchemaVersion, new: SchemaVersion) -> bool:
    """Return whether generated columns may have other values because other columns have new types.

    So it is even if the values stay the same: `MD5(c)` depends on the character set, `c + 0` on the order of labels.
    """
    types = (
        (old.source_types.get(was), new.source_types.get(now))
        for was, now in new.carried.items()
        if now not in new.generated
    )
    return any(was is not None and now is not None and was != now for was, now in types)


def _needs_values(old: SchemaVersion, new: SchemaVersion) -> bool:
    """Return whether any column cannot be NULL any more."""
    nullable, now_nullable = ({c.name for c in v.schema.columns if c.nullable} for v in (old, new))
    return any(was in nullable and now not in now_nullable for was, now in new.carried.items())


@dataclass(slots=True, eq=False)
class _Identity:
    names: set[SourceName] = field(default_factory=set)
    maybe: "list[_Identity]" = field(default_factory=list)

    def history(self) -> ColumnHistory:
        found: list[_Identity] = []
        left = list(self.maybe)
        while left:
            if (other := left.pop()) not in found:
                found.append(other)
                left += other.maybe
        maybe = frozenset(name for other in found for name in other.names)
        return ColumnHistory(frozenset(self.names), maybe - self.names)


def column_histories(history: SchemaHistory) -> list[dict[str, ColumnHistory]]:
    """Return column → its names over time, for each version of a table."""
    before: dict[str, _Identity] = {}
    versions: list[dict[str, _Identity]] = []
    for version in history.versions:
        present = {now: before[was] for was, now in version.carried.items() if was in before}
        vanished = [before[name] for name in sorted(version.unexplained) if name in before]
        for column in version.schema.columns:
            identity = present.setdefault(column.name, _Identity(maybe=vanished))
            identity.names.add(column.source_name)
        versions.append(present)
        before = present
    known: dict[int, ColumnHistory] = {}
    for present in versions:
        for identity in present.values():
            known.setdefault(id(identity), identity.history())
    return [{name: known[id(identity)] for name, identity in present.items()} for present in versions]
