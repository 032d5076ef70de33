"""Compute the result of a pipeline as of an earlier moment, in batch, from the changelogs of all that it reads.

The result of the pipeline itself stays. The other table is an ordinary one, which no refresh continues.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.config import Config
from replicator.errors import UnsupportedChange, UsageError
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.files.data_files import stage_data
from replicator.lake.files.spark_tables import as_table, rows_of
from replicator.lake.rebuilt_tables import REBUILT_KEY, Provenance, complete, provenance_of
from replicator.model.common import ShowProgress, now_ms, quoted
from replicator.model.moments import AsOf, Bound
from replicator.model.position import PackedPosition
from replicator.model.table import SOURCE_KEY
from replicator.operations.rebuild.changes import AT, is_before, read_changes
from replicator.operations.rebuild.planning import SourceTables, find_bound, plan_rebuild
from replicator.operations.rebuild.rebuild import translated
from replicator.pipelines.files import chosen
from replicator.pipelines.history.definition import History
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.positions import READ, is_after
from replicator.pipelines.inputs.tables import InputKind, InputTable, recorded_result
from replicator.pipelines.opening import known_pipelines, opened_pipelines
from replicator.pipelines.query.definition import Definition
from replicator.pipelines.query.names import STATE, TableName
from replicator.pipelines.refresh.planner import Planned
from replicator.pipelines.refresh.views import Views, own_columns, united
from replicator.pipelines.service import Pipelines


@dataclass(frozen=True, slots=True)
class ComputedAsOf:
    """A result as of a moment.

    Attributes:
        table: the table that was written.
        position: the position in the binlog up to which changes count.
    """

    pipeline: str
    table: str
    rows: int
    position: str


def rebuild_result(
    config: Config, name: str, as_of: AsOf, to: str, on_progress: ShowProgress = lambda *_: None
) -> ComputedAsOf:
    """Compute the result of a pipeline as of a moment, and write it to another namespace.

    Raises:
        UsageError: there is no pipeline of the name, or see `compute_as_of`.
        PipelineError, UnsupportedChange, Unsettled, LakeError: as `compute_as_of`.
    """
    files = known_pipelines(config, [name])
    (found,) = chosen(files, [name], config)
    if isinstance(found, History):
        raise UsageError(f"{name} is a history: it has the rows of earlier moments", "query it")
    with opened_pipelines(config, files) as pipelines:
        on_progress(f"computing {name} as of {as_of.text}", 0, 1)
        return compute_as_of(pipelines, found, as_of, to)


def compute_as_of(pipelines: Pipelines, definition: Definition, as_of: AsOf, to: str) -> ComputedAsOf:
    """Compute a result as of a moment, and write it to the namespace `to`.

    Raises:
        UsageError: the namespace is one of the mirror or has such a table, or the result has not reached the moment.
        PipelineError: the pipeline does not fit the tables of the lake.
        UnsupportedChange: the changelogs do not tell the rows of the moment.
        Unsettled: a mirror is being changed at the moment.
        LakeError: the lake is unavailable.
    """
    lake, result = pipelines.lake, definition.table
    target = TableName(to, result.name)
    _check_free(pipelines, target)
    sources = _Sources(pipelines, Views(lake.spark))
    sources.add(definition)
    bound = find_bound(as_of, list(sources.changes.values()))
    if bound is None:
        raise UsageError(
            f"no change of what {definition.name} reads is later than {as_of.text}",
            f"read the result as it is: {result}",
        )
    _check_reached(pipelines, definition, bound)
    changelogs = ", ".join(sorted(str(t.changelog.name) for t in sources.tables.values()))
    made_of = Provenance(str(result), changelogs, None, as_of.text, bound.text, now_ms())
    try:
        with translated(lake, f"{definition.name} cannot be computed as of {bound.text}"):
            sources.check(bound)
            rows = sources.result(result, bound).drop(STATE)
            table = _created(pipelines, target, definition, rows, made_of)
            files = stage_data(lake, table, as_table(lake, table, rows))
            complete(table, files, replace(made_of, complete=True))
    finally:
        sources.views.drop()
    return ComputedAsOf(definition.name, str(target), sum(int(f.recordCount()) for f in files), bound.text)


def _check_free(pipelines: Pipelines, target: TableName) -> None:
    results = {name.namespace for name in pipelines.files.results}
    if target.namespace in {*pipelines.config.lake.namespaces, *results}:
        raise UsageError(
            f"--to: {target.namespace} is a namespace of the mirror itself",
            "name another one, as in shop_then",
        )
    present = _present(pipelines.lake, target)
    known = None if present is None else provenance_of(present)
    if present is not None and (known is None or known.complete):
        raise UsageError(f"{target} exists already", "name another namespace, or drop the table first")


def _present(lake: Lake, target: TableName) -> LakeTable | None:
    return lake.load(target.namespace, target.name) if target.namespace in lake.namespaces() else None


def _created(
    pipelines: Pipelines, target: TableName, definition: Definition, rows: DataFrame, made_of: Provenance
) -> LakeTable:
    """Create the table, in place of one that an interrupted command left."""
    if _present(pipelines.lake, target) is not None:
        pipelines.lake.drop(target.namespace, target.name)
    return pipelines.tables.create(
        target, rows, definition.partition, definition.description, {REBUILT_KEY: made_of.to_json()}
    )


def _check_reached(pipelines: Pipelines, definition: Definition, bound: Bound) -> None:
    """Check that the result has reached a moment: then all changes from before it are in the changelogs.

    Raises:
        UsageError: it has not, or the moment is within an event.
    """
    if bound.row is not None:
        raise UsageError(
            f"{bound.text} is within an event", "name the end of a transaction, as in binlog.000123:4567"
        )
    record = recorded_result(pipelines.tables.load(definition.table))
    run = f"run: replicator pipeline run {definition.name}"
    if record is None:
        raise UsageError(f"the pipeline {definition.name} has no result yet", run)
    position = record.boundary.position
    if position is not None and PackedPosition.pack(position).position_key < bound.position_key:
        raise UsageError(f"{bound.text} is after {record.boundary}, up to which {definition.name} is", run)


@dataclass(slots=True)
class _Sources:
    """What the rows of a result are computed of: pipelines, mirrors and changelogs.

    Attributes:
        planned: the pipelines, by the tables of their results.
        inputs: the mirrors and changelogs.
        tables: mirror or changelog → the lake tables of its source table.
        changes: mirror or changelog → the changes of its source table.
    """

    pipelines: Pipelines
    views: Views
    planned: dict[TableName, Planned] = field(default_factory=dict)
    inputs: dict[TableName, InputTable] = field(default_factory=dict)
    tables: dict[TableName, SourceTables] = field(default_factory=dict)
    changes: dict[TableName, DataFrame] = field(default_factory=dict)

    def add(self, definition: Definition) -> None:
        """Load what a pipeline reads, and what the pipelines read whose results it reads."""
        planned = self.pipelines.planner.plan(definition)
        self.planned[definition.table] = planned
        for name, table in planned.inputs.items():
            if table.kind is InputKind.RESULT:
                self.add(self._pipeline_of(name))
            elif name not in self.tables:
                self.inputs[name] = table
                self.tables[name] = _tables_of(table)
                self.changes[name] = read_changes(self.pipelines.lake, self.tables[name].changelog)

    def _pipeline_of(self, name: TableName) -> Definition:
        for definition in self.pipelines.files.definitions:
            if definition.table == name:
                return definition
        raise UnsupportedChange(
            f"{name} is a history, whose rows of earlier moments are in itself", "query it"
        )

    def check(self, bound: Bound) -> None:
        """Check that the changelogs tell the rows of a moment.

        Raises:
            UnsupportedChange: they do not.
        """
        for name, tables in self.tables.items():
            read = self.changes[name].where(F.col(AT).getField("op").isin(*READ))
            if not read.where(~F.coalesce(is_before(bound), F.lit(False))).isEmpty():
                raise UnsupportedChange(
                    f"rows of {tables.source} were read from the source after {bound.text}, so its changelog does not "
                    "tell how they were before",
                    "name a later moment",
                )
            if tables.mirror is None:
                continue
            whole = plan_rebuild(tables, self.changes[name], None, in_place=False).rows.count()
            present = rows_of(self.pipelines.lake, tables.mirror).count()
            if whole != present:
                raise UnsupportedChange(
                    f"the changelog of {tables.source} is not complete: it gives {whole:,} rows of now, and the mirror "
                    f"has {present:,}",
                    "a changelog that was switched on later begins then: read the table again: replicator heal "
                    f"{tables.source}; then moments after that can be computed",
                )

    def result(self, name: TableName, bound: Bound) -> DataFrame:
        """Return the rows of a result as of a moment."""
        planned = self.planned[name]
        for used in planned.plan.inputs:
            parts = [(table, self._rows(table, own_columns(used), bound)) for table in used.tables]
            self.views.add(used.now, united(used, parts))
        return self.views.whole(planned.plan, planned.function)

    def _rows(self, name: TableName, columns: Sequence[str], bound: Bound) -> DataFrame:
        if name in self.planned:
            return self.result(name, bound).select(*map(_column, columns))
        table, lake = self.inputs[name], self.pipelines.lake
        if table.kind is InputKind.CHANGELOG:
            at = PackedPosition(bound.position_key, 0).unpack()
            later = is_after(Boundary(at.file, at.pos + 1), F.col(quoted(table.change or "")))
            return rows_of(lake, table.table).where(~later).select(*map(_column, columns))
        planned = plan_rebuild(self.tables[name], self.changes[name], bound, in_place=False)
        known = {column.name for column in planned.plan.columns}
        if lacking := [column for column in columns if column not in known]:
            raise UnsupportedChange(
                f"{name} had no column {', '.join(lacking)} at {bound.text}", "name a later moment"
            )
        types = table.columns(lake)
        return planned.rows.select(*(_column(column).cast(types[column]).alias(column) for column in columns))


def _tables_of(table: InputTable) -> SourceTables:
    """Return the lake tables of a mirror or a changelog.

    Raises:
        UnsupportedChange: it has no changelog, or is a log table.
        Unsettled: it is being changed.
    """
    table.check_settled()
    if table.kind is InputKind.LOG:
        raise UnsupportedChange(
            f"{table.name} is a log table: its rows have no position in the source, so those of an earlier moment "
            "are not known",
            "a result can be computed as of a moment if it reads mirrors and changelogs only",
        )
    if table.changelog is None:
        raise UnsupportedChange(
            f"{table.name} has no changelog, which would tell its rows at an earlier moment",
            "give it one: changelog = true in its [[table]] of the configuration",
        )
    source = table.changelog.property(SOURCE_KEY) or str(table.name)
    is_mirror = table.kind is InputKind.MIRROR
    marker = table.changelog.marker() or table.marker()
    mirror = table.table if is_mirror else None
    return SourceTables(source, table.changelog, marker, mirror, table.marker() if is_mirror else None)


def _column(name: str) -> SparkColumn:
    return F.col(quoted(name))
