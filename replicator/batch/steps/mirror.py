"""Applies the last net change of each key to the mirror, in one visible step."""

from dataclasses import replace
from functools import lru_cache
from typing import Final, cast

from pyspark.sql.types import StructType

from replicator.batch.events.changelog_rows import from_offset
from replicator.batch.events.executors import MaterializedEvents, has_floating_key
from replicator.batch.events.net_changes import (
    driver_net_changes,
    key_names,
    keyed_events,
    last_changes_of_keys,
    net_rows,
    rows_except,
    surviving_rows,
)
from replicator.batch.steps.reset import ResetPlan, TableReset, plan_reset
from replicator.batch.values import TableBatch
from replicator.jvm.spark import local_frame
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.commit import Staged
from replicator.lake.files.small_files import SmallFiles
from replicator.lake.strategies.changes import LocatedChange, MirrorChange, WriteStrategy, report_obstacle
from replicator.lake.strategies.keyless import stage_by_identity
from replicator.lake.strategies.registry import MERGE, SPLIT, STRATEGIES
from replicator.lake.table_writer import WriteTarget
from replicator.model.roles import LakeRole
from replicator.schema.evolution.changes import KEPT_KEY
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.batch")


def write_mirror(batch: TableBatch) -> None:
    """Bring the mirror up to the end of the batch in one commit.

    Raises:
        SchemaError: the table cannot continue; nothing was applied.
        FencedError, CommitConflict: as `publish`.
    """
    if batch.mirror is None:
        return
    target = batch.target(LakeRole.MIRROR, batch.mirror)
    events = batch.mirror_events()
    plan = plan_reset(batch, batch.mirror, target.base)
    marker = batch.next_marker(target.base)
    marker = replace(
        marker, snapshot=plan.snapshot, truncate=plan.begun[-1] if plan.begun else marker.truncate
    )
    staged = _staged(batch, target, plan, events)
    properties = {
        **_without_kept_rows(plan, batch.mirror),
        **batch.restatement(LakeRole.MIRROR, marker.sequence),
    }
    staged = replace(staged, properties=properties)
    batch.context.writer.commit(target, staged, marker)


def _without_kept_rows(plan: ResetPlan, table: LakeTable) -> dict[str, str | None]:
    """Return the property of a mirror whose earlier rows are removed: it keeps none from before some statement."""
    return {KEPT_KEY: None} if plan.reset and table.kept_rows() else {}


def _staged(batch: TableBatch, target: WriteTarget, plan: ResetPlan, events: MaterializedEvents) -> Staged:
    """Stage the batch in the cheapest way that is exact for it."""
    if not batch.stats.changes and not plan.reset.truncates:
        return Staged()
    if _can_locate(batch, target.table, plan):
        return _stage_located(batch, target.table, plan, events)
    if plan.effective or plan.written:
        events = events.filtered(plan.effective.survivors(from_offset(events.frame, dict(plan.written))))
    if not batch.schema.mirror.key:
        return _stage_by_identity(batch, target.table, plan.reset, events)
    return _stage_by_key(batch, target, plan.reset, events)


def _can_locate(batch: TableBatch, table: LakeTable, plan: ResetPlan) -> bool:
    """Return whether the driver can plan the change, with the row locations that this process knows."""
    schema = batch.schema.mirror
    return (
        batch.task.executor.locates_rows
        and batch.is_in_log_order
        and not plan.effective
        and _strategy(batch, table).takes_keys
        and bool(schema.key)
        and not table.pending_fills()
        and not has_floating_key(schema)
    )


def _stage_located(
    batch: TableBatch, table: LakeTable, plan: ResetPlan, events: MaterializedEvents
) -> Staged:
    context, schema = batch.context, batch.schema.mirror
    rows = from_offset(events.frame, dict(plan.written)).toArrow() if plan.written else events.arrow()
    net = driver_net_changes(rows, schema)
    change = LocatedChange(
        schema.key,
        net.keys,
        lambda: local_frame(
            context.spark, net.rows, cast("StructType", events.frame.schema["after"].dataType)
        ),
        (net.rows, net.row_keys),
    )
    return _stage_keys(batch, table, change)


