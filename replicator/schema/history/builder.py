"""Build schema histories from definitions that the source declared, and from schemas that were observed in events."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from replicator.model.common import quoted
from replicator.model.position import SourcePosition
from replicator.model.table import Column, TableId, TableSchema
from replicator.schema.ddl.effects import ColumnMoves
from replicator.schema.ddl.records import is_copy_of
from replicator.schema.history.keys import TableKeys
from replicator.schema.history.order import binlog_key
from replicator.schema.history.partitions import PartitionCondition, partition_condition
from replicator.schema.history.versions import (
    BEGINNING,
    GENERATION_SHIFT,
    SchemaHistory,
    SchemaVersion,
    TableDefinition,
    TableRemoval,
    carried_key,
    changed_columns,
    may_recompute,
)
from replicator.schema.types.native import shown


class _Place(NamedTuple):
    """Where a definition was placed. `epoch` counts the definitions before it that a snapshot repeated.

    A statement that was placed in an earlier epoch is a new one if it comes again.
    """

    generation: int
    position: SourcePosition
    epoch: int


class DefinitionClock:
    """Assigns each new definition a generation of the binlog, and finds redelivered ones.

    The topic has one partition, so its own order is that of the definitions. A generation ends when a new definition
    has a lower position than the one before it, or if a snapshot repeats a definition at the position that the table's
    newest one has: then the connector reads another server, or the binlog was reset. The first generation in the topic
    is 0. The number of a later one is the time of its first definition, in seconds, so that it does not change if the
    topic loses its first records. It is greater than the numbers before in any case.

    A statement that was known before a snapshot was repeated, and comes again after it, is new: the snapshot is of a
    server that had not executed it yet.
    """

    def __init__(self) -> None:
        self._placed: dict[object, _Place] = {}
        self._newest: dict[TableId, tuple[int, int]] = {}
        self._generation = 0
        self._last_key = 0
        self._epoch = 0

    def place(self, definition: TableDefinition) -> TableDefinition:
        """Return a definition with its generation.

        Definitions must be given in the order of the topic. A redelivered one gets its first position and generation:
        it may come from another server.
        """
        identity = _identity(definition)
        place = self._placed.get(identity)
        if place is None or (place.epoch < self._epoch and not definition.snapshot):
            self._advance_to(definition)
            place = _Place(self._generation, definition.position, self._epoch)
            self._placed[identity] = place
        if definition.schema is not None:
            self._newest[definition.table] = place.generation, binlog_key(place.position)
        return replace(definition, generation=place.generation, position=place.position)

    def _advance_to(self, definition: TableDefinition) -> None:
        key, newest = binlog_key(definition.position), self._newest.get(definition.table)
        is_lower = key < self._last_key and bool(definition.position.file)
        defines = definition.snapshot and definition.schema is not None
        if is_lower or (defines and newest == (self._generation, key)):
            self._generation = max(self._generation + 1, definition.ts_ms // 1000)
        if definition.position.file:
            self._last_key = key
        self._epoch += defines and definition.is_read and newest is not None


def _identity(definition: TableDefinition) -> object:
    position = definition.position
    if definition.is_read:
        # The DROP and the CREATE of a snapshot may have one time.
        return definition.table, binlog_key(position), definition.ts_ms, definition.schema is None
    return position.gtid or (position.server_id, binlog_key(position), definition.ts_ms)


def build_history(
    definitions: Sequence[TableDefinition], past: SchemaHistory | None = None, *, reads_again: bool = False
) -> SchemaHistory:
    """Build the history of one table from its `definitions`, which are ordered by position.

    `past` is its history under its previous name, if the first definition renamed it. For `reads_again`, see
    `HistoryBuilder`.
    """
    builder = HistoryBuilder(past, reads_again=reads_again)
    for definition in definitions:
        builder.apply(definition)
    return builder.history


class HistoryBuilder:
    """Builds the history of one table from definitions, which are applied in the order of their positions.

    `past` is the table's history under its previous name. If it `reads_again`, the mirror can read a table from the
    source: so it does if the connector repeats its snapshot. Else the rows of the snapshot replace those of the table.
    """

    def __init__(self, past: SchemaHistory | None = None, *, reads_again: bool = False) -> None:
        self._versions = [] if past is None else list(past.versions)
        self._reads_again = reads_again
        self._first_own = len(self._versions)
        self._removal: TableRemoval | None = None
        self._keys = TableKeys() if past is None else past.keys
        self._keys_at = BEGINNING
        self._partitions = None if past is None else past.partitions
        self._partitions_at = BEGINNING

    @property
    def history(self) -> SchemaHistory:
        """The history of all definitions that were applied."""
        return SchemaHistory(
            tuple(self._versions), self._removal, self._first_own, self._keys, self._partitions
        )

    def apply(self, definition: TableDefinition) -> None:
        """Extend the history by a definition, if it is not a redelivered one."""
        if self._versions and definition.at <= self._versions[-1].at:
            # It was delivered again; exchanged names would be exchanged back.
            return
        if definition.only_statement:
            self._change_keys(definition, ())
            if self._removal is not None or not self._has_own_version:
                return
            definition = _repeated(definition, self._versions[-1])
        if definition.schema is None:
            if self._has_own_version and not definition.snapshot:
                d = definition
                self._removal = TableRemoval(d.at, d.position, d.ts_ms, d.other_name)
            return
        self._change_keys(definition, definition.schema.key)
        schema, weak = self._with_strong_key(definition, definition.schema)
        last = self._versions[-1] if self._versions else None
        version = _version(definition, schema, last, weak_key=weak)
        read_before = frozenset(binlog_key(v.position) for v in self._versions if v.is_read)
        version = replace(version, removed=self._removed_rows(definition, version), read_before=read_before)
        if not self._has_own_version:
            version = replace(version, replaced=None, renamed_from=definition.other_name)
            self._versions.append(version if last is None else _with_other_values(definition, version, last))
        elif definition.is_read:
            self._begins_epoch(version)
        elif self._removal is not None and definition.other_name is None:
            self._recreated(definition, version, self._removal)
        else:
            self._altered(definition, _with_other_rows(definition, version))
        self._removal = None

    def _change_keys(self, d: TableDefinition, key: Sequence[str]) -> None:
        """Apply the statement of a definition, whose key Debezium considers to be `key`, to the table's keys."""
        if d.at <= self._keys_at and not d.key_change.created:
            return  # It was delivered again; a key of the same name may have been added since.
        self._keys_at = d.at
        moves = d.moves or ColumnMoves()
        if d.keys is not None:
            # Of a table that replaced this one, they have the names that all its statements gave to columns.
            self._keys, moves = d.keys, ColumnMoves()
        elif d.key_change.created or (d.other_name is not None and self._has_own_version):
            self._keys = TableKeys()
        renamed = ((was.casefold(), now.casefold()) for was, now in moves.renamed)
        self._keys = self._keys.after(d.key_change, renamed, [name.casefold() for name in moves.dropped])
        if d.key_change.created and d.schema is not None:
            self._keys = self._keys.understood([_folded(c) for c in d.schema.columns if c.name in key])

    def _removed_rows(self, d: TableDefinition, version: SchemaVersion) -> PartitionCondition | None:
        """Apply a statement to the table's partitions, and return which rows it removed; None if that is not known."""
        if d.at <= self._partitions_at and not d.key_change.created:
            return None  # It was delivered again.
        self._partitions_at = d.at
        is_other = self._has_own_version and (self._removal is not None or d.other_name is not None)
        layout, change = None if is_other else self._partitions, d.partitions
        moves = d.moves or ColumnMoves()
        gone = {*moves.dropped, *(was for was, now in moves.renamed if was.casefold() != now.casefold())}
        if layout is not None and layout.column in {name.casefold() for name in gone}:
            layout = None
        condition = None
        if layout is not None and change is not None and (spans := change.removed(layout)) and d.unlogged:
            condition = partition_condition(layout, spans, version.schema, version.source_types)
        if change is not None and not (change.if_missing and self._has_own_version and self._removal is None):
            layout = change.after(layout)
        elif change is not None or d.key_change.created:
            layout = None
        self._partitions = layout
        return None if condition is None or condition.column in version.generated else condition

    def _with_strong_key(self, d: TableDefinition, schema: TableSchema) -> tuple[TableSchema, bool]:
        """Return the schema that `d` defines, and whether its key is weak. A key that may have equal rows is removed.

        See `SchemaVersion.weak_key`.
        """
        last = self._versions[-1] if self._versions else None
        if not schema.key:
            return schema, last is not None and (last.weak_key or bool(last.event_key))
        columns = [c for c in schema.columns if c.name in schema.key]
        if len(columns) < len(schema.key):
            return schema, False  # The definition is malformed, which pauses the table.
        nullable = frozenset(_folded(c) for c in schema.columns if c.nullable)
        strong = self._keys.identify([_folded(c) for c in columns], nullable)
        if strong is None:
            # No statement told the keys. After a MODIFY of a primary key's column, Debezium considers it nullable.
            strong = not any(c.nullable for c in columns)
            if not strong and not d.key_change.created:
                strong = last is None or _has_key_of(last, schema, d.moves)
        return (schema, False) if strong else (replace(schema, key=()), True)

    @property
    def _has_own_version(self) -> bool:
        return len(self._versions) > self._first_own

    def _begins_epoch(self, version: SchemaVersion) -> None:
        """Append the version that a repeated snapshot shows; no statement relates it to the one before."""
        last = self._versions[-1].schema
        carried = {n: n for n in version.schema.names if n in last.names}
        unlogged = "a repeated snapshot of the connector" if self._reads_again else None
        self._versions.append(
            replace(
                version,
                carried=carried,
                unexplained=frozenset(last.names) - carried.keys(),
                recreated=not self._reads_again,
                unlogged=unlogged,
                begins_epoch=True,
            )
        )

    def _recreated(self, d: TableDefinition, version: SchemaVersion, removal: TableRemoval) -> None:
        """Append a version whose columns are matched by name only, because no statement relates the two tables.

        After a DROP and CREATE of a snapshot, which the source has not executed, the rows are still there. Not all of
        them are marked as such, but a server cannot execute both at one position.
        """
        last = self._versions[-1]
        is_read = d.snapshot or (removal.renamed_to is None and removal.at == d.at)
        carried = {n: n for n in version.schema.names if n in last.schema.names}
        version = replace(
            version,
            carried=carried,
            unexplained=frozenset(last.schema.names) - carried.keys() if is_read else frozenset(),
            recreated=not is_read,
            renamed_to=removal.renamed_to,
        )
        self._versions.append(_with_other_values(d, version, last) if is_read else version)

    def _altered(self, d: TableDefinition, version: SchemaVersion) -> None:
        """Append a version, unless the definition is the same, and neither another table's nor a change of rows."""
        last = self._versions[-1]
        version = _with_other_values(d, version, last)
        computed = version.generated.intersection(version.carried.values())
        if version.unlogged is None and computed and _recomputes(d, last, version):
            # The source computes their values again while it copies the rows.
            names = ", ".join(sorted(computed))
            version = replace(version, unlogged=f"ALTER TABLE {d.table.name} …, with the generated {names},")
        same = (version.schema, dict(d.source_types)) == (last.schema, dict(last.source_types))
        replaced = self._removal is not None or d.other_name is not None
        if not same or replaced or version.unlogged is not None or _moved(version.carried, version.schema):
            self._versions.append(version)


