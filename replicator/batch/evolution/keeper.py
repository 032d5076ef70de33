"""Creates a lake table of a source table, or gives it the schema of a batch."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import assert_never

from pyspark.sql import DataFrame

from replicator.batch.context import MirrorContext, column_rules
from replicator.batch.evolution.followed_statements import in_lake_columns, rows_to_delete
from replicator.batch.evolution.recognition import Recognized, names_in, recognize
from replicator.batch.evolution.roles import ChangelogSide, MirrorSide, RoleSide
from replicator.batch.evolution.sides import fits, lake_side, next_state, source_side
from replicator.batch.values import BatchSchema
from replicator.config import TableOptions
from replicator.errors import UnfitColumns, UnknownValues, UnloggedChange, UnsupportedChange
from replicator.lake.catalog.exact_commit import set_properties
from replicator.lake.catalog.metadata import FORMAT_KEY, table_location
from replicator.lake.catalog.schema_update import add_change_fields
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.schema_evolution import evolve, evolve_and_replace
from replicator.model.common import now_ms
from replicator.model.recorded_rules import (
    RULES_KEY,
    check_known,
    check_unchanged,
    rules_from_json,
    rules_in_force,
    rules_to_json,
)
from replicator.model.roles import LakeRole
from replicator.model.table import MIRROR_KEY, SOURCE_KEY, TableId, TableSchema
from replicator.model.types import LakeType
from replicator.schema.evolution.changes import SCHEMA_KEY, ChangeNote, DeleteRows, RenameColumn, SchemaState
from replicator.schema.evolution.own_columns import COLUMNS_KEY, OwnColumns
from replicator.schema.evolution.plan import (
    LakeSide,
    Plan,
    SourceSide,
    heals_rows,
    plan,
)
from replicator.schema.history.partitions import RowCondition


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
        set_properties(present, properties)
        if role is LakeRole.CHANGELOG:
            add_change_fields(self.context.lake, present)
        if self.schema.source.columns:
            self._evolve(side, present, recognized.columns)
        return present

    def note_removal(self, role: LakeRole, present: LakeTable) -> None:
        """Record in a lake table that the source table was dropped or renamed; its rows stay."""
        removal, state = self.schema.history.gone, self._state(role)
        if removal is None or state is None or removal.at <= state.at:
            return
        note = ChangeNote(str(removal.position), removal.ts_ms, now_ms(), (str(removal),))
        ended = SchemaState(removal.at, state.retired, str(removal), (*state.notes, note))
        set_properties(present, {SCHEMA_KEY: ended.to_json()})
        self._note_evolved(role, ended, present)

    def _known(self, role: LakeRole) -> SchemaState | None:
        """Return the schema state of a lake table; that of the batch's version if it need not be known."""
        known = self._state(role)
        if known is None or not (self.replaces and self.schema.history.lacks(known.at)):
            return known
        return replace(known, at=self.schema.version.at)

    def _recognize(self, present: LakeTable, role: LakeRole, *, restated: bool = False) -> Recognized:
        return recognize(self.context, self.schema, present, role, self._state(role), restated=restated)

    def _side(self, role: LakeRole) -> RoleSide:
        match role:
            case LakeRole.MIRROR:
                return MirrorSide(self.context, self.options, self.schema)
            case LakeRole.CHANGELOG:
                return ChangelogSide(self.context, self.options, self.schema, self.rows_to_delete)
            case _:
                assert_never(role)

    def _state(self, role: LakeRole) -> SchemaState | None:
        """Return the recorded schema state of a lake table."""
        return self.context.ledger.progress(self.table).schema(role)

    def _create(self, side: RoleSide, namespace: str, properties: Mapping[str, str]) -> LakeTable:
        state, schema = side.first_state(), side.schema_text()
        created = self.context.lake.create(
            namespace,
            self.table.name,
            schema,
            side.partition_text(),
            {
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
        set_properties(created, {COLUMNS_KEY: OwnColumns.of(created.schema_json()).to_json()})
        self.context.ledger.evolved(self.table, side.role, state)
        return created

    def _location(self, namespace: str, schema: str) -> str | None:
        """Return the location for a new table; None if the catalog chooses it."""
        name, lake, owner = self.table.name, self.context.config.lake, self.context.created_for
        if owner is None or self.context.lake.load(owner, name) is not None:
            return table_location(lake, namespace, name)
        return table_location(lake, owner, name) or self.context.lake.location_of_new(owner, name, schema)

    def _evolve(self, side: RoleSide, present: LakeTable, columns: Mapping[str, LakeType]) -> None:
        version = self.schema.version
        recorded = self._state(side.role)
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
        known = self._state(LakeRole.MIRROR)
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
        set_properties(present, recognized.properties)
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
