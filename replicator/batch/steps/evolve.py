"""Creates the lake tables of a source table, or gives them the schema of a batch."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol

from pyspark.sql import DataFrame

from replicator.batch.context import MirrorContext, column_rules
from replicator.batch.evolution.followed_statements import in_lake_columns, rows_to_delete
from replicator.batch.evolution.recognition import Recognized, TableRecognizer, names_in
from replicator.batch.evolution.sides import fits, lake_side, next_state, source_side
from replicator.batch.values import BatchSchema, TableBatch, TableKind
from replicator.config import TableOptions
from replicator.errors import UnfitColumns, UnknownValues, UnloggedChange, UnsupportedChange
from replicator.lake.catalog.metadata import (
    DEFAULT_FORMAT,
    ENGINE_PROPERTIES,
    FORMAT_KEY,
    changelog_schema,
    partition_spec,
    table_location,
    table_schema,
)
from replicator.lake.catalog.schema_update import add_change_fields
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.ledger import LakeRole
from replicator.lake.schema_evolution import evolve, evolve_and_replace
from replicator.lake.strategies.write import STRATEGY_PROPERTIES
from replicator.model.changelog import change_column
from replicator.model.common import now_ms
from replicator.model.recorded_rules import (
    RULES_KEY,
    check_known,
    check_unchanged,
    rules_from_json,
    rules_in_force,
    rules_to_json,
)
from replicator.model.snapshot import Truncate
from replicator.model.table import MIRROR_KEY, SOURCE_KEY, TableId, TableSchema
from replicator.model.types import LakeType
from replicator.schema.evolution.changes import (
    PENDING_CLEAR_KEY,
    SCHEMA_KEY,
    ChangeNote,
    DeleteRows,
    RenameColumn,
    SchemaState,
)
from replicator.schema.evolution.own_columns import COLUMNS_KEY, OwnColumns
from replicator.schema.evolution.plan import (
    LakeSide,
    Plan,
    SourceSide,
    changelog_plan,
    heals_rows,
    keeps_rows,
    plan,
)
from replicator.schema.evolution.steps import STEPS_KEY, SchemaSteps, new_steps, steps_before
from replicator.schema.history.partitions import RowCondition

_NO_PARTITION: Final = -1


def evolve_tables(batch: TableBatch) -> TableBatch:
    """Return `batch` with the lake tables that it writes, which have its schema.

    A table with a newer schema than the batch is not written: after a crash, one of the two tables may have a part of
    the batch already.

    Raises:
        SchemaError: the table cannot follow the change; no part of the batch was applied.
        LakeUnavailable, CommitConflict: the catalog failed, or another commit was made; try again.
    """
    keeper = TableKeeper(batch.context, batch.task.table, batch.options, batch.schema)
    changelog = keeper.keep(LakeRole.CHANGELOG) if batch.options.changelog else None
    mirror = keeper.keep(LakeRole.MIRROR) if batch.kind is TableKind.MIRRORED else None
    users = () if mirror is None else mirror.user_columns()
    return replace(batch, changelog=changelog, mirror=mirror, user_columns=users)


@dataclass(frozen=True, slots=True)
class TableKeeper:
    """Keeps the lake tables of one source table at a schema.

    Attributes:
        follows: whether a statement that removed rows without events may be followed, unless that was decided before. A
            re-read has its outcome instead.
        replaces: whether the tables get all rows of the source; then they may have a version that the history lacks.
    """

    context: MirrorContext
    table: TableId
    options: TableOptions
    schema: BatchSchema
    follows: bool = True
    replaces: bool = False

    def keep(self, role: LakeRole) -> LakeTable | None:
        """Return the lake table, created or evolved; None if it has a newer schema."""
        known = self._known(role)
        if self.schema.source.columns and known is not None and known.at > self.schema.version.at:
            return None
        side = self._side(role)
        namespace = self.context.ledger.namespace(role)
        present = self.context.lake.load(namespace, self.table.name)
        recognized = None if present is None else self._recognize(present, role)
        properties = {**side.properties(), **self._rules_property(present, side.columns())}
        if present is None or recognized is None:
            return self._create(side, namespace, properties)
        properties = {**recognized.properties, **properties}
        self.context.lake.upgrade(present, side.format_version())
        self.context.lake.set_properties(present, properties)
        if role is LakeRole.CHANGELOG:
            add_change_fields(self.context.lake, present)
        if self.schema.source.columns:
            self._evolve(side, present, recognized.columns)
        return present

    def note_removal(self, role: LakeRole, present: LakeTable) -> None:
        """Record in a lake table that the source table was dropped or renamed; its rows stay."""
        removal, state = self.schema.history.gone, self.context.ledger.progress(self.table).schema(role)
        if removal is None or state is None or removal.at <= state.at:
            return
        note = ChangeNote(str(removal.position), removal.ts_ms, now_ms(), (str(removal),))
        ended = SchemaState(removal.at, state.retired, str(removal), (*state.notes, note))
        self.context.lake.set_properties(present, {SCHEMA_KEY: ended.to_json()})
        self._note_evolved(role, ended, present)

    def _known(self, role: LakeRole) -> SchemaState | None:
        """Return the schema state of a lake table; that of the batch's version if it need not be known."""
        known = self.context.ledger.progress(self.table).schema(role)
        if known is None or not (self.replaces and self.schema.history.lacks(known.at)):
            return known
        return replace(known, at=self.schema.version.at)

    def _recognize(self, present: LakeTable, role: LakeRole, *, restated: bool = False) -> Recognized:
        recognizer = TableRecognizer(self.context, self.table, self.schema)
        return recognizer.recognize(present, role, restated=restated)

    def _side(self, role: LakeRole) -> "_Side":
        return _MirrorSide(self) if role is LakeRole.MIRROR else _ChangelogSide(self)

    def _create(self, side: "_Side", namespace: str, properties: Mapping[str, str]) -> LakeTable:
        state, schema = side.first_state(), side.schema_text()
        created = self.context.lake.create(
            namespace,
            self.table.name,
            schema,
            side.partition_text(),
            {
                **ENGINE_PROPERTIES,
                FORMAT_KEY: str(side.format_version()),
                SOURCE_KEY: str(self.table),
                MIRROR_KEY: self.context.config.mirror.name,
                **properties,
                SCHEMA_KEY: state.to_json(),
                COLUMNS_KEY: OwnColumns.of(schema).to_json(),
                **side.first_steps(),
            },
            self._location(namespace, schema),
        )
        # The catalog may have assigned other ids, as it does to the elements of lists.
        self.context.lake.set_properties(
            created, {COLUMNS_KEY: OwnColumns.of(created.schema_json()).to_json()}
        )
        self.context.ledger.evolved(self.table, side.role, state)
        return created

    def _location(self, namespace: str, schema: str) -> str | None:
        """Return the location for a new table; None if the catalog chooses it."""
        name, lake, owner = self.table.name, self.context.config.lake, self.context.created_for
        if owner is None or self.context.lake.load(owner, name) is not None:
            return table_location(lake, namespace, name)
        return table_location(lake, owner, name) or self.context.lake.location_of_new(owner, name, schema)

    def _evolve(self, side: "_Side", present: LakeTable, columns: Mapping[str, LakeType]) -> None:
        version = self.schema.version
        recorded = self.context.ledger.progress(self.table).schema(side.role)
        known = self._known(side.role) or SchemaState(version.at)
        is_lost = recorded is not None and recorded.at > known.at
        if not is_lost and known.at == version.at and fits(present, columns, side.columns()):
            return
        lake, removed = lake_side(present, known, self.schema), self.rows_to_delete(known)
        source = source_side(
            lake, known, self.schema, in_lake_columns(removed, self.schema.history, known, lake)
        )
        with self._healing_as_configured():
            found = side.plan(lake, source)
            _refuse_mixed_rules(present, self.schema.source, found, source)
            if not is_lost and not found.changes and known.at >= version.at:
                return
            state = next_state(known, self.schema, found)
            properties = {SCHEMA_KEY: state.to_json(), **side.steps(present, known, found)}
            side.apply(present, found, properties, source)
        self._note_evolved(side.role, state, present)

    def _note_evolved(self, role: LakeRole, state: SchemaState, present: LakeTable) -> None:
        pending = present.has_pending_rows()
        self.context.ledger.evolved(self.table, role, state, present.unfilled(), has_pending_rows=pending)

    def rows_to_delete(self, known: SchemaState) -> Mapping[int, RowCondition]:
        """Return `at` of each version after `known` whose statement is followed → the rows that it removed."""
        return rows_to_delete(
            self.context, self.table, self.options, self.schema, known, follows=self.follows
        )

    def delete_as_recorded(self, present: LakeTable) -> None:
        """Delete the rows of a mirror that its changelog says to be removed, if it has not passed the statement.

        What a re-read adds to the changelog are then the differences from what it says.
        """
        known = self.context.ledger.progress(self.table).schema(LakeRole.MIRROR)
        removed = {} if known is None else self.rows_to_delete(known)
        if known is None or not removed:
            return
        lake = lake_side(present, known, self.schema)
        names = in_lake_columns(removed, self.schema.history, known, lake)
        statements = source_side(lake, known, self.schema, names).unlogged
        evolve(self.context.lake, present, [s for s in statements if isinstance(s, DeleteRows)], {})
        self.context.row_locations.forget(present)

    @contextmanager
    def _healing_as_configured(self) -> Iterator[None]:
        """Replace an error after which the table is read again, if only a command may do that.

        Raises:
            UnsupportedChange: instead of UnknownValues and UnloggedChange.
        """
        try:
            yield
        except (UnknownValues, UnloggedChange) as error:
            if heals_rows(self.options.schema_changes):
                raise
            raise UnsupportedChange(error.message, error.hint) from error

    def plan_restated(self, present: LakeTable) -> Plan:
        """Return the changes that a mirror needs if all its rows are replaced by the source's.

        Raises:
            SchemaError: the mirror cannot follow the source's schema, is another's, or has other columns.
        """
        recognized = self._recognize(present, LakeRole.MIRROR, restated=True)
        self.context.lake.set_properties(present, recognized.properties)
        known, (lake, source) = self._sides(present)
        if known.at == self.schema.version.at and fits(present, recognized.columns, self.schema.source):
            return Plan((), (), known.retired)
        found = plan(lake, source, self.options.schema_changes, rows_known=True)
        _refuse_mixed_rules(present, self.schema.source, found, source)
        return found

    def restate(self, present: LakeTable, found: Plan, rows: DataFrame) -> bool:
        """Apply what `plan_restated` found to a mirror, and replace all its rows by `rows`, in one commit.

        Returns False if the mirror has no rows: then only its schema is changed.

        Raises:
            CommitConflict: another commit was made since `present` was loaded.
        """
        known, _ = self._sides(present)
        state = next_state(known, self.schema, found)
        properties, key = {SCHEMA_KEY: state.to_json()}, self.schema.source.key
        has_rows = not present.is_empty
        if has_rows:
            evolve_and_replace(self.context.lake, present, found.changes, properties, rows, key=key)
        else:
            evolve(self.context.lake, present, found.changes, properties, key=key)
        self.context.row_locations.forget(present)
        self.context.ledger.evolved(self.table, LakeRole.MIRROR, state)
        return has_rows

    def _sides(self, present: LakeTable) -> tuple[SchemaState, tuple[LakeSide, SourceSide]]:
        """Return the schema state of a mirror, and both sides of its evolution."""
        known = self._known(LakeRole.MIRROR) or SchemaState(self.schema.version.at)
        lake = lake_side(present, known, self.schema)
        return known, (lake, source_side(lake, known, self.schema))

    def _rules_property(self, present: LakeTable | None, schema: TableSchema) -> dict[str, str]:
        """Return the property that records the column rules of a table that has any.

        Raises:
            UnfitColumns: the table was written under other rules, or a column may be one with a stricter rule.
        """
        recorded = {} if present is None else rules_from_json(present.property(RULES_KEY))
        if not recorded and not rules_in_force(schema):
            return {}
        columns = () if present is None else present.engine_columns()
        known = recorded
        if not recorded.keys() <= {*schema.names, *schema.left_out}:
            names = names_in(self.schema.history)
            rules = column_rules(self.context, self.table)
            known = check_known(recorded, columns, schema, names, rules, str(self.table))
        checked = check_unchanged(known, columns, schema, str(self.table), self.schema.resolved.histories)
        return {RULES_KEY: rules_to_json(checked)} if checked or recorded else {}


