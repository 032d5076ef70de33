"""The rows of an input at a boundary, and its changes since an earlier one.

A mirror has changes from after the boundary too. They are undone: rows with their keys are replaced by the first image
from before. A log table has no position in the source, and is read as it is. Everything is an expression of Spark, so
that a query reads only the columns and files that it needs.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType

from replicator.errors import Unsettled
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.files.spark_tables import appended_rows, columns_of, rows_of, rows_of_snapshot
from replicator.lake.recent_changes import RecentChanges
from replicator.model.changelog import NOT_APPLIED, RowKind
from replicator.model.common import quoted
from replicator.pipelines.held import held_frame, held_rows, net_rows
from replicator.pipelines.inputs.appended import is_later, offsets_of, since_snapshot
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.pending import META, Pending, classified, held_pending, is_pending
from replicator.pipelines.inputs.positions import held_after, is_after, may_be_after
from replicator.pipelines.inputs.progress import InputProgress
from replicator.pipelines.inputs.tables import InputKind, InputTable, recorded_result
from replicator.pipelines.query.names import WEIGHT, TableName
from replicator.schema.evolution.steps import SchemaStep

MOST_ROWS: Final = 20_000_000
"""With more changes, the result is computed as a whole: the driver holds a few numbers of each change."""
BEFORE: Final = (str(RowKind.UPDATE_BEFORE), str(RowKind.DELETE))
_EXPIRED: Final = "its snapshots since then have expired"
_AGAIN: Final = "refresh the result, and try again: replicator pipeline run NAME"


@dataclass(frozen=True, slots=True)
class InputState:
    """An input at a boundary.

    Attributes:
        table: the input.
        columns: its columns that are wanted.
        boundary: the boundary.
        since: the progress of the result; None if everything is new.
        progress: the progress of a result that has all changes up to the boundary.
        pending: which changes are pending.
        images: their images: the wanted columns and those of the key, and a struct `at` with `META` and `before`. None
            without a changelog, or if the driver holds them. Of a log table the appended rows; its struct lacks `META`
            but `later`.
        held_images: the images, if the driver holds them.
        held_changes: what `changed` returns, if the driver holds it.
        restated: why the changes do not tell all that changed since; None if they do.
        is_changed: whether anything changed since.
    """

    lake: Lake
    table: InputTable
    columns: tuple[str, ...]
    boundary: Boundary
    since: InputProgress | None
    progress: InputProgress
    pending: Pending = field(default_factory=Pending)
    images: DataFrame | None = None
    held_images: pa.Table | None = None
    held_changes: pa.Table | None = None
    restated: str | None = None
    is_changed: bool = True

    def now(self) -> DataFrame:
        """Return the rows at the boundary."""
        return self._without(only_later=True) if self.pending.later else self._rows()

    def before(self) -> DataFrame:
        """Return the rows at the boundary of the result."""
        some = self.pending.later or self.pending.new
        return self._without(only_later=False) if some else self._rows()

    def changed(self) -> DataFrame:
        """Return the image before, with weight -1, and after, with weight 1, of changes in between.

        Images that cancel each other may be left out.
        """
        if self.held_changes is not None:
            return held_frame(self.lake.spark, self.held_changes)
        if self.images is None:
            raise AssertionError("the changes of an input without a changelog are not known")
        at = self._struct()
        weight = F.when(at.getField("before"), F.lit(-1)).otherwise(F.lit(1)).cast("int")
        return self.images.where(~at.getField("later")).select(*_named(self.columns), weight.alias(WEIGHT))

    @property
    def has_images(self) -> bool:
        """Whether its changes are known."""
        return self.images is not None or self.held_changes is not None

    @property
    def changes_with_key(self) -> pa.Table | None:
        """What `changed` returns, with the columns of the key too; None if the driver does not hold it."""
        return None if self.held_images is None else _changed(self.held_images, self.with_key, self.at)

    @property
    def with_key(self) -> tuple[str, ...]:
        """The wanted columns and those of the key."""
        return tuple(dict.fromkeys([*self.columns, *self.table.key]))

    @property
    def is_moved(self) -> bool:
        """Whether it is a log table with another snapshot than the one that the result has recorded."""
        return self.since is not None and self.since.snapshot != self.progress.snapshot

    @property
    def at(self) -> str:
        """The name of the struct column of `images`."""
        name = self.table.change or "_change"
        while name in (*self.columns, *self.table.key):
            name = f"_{name}"
        return name

    def _struct(self) -> SparkColumn:
        return F.col(quoted(self.at))

    def _rows(self) -> DataFrame:
        return rows_of(self.lake, self.table.table).select(*_named(self.columns))

    def _without(self, *, only_later: bool) -> DataFrame:
        """Return the rows without the pending changes, or only without those after the boundary."""
        rows, at = rows_of(self.lake, self.table.table), self._struct()
        if self.table.kind is InputKind.CHANGELOG:
            change = F.col(quoted(self.table.change or ""))
            gone = _wanted(change, self.since, self.boundary)
            gone = gone & is_after(self.boundary, change) if only_later else gone
            return rows.where(~F.coalesce(gone, F.lit(False))).select(*_named(self.columns))
        if self.table.kind is InputKind.LOG:
            return self._earlier().select(*_named(self.columns))
        images = self.images if self.held_images is None else held_frame(self.lake.spark, self.held_images)
        if images is None:
            raise AssertionError("changes cannot be undone without a changelog")
        images = images.where(at.getField("later")) if only_later else images
        return undone(rows, images, self.columns, self.table.key, at)

    def _earlier(self) -> DataFrame:
        """Return the rows of a log table that the result has."""
        table, since = self.table.table, self.since
        if since is None or since.snapshot is None or table.has_snapshot(since.snapshot):
            return rows_of_snapshot(self.lake, table, None if since is None else since.snapshot)
        later = is_later(table, since.offsets)
        if later is None or self.progress.kept:
            raise Unsettled(f"{self.table.name}: {_EXPIRED}", _AGAIN)
        return rows_of(self.lake, table).where(~later)


def undone(
    rows: DataFrame, images: DataFrame, columns: Sequence[str], key: Sequence[str], at: SparkColumn
) -> DataFrame:
    """Return the rows from before some changes; `at` is the struct of `images`."""
    is_before = at.getField("before")
    if not key:
        gone = images.where(~is_before).select(*_named(columns))
        came = images.where(is_before).select(*_named(columns))
        return rows.select(*_named(columns)).unionByName(came).exceptAll(gone)
    names = [f"_replicator_k{i}" for i in range(len(key))]
    keys = [F.col(quoted(column)).alias(name) for column, name in zip(key, names, strict=True)]
    order = F.struct(at.getField("commit"), at.getField("offset"), ~is_before)
    first = F.min_by(F.struct(is_before.alias("exists"), F.struct(*_named(columns)).alias("row")), order)
    found = images.select("*", *keys).groupBy(*names).agg(first.alias("first"))
    same = [rows[quoted(column)].eqNullSafe(F.col(name)) for column, name in zip(key, names, strict=True)]
    others = rows.join(F.broadcast(found.select(*names)), reduce(SparkColumn.__and__, same), "left_anti")
    return others.select(*_named(columns)).unionByName(found.where("first.exists").select("first.row.*"))


def read_state(
    lake: Lake,
    table: InputTable,
    columns: Sequence[str],
    boundary: Boundary,
    since: InputProgress | None,
    refreshed: Mapping[TableName, Boundary],
    *,
    recent: RecentChanges | None = None,
    keep_expired: bool = False,
) -> InputState:
    """Return an input at a boundary, and its changes since a result was refreshed.

    `refreshed` are the results that have the rows of the boundary, and what they record: an earlier one if nothing
    changed in between. `recent` are changes that need not be read. `keep_expired`: rows that are deleted from a log
    table stay in the result.

    Raises:
        Unsettled: the input cannot be read at the boundary at the moment.
        LakeUnavailable: the catalog or the storage failed.
    """
    if table.kind is InputKind.RESULT:
        record = recorded_result(table.table)
        if record is None or record.boundary != refreshed.get(table.name, boundary):
            raise Unsettled(f"{table.name} is not refreshed up to {boundary}", "it is refreshed first")
        boundary = Boundary()
    table.check_settled()
    state = InputState(
        lake, table, tuple(columns), boundary, since, InputProgress(table.uuid, _sequence(table))
    )
    if table.kind is InputKind.LOG:
        return _of_log_table(state, keep_expired=keep_expired)
    if table.changelog is None:
        return _without_changelog(state)
    steps = table.steps()
    known = [] if steps is None else [step.at for step in steps.steps]
    state = replace(state, progress=replace(state.progress, steps_at=max(known, default=-1)))
    if since is not None and (reason := _restated(state, since)) is not None:
        state = replace(state, since=None, restated=reason)
    if recent is not None and (handed := _handed(state, table.changelog, recent)) is not None:
        return _with_images(state, handed)
    return _with_pending(state, table.changelog)


def _without_changelog(state: InputState) -> InputState:
    position = state.table.marker().position
    if position is not None and state.boundary.is_before(position):
        raise Unsettled(
            f"{state.table.name} has changes from after {state.boundary}, which cannot be undone without a changelog",
            "give it a changelog: changelog = true in its [[table]] of the configuration",
        )
    since = state.since
    same = since is not None and (since.table, since.commit) == (state.progress.table, state.progress.commit)
    return replace(state, is_changed=not same, restated=None if same else "it has no changelog")


def _of_log_table(state: InputState, *, keep_expired: bool) -> InputState:
    table, since = state.table.table, state.since
    progress = replace(
        state.progress, snapshot=table.snapshot_id, offsets=offsets_of(table), rows=table.total_rows
    )
    state = replace(state, progress=progress)
    if since is None:
        return state
    if since.table != state.progress.table:
        return replace(state, since=None, restated="it was made again")
    rows, deleted = _appended(state, since)
    kept = since.kept or deleted
    if rows is None or (kept and not keep_expired):
        return replace(state, since=None, restated=_EXPIRED if rows is None else "rows of it were deleted")
    state = replace(state, progress=replace(state.progress, kept=kept))
    at = F.struct(F.lit(False).alias("later"), F.lit(False).alias("before")).alias(state.at)
    images = rows.select(*_named(state.columns), at)
    if (held := held_rows(images, [table])) is None:
        return replace(state, pending=Pending(images.count()), images=images)
    return replace(
        state,
        pending=Pending(held.num_rows),
        images=images,
        held_changes=_changed(held, state.columns, state.at),
        is_changed=held.num_rows > 0,
    )


def _appended(state: InputState, since: InputProgress) -> tuple[DataFrame | None, bool]:
    """Return the rows that were appended to a log table, None if they are unknown; and whether others were deleted."""
    table = state.table.table
    if not state.is_moved:
        return state.now().limit(0), False
    found = since_snapshot(table, since.snapshot)
    if found.is_known:
        return appended_rows(state.lake, table, since.snapshot), found.deleted
    if (later := is_later(table, since.offsets)) is None:
        return None, False
    rows = rows_of(state.lake, table).where(later)
    return rows, since.rows + rows.count() != state.progress.rows


def _with_pending(state: InputState, changelog: LakeTable) -> InputState:
    if state.since is None and state.boundary.is_end:
        return state
    name = state.table.name
    images = _images(state, changelog)
    state = replace(state, images=images)
    if (few := held_rows(images, [changelog])) is not None:
        return _with_images(state, few)
    at = F.col(quoted(state.at))
    meta = images.select(*(at.getField(field).alias(field) for field in META)).limit(MOST_ROWS + 1).toArrow()
    if meta.num_rows <= MOST_ROWS:
        return _classified(state, meta)
    if state.since is None:
        raise Unsettled(f"{name} has too many changes from after the boundary", "it is refreshed later")
    return _with_pending(
        replace(state, images=None, since=None, restated="it has very many changes"), changelog
    )


def _with_images(state: InputState, images: pa.Table) -> InputState:
    """Return a state with the images of changes that the driver holds."""
    changed = _changed(images, state.columns, state.at)
    return replace(
        _classified(state, _meta(images.column(state.at))),
        images=None,
        held_images=images,
        held_changes=changed,
    )


def _classified(state: InputState, meta: pa.Table) -> InputState:
    pending = classified(meta, str(state.table.name))
    return replace(
        state,
        pending=pending,
        progress=replace(state.progress, held=pending.held, held_commit=pending.held_commit),
        restated=state.restated if state.since is None else pending.restated,
        is_changed=state.since is None or pending.new > 0,
    )


def _handed(state: InputState, changelog: LakeTable, recent: RecentChanges) -> pa.Table | None:
    """Return the images of the changes that a result lacks, as `_images` does, if the driver holds them."""
    since = state.since
    if since is None or state.table.kind is InputKind.CHANGELOG:
        return None
    if (rows := recent.since(changelog, since.first_commit)) is None:
        return None
    change = rows.column(state.table.change or "").combine_chunks()
    fields = {name: pc.struct_field(change, name) for name in META if name != "later"}
    fields["later"] = pa.array(held_after(state.boundary, change))
    fields["before"] = pc.is_in(pc.struct_field(change, "kind"), pa.array(BEFORE))
    at = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    wanted = to_arrow_schema(columns_of(state.lake, state.table.table))
    names = list(state.with_key)
    if any(n not in rows.column_names or wanted.field(n).type != rows.schema.field(n).type for n in names):
        return None
    # Without the numbers and the nullability of a table's columns.
    values = {name: rows.column(name) for name in names} | {state.at: at}
    return pa.table(values).filter(pa.array(held_pending(change, since)))


def _images(state: InputState, changelog: LakeTable) -> DataFrame:
    """Return the images of the changes that may be pending."""
    rows, name = rows_of(state.lake, changelog), state.table.change or ""
    change = F.col(quoted(name))
    wanted_types, types = (_types(state.lake, table) for table in (state.table.table, changelog))
    values = [
        F.col(quoted(column))
        if types[column.lower()] == wanted_types[column.lower()]
        else F.col(quoted(column)).cast(wanted_types[column.lower()]).alias(column)
        for column in state.with_key
    ]
    at = F.struct(
        change.getField("op").alias("op"),
        change.getField("partition").alias("partition"),
        change.getField("offset").alias("offset"),
        change.getField("commit").alias("commit"),
        F.coalesce(is_after(state.boundary, change), F.lit(False)).alias("later"),
        F.coalesce(change.getField("kind").isin(*BEFORE), F.lit(False)).alias("before"),
    )
    # The mirror never got a replayed change of a key that had changed since.
    applied = F.coalesce(change.getField("commit") != F.lit(NOT_APPLIED), F.lit(True))
    wanted = rows.where(_wanted(change, state.since, state.boundary)).where(applied)
    if state.since is None:
        # All others are before the boundary, and the result is computed from the rows.
        wanted = wanted.where(is_after(state.boundary, change))
    return wanted.select(*values, at.alias(state.at))


def _types(lake: Lake, table: LakeTable) -> dict[str, DataType]:
    """Return the types of columns; those of the tables of a pattern may differ in letter case."""
    return {field.name.lower(): field.dataType for field in columns_of(lake, table).fields}


def _wanted(change: SparkColumn, since: InputProgress | None, boundary: Boundary) -> SparkColumn:
    if since is not None:
        return is_pending(change, since)
    if boundary.is_end:
        return F.lit(False)
    found = may_be_after(boundary, change)
    return F.lit(True) if found is None else found


def _meta(struct: pa.ChunkedArray) -> pa.Table:
    return pa.table({field: pc.struct_field(struct, field) for field in META})


def _changed(images: pa.Table, columns: Sequence[str], at: str) -> pa.Table:
    """Return the images from before the boundary with their weights; those that cancel each other are left out."""
    new = images.filter(pc.invert(pc.struct_field(images.column(at), "later")))
    weights = pc.if_else(
        pc.struct_field(new.column(at), "before"), pa.scalar(-1, pa.int32()), pa.scalar(1, pa.int32())
    )
    return net_rows(new.select(list(columns)).append_column(WEIGHT, weights), WEIGHT)


def _restated(state: InputState, since: InputProgress) -> str | None:
    """Return why the changelog does not tell what changed since; None if it does."""
    if since.table != state.progress.table:
        return "its changelog was made again"
    if since.commit > state.progress.commit:
        return "its changelog was rolled back"
    steps = state.table.steps()
    if steps is None:
        return None
    if steps.forgotten is not None and steps.forgotten > since.steps_at:
        return "it had very many statements that change its columns"
    concerned = [s for s in steps.steps if s.at > since.steps_at and _concerns(s, state.with_key)]
    return "a statement changed its rows" if concerned else None


def _concerns(step: SchemaStep, columns: Collection[str]) -> bool:
    """Return whether a statement changed values of columns, or removed rows, without telling the changelog."""
    if step.recreated or step.removed is not None:
        return True
    if any(name in columns for name in step.renamed.values()):
        # Another column had the name before.
        return True
    if step.unlogged is not None and step.known_from is None:
        return True
    return any(c.name in columns for c in step.converted) or any(a.name in columns for a in step.added)


def _sequence(table: InputTable) -> int:
    marker = (table.changelog or table.table).marker()
    return 0 if marker is None else marker.sequence


def _named(columns: Sequence[str]) -> list[SparkColumn]:
    return [F.col(quoted(name)) for name in columns]
