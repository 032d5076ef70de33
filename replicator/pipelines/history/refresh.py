"""Bring the history of one table to a boundary, in one commit."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from hashlib import sha256
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.errors import LakeUnavailable, PipelineUnfit, Unsettled
from replicator.jvm.spark import check_java, first_line
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.files.spark_tables import rows_of
from replicator.model.common import quoted
from replicator.model.position import PackedPosition
from replicator.pipelines.held import held_frame, held_rows
from replicator.pipelines.history.changes import (
    ChangeLogRows,
    as_events,
    endings_in,
    events_in,
    recreated,
    rows_before,
    since_last_key,
)
from replicator.pipelines.history.comparing import as_in_mirror
from replicator.pipelines.history.definition import History, Kind
from replicator.pipelines.history.layout import Layout
from replicator.pipelines.history.versions import Ending, place, versions_of
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.pending import is_pending
from replicator.pipelines.inputs.positions import is_after
from replicator.pipelines.inputs.progress import InputProgress
from replicator.pipelines.inputs.states import InputState, read_state
from replicator.pipelines.inputs.tables import InputTable, recorded_result
from replicator.pipelines.literals import is_near
from replicator.pipelines.output.changelog import difference
from replicator.pipelines.output.net_changes import NetChanges
from replicator.pipelines.output.record import ResultRecord
from replicator.pipelines.output.table import Reached, ResultTables
from replicator.pipelines.output.writer import StagedChanges, stage_changes
from replicator.pipelines.query.names import WEIGHT
from replicator.pipelines.refresh.refresh import Outcome, Refreshed

_RESERVED: Final = "_replicator_"
"""Beginning of names that columns have while they are computed."""
_TOLD: Final = frozenset({"c", "u", "d", "h", "t"})
"""Operations whose changes tell what became of all rows."""
_RESTATING: Final = frozenset({"t", "r"})


@dataclass(slots=True)
class HistoryRefresh:
    """One refresh of one history.

    Attributes:
        input: the mirror as it was loaded, with its changelog.
        rebuild: compute it as a whole in any case.
    """

    tables: ResultTables
    history: History
    input: InputTable
    boundary: Boundary
    rebuild: bool = False
    _began: float = field(default_factory=time.monotonic)

    def run(self) -> Refreshed:
        """Refresh the history.

        Raises:
            PipelineUnfit: the table has no key or no changelog.
            UnsupportedChange: the changelog does not tell what a statement did to the rows.
            Unsettled: the mirror cannot be read at the boundary at the moment.
            FencedError, CommitConflict, LakeError: as a commit of a mirror; nothing was changed.
        """
        try:
            return self._run()
        except (PySparkException, Py4JJavaError) as error:
            check_java(self.tables.lake.spark)
            raise LakeUnavailable(
                f"the history {self.history.name} cannot be computed: {first_line(error)}",
                "check the storage, and spark.log in the state folder",
            ) from error

    def _run(self) -> Refreshed:
        lake, name = self.tables.lake, self.history.table
        parts = _Parts.of(self.tables, self.history, self.input)
        table = self.tables.load(name) or self.tables.put_in_place(name, parts.fingerprint)
        record = recorded_result(table)
        since = None if record is None else record.inputs.get(str(self.input.name))
        state = read_state(lake, self.input, parts.layout.key, self.boundary, since, {})
        reason = self._whole(parts, record, since, state)
        if table is None or since is None or reason is not None:
            self._build(parts, table)
            return self._result(Outcome.BUILT, reason=reason, added=None)
        if not state.is_changed:
            return self._result(Outcome.SAME)
        if self.history.kind is Kind.APPENDED:
            found = self._append(parts, table, state, since)
        else:
            found = self._change(parts, table, state)
        outcome = Outcome.CHANGED if found.added or found.removed else Outcome.SAME
        return self._result(outcome, changes=state.pending.new, added=found.added, removed=found.removed)

    def _whole(
        self, parts: "_Parts", record: ResultRecord | None, since: InputProgress | None, state: InputState
    ) -> str | None:
        """Return why the history must be made of the whole changelog; None if the new changes suffice."""
        if record is None or since is None:
            return "it is new"
        if record.fingerprint != parts.fingerprint:
            return "its columns changed"
        if self.rebuild:
            return "it was asked for"
        if state.since is None and self.history.kind is Kind.APPENDED:
            return state.restated or "the changelog was made again"
        if state.since is None and not _is_other_changelog(state, since):
            return state.restated
        steps = self.input.steps()
        new = [] if steps is None else [step for step in steps.steps if step.at > since.steps_at]
        if any(step.added or step.converted or step.key_before is not None for step in new):
            return "a statement changed its rows"
        return None

    def _build(self, parts: "_Parts", table: LakeTable | None) -> None:
        """Make the history of all changes, and replace the rows of the table in one commit."""
        state = self._at_boundary(parts)
        changes = parts.log.read(~_after(self.boundary, parts))
        if table is not None:
            self._refuse_loss(parts, table, changes)
        rows = self._all_rows(parts, changes, state.now())
        record, description = self._record(parts, state), f"history of {self.input.name}"
        self.tables.commit_all(
            self.history.table, table, rows, record, self._reached, parts.layout.partition, description
        )

    def whole(self, table: LakeTable, record: ResultRecord) -> DataFrame:
        """Return the rows that the history should have: made of all changes that it has.

        Raises:
            PipelineUnfit: it has versions from before the changelog.
            Unsettled: the rows of the mirror at that time are not known any more.
        """
        parts, lake = _Parts.of(self.tables, self.history, self.input), self.tables.lake
        since = record.inputs[str(self.input.name)]
        state = read_state(lake, self.input, self._columns(parts), Boundary(), since, {})
        if record.fingerprint != parts.fingerprint or (state.restated is not None and state.is_changed):
            raise Unsettled(
                f"the rows of {self.input.name} at {record.boundary} are not known any more: "
                f"{state.restated or 'its columns changed'}",
                f"refresh it, and check again: replicator pipeline run {self.history.name}",
            )
        changes = parts.log.read(~_pending(since, parts))
        self._refuse_loss(parts, table, changes)
        return self._all_rows(parts, changes, state.before())

    def _refuse_loss(self, parts: "_Parts", table: LakeTable, changes: DataFrame) -> None:
        """Check that the changelog tells all that a history has.

        Raises:
            PipelineUnfit: the history is older.
        """
        first = changes.agg(F.min("at.ts")).collect()[0][0]
        older = parts.layout.is_older(table.columns(), F.timestamp_micros(F.lit(first)))
        if first is not None and not rows_of(self.tables.lake, table).where(older).isEmpty():
            raise PipelineUnfit(
                f"{self.history.name} has versions from before its changelog, which would be lost",
                f"keep them under another name: ALTER TABLE {table.sql_name} RENAME TO …; or drop it: "
                f"replicator pipeline drop {self.history.name}",
            )

    def _all_rows(self, parts: "_Parts", changes: DataFrame, mirror: DataFrame) -> DataFrame:
        """Return the rows of a history that is made of all changes; `mirror` has the rows after them."""
        if self.history.kind is Kind.APPENDED:
            return parts.layout.appended(changes)
        return parts.layout.rows(self._all_versions(parts, changes, mirror))

    def _all_versions(self, parts: "_Parts", changes: DataFrame, mirror: DataFrame) -> DataFrame:
        log, key = parts.log, parts.layout.key
        changes = since_last_key(changes, log.plan)
        first = changes.agg(F.min("at.ts")).collect()[0][0]
        begun = _place(self._us) if first is None else _place(first)
        events = events_in(changes)
        if not self.tables.config.log.flattened:
            events = events.unionByName(rows_before(changes, key, begun))
        endings = sorted([*endings_in(changes), *recreated(changes, log.plan)], key=lambda e: e.order)
        versions = parts.versions(events, endings)
        return as_in_mirror(versions, mirror, parts.layout, begun, self._now)

    def _change(self, parts: "_Parts", table: LakeTable, state: InputState) -> StagedChanges:
        """Write the versions that the new changes make, and end those that they replace."""
        lake, layout = self.tables.lake, parts.layout
        before, events, endings, compared = self._new_events(parts, table, state)
        versions = parts.versions(events, endings)
        if compared:
            state = self._at_boundary(parts)
            versions = as_in_mirror(versions, state.now(), layout, self._now, self._now)
        if layout.kind is Kind.DELETED:
            # Of a row that was deleted before, further deletes tell nothing.
            before = _of_keys(before, versions.select("v"), layout)
        changed = NetChanges.of(lake, table, difference(layout.rows(versions), before))
        found = stage_changes(lake, table, changed, (), layout.place)
        self.tables.commit(table, found.staged, self._record(parts, state), self._reached)
        return found

    def _append(
        self, parts: "_Parts", table: LakeTable, state: InputState, since: InputProgress
    ) -> StagedChanges:
        """Add the rows of the new changes."""
        new = _pending(since, parts) & ~_after(self.boundary, parts)
        added = parts.layout.appended(parts.log.read(new)).withColumn(WEIGHT, F.lit(1))
        found = stage_changes(self.tables.lake, table, NetChanges.of(self.tables.lake, table, added), ())
        self.tables.commit(table, found.staged, self._record(parts, state), self._reached)
        return found

    def _new_events(
        self, parts: "_Parts", table: LakeTable, state: InputState
    ) -> tuple[DataFrame, DataFrame, list[Ending], bool]:
        """Return the rows that may be replaced, the events of their keys, and whether the mirror must be compared."""
        layout, stored = parts.layout, rows_of(self.tables.lake, table)
        if state.since is None:
            # Another changelog: what happened in between is not known.
            before = stored.where(layout.is_open())
            return before, parts.open_events(before), [], True
        new = _pending(state.since, parts) & ~_after(self.boundary, parts)
        changes, held = self._held(parts.log.read(new), parts.log)
        ops = (
            _RESTATING
            if held is None
            else set(pc.unique(pc.struct_field(held.column("at"), "op")).to_pylist())
        )
        endings = [e for e in endings_in(changes) if e.place[0] == "t"] if "t" in ops else []
        compared = state.pending.restated is not None and not ops <= _TOLD
        before = _of_keys(stored, changes.select("v"), layout, held)
        if endings or compared:
            others = stored.where(layout.is_open()).join(
                changes.select(*_keys(layout)).distinct(), _same(layout), "left_anti"
            )
            before = before.unionByName(others)
        return before, events_in(changes).unionByName(parts.open_events(before)), endings, compared

    def _held(self, changes: DataFrame, log: ChangeLogRows) -> tuple[DataFrame, pa.Table | None]:
        """Return changes, held by the driver if they are few."""
        few = held_rows(changes, [log.changelog])
        return changes if few is None else held_frame(self.tables.lake.spark, few, changes.schema), few

    def _at_boundary(self, parts: "_Parts") -> InputState:
        """Return the mirror with its rows at the boundary."""
        return read_state(self.tables.lake, self.input, self._columns(parts), self.boundary, None, {})

    def _columns(self, parts: "_Parts") -> list[str]:
        return [name for name in self.input.columns(self.tables.lake) if name in parts.layout.types]

    @property
    def _reached(self) -> Reached:
        marker = self.input.marker()
        return Reached(self.boundary.position or marker.position, marker.watermark_ms)

    @property
    def _now(self) -> SparkColumn:
        """The place of the boundary."""
        if (position := self._reached.position) is None:
            return _place(self._us)
        return _place(self._us, position.file, position.pos, PackedPosition.pack(position).position_key)

    @property
    def _us(self) -> int | None:
        """The time of the newest change of the mirror, microseconds since the epoch."""
        time_ms = self._reached.watermark_ms
        return None if time_ms is None else time_ms * 1000

    def _record(self, parts: "_Parts", state: InputState) -> ResultRecord:
        progress = {str(self.input.name): state.progress}
        key = parts.layout.key if self.history.kind is Kind.DELETED else ()
        return ResultRecord(self.history.name, parts.fingerprint, self.boundary, progress, key)

    def _result(self, outcome: Outcome, **facts: object) -> Refreshed:
        return Refreshed(
            self.history.name,
            self.history.table,
            outcome,
            self.boundary,
            seconds=time.monotonic() - self._began,
            **facts,  # type: ignore[arg-type]
        )


@dataclass(frozen=True, slots=True)
class _Parts:
    """What a history is made of.

    Attributes:
        tracked: the columns whose changes make a version.
        fingerprint: what all rows of the table depend on, its columns too, as a hash.
    """

    history: History
    log: ChangeLogRows
    layout: Layout
    tracked: Sequence[str]
    fingerprint: str

    @classmethod
    def of(cls, tables: ResultTables, history: History, mirror: InputTable) -> "_Parts":
        """Return the parts for a mirror as it was loaded.

        Raises:
            PipelineUnfit: it has no key, no changelog, or not the columns that the configuration names.
            UnsupportedChange: the changelog does not tell what a statement did to the rows.
        """
        if mirror.changelog is None:
            raise PipelineUnfit(
                f"{mirror.name} has no changelog, from which its history is written",
                "set changelog = true in its [[table]] of the configuration, and read it again: replicator heal",
            )
        if not mirror.key:
            raise PipelineUnfit(
                f"{mirror.name} has no key, so nothing tells which versions are of one row",
                "name columns that identify a row in its [[table]] of the configuration: key = [...]; or remove its "
                "history, and use its changelog",
            )
        log = ChangeLogRows(tables.lake, mirror, mirror.changelog)
        layout = Layout(history.kind, log.types, mirror.key)
        known = {name.casefold() for name in log.types}
        if missing := [name for name in history.columns if name.casefold() not in known]:
            raise PipelineUnfit(
                f"history_columns: {mirror.name} has no column {missing[0]}",
                f"its columns: {', '.join(log.types)}",
            )
        if reserved := [
            name for name in log.types if name.lower() == WEIGHT or name.lower().startswith(_RESERVED)
        ]:
            raise PipelineUnfit(
                f"{mirror.name} has a column {reserved[0]}, a name that is used to compute its history",
                "leave the column out: exclude in columns of its [[table]]; or remove its history",
            )
        text = f"{history.fingerprint} {log.types!r} {mirror.key!r}"
        tracked = history.tracked(log.types, mirror.key)
        return cls(history, log, layout, tracked, sha256(text.encode()).hexdigest()[:16])

    def versions(self, events: DataFrame, endings: Sequence[Ending]) -> DataFrame:
        """Return the versions that events make."""
        newest = self.history.kind is Kind.DELETED
        return versions_of(events, self.layout.key, self.tracked, endings, newest=newest)

    def open_events(self, rows: DataFrame) -> DataFrame:
        """Return rows of the history as events before all changes."""
        versions = self.layout.versions(rows).withColumnRenamed("first", "at")
        return as_events(versions, F.col("end").isNull())


def _place(us: int | None, file: str | None = None, pos: int | None = None, position: int = 0) -> SparkColumn:
    """Return a place that no change has."""
    return place(*map(F.lit, (None, us, file, pos, None, position)))


def _after(boundary: Boundary, parts: _Parts) -> SparkColumn:
    return F.coalesce(is_after(boundary, parts.log.change), F.lit(False))


def _pending(since: InputProgress, parts: _Parts) -> SparkColumn:
    return F.coalesce(is_pending(parts.log.change, since), F.lit(False))


def _keys(layout: Layout) -> list[SparkColumn]:
    return [F.col("v").getField(name).alias(f"{_RESERVED}{i}") for i, name in enumerate(layout.key)]


def _same(layout: Layout) -> SparkColumn:
    pairs = (F.col(quoted(name)).eqNullSafe(F.col(f"{_RESERVED}{i}")) for i, name in enumerate(layout.key))
    return reduce(SparkColumn.__and__, pairs)


def _of_keys(rows: DataFrame, of: DataFrame, layout: Layout, held: pa.Table | None = None) -> DataFrame:
    """Return the rows of a history that may be replaced because of versions with these keys; `held` are the same."""
    if layout.kind is Kind.VERSIONS:
        rows = rows.where(layout.is_open())
    if held is not None:
        for name in layout.key:
            values = pc.unique(pc.struct_field(held.column("v"), name))
            if (near := is_near(name, values)) is not None:
                rows = rows.where(near)
    return rows.join(F.broadcast(of.select(*_keys(layout)).distinct()), _same(layout), "left_semi")


def _is_other_changelog(state: InputState, since: InputProgress) -> bool:
    """Return whether the changelog is not the one that the history was written from, or not all of it."""
    return since.table != state.progress.table or since.commit > state.progress.commit