class _Side(Protocol):
    """How a mirror and a changelog differ."""

    role: LakeRole

    def columns(self) -> TableSchema:
        """Return the columns that the table must hold."""
        ...

    def properties(self) -> dict[str, str]:
        """Return the table properties that the configuration sets."""
        ...

    def format_version(self) -> int:
        """Return the format version that the table must have at least."""
        ...

    def first_state(self) -> SchemaState:
        """Return the schema state of a new table."""
        ...

    def schema_text(self) -> str:
        """Return Iceberg's JSON of a new table's schema."""
        ...

    def partition_text(self) -> str | None:
        """Return Iceberg's JSON of a new table's partition spec."""
        ...

    def plan(self, lake: LakeSide, source: SourceSide) -> Plan:
        """Return the changes to make."""
        ...

    def first_steps(self) -> Mapping[str, str]:
        """Return the property that records the schema steps of a new table; empty if the table has none."""
        ...

    def steps(self, present: LakeTable, known: SchemaState, found: Plan) -> Mapping[str, str]:
        """Return the same property after `found`, planned for a table in state `known`."""
        ...

    def apply(
        self, present: LakeTable, found: Plan, properties: Mapping[str, str], source: SourceSide
    ) -> None:
        """Make the changes."""
        ...


class _MirrorSide:
    """A mirror has the columns of the source, and its rows follow the changes."""

    role = LakeRole.MIRROR

    def __init__(self, keeper: TableKeeper) -> None:
        self._keeper = keeper

    def columns(self) -> TableSchema:
        return self._keeper.schema.source

    def properties(self) -> dict[str, str]:
        options = self._keeper.options
        return {**STRATEGY_PROPERTIES[options.strategy], **options.properties}

    def format_version(self) -> int:
        return self._keeper.options.format_version

    def first_state(self) -> SchemaState:
        return SchemaState(self._keeper.schema.version.at)

    def schema_text(self) -> str:
        return table_schema(self.columns())

    def partition_text(self) -> str | None:
        partition = self._keeper.options.partition
        return partition_spec(self.columns(), partition) if partition else None

    def plan(self, lake: LakeSide, source: SourceSide) -> Plan:
        return plan(lake, source, self._keeper.options.schema_changes)

    def first_steps(self) -> Mapping[str, str]:
        return {}

    def steps(self, present: LakeTable, known: SchemaState, found: Plan) -> Mapping[str, str]:  # noqa: ARG002
        return {}

    def apply(
        self, present: LakeTable, found: Plan, properties: Mapping[str, str], source: SourceSide
    ) -> None:
        context, version, pending = self._keeper.context, self._keeper.schema.version, dict(properties)
        if source.recreated and not version.begins_epoch:  # Then the first row removes the earlier ones.
            clear = Truncate(_NO_PARTITION, -1, version.position, version.ts_ms)
            pending[PENDING_CLEAR_KEY] = json.dumps(clear.to_json())
        evolve(context.lake, present, found.changes, pending, key=self.columns().key, fill=True)
        context.row_locations.forget(present)


