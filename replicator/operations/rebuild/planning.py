"""Plan the rebuild of mirrors: which tables, which rows, which marker. Nothing is written."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.config import Config
from replicator.errors import CheckFailed, SchemaError, UnsupportedChange, UsageError
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.others import refuse_changed_columns, refuse_foreign, refuse_loss
from replicator.model.commit_marker import CommitMarker
from replicator.model.common import matches
from replicator.model.moments import AsOf, Bound
from replicator.model.reread import DONE_KEY
from replicator.model.table import SOURCE_KEY
from replicator.operations.rebuild.changes import AT, Changes, is_before, order_changes, without_rows_before
from replicator.operations.rebuild.markers import head_marker, marker_as_of, pending_snapshot
from replicator.operations.rebuild.rows import rebuilt_rows
from replicator.recovery.publish import RECONCILED, SNAPSHOT_READ
from replicator.schema.evolution.changes import SchemaState
from replicator.schema.evolution.row_plan import ColumnPlan, RowPlan, has_changed_since, plan_rows
from replicator.schema.evolution.steps import STEPS_KEY, SchemaSteps, steps_before
from replicator.schema.history.versions import BEGINNING


def find_bound(as_of: AsOf, changelogs: Sequence[DataFrame]) -> Bound | None:
    """Return the position for what the operator asked for; None for a time after all changes.

    A transaction counts completely. A time is the position before the first transaction with a later change: MySQL
    assigns times before the order of the binlog, so a later transaction with an earlier time does not count.

    Args:
        changelogs: the changes of the tables that are rebuilt; see `read_changes`.

    Raises:
        CheckFailed: no changelog has the transaction.
    """
    if as_of.bound is not None:
        return as_of.bound
    fields = [F.col(AT).getField(name).alias(name) for name in ("position_key", "gtid", "ts_ms", "op")]
    changes = reduce(DataFrame.unionByName, [rows.select(*fields) for rows in changelogs])
    if as_of.gtid is not None:
        return _after_transaction(changes, as_of.gtid)
    later = F.col("ts_ms") > F.lit(as_of.time_ms)
    first = changes.where(later).agg(F.min("position_key"), F.min_by("gtid", "position_key")).collect()[0]
    if first[0] is None:
        return None
    if first[1] is None:
        return Bound(first[0] - 1)
    # Without GTIDs it is not known where the transaction of the change begins.
    begin = changes.where(F.col("gtid") == first[1]).agg(F.min("position_key")).collect()[0][0]
    return Bound(begin - 1)


def _after_transaction(changes: DataFrame, gtid: str) -> Bound:
    found = changes.where(F.lower("gtid") == gtid.lower()).agg(F.max("position_key")).collect()[0][0]
    if found is None:
        raise CheckFailed(
            f"no changelog has a change of the transaction {gtid}",
            "name a position of the binlog; for the state after a transaction that changed other tables, MySQL's "
            "mysqlbinlog shows it",
        )
    return Bound(found)


_ELSEWHERE: Final = "rebuild it in another namespace: --to NAMESPACE"
_CONTINUE: Final = "let the mirror follow the schema change first: replicator run --until-caught-up"


@dataclass(frozen=True, slots=True)
class SourceTables:
    """The lake tables of one source table, as they were loaded.

    Attributes:
        source: the source table, `database.table`.
        marker: the marker of the changelog.
        mirror: None if it does not exist.
        mirror_marker: the marker of the mirror; None without a commit.
    """

    source: str
    changelog: LakeTable
    marker: CommitMarker
    mirror: LakeTable | None
    mirror_marker: CommitMarker | None

    @property
    def name(self) -> str:
        """The name of both tables."""
        return self.changelog.name

    @property
    def state(self) -> SchemaState:
        """The schema state of the changelog."""
        return self.changelog.schema_state() or SchemaState(BEGINNING)

    def steps(self) -> SchemaSteps:
        """Return the schema steps of the changelog.

        Raises:
            UnsupportedChange: an earlier version of the engine wrote it, and the key is not known.
        """
        text = self.changelog.property(STEPS_KEY)
        if text is not None:
            return SchemaSteps.from_json(text)
        if self.mirror is None:
            raise UnsupportedChange(
                f"the changelog of {self.source} does not say what the key of the table is",
                "let the mirror follow a schema change of the table first; or take a new snapshot",
            )
        return steps_before(
            self.state, tuple(sorted(map(str, self.mirror.java.schema().identifierFieldNames())))
        )


@dataclass(frozen=True, slots=True)
class PlannedRebuild:
    """A planned rebuild of one table.

    Attributes:
        plan: the columns and the key of the result.
        rows: its rows, computed when they are written or counted.
        marker: the marker of the mirror afterwards; None for a table in another namespace.
    """

    tables: SourceTables
    plan: RowPlan
    rows: DataFrame
    marker: CommitMarker | None


def source_tables(
    config: Config, lake: Lake, patterns: Collection[str], *, in_place: bool
) -> list[SourceTables]:
    """Return the tables of the mirror with a changelog whose source table a pattern matches; by default all.

    Raises:
        UsageError: a pattern matches none, or the tables belong to another mirror.
        ForeignTable: the table to replace is not the mirror's.
    """
    found: list[SourceTables] = []
    for name in lake.tables(config.lake.changes_namespace):
        changelog = lake.load(config.lake.changes_namespace, name)
        marker = None if changelog is None else changelog.marker()
        if changelog is None or marker is None or (marker.alone and in_place):
            continue
        if marker.mirror != config.mirror.name:
            raise UsageError(
                f"{config.lake.changes_namespace}.{name} belongs to the mirror {marker.mirror}",
                "name the configuration of that mirror with -c",
            )
        source = changelog.property(SOURCE_KEY) or name
        mirror = lake.load(config.lake.namespace, name)
        if mirror is not None and in_place:
            refuse_foreign(mirror, config.mirror.name)
        base = None if mirror is None else mirror.marker()
        found.append(SourceTables(source, changelog, marker, mirror, base))
    for pattern in patterns:
        if not any(matches(tables.source, [pattern]) for tables in found):
            raise UsageError(
                f"--table: {pattern!r} matches no source table with a changelog",
                'write it as "database.table", as in "shop.orders" or "shop.*"',
            )
    return [tables for tables in found if not patterns or matches(tables.source, patterns)]


def plan_rebuild(
    tables: SourceTables, rows: DataFrame, bound: Bound | None, *, in_place: bool
) -> PlannedRebuild:
    """Plan the rebuild of one table from its changes (see `read_changes`), up to `bound` (all without it).

    Raises:
        SchemaError: it cannot be rebuilt; the message names the table.
    """
    try:
        return _planned(tables, rows, bound, in_place=in_place)
    except SchemaError as error:
        raise type(error)(f"{tables.source} cannot be rebuilt: {error.message}", error.hint) from error


def _planned(tables: SourceTables, rows: DataFrame, bound: Bound | None, *, in_place: bool) -> PlannedRebuild:
    steps = tables.steps()
    _check_columns(tables.changelog, is_mirror=False)
    if in_place:
        _check_in_place(tables, steps, bound)
        if bound is not None:
            _refuse_loss_of_rows_read(tables.changelog, rows, bound)
    columns, retired = tuple(tables.changelog.engine_columns()), tables.state.retired
    until = None if bound is None else bound.position_key
    kept = () if tables.mirror is None else [k.at for k in tables.mirror.kept_rows()]
    plan = plan_rows(columns, retired, steps, until, kept)
    if tables.mirror is not None and (in_place or _is_present(tables, bound)):
        plan = _with_columns_of(plan, tables.mirror, columns)
    pending = pending_snapshot(tables.mirror_marker)
    changes = order_changes(rows, tables.marker, bound, pending)
    if (plan.compares_positions or plan.recreated_at is not None) and not changes.by_position:
        raise UnsupportedChange(
            "the changelog has changes of several servers, and the table was altered or created again, so it is not "
            "certain which changes are from before",
            "take a new snapshot of the table",
        )
    if plan.recreated_at is not None:
        changes = without_rows_before(changes, plan.recreated_at)
    marker = None
    if in_place:
        everything = changes if bound is None else replace(changes, frame=rows)
        marker = _marker(tables, everything, changes, bound)
    return PlannedRebuild(tables, plan, rebuilt_rows(changes, plan, tables.changelog.columns()), marker)


def _marker(tables: SourceTables, everything: Changes, changes: Changes, bound: Bound | None) -> CommitMarker:
    if bound is None:
        return head_marker(tables.marker, tables.mirror_marker, changes)
    return marker_as_of(tables.marker, tables.mirror_marker, everything, changes, bound)


def _is_present(tables: SourceTables, bound: Bound | None) -> bool:
    """Return whether the result must have the columns that the mirror has now."""
    state = None if tables.mirror is None else tables.mirror.schema_state()
    return bound is None and state is not None and state.at == tables.state.at


def _check_columns(table: LakeTable, *, is_mirror: bool) -> None:
    """Check that a table has the columns that the engine made, as it left them.

    Raises:
        ForeignColumns: it does not.
    """
    if (own := table.own_columns()) is not None:
        refuse_changed_columns(table, own.differences(table.schema_json()), is_mirror=is_mirror)


def _check_in_place(tables: SourceTables, steps: SchemaSteps, bound: Bound | None) -> None:
    if tables.mirror is not None:
        _check_columns(tables.mirror, is_mirror=True)
        refuse_loss(tables.mirror, "it", otherwise=f"run the command again; or {_ELSEWHERE}")
    state = None if tables.mirror is None else tables.mirror.schema_state()
    if state is not None and state.at != tables.state.at:
        raise UnsupportedChange("its mirror and its changelog have different schema versions", _CONTINUE)
    if bound is not None and has_changed_since(steps, bound.position_key):
        raise UnsupportedChange(
            "its columns, its key, or rows without events, changed after the position", _ELSEWHERE
        )


def _refuse_loss_of_rows_read(changelog: LakeTable, rows: DataFrame, bound: Bound) -> None:
    """Check that the mirror read no rows from the source after a bound: the log, from which it continues, lacks them.

    Raises:
        UnsupportedChange: it has, or may have: its first rows and those of a connector's snapshot have the same `op`.
    """
    has_read = changelog.property(DONE_KEY) is not None
    read = F.col(AT).getField("op").isin(RECONCILED, *([SNAPSHOT_READ] if has_read else []))
    if not rows.where(read & ~F.coalesce(is_before(bound), F.lit(False))).isEmpty():
        raise UnsupportedChange(
            "the mirror read or corrected rows after the position, and the log does not have these changes",
            _ELSEWHERE,
        )


def _with_columns_of(plan: RowPlan, mirror: LakeTable, stored: Collection[str]) -> RowPlan:
    """Return the plan with the columns of an existing mirror, which may also keep columns that the source dropped."""
    planned = {column.name: column for column in plan.columns}
    columns = []
    for name in mirror.engine_columns():
        if name not in planned and name not in stored:
            raise UnsupportedChange(f"its mirror has a column {name} that the changelog lacks", _CONTINUE)
        columns.append(planned.get(name) or ColumnPlan(name, name))
    return replace(plan, columns=tuple(columns))
