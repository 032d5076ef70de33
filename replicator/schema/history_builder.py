"""Build schema histories from definitions that the source declared, and from schemas that were observed in events."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from replicator.model.position import SourcePosition
from replicator.model.table import TableId, TableSchema
from replicator.schema.binlog_order import binlog_key
from replicator.schema.history import (
    GENERATION_SHIFT,
    ColumnMoves,
    SchemaHistory,
    SchemaVersion,
    TableDefinition,
    TableRemoval,
    carried_key,
)


def build_history(definitions: Sequence[TableDefinition], past: SchemaHistory | None = None) -> SchemaHistory:
    """Build the history of one table from its `definitions`, which are ordered by position.

    `past` is its history under its previous name, if the first definition renamed it.
    """
    builder = HistoryBuilder(past, {d.at: d.other_name for d in definitions if d.schema is None})
    for definition in definitions:
        builder.apply(definition)
    return builder.history


class HistoryBuilder:
    """Builds the history of one table from definitions, which are applied in the order of their positions.

    `past` is the table's history under its previous name. `new_names` maps the binlog key at which a table of this
    name was removed to its new name, None if it was dropped: if two tables exchange names, both are renamed at one
    position.
    """

    def __init__(
        self, past: SchemaHistory | None = None, new_names: Mapping[int, TableId | None] | None = None
    ) -> None:
        self._versions = [] if past is None else list(past.versions)
        self._first_own = len(self._versions)
        self._new_names = new_names or {}
        self._removal: TableRemoval | None = None

    @property
    def history(self) -> SchemaHistory:
        """The history of all definitions that were applied."""
        return SchemaHistory(tuple(self._versions), self._removal, self._first_own)

    def apply(self, definition: TableDefinition) -> None:
        """Extend the history by a definition, if it is not a redelivered one."""
        if self._versions and definition.at <= self._versions[-1].at:
            return  # It was delivered again; exchanged names would be exchanged back.
        if definition.schema is None:
            self._dropped(definition)
            return
        schema = _with_strong_key(definition, definition.schema, self._versions)
        if not self._has_own_version:
            self._first_under_this_name(definition, schema)
        elif self._removal is not None and definition.other_name is None:
            self._recreated(definition, schema, self._removal)
        else:
            self._altered(definition, schema)
        self._removal = None

    @property
    def _has_own_version(self) -> bool:
        return len(self._versions) > self._first_own

    def _dropped(self, d: TableDefinition) -> None:
        if self._has_own_version and not d.snapshot:
            self._removal = TableRemoval(d.at, d.position, d.ts_ms, d.other_name)

    def _first_under_this_name(self, d: TableDefinition, schema: TableSchema) -> None:
        version = _version(d, schema, self._versions[-1].schema if self._versions else TableSchema(()))
        self._versions.append(replace(version, replaced=None, renamed_from=d.other_name))

    def _recreated(self, d: TableDefinition, schema: TableSchema, removal: TableRemoval) -> None:
        """Append a version whose columns are matched by name only, because no statement relates the two tables.

        After a DROP and CREATE of a snapshot, which the source has not executed, the rows are still there.
        """
        last = self._versions[-1].schema
        carried = {n: n for n in schema.names if n in last.names}
        self._versions.append(
            replace(
                _version(d, schema, last),
                carried=carried,
                unexplained=frozenset(last.names) - carried.keys() if d.snapshot else frozenset(),
                recreated=not d.snapshot,
                renamed_to=removal.renamed_to,
            )
        )

    def _altered(self, d: TableDefinition, schema: TableSchema) -> None:
        """Append a version, unless the definition is the same and no other table took over the name."""
        last = self._versions[-1]
        version = _version(d, schema, last.schema)
        same = (schema, dict(d.source_types)) == (last.schema, dict(last.source_types))
        replaced = self._removal is not None or d.other_name is not None
        if not same or replaced or _moved(version.carried, schema):
            exchanged = d.other_name if d.other_name == self._new_names.get(d.at) else None
            self._versions.append(replace(version, exchanged_with=exchanged))


def _with_strong_key(
    d: TableDefinition, schema: TableSchema, versions: Sequence[SchemaVersion]
) -> TableSchema:
    """Return the schema that `d` defines, without its key if the key may contain NULL."""
    weak = bool(d.weak_key)
    if d.weak_key is None and versions:
        last = versions[-1]
        carried = carried_names(last.schema, schema, d.moves)
        weak = last.weak_key or carried_key(last.schema.key, carried) != set(schema.key)
    return replace(schema, key=()) if weak else schema


def _moved(carried: Mapping[str, str], schema: TableSchema) -> bool:
    return any(was != now for was, now in carried.items()) or len(carried) < len(schema.columns)


def _version(d: TableDefinition, schema: TableSchema, last: TableSchema) -> SchemaVersion:
    carried = carried_names(last, schema, d.moves)
    return SchemaVersion(
        d.at,
        d.position,
        d.ts_ms,
        schema,
        carried,
        source_types=d.source_types,
        replaced=d.other_name,
        unexplained=_unexplained(last, carried, d.moves),
        weak_key=d.schema is not None and d.schema.key != schema.key,
    )


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
    history: SchemaHistory, position: SourcePosition, ts_ms: int, schema: TableSchema
) -> SchemaHistory:
    """Return `history` with a further version that was observed in events only."""
    last = history.versions[-1] if history else None
    at = binlog_key(position)
    if last is not None:
        # Its position may be one of another server.
        at = max((last.at >> GENERATION_SHIFT << GENERATION_SHIFT) + at, last.at + 1)
    before = TableSchema(()) if last is None else last.schema
    carried = carried_names(before, schema, None)
    weak = (
        last is not None and last.weak_key and any(c.nullable for c in schema.columns if c.name in schema.key)
    )
    if weak:
        schema = replace(schema, key=())
    version = SchemaVersion(
        at,
        position,
        ts_ms,
        schema,
        carried,
        declared=False,
        weak_key=weak,
        unexplained=_unexplained(before, carried, None),
    )
    return replace(history, versions=(*history.versions, version))