def _with_other_rows(d: TableDefinition, version: SchemaVersion) -> SchemaVersion:
    """Return `version`, with the RENAME as its statement if a table with other rows took over the name.

    A copy that a tool made has the rows of the table that it replaces.
    """
    other = d.other_name
    if other is None or other == d.table or version.unlogged is not None or is_copy_of(other, d.table):
        return version
    return replace(version, unlogged=f"RENAME TABLE {quoted(other.name)} TO {quoted(d.table.name)}")


def _with_other_values(d: TableDefinition, version: SchemaVersion, last: SchemaVersion) -> SchemaVersion:
    """Return the version, with its statement if existing rows may have other values because of new types."""
    changed = changed_columns(last, version)
    if not changed or version.unlogged is not None:
        return version
    name, now = changed[0]
    old, new = last.source_types.get(name), version.source_types.get(now)
    types = (
        "another type" if old is None or new is None else f"{shown(old, new)} changed to {shown(new, old)}"
    )
    return replace(version, unlogged=f"ALTER TABLE {d.table.name} …, with {types} in {now},")


def _recomputes(d: TableDefinition, last: SchemaVersion, version: SchemaVersion) -> bool:
    """Return whether the statement of a definition may change the values of generated columns.

    A snapshot's statements were not executed.
    """
    return not d.snapshot and (d.recollated or may_recompute(last, version))


