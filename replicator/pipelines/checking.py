"""Compare a result with what its query computes as a whole, of the inputs as they were at the result's boundary."""

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.errors import CommitConflict, FencedError, Unsettled, UsageError
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.files.spark_tables import as_table, rows_of
from replicator.pipelines.files import Pipeline
from replicator.pipelines.held import plain_values
from replicator.pipelines.history.definition import History
from replicator.pipelines.history.refresh import HistoryRefresh
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.states import read_state
from replicator.pipelines.inputs.tables import recorded_result
from replicator.pipelines.output.changelog import ResultChangelog, difference
from replicator.pipelines.output.net_changes import NetChanges
from replicator.pipelines.output.record import ResultRecord
from replicator.pipelines.output.table import Reached, ResultTables, changed_by_others, next_number
from replicator.pipelines.output.writer import stage_changes
from replicator.pipelines.query.definition import Definition
from replicator.pipelines.query.names import STATE, WEIGHT, TableName
from replicator.pipelines.refresh.planner import Planned
from replicator.pipelines.refresh.views import Views, own_columns, united
from replicator.pipelines.service import Pipelines

_SHOWN: Final = 20
_POLL_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Checked:
    """A comparison.

    Attributes:
        rows: number of rows of the result.
        missing, extra: number of rows that it lacks, and that it should not have.
        repaired: whether it has been given the rows that it should have.
        examples: some of these rows, each with `+` if it is missing and `-` if it should not be there.
    """

    pipeline: str
    table: TableName
    boundary: Boundary
    rows: int
    missing: int = 0
    extra: int = 0
    examples: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    repaired: bool = False

    @property
    def is_equal(self) -> bool:
        """Whether the result has exactly the rows that it should."""
        return not self.missing and not self.extra


def check_result(pipelines: Pipelines, definition: Definition, *, repair: bool = False) -> Checked:
    """Compare the result of a pipeline; with `repair`, give it the rows that it should have.

    Raises:
        UsageError: it has no result, or one of another definition.
        PipelineError: it does not fit the tables of the lake.
        Unsettled: an input can no longer be read at the boundary of the result.
        MissingRows: others have changed the table, so that it cannot be corrected row by row.
        FencedError, CommitConflict: another process wrote the result meanwhile.
        LakeUnavailable: the catalog or the storage failed.
    """
    lake, planned = pipelines.lake, pipelines.planner.plan(definition)
    table, log = pipelines.tables.load(definition.table), None
    if repair and definition.changelog:
        table, log = ResultChangelog(pipelines.tables, definition.table).settled(table)
    record = recorded_result(table)
    if table is None or record is None or record.fingerprint != planned.plan.fingerprint:
        has = "has no result yet" if record is None else "has a result of another definition"
        raise UsageError(
            f"the pipeline {definition.name} {has}", f"run: replicator pipeline run {definition.name}"
        )
    views = Views(lake.spark)
    try:
        _register(pipelines, planned, record, views)
        whole = as_table(lake, table, views.whole(planned.plan, planned.function))
        present = rows_of(lake, table)
        found = _compared(definition, record, whole.drop(STATE), present.drop(STATE))
        if found.is_equal or not repair:
            return found
        views.keep(f"{definition.name}__differing", difference(whole, present))
        _correct(pipelines.tables, table, log, record, views.frames[f"{definition.name}__differing"])
        return replace(found, repaired=True)
    finally:
        views.drop()


def check_history(pipelines: Pipelines, history: History, *, repair: bool = False) -> Checked:
    """Compare a history with what all changes that it has make; with `repair`, give it the rows that it should have.

    Raises:
        UsageError: there is no such table yet.
        PipelineUnfit: it has versions from before the changelog; or the table has no key.
        Unsettled: the rows of the mirror at its boundary are not known any more.
        MissingRows, FencedError, CommitConflict: as `check_result`.
        LakeUnavailable: the catalog or the storage failed.
    """
    table, mirror = pipelines.tables.load(history.table), pipelines.mirror_of(history)
    record = recorded_result(table)
    if table is None or record is None:
        raise UsageError(f"there is no {history.name} yet", f"run: replicator pipeline run {history.name}")
    whole = HistoryRefresh(pipelines.tables, history, mirror, record.boundary).whole(table, record)
    whole, present = as_table(pipelines.lake, table, whole), rows_of(pipelines.lake, table)
    found = _compared(history, record, whole, present)
    if found.is_equal or not repair:
        return found
    _correct(pipelines.tables, table, None, record, difference(whole, present))
    return replace(found, repaired=True)


