"""Write rebuilt mirrors: in place in one atomic commit, or as tables of another namespace; and report it."""

from dataclasses import dataclass, replace

from replicator import failpoints
from replicator.config import Config
from replicator.errors import UsageError
from replicator.lake.catalog.metadata import FORMAT_KEY, partition_spec, table_location, table_schema
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.commit import Staged, publish
from replicator.lake.files.data_files import cast_to_table, stage_data
from replicator.lake.files.spark_tables import rows_of
from replicator.lake.rebuilt_tables import REBUILT_KEY, Provenance, complete, provenance_of
from replicator.lake.strategies.registry import STRATEGIES
from replicator.model.changelog import RESTATED_KEY
from replicator.model.common import now_ms
from replicator.model.moments import AsOf, Bound
from replicator.model.recorded_rules import RULES_KEY
from replicator.model.table import SOURCE_KEY, Column, TableSchema
from replicator.operations.rebuild.planning import PlannedRebuild, SourceTables
from replicator.schema.evolution.changes import FOLLOWED_KEY, SCHEMA_KEY, SchemaState


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What was, or would be, rebuilt.

    Attributes:
        source: the source table, `database.table`.
        table: the rebuilt lake table, with its namespace.
        rows: number of its rows.
        rows_before: number of rows of the mirror before; None if there was none, and for another namespace.
        position: the position up to which changes count.
        newest: the position of the newest change in the changelog; None without any.
        changed: whether the table was written.
        reached: whether the changelog certainly has all changes up to the position: it has a later one.
    """

    source: str
    table: str
    rows: int
    rows_before: int | None
    position: str | None
    newest: str | None
    changed: bool
    reached: bool = True


@dataclass(frozen=True, slots=True)
class RebuildWriter:
    """Writes planned rebuilds.

    Attributes:
        as_of, bound: what the operator asked for, and the position that it means.
        to: the namespace of the results; None for the mirrors themselves.
    """

    config: Config
    lake: Lake
    as_of: AsOf | None
    bound: Bound | None
    to: str | None

    def check_free(self, tables: SourceTables) -> None:
        """Check that the namespace has no other table of this name.

        Raises:
            UsageError: it has one.
        """
        found = self._present(tables)
        if found is None or self._is_done(found, tables):
            return
        known = provenance_of(found)
        if known is None or known.complete:
            raise UsageError(
                f"{self.to}.{tables.name} exists already", "name another namespace, or drop the table first"
            )

    def _present(self, tables: SourceTables) -> LakeTable | None:
        """Return the table of this name in the other namespace; None if there is none."""
        if self.to is None or self.to not in self.lake.namespaces():
            return None
        return self.lake.load(self.to, tables.name)

    def _is_done(self, found: LakeTable, tables: SourceTables) -> bool:
        """Return whether an interrupted command has already made this table."""
        known = provenance_of(found)
        return known is not None and known.complete and known.is_of_same(self._provenance(tables))

    def count(self, planned: PlannedRebuild) -> RebuildReport:
        """Count the rows of a rebuild, and write nothing."""
        return self._report(planned, planned.rows.count(), changed=False)

    def write(self, planned: PlannedRebuild) -> RebuildReport:
        """Write a rebuild.

        Raises:
            FencedError, CommitConflict: another process wrote the mirror; nothing was changed.
            LakeUnavailable: the catalog failed.
        """
        found = self._present(planned.tables)
        if found is not None and self._is_done(found, planned.tables):
            return self.count(planned)
        rows_before = self._rows_before(planned)
        table = self._replaced(planned) if self.to is None else self._created(planned, self.to)
        files = stage_data(self.lake, table, cast_to_table(planned.rows, table.columns()))
        failpoints.reach("before-rebuild-commit")
        if planned.marker is not None:
            # The mirror then has the same rows of re-reads and replays as the changelog.
            restated = {RESTATED_KEY: planned.tables.changelog.property(RESTATED_KEY)}
            staged = Staged(files, clear=True, fills_done=True, properties=restated)
            publish(self.lake, table, planned.tables.mirror_marker, planned.marker, staged)
        else:
            complete(table, files, replace(self._provenance(planned.tables), complete=True))
        failpoints.reach("after-rebuild-commit")
        count = sum(int(file.recordCount()) for file in files)
        return replace(self._report(planned, count, changed=True), rows_before=rows_before)

    def _replaced(self, planned: PlannedRebuild) -> LakeTable:
        """Return the mirror as it was planned, created if it does not exist."""
        tables = planned.tables
        if tables.mirror is not None:
            return tables.mirror
        options = self.config.table(tables.source)
        state = SchemaState(tables.state.at, gone=tables.state.gone)
        properties = {
            FORMAT_KEY: str(options.format_version),
            SOURCE_KEY: tables.source,
            SCHEMA_KEY: state.to_json(),
            **STRATEGIES[options.strategy].properties,
            **options.properties,
        }
        if (rules := tables.changelog.property(RULES_KEY)) is not None:
            properties[RULES_KEY] = rules
        if (followed := tables.steps().followed) is not None:
            properties[FOLLOWED_KEY] = str(followed)
        return self._create(planned, self.config.lake.namespace, properties)

    def _created(self, planned: PlannedRebuild, namespace: str) -> LakeTable:
        """Create the table in another namespace, in place of one whose rebuild was interrupted."""
        self.lake.ensure_namespace(namespace)
        if self.lake.load(namespace, planned.tables.name) is not None:
            self.lake.drop(namespace, planned.tables.name)
        return self._create(planned, namespace, {REBUILT_KEY: self._provenance(planned.tables).to_json()})

    def _create(self, planned: PlannedRebuild, namespace: str, properties: dict[str, str]) -> LakeTable:
        tables, types = planned.tables, planned.tables.changelog.columns()
        columns = tuple(Column(c.name, types[c.stored]) for c in planned.plan.columns)
        schema = TableSchema(columns, planned.plan.key)
        partition = self.config.table(tables.source).partition
        table = self.lake.create(
            namespace,
            tables.name,
            table_schema(schema),
            partition_spec(schema, partition) if partition else None,
            properties,
            table_location(self.config.lake, namespace, tables.name),
        )
        failpoints.reach("after-rebuild-create")
        return table

    def _provenance(self, tables: SourceTables) -> Provenance:
        return Provenance(
            tables.source,
            f"{tables.changelog.namespace}.{tables.changelog.name}",
            tables.changelog.snapshot_id,
            None if self.as_of is None else self.as_of.text,
            self._position(tables),
            now_ms(),
        )

    def _position(self, tables: SourceTables) -> str | None:
        if self.bound is not None:
            return self.bound.text
        position = tables.marker.position
        return None if position is None else str(position)

    def _rows_before(self, planned: PlannedRebuild) -> int | None:
        mirror = planned.tables.mirror
        if self.to is not None or mirror is None:
            return None
        return int(rows_of(self.lake, mirror).count())

    def _report(self, planned: PlannedRebuild, rows: int, *, changed: bool) -> RebuildReport:
        tables = planned.tables
        newest = tables.marker.position
        return RebuildReport(
            source=tables.source,
            table=f"{self.to or self.config.lake.namespace}.{tables.name}",
            rows=rows,
            rows_before=self._rows_before(planned) if not changed else None,
            position=self._position(tables),
            newest=None if newest is None else str(newest),
            changed=changed,
            reached=self.bound is None or (newest is not None and self.bound.is_before(newest)),
        )