def _repeated(d: TableDefinition, last: SchemaVersion) -> TableDefinition:
    """Return the definition of a table after a statement that changed no column."""
    schema = replace(last.schema, key=last.event_key)
    return replace(
        d, schema=schema, moves=ColumnMoves(), source_types=last.source_types, only_statement=False
    )


def _folded(column: Column) -> str:
    return column.source_name.name.casefold()


def _moved(carried: Mapping[str, str], schema: TableSchema) -> bool:
    return any(was != now for was, now in carried.items()) or len(carried) < len(schema.columns)


def _has_key_of(last: SchemaVersion, schema: TableSchema, moves: ColumnMoves | None) -> bool:
    """Return whether a definition has the key of the last version, which identified rows."""
    carried = carried_names(last.schema, schema, moves)
    return not last.weak_key and carried_key(last.schema.key, carried) == set(schema.key)


def _version(
    d: TableDefinition, schema: TableSchema, last: SchemaVersion | None, *, weak_key: bool
) -> SchemaVersion:
    before = TableSchema(()) if last is None else last.schema
    carried = carried_names(before, schema, d.moves)
    return SchemaVersion(
        d.at,
        d.position,
        d.ts_ms,
        schema,
        carried,
        source_types=d.source_types,
        replaced=d.other_name,
        unexplained=_unexplained(before, carried, d.moves),
        event_key=() if d.schema is None else d.schema.key,
        weak_key=weak_key,
        unlogged=d.unlogged,
        generated=_generated(d, schema, last, carried),
        recovered=d.recovered,
        is_read=d.is_read,
    )