def check_when_settled(
    pipelines: Pipelines,
    pipeline: Pipeline,
    *,
    repair: bool = False,
    wait: float,
    stopping: threading.Event | None = None,
) -> Checked:
    """Compare a result; if its inputs are between two commits, or others commit, again within `wait` seconds.

    Raises:
        ReplicatorError: as `check_result`.
    """
    stop, deadline = stopping or threading.Event(), time.monotonic() + wait
    while True:
        try:
            if isinstance(pipeline, History):
                return check_history(pipelines, pipeline, repair=repair)
            return check_result(pipelines, pipeline, repair=repair)
        except (Unsettled, CommitConflict, FencedError):
            if time.monotonic() > deadline or stop.wait(_POLL_S):
                raise


def _register(pipelines: Pipelines, planned: Planned, record: ResultRecord, views: Views) -> None:
    """Let queries read the inputs as they were at the boundary of a result."""
    for used in planned.plan.inputs:
        parts = []
        for name in used.tables:
            read, since = recorded_result(planned.inputs[name].table), record.inputs[str(name)]
            if since.kept:
                raise UsageError(
                    f"{record.name} keeps rows that were deleted from {name}, so it cannot be computed again",
                    "to compare it without them, compute it as a whole before: replicator pipeline rebuild "
                    f"{record.name}",
                )
            state = read_state(
                pipelines.lake,
                planned.inputs[name],
                own_columns(used),
                Boundary(),
                since,
                {} if read is None else {name: read.boundary},
                keep_expired=planned.plan.keep_expired,
            )
            if state.restated is not None and state.is_changed:
                raise Unsettled(
                    f"the rows of {name} at {record.boundary} are not known any more: {state.restated}",
                    f"refresh it, and check again: replicator pipeline run {record.name}",
                )
            parts.append((name, state.before()))
        views.add(used.now, united(used, parts))


def _correct(
    tables: ResultTables, table: LakeTable, log: LakeTable | None, record: ResultRecord, changes: DataFrame
) -> None:
    """Apply what differs to a result, and to its changelog before it, as changes that no input made.

    What others changed in the table is not in the changelog, so its readers need no correction.
    """
    marker, net = table.marker(), NetChanges.of(tables.lake, table, changes)
    reached = Reached() if marker is None else Reached(marker.position, marker.watermark_ms)
    staged = stage_changes(tables.lake, table, net, record.key).staged
    if log is not None and changed_by_others(table):
        tables.commit(table, staged, record, reached, next_number(table, record.name) - 1)
        return
    if log is not None:
        name = TableName(table.namespace, table.name)
        ResultChangelog(tables, name).append(log, table, net, record, reached, corrects=True)
    tables.commit(table, staged, record, reached)


def _compared(pipeline: Pipeline, record: ResultRecord, whole: DataFrame, present: DataFrame) -> Checked:
    columns = whole.columns
    different = difference(whole, present).persist()
    try:
        missing = F.sum(F.greatest(F.col(WEIGHT), F.lit(0)))
        extra = F.sum(F.greatest(-F.col(WEIGHT), F.lit(0)))
        counts = different.agg(missing.alias("missing"), extra.alias("extra")).collect()[0]
        shown = different.limit(_SHOWN if counts["missing"] or counts["extra"] else 0).toArrow()
        rows = present.count()
    finally:
        different.unpersist()
    signs = ["+" if count > 0 else "-" for count in shown.column(WEIGHT).to_pylist()]
    values = zip(*(plain_values(shown.column(name)) for name in columns), strict=True)
    examples = tuple((s, dict(zip(columns, row, strict=True))) for s, row in zip(signs, values, strict=True))
    return Checked(
        pipeline.name,
        pipeline.table,
        record.boundary,
        rows,
        int(counts["missing"] or 0),
        int(counts["extra"] or 0),
        examples,
    )
