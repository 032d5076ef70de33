"""The lake's two tables of a source table: created, or brought to the schema that events have."""

import json
import time
from typing import Final

from replicator.apply.evolve import evolve, is_temporary
from replicator.apply.lake import LakeTable
from replicator.apply.spec import (
    ENGINE_PROPERTIES,
    changelog_schema,
    folder_name,
    partition_spec,
    table_schema,
)
from replicator.apply.strategy import STRATEGY_PROPERTIES
from replicator.batch.understand import Shape
from replicator.batch.work import Engine
from replicator.config import TableOptions
from replicator.errors import (
    UnfitColumns,
    UnsupportedChange,
)
from replicator.evolve.plan import LakeSide, Plan, SourceSide, changelog_plan, plan
from replicator.model.change import change_column
from replicator.model.columns import (
    RULES_KEY,
    check_unchanged,
    rules_from_json,
    rules_in_force,
    rules_to_json,
)
from replicator.model.lineage import Gone
from replicator.model.schema_change import (
    PENDING_CLEAR_KEY,
    SCHEMA_KEY,
    ChangeNote,
    ChangeType,
    MoveColumn,
    RenameColumn,
    SchemaState,
)
from replicator.model.table import SOURCE_KEY, TableId, TableSchema
from replicator.model.truncate import Truncate

_NO_PARTITION: Final = -1


def mirror_table(engine: Engine, table: TableId, options: TableOptions, shape: Shape) -> LakeTable:
    """The mirror table, created or evolved so that it holds rows of `shape`."""
    lake, schema, version = engine.lake, shape.schema, shape.version
    own = dict(STRATEGY_PROPERTIES[options.strategy]) | dict(options.properties)
    present = lake.load(engine.config.lake.namespace, table.name)
    own |= _rules_property(present, schema, table)
    if present is None:
        spec = partition_spec(schema, options.partition) if options.partition else None
        state = SchemaState(version.at)
        properties = {**ENGINE_PROPERTIES, SOURCE_KEY: str(table), **own, SCHEMA_KEY: state.to_json()}
        namespace = engine.config.lake.namespace
        location = _location(engine, namespace, table)
        created = lake.create(namespace, table.name, table_schema(schema), spec, properties, location)
        engine.ledger.evolved_mirror(table, state)
        return created
    lake.set_properties(present, own)
    if not schema.columns:
        return present
    known = engine.ledger.progress(table).mirror_schema or SchemaState(version.at)
    if known.at == version.at and _fits(present, schema):
        return present
    _refuse_exchange(engine, table, known, shape)
    there = _lake_side(present, known, shape)
    here = _source_side(there, known, shape)
    found = plan(there, here, options.schema_changes)
    _refuse_mixed_rules(present, schema, found)
    if found.changes or known.at < version.at:
        state = _next_state(known, shape, found)
        properties = {SCHEMA_KEY: state.to_json()}
        if here.anew:
            again = Truncate(_NO_PARTITION, -1, version.position, version.ts_ms)
            properties[PENDING_CLEAR_KEY] = json.dumps(again.to_json())
        evolve(lake, present, found.changes, properties, key=schema.key, fill=True)
        engine.recent.forget(present)
        engine.ledger.evolved_mirror(table, state)
    return present


def changelog_table(engine: Engine, table: TableId, options: TableOptions, shape: Shape) -> LakeTable:
    """The changelog table, created or evolved so that it holds rows of `shape`."""
    lake, namespace, version = engine.lake, engine.config.lake.changes_namespace, shape.version
    present = lake.load(namespace, table.name)
    rules = _rules_property(present, shape.frame, table)
    if present is None:
        text = changelog_schema(shape.frame, change_column(shape.frame.names))
        state = SchemaState(version.at, shape.aligned.retired)
        properties = {**ENGINE_PROPERTIES, SOURCE_KEY: str(table), **rules, SCHEMA_KEY: state.to_json()}
        location = _location(engine, namespace, table)
        created = lake.create(namespace, table.name, text, None, properties, location)
        engine.ledger.evolved_changelog(table, state)
        return created
    lake.set_properties(present, rules)
    if not shape.schema.columns:
        return present
    known = engine.ledger.progress(table).changelog_schema or SchemaState(version.at)
    if known.at == version.at and _fits(present, shape.frame):
        return present
    there = _lake_side(present, known, shape)
    here = _source_side(there, known, shape)
    extra = [c for c in shape.frame.columns if c.name in shape.aligned.retired]
    found = changelog_plan(there, here, extra, options.schema_changes)
    _refuse_mixed_rules(present, shape.schema, found)
    if found.changes or known.at < version.at:
        state = _next_state(known, shape, found)
        evolve(lake, present, found.changes, {SCHEMA_KEY: state.to_json()})
        engine.ledger.evolved_changelog(table, state)
    return present


def is_beyond(state: SchemaState | None, shape: Shape) -> bool:
    """Whether a table has a newer schema than these events: then it has the events too.

    After a crash the changelog may be a part of a batch ahead.
    """
    return bool(shape.schema.columns) and state is not None and state.at > shape.version.at