def _generated(
    d: TableDefinition, schema: TableSchema, last: SchemaVersion | None, carried: Mapping[str, str]
) -> frozenset[str]:
    """Return the generated columns of a version that follows version `last`."""
    before = frozenset[str]() if last is None or d.key_change.created else last.generated
    known = {carried[name] for name in before if name in carried}
    return frozenset(c.name for c in schema.columns if d.generated.get(_folded(c), c.name in known))


def _unexplained(old: TableSchema, carried: Mapping[str, str], moves: ColumnMoves | None) -> frozenset[str]:
    dropped = {name.casefold() for name in moves.dropped} if moves is not None else set[str]()
    gone = [c for c in old.columns if c.name not in carried]
    return frozenset(c.name for c in gone if c.source_name.name.casefold() not in dropped)


def carried_names(old: TableSchema, new: TableSchema, moves: ColumnMoves | None) -> dict[str, str]:
    """Return column of `old` → its name in `new`, according to `moves`; without them, columns are matched by name.

    Letter case is ignored, as in the source.
    """
    here = {c.source_name.name.casefold(): c.name for c in new.columns}
    moves = moves or ColumnMoves()
    renamed = {was.casefold(): now.casefold() for was, now in moves.renamed}
    dropped = {name.casefold() for name in moves.dropped}
    found: dict[str, str] = {}
    for column in old.columns:
        name = column.source_name.name.casefold()
        if name in renamed:
            now = here.get(renamed[name])
        elif name in dropped:
            now = None
        else:
            now = here.get(name)
        if now is not None and now not in found.values():
            found[column.name] = now
    return found


def with_observed(
    history: SchemaHistory,
    position: SourcePosition,
    ts_ms: int,
    schema: TableSchema,
    followed_at: int = BEGINNING,
) -> SchemaHistory:
    """Return `history` with a further version that was observed in events only.

    It is later than the one at `followed_at`.
    """
    last = history.versions[-1] if history else None
    at = binlog_key(position)
    if last is not None:
        at += last.at >> GENERATION_SHIFT << GENERATION_SHIFT
        followed_at = max(followed_at, last.at)
    at = max(at, followed_at + 1)  # Its position may be one of another server.
    before = TableSchema(()) if last is None else last.schema
    carried = carried_names(before, schema, None)
    weak = history.keys.lost if last is None else last.weak_key
    version = SchemaVersion(
        at,
        position,
        ts_ms,
        replace(schema, key=()) if weak else schema,
        carried,
        declared=False,
        event_key=schema.key,
        weak_key=weak,
        unexplained=_unexplained(before, carried, None),
        generated=frozenset(carried[n] for n in last.generated if n in carried) if last else frozenset(),
    )
    return replace(history, versions=(*history.versions, version))