def _strategy(batch: TableBatch, table: LakeTable) -> WriteStrategy:
    """Return the strategy for a batch: another one than the configured one if that would not be exact."""
    wanted = STRATEGIES[batch.options.strategy]
    if batch.user_columns and not wanted.keeps_other_columns:
        _report_merge(table.sql_name, batch.user_columns)
        return MERGE
    obstacle = wanted.obstacle(table, batch.schema.mirror.key)
    if obstacle is None:
        return wanted
    report_obstacle(table.sql_name, obstacle)
    return SPLIT


@lru_cache(10_000)
def _report_merge(table: str, user_columns: tuple[str, ...]) -> None:
    """Log once that a table is written with MERGE, because others added columns."""
    _LOG.info("written as merge", table=table, user_columns=list(user_columns))


def _stage_keys(batch: TableBatch, table: LakeTable, change: LocatedChange) -> Staged:
    """Stage a change whose keys the driver holds."""
    context, small = batch.context, _small(batch, table)
    return _strategy(batch, table).stage_keys(context.lake, table, change, context.row_locations, small)


def _small(batch: TableBatch, table: LakeTable) -> SmallFiles | None:
    return batch.context.small_files.of(table) if batch.options.maintenance.enabled else None


def _stage_by_identity(
    batch: TableBatch, table: LakeTable, reset: TableReset, events: MaterializedEvents
) -> Staged:
    schema, json = batch.schema.mirror, batch.schema.json_columns
    net = batch.task.executor.materialize(net_rows(events.frame, schema))
    try:
        return stage_by_identity(batch.context.lake, table, schema.names, net.frame, json, clear=bool(reset))
    finally:
        net.release()


def _stage_by_key(
    batch: TableBatch, target: WriteTarget, reset: TableReset, events: MaterializedEvents
) -> Staged:
    context, schema, table, executor = batch.context, batch.schema.mirror, target.table, batch.task.executor
    strategy = _strategy(batch, table)
    if not reset and (staged := _stage_written(batch, table, events)) is not None:
        return staged
    if events.keys is not None and not reset:
        last = last_changes_of_keys(events.keys)
        superseded = local_frame(context.spark, last.superseded) if last.superseded.num_rows else None
        rows = rows_except(events.frame, superseded, schema)
        if _driver_plans_deletes(batch, table):
            return _stage_keys(batch, table, LocatedChange(schema.key, last.keys, lambda: rows))
        # In an empty table nothing is looked up.
        keys = local_frame(context.spark, last.keys.slice(0, 0) if table.is_empty else last.keys)
        return strategy.stage(
            context.lake, table, MirrorChange(schema.key, keys, rows, False, executor.locates_rows)
        )
    found = executor.last_changes(keyed_events(events.frame, schema), schema)
    try:
        rows = surviving_rows(events.frame, found.frame, schema)
        if not reset and _driver_plans_deletes(batch, table):
            keys = found.frame.select(*key_names(schema)).toArrow()
            return _stage_keys(batch, table, LocatedChange(schema.key, keys, lambda: rows))
        net = MirrorChange(schema.key, found.frame, rows, bool(reset), executor.locates_rows)
        return strategy.stage(context.lake, table, net)
    finally:
        found.release()


def _stage_written(batch: TableBatch, table: LakeTable, events: MaterializedEvents) -> Staged | None:
    """Stage the files that workers wrote; None if there are none, or if they are not right for the mirror."""
    files, context = events.files, batch.context
    if files is None or _strategy(batch, table) is not SPLIT or table.pending_fills():
        return None
    rows = files.mirror_rows(context.lake, table)
    if rows is None:
        return None
    change = LocatedChange(batch.schema.mirror.key, rows.keys, lambda: events.frame)
    return SPLIT.stage_written(context.lake, table, change, rows, context.row_locations, _small(batch, table))


def _driver_plans_deletes(batch: TableBatch, table: LakeTable) -> bool:
    """Return whether the driver needs only the keys to delete rows: it searches no row of the table."""
    schema, strategy = batch.schema.mirror, _strategy(batch, table)
    return (
        strategy.takes_keys
        and not table.is_empty
        and not has_floating_key(schema)
        and not strategy.searches(table, schema.key, batch.context.row_locations)
    )
