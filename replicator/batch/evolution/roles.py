"""How a mirror and a changelog differ when they follow the schema of the source."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final

from replicator.batch.context import MirrorContext
from replicator.batch.evolution.sides import lake_side
from replicator.batch.values import BatchSchema
from replicator.config import TableOptions
from replicator.lake.catalog.metadata import DEFAULT_FORMAT, changelog_schema, partition_spec, table_schema
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.schema_evolution import evolve
from replicator.lake.strategies.registry import STRATEGIES
from replicator.model.changelog import change_column
from replicator.model.roles import LakeRole
from replicator.model.snapshot import Truncate
from replicator.model.table import TableSchema
from replicator.schema.evolution.changes import PENDING_CLEAR_KEY, SchemaState
from replicator.schema.evolution.plan import (
    LakeSide,
    Plan,
    SourceSide,
    changelog_plan,
    keeps_rows,
    plan,
)
from replicator.schema.evolution.steps import STEPS_KEY, SchemaSteps, new_steps, steps_before
from replicator.schema.history.partitions import RowCondition

_NO_PARTITION: Final = -1


class RoleSide(ABC):
    """How the lake table of a role follows the source."""

    role: LakeRole

    def __init__(self, context: MirrorContext, options: TableOptions, schema: BatchSchema) -> None:
        self._context, self._options, self._schema = context, options, schema

    @abstractmethod
    def columns(self) -> TableSchema:
        """Return the columns that the table must hold."""

    @abstractmethod
    def first_state(self) -> SchemaState:
        """Return the schema state of a new table."""

    @abstractmethod
    def schema_text(self) -> str:
        """Return Iceberg's JSON of a new table's schema."""

    @abstractmethod
    def plan(self, lake: LakeSide, source: SourceSide) -> Plan:
        """Return the changes to make."""

    @abstractmethod
    def apply(
        self, present: LakeTable, found: Plan, properties: Mapping[str, str], source: SourceSide
    ) -> None:
        """Make the changes."""

    def properties(self) -> dict[str, str]:
        """Return the table properties that the configuration sets."""
        return {}

    def format_version(self) -> int:
        """Return the format version that the table must have at least; a higher one would only exclude readers."""
        return DEFAULT_FORMAT

    def partition_text(self) -> str | None:
        """Return Iceberg's JSON of a new table's partition spec."""
        return None

    def first_steps(self) -> Mapping[str, str]:
        """Return the property that records the schema steps of a new table; empty if the table has none."""
        return {}

    def steps(self, present: LakeTable, known: SchemaState, found: Plan) -> Mapping[str, str]:
        """Return the same property after `found`, planned for a table in state `known`."""
        del present, known, found
        return {}


class MirrorSide(RoleSide):
    """A mirror has the columns of the source, and its rows follow the changes."""

    role = LakeRole.MIRROR

    def columns(self) -> TableSchema:
        return self._schema.source

    def properties(self) -> dict[str, str]:
        options = self._options
        return {**STRATEGIES[options.strategy].properties, **options.properties}

    def format_version(self) -> int:
        return self._options.format_version

    def first_state(self) -> SchemaState:
        return SchemaState(self._schema.version.at)

    def schema_text(self) -> str:
        return table_schema(self.columns())

    def partition_text(self) -> str | None:
        partition = self._options.partition
        return partition_spec(self.columns(), partition) if partition else None

    def plan(self, lake: LakeSide, source: SourceSide) -> Plan:
        return plan(lake, source, self._options.schema_changes)

    def apply(
        self, present: LakeTable, found: Plan, properties: Mapping[str, str], source: SourceSide
    ) -> None:
        context, version, pending = self._context, self._schema.version, dict(properties)
        if source.recreated and not version.begins_epoch:  # Then the first row removes the earlier ones.
            clear = Truncate(_NO_PARTITION, -1, version.position, version.ts_ms)
            pending[PENDING_CLEAR_KEY] = json.dumps(clear.values())
        evolve(context.lake, present, found.changes, pending, key=self.columns().key, fill=True)
        context.row_locations.forget(present)


class ChangelogSide(RoleSide):
    """A changelog keeps the columns of all times, and its rows never change."""

    role = LakeRole.CHANGELOG

    def __init__(
        self,
        context: MirrorContext,
        options: TableOptions,
        schema: BatchSchema,
        rows_to_delete: Callable[[SchemaState], Mapping[int, RowCondition]],
    ) -> None:
        super().__init__(context, options, schema)
        self._rows_to_delete = rows_to_delete

    def columns(self) -> TableSchema:
        return self._schema.decoded

    def first_state(self) -> SchemaState:
        schema = self._schema
        return SchemaState(schema.version.at, schema.resolved.retired)

    def schema_text(self) -> str:
        return changelog_schema(self.columns(), change_column(self.columns().names))

    def plan(self, lake: LakeSide, source: SourceSide) -> Plan:
        retired = self._schema.resolved.retired
        extra = [c for c in self.columns().columns if c.name in retired]
        return changelog_plan(lake, source, extra, self._options.schema_changes)

    def first_steps(self) -> Mapping[str, str]:
        """Return the steps of a new changelog: its first batch may have events of several versions."""
        schema, history = self._schema, self._schema.history
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
        schema, text = self._schema, present.property(STEPS_KEY)
        before = lake_side(present, known, schema).key or schema.source.key
        recorded = steps_before(known, before) if text is None else SchemaSteps.from_json(text)
        live = lake_side(present, known, schema).live
        removed, keeps = self._rows_to_delete(known), keeps_rows(self._options.schema_changes)
        new = new_steps(
            schema.history, known.at, schema.version_index, live, found, keeps=keeps, removed=removed
        )
        return {STEPS_KEY: recorded.followed_by(new, schema.source.key).to_json()}

    def apply(
        self, present: LakeTable, found: Plan, properties: Mapping[str, str], source: SourceSide
    ) -> None:
        del source
        evolve(self._context.lake, present, found.changes, properties)
