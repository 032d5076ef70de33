"""Compare a result with what its query computes as a whole, of the inputs as they were at the result's boundary."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.errors import Unsettled, UsageError
from replicator.lake.files.spark_tables import rows_of
from replicator.model.common import quoted
from replicator.pipelines.files import Pipeline
from replicator.pipelines.history.definition import History
from replicator.pipelines.history.refresh import HistoryRefresh
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.states import read_state
from replicator.pipelines.output.record import ResultRecord, recorded_result
from replicator.pipelines.output.writer import as_table
from replicator.pipelines.query.definition import Definition
from replicator.pipelines.query.names import TableName
from replicator.pipelines.query.signed import STATE
from replicator.pipelines.refresh.refresh import own_columns, united
from replicator.pipelines.refresh.views import Views
from replicator.pipelines.service import Pipelines

_SHOWN: Final = 20
_COUNT: Final = "_replicator_count"


@dataclass(frozen=True, slots=True)
class Checked:
    """A comparison.

    Attributes:
        rows: number of rows of the result.
        missing, extra: number of rows that it lacks, and that it should not have.
        examples: some of these rows, each with `+` if it is missing and `-` if it should not be there.
    """

    pipeline: str
    table: TableName
    boundary: Boundary
    rows: int
    missing: int = 0
    extra: int = 0
    examples: tuple[tuple[str, Mapping[str, Any]], ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether the result has exactly the rows that it should."""
        return not self.missing and not self.extra


def check_result(pipelines: Pipelines, definition: Definition) -> Checked:
    """Compare the result of a pipeline.

    Raises:
        UsageError: it has no result, or one of another definition.
        PipelineError: it does not fit the tables of the lake.
        Unsettled: an input can no longer be read at the boundary of the result.
        LakeUnavailable: the catalog or the storage failed.
    """
    planned = pipelines.planner.plan(definition)
    table = pipelines.tables.load(planned.table)
    record = None if table is None else recorded_result(table)
    if table is None or record is None or record.fingerprint != planned.plan.fingerprint:
        has = "has no result yet" if record is None else "has a result of another definition"
        raise UsageError(
            f"the pipeline {definition.name} {has}", f"run: replicator pipeline run {definition.name}"
        )
    lake, views = pipelines.lake, Views(pipelines.lake.spark)
    try:
        for used in planned.plan.inputs:
            parts = []
            for name in used.tables:
                since = record.inputs[str(name)]
                known = {name: recorded_boundary(pipelines, name)}
                state = read_state(lake, planned.inputs[name], own_columns(used), Boundary(), since, known)
                if state.restated is not None and state.is_changed:
                    raise Unsettled(
                        f"the rows of {name} at {record.boundary} are not known any more: {state.restated}",
                        f"refresh it, and check again: replicator pipeline run {definition.name}",
                    )
                parts.append((state, state.before()))
            views.add(used.now, united(used, parts))
        whole = as_table(lake, table, views.query(planned.plan.full)).drop(STATE)
        present = rows_of(lake, table).drop(STATE)
        return _compared(definition, planned.table, record, whole, present)
    finally:
        views.drop()


def check_history(pipelines: Pipelines, history: History) -> Checked:
    """Compare a history with what all changes that it has make.

    Raises:
        UsageError: there is no such table yet.
        PipelineUnfit: it has versions from before the changelog; or the table has no key.
        Unsettled: the rows of the mirror at its boundary are not known any more.
        LakeUnavailable: the catalog or the storage failed.
    """
    table, mirror = pipelines.tables.load(history.table), pipelines.mirror_of(history)
    record = None if table is None else recorded_result(table)
    if table is None or record is None:
        raise UsageError(f"there is no {history.name} yet", f"run: replicator pipeline run {history.name}")
    whole = HistoryRefresh(pipelines.tables, history, mirror, record.boundary).whole(table, record)
    return _compared(
        history, history.table, record, as_table(pipelines.lake, table, whole), rows_of(pipelines.lake, table)
    )


def recorded_boundary(pipelines: Pipelines, name: TableName) -> Boundary:
    """Return the boundary of a result that another pipeline reads; that of a mirror is not used."""
    table = pipelines.lake.load(name.namespace, name.name)
    record = None if table is None else recorded_result(table)
    return Boundary() if record is None else record.boundary


def _compared(
    definition: Pipeline, name: TableName, record: ResultRecord, whole: DataFrame, present: DataFrame
) -> Checked:
    columns = whole.columns
    counted = whole.withColumn(_COUNT, F.lit(1)).unionByName(present.withColumn(_COUNT, F.lit(-1)))
    groups = counted.groupBy(*(F.col(quoted(c)) for c in columns)).agg(F.sum(_COUNT).alias(_COUNT))
    different = groups.where(F.col(_COUNT) != 0).persist()
    try:
        missing = F.sum(F.greatest(F.col(_COUNT), F.lit(0)))
        extra = F.sum(F.greatest(-F.col(_COUNT), F.lit(0)))
        counts = different.agg(missing.alias("missing"), extra.alias("extra")).collect()[0]
        shown = different.limit(_SHOWN).collect() if counts["missing"] or counts["extra"] else []
        rows = present.count()
    finally:
        different.unpersist()
    examples = tuple(("+" if row[_COUNT] > 0 else "-", {c: row[c] for c in columns}) for row in shown)
    return Checked(
        definition.name,
        name,
        record.boundary,
        rows,
        int(counts["missing"] or 0),
        int(counts["extra"] or 0),
        examples,
    )