class _ChangelogSide:
    """A changelog keeps the columns of all times, and its rows never change."""

    role = LakeRole.CHANGELOG

    def __init__(self, keeper: TableKeeper) -> None:
        self._keeper = keeper

    def columns(self) -> TableSchema:
        return self._keeper.schema.decoded

    def properties(self) -> dict[str, str]:
        return {}

    def format_version(self) -> int:
        # Rows are only appended: a higher version would only exclude readers.
        return DEFAULT_FORMAT

    def first_state(self) -> SchemaState:
        schema = self._keeper.schema
        return SchemaState(schema.version.at, schema.resolved.retired)

    def schema_text(self) -> str:
        return changelog_schema(self.columns(), change_column(self.columns().names))

    def partition_text(self) -> None:
        return None

    def plan(self, lake: LakeSide, source: SourceSide) -> Plan:
        retired = self._keeper.schema.resolved.retired
        extra = [c for c in self.columns().columns if c.name in retired]
        return changelog_plan(lake, source, extra, self._keeper.options.schema_changes)

    def first_steps(self) -> Mapping[str, str]:
        """Return the steps of a new changelog: its first batch may have events of several versions."""
        schema, history = self._keeper.schema, self._keeper.schema.history
        first = history.versions[history.own]
        decoded = {c.name: c.type for c in schema.decoded.columns}
        last = {n: history.last_name(history.own, schema.version_index, n) for n in first.schema.names}
        columns = {name: decoded[now] for name, now in last.items() if now in decoded}
        carried = history.carry(history.own, schema.version_index)
        key = tuple(name for name in carried if carried[name] in schema.source.key) or schema.source.key
        source = SourceSide(schema.source, carried)
        retired = [c for c in schema.decoded.columns if c.name in schema.resolved.retired]
        planned = changelog_plan(LakeSide(columns), source, retired)
        # There are no rows from before a statement that changes rows: a batch is split there.
        new = new_steps(history, first.at, schema.version_index, columns, planned, keeps=True)
        return {STEPS_KEY: SchemaSteps(key).followed_by(new, schema.source.key).to_json()}

    def steps(self, present: LakeTable, known: SchemaState, found: Plan) -> Mapping[str, str]:
        schema, text = self._keeper.schema, present.property(STEPS_KEY)
        before = lake_side(present, known, schema).key or schema.source.key
        recorded = steps_before(known, before) if text is None else SchemaSteps.from_json(text)
        live = lake_side(present, known, schema).live
        removed, keeps = self._keeper.rows_to_delete(known), keeps_rows(self._keeper.options.schema_changes)
        new = new_steps(
            schema.history, known.at, schema.version_index, live, found, keeps=keeps, removed=removed
        )
        return {STEPS_KEY: recorded.followed_by(new, schema.source.key).to_json()}

    def apply(
        self,
        present: LakeTable,
        found: Plan,
        properties: Mapping[str, str],
        source: SourceSide,  # noqa: ARG002
    ) -> None:
        evolve(self._keeper.context.lake, present, found.changes, properties)


def _refuse_mixed_rules(table: LakeTable, schema: TableSchema, found: Plan, source: SourceSide) -> None:
    """Raise UnfitColumns if a column gets a name with another rule, which would mix old and new values."""
    recorded, wanted = rules_from_json(table.property(RULES_KEY)), rules_in_force(schema)
    renamed = {c.name: c.new for c in found.changes if isinstance(c, RenameColumn)}
    left_out = {was: now for was, now in source.carried.items() if now in schema.left_out}
    for was, now in (renamed | left_out).items():
        if recorded.get(was) != wanted.get(now):
            raise UnfitColumns(
                f"column {was} is called {now} now, and the column rules for the two names differ",
                "give both names the same rule; or drop the table and its changelog in the lake and start again",
            )