def note_end(engine: Engine, table: TableId, gone: Gone | None, there: LakeTable) -> None:
    """Note in a lake table that the source's is no more; its rows stay."""
    progress, changelog = engine.ledger.progress(table), engine.config.lake.changes_namespace
    state = progress.changelog_schema if there.namespace == changelog else progress.mirror_schema
    if gone is None or state is None or gone.at <= state.at:
        return
    note = ChangeNote(str(gone.position), gone.ts_ms, _now_ms(), (str(gone),))
    ended = SchemaState(gone.at, state.retired, str(gone), (*state.notes, note))
    engine.lake.set_properties(there, {SCHEMA_KEY: ended.to_json()})
    if there.namespace == changelog:
        engine.ledger.evolved_changelog(table, ended)
    else:
        engine.ledger.evolved_mirror(table, ended)


def _refuse_exchange(engine: Engine, table: TableId, known: SchemaState, shape: Shape) -> None:
    """Raises UnsupportedChange where the table's name was given to another one that is mirrored too.

    A copy that a tool made and put in the table's place has the same rows; another table has its own.
    """
    for version in shape.line.versions[1:]:
        if version.at <= known.at:
            continue
        other = version.took_over_from
        if (
            version.at <= shape.version.at
            and other not in (None, table)
            and engine.config.includes(str(other))
        ):
            raise UnsupportedChange(
                f"{other} was renamed to {table}, while the lake has other rows under that name",
                f"drop {table.name} in the lake, mirror and changelog, and bootstrap it again",
            )


def _fits(table: LakeTable, schema: TableSchema) -> bool:
    """Whether a lake table can take rows of `schema` as it is: so it is in nearly every batch."""
    columns = table.columns()
    return all(c.name in columns and columns[c.name].holds(c.type) for c in schema.columns)


def _lake_side(table: LakeTable, known: SchemaState, shape: Shape) -> LakeSide:
    columns = {n: t for n, t in table.columns().items() if not is_temporary(n)}
    line = shape.line
    if line.versions[0].at > known.at:
        return LakeSide(columns, frozenset(known.retired))
    version = line.versions[line.index_at(known.at)]
    return LakeSide(columns, frozenset(known.retired), version.schema.key, version.natives)


def _source_side(there: LakeSide, known: SchemaState, shape: Shape) -> SourceSide:
    line, old = shape.line, -1
    if line.versions[0].at <= known.at:
        old = line.index_at(known.at)
    anew = old >= 0 and any(v.anew for v in line.versions[old + 1 : shape.target + 1])
    carried = line.carry_lake(known.at, shape.target, there.live)
    # What is masked or hashed is text that no change of type concerns.
    shielded = {c.name for c in shape.schema.columns if c.shield is not None}
    natives = {n: t for n, t in shape.version.natives.items() if n not in shielded}
    return SourceSide(shape.schema, carried, natives, anew)


def _next_state(known: SchemaState, shape: Shape, found: Plan) -> SchemaState:
    version = shape.version
    at = max(known.at, version.at)
    converted = {c.name for c in found.changes if isinstance(c, ChangeType)}
    made = [c for c in found.changes if not (isinstance(c, MoveColumn) and c.name in converted)]
    lines = [str(c) for c in made] + [f"ignored: {c}" for c in found.ignored if known.at < version.at]
    if not lines:
        return SchemaState(at, found.retired, notes=known.notes)
    note = ChangeNote(str(version.position), version.ts_ms, _now_ms(), tuple(lines), version.told)
    return SchemaState(at, found.retired, notes=(*known.notes, note))


def _location(engine: Engine, namespace: str, table: TableId) -> str | None:
    """Where a table's files go whose name is not fit for a path; None: where the catalog puts them."""
    lake, folder = engine.config.lake, folder_name(table.name)
    if folder is None or lake.catalog != "jdbc" or lake.warehouse is None:
        return None
    return f"{lake.warehouse.rstrip('/')}/{namespace}/{folder}"


def _rules_property(present: LakeTable | None, schema: TableSchema, table: TableId) -> dict[str, str]:
    """The property that records the column rules, for a table that has or is to have any.

    Raises:
        UnfitColumns: the table was written under other rules.
    """
    recorded = {} if present is None else rules_from_json(present.property(RULES_KEY))
    if not recorded and not rules_in_force(schema):
        return {}
    columns = () if present is None else present.columns()
    rules = check_unchanged(recorded, columns, schema, str(table))
    return {RULES_KEY: rules_to_json(rules)} if rules else {}


def _refuse_mixed_rules(table: LakeTable, schema: TableSchema, found: Plan) -> None:
    """Raises UnfitColumns where a column gets a name that another rule is for: old and new values would be mixed."""
    recorded, wanted = rules_from_json(table.property(RULES_KEY)), rules_in_force(schema)
    for change in found.changes:
        if isinstance(change, RenameColumn) and recorded.get(change.name) != wanted.get(change.new):
            raise UnfitColumns(
                f"column {change.name} is called {change.new} now, and the column rules for the two names differ",
                "give both names the same rule; or drop the table and its changelog in the lake and start again",
            )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
