"""Bring the result of one pipeline to a boundary, in one commit."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema

from replicator.errors import LakeUnavailable
from replicator.jvm.spark import check_java, first_line
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.files.spark_tables import as_table, columns_of, rows_of
from replicator.pipelines.costs import COSTS_KEY, Costs
from replicator.pipelines.held import spelt
from replicator.pipelines.inputs.appended import since_snapshot
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.progress import InputProgress
from replicator.pipelines.inputs.states import InputState, read_state
from replicator.pipelines.inputs.tables import InputKind, recorded_result
from replicator.pipelines.output.changelog import ResultChangelog, difference
from replicator.pipelines.output.check_log import CheckCounts, count_checks
from replicator.pipelines.output.net_changes import NetChanges
from replicator.pipelines.output.record import ResultRecord
from replicator.pipelines.output.table import Reached, ResultTables
from replicator.pipelines.output.writer import KeyViolated, StagedChanges, check_unique, stage_changes
from replicator.pipelines.query.definition import Action, Definition, Expectation
from replicator.pipelines.query.definition import Refresh as Mode
from replicator.pipelines.query.names import WEIGHT, TableName
from replicator.pipelines.query.plan import Plan, Rule
from replicator.pipelines.refresh.driver import computed
from replicator.pipelines.refresh.planner import Planned
from replicator.pipelines.refresh.refused import refusal
from replicator.pipelines.refresh.views import Views, own_columns, united


class Outcome(StrEnum):
    """What a refresh did."""

    BUILT = "built"
    """The result was computed as a whole."""
    CHANGED = "changed"
    """The rows that changed were written."""
    SAME = "same"
    """No input changed, or no row of the result."""


@dataclass(frozen=True, slots=True)
class Refreshed:
    """A refresh.

    Attributes:
        outcome: what it did.
        boundary: where the result is now.
        reason: why the result was computed as a whole; None if it was not.
        changes: number of images of changes that were read.
        added, removed: number of rows that came and went; of a whole result, `added` is None.
        seconds: how long it took.
        checks: what the checks of the data found.
    """

    pipeline: str
    table: TableName
    outcome: Outcome
    boundary: Boundary
    reason: str | None = None
    changes: int = 0
    added: int | None = 0
    removed: int = 0
    seconds: float = 0.0
    checks: tuple[CheckCounts, ...] = ()


@dataclass(slots=True)
class Refresh:
    """One refresh of one pipeline.

    Attributes:
        planned: the pipeline, its plan and its inputs as they were loaded.
        refreshed: the results of other pipelines that have the rows of the boundary; see `read_state`.
        rebuild: compute the result as a whole in any case.
        checks: what the checks of the data found, as soon as they did.
    """

    tables: ResultTables
    planned: Planned
    boundary: Boundary
    refreshed: Mapping[TableName, Boundary]
    rebuild: bool = False
    checks: list[CheckCounts] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)
    _costs: Costs = field(default_factory=lambda: Costs(""))

    @property
    def _plan(self) -> Plan:
        return self.planned.plan

    @property
    def _definition(self) -> Definition:
        return self.planned.definition

    def run(self) -> Refreshed:
        """Refresh the result.

        Raises:
            Unsettled: an input cannot be read at the boundary at the moment.
            PipelineError: the result cannot be written as it is defined.
            FencedError, CommitConflict, LakeError: as a commit of a mirror; nothing was changed.
        """
        name, fingerprint = self._definition.table, self._plan.fingerprint
        table = self.tables.load(name) or self.tables.put_in_place(name, fingerprint)
        if self.rebuild:
            self._changelog.drop()
        table, log = self._with_log(table)
        record = recorded_result(table)
        self._costs = Costs.of(None if table is None else table.property(COSTS_KEY), fingerprint)
        states = self._states(record)
        reason = self._whole(record, states)
        if reason is not None and record is not None and self._plan.keep_expired and not self.rebuild:
            self._refuse_loss(record, reason)
        if reason is None and not self._is_due(states):
            return self._result(Outcome.SAME)
        read = [s.table.changelog or s.table.table for found in states.values() for s in found]
        written = [] if table is None else [table]
        views = Views(self.tables.lake.spark, [*read, *written], self._plan.output)
        try:
            if table is None or reason is not None:
                self._build(views, table, log, states)
                return self._result(Outcome.BUILT, reason=reason, added=None)
            staged = self._change(views, table, log, states)
        except (PySparkException, Py4JJavaError) as error:
            check_java(self.tables.lake.spark)
            if (refused := refusal(self._definition, error)) is not None:
                raise refused from error
            raise LakeUnavailable(
                f"the pipeline {self._definition.name} cannot be computed: {first_line(error)}",
                "check the storage, and spark.log in the state folder",
            ) from error
        except KeyViolated as error:
            raise self._definition.header_error(
                "key",
                f"{error}, but the header says that {', '.join(self._plan.key)} identifies a row",
                f"group by these columns, or name others in the header: {self._definition.setting('key:')}",
            ) from error
        finally:
            views.drop()
        outcome = Outcome.CHANGED if staged.added or staged.removed else Outcome.SAME
        return self._result(outcome, changes=_images(states), added=staged.added, removed=staged.removed)

    def _result(self, outcome: Outcome, **facts: object) -> Refreshed:
        return Refreshed(
            self._definition.name,
            self._definition.table,
            outcome,
            self.boundary,
            seconds=time.monotonic() - self._began,
            checks=tuple(self.checks),
            **facts,  # type: ignore[arg-type]
        )

    def _states(self, record: ResultRecord | None) -> dict[TableName, list[InputState]]:
        """Return the states of the tables of each input."""
        known: Mapping[str, InputProgress] = {}
        if record is not None and record.fingerprint == self._plan.fingerprint:
            known = record.inputs
        return {
            used.name: [
                read_state(
                    self.tables.lake,
                    self.planned.inputs[name],
                    own_columns(used),
                    self.boundary,
                    known.get(str(name)),
                    self.refreshed,
                    recent=self.tables.recent,
                    keep_expired=self._plan.keep_expired,
                )
                for name in used.tables
            ]
            for used in self._plan.inputs
        }

    def _whole(
        self, record: ResultRecord | None, states: Mapping[TableName, Sequence[InputState]]
    ) -> str | None:
        """Return why the result must be computed as a whole; None if the changes suffice, or there are none."""
        if record is None:
            return "it is new"
        if record.fingerprint != self._plan.fingerprint:
            return "its definition changed"
        if self.rebuild:
            return "it was asked for"
        if set(record.inputs) != {str(name) for used in self._plan.inputs for name in used.tables}:
            return "it has other inputs"
        if (reason := self._beyond_changes(states)) is not None:
            return reason
        if self._definition.refresh is Mode.AUTO and (images := _images(states)):
            return self._costs.cheaper_whole(images)
        return None

    def _refuse_loss(self, record: ResultRecord, reason: str) -> None:
        """Refuse to compute a result as a whole that may have rows which were deleted from a log table.

        Raises:
            PipelineError: it may.
        """
        for name, table in self.planned.inputs.items():
            known = record.inputs.get(str(name))
            if table.kind is not InputKind.LOG or known is None:
                continue
            since = since_snapshot(table.table, known.snapshot)
            if known.kept or known.table != table.uuid or since.deleted or not since.is_known:
                raise self._definition.header_error(
                    "keep_expired",
                    f"it must be computed as a whole, and may have rows that {name} lacks now, which would be lost "
                    f"({reason})",
                    f"to lose them: replicator pipeline rebuild {self._definition.name}",
                )

    def _is_due(self, states: Mapping[TableName, Sequence[InputState]]) -> bool:
        """Return whether anything changed, or snapshots of a log table must be recorded before they expire."""
        every = [state for found in states.values() for state in found]
        moved = self._plan.rule is not Rule.FULL and any(state.is_moved for state in every)
        return moved or any(state.is_changed for state in every)

    def _beyond_changes(self, states: Mapping[TableName, Sequence[InputState]]) -> str | None:
        """Return why the changes of the inputs do not suffice; None if they do, or there are none."""
        changed = {name: [state for state in found if state.is_changed] for name, found in states.items()}
        for state in (state for found in changed.values() for state in found):
            if state.restated is not None:
                return f"{state.table.name}: {state.restated}"
        for name in self._plan.undivided:
            if changed[name]:
                return f"{name} changed, which has no column {', '.join(self._definition.by_key)}"
        if self._plan.rule is Rule.FULL and any(changed.values()):
            return self._plan.reason or "the pipeline says so"
        return None

    def _costs_after(self, images: int | None) -> Costs:
        """Return the costs after this refresh, by a number of images of changes or as a whole, before its commit."""
        seconds = time.monotonic() - self._began
        if images is None:
            return self._costs.after_whole(seconds)
        return self._costs.after_changes(images, seconds)

    def _register(
        self, views: Views, states: Mapping[TableName, Sequence[InputState]], table: LakeTable | None
    ) -> None:
        for used in self._plan.inputs:
            found = states[used.name]
            views.add(used.now, united(used, [(state.table.name, state.now()) for state in found]))
            if not used.name.is_pattern:
                views.small[used.now] = partial(self._small_input, found[0])
            if all(state.has_images for state in found):
                changed = united(used, [(state.table.name, state.changed()) for state in found])
                views.add(used.changed, changed, None if used.name.is_pattern else found[0].held_changes)
        if table is not None:
            views.add(self._plan.output, rows_of(self.tables.lake, table))
            small = self.tables.small
            views.small[self._plan.output] = partial(small.rows, self.tables.lake, table, self._plan.key)

    def _small_input(self, state: InputState) -> pa.Table | None:
        """Return the named columns of a small result or mirror that is an input; None if it is not small."""
        if state.table.kind is not InputKind.RESULT:
            return self.tables.mirrors.rows(state)
        rows = self.tables.small.rows(self.tables.lake, state.table.table, state.table.key)
        return None if rows is None else pa.table({n: rows.column(spelt(rows, n)) for n in state.columns})

    @property
    def _changelog(self) -> ResultChangelog:
        return ResultChangelog(self.tables, self._definition.table)

    def _with_log(self, table: LakeTable | None) -> tuple[LakeTable | None, LakeTable | None]:
        """Return the result and its changelog as they agree; None for what there is not, or not yet."""
        return self._changelog.settled(table) if self._definition.changelog else (table, None)

    def _build(
        self,
        views: Views,
        table: LakeTable | None,
        log: LakeTable | None,
        states: Mapping[TableName, Sequence[InputState]],
    ) -> None:
        """Compute the whole result, and replace the rows of the table in one commit."""
        definition, plan = self._definition, self._plan
        self._register(views, states, table)
        rows = views.whole(plan, self.planned.function)
        if plan.checks:
            self._check(views.query(plan.full_unchecked), plan.checks)
        if plan.key:
            check_unique(rows, plan.key)
        tables = self.tables
        if table is not None and log is not None and tables.fits(table, rows):
            # Those that read the changelog get the differences.
            differing = f"{definition.name}__differing"
            views.keep(differing, difference(as_table(tables.lake, table, rows), rows_of(tables.lake, table)))
            changes = NetChanges.of(tables.lake, table, views.frames[differing], views.held.get(differing))
            self._apply(views, changes, table, log, states, None)
            return
        if definition.changelog:
            self._changelog.drop()
        tables.commit_all(
            definition.table,
            table,
            rows,
            self._record(states),
            self._reached(states),
            definition.partition,
            definition.description,
            costs=lambda: self._costs_after(None),
        )
        if definition.changelog:
            self._with_log(tables.load(definition.table))

    def _change(
        self,
        views: Views,
        table: LakeTable,
        log: LakeTable | None,
        states: Mapping[TableName, Sequence[InputState]],
    ) -> StagedChanges:
        """Compute what changed, and write it."""
        plan = self._plan
        if (net := self._on_driver(table, states)) is not None:
            changes = NetChanges.on_driver(self.tables.lake, net)
            return self._apply(views, changes, table, log, states, _images(states))
        self._register(views, states, table)
        function = self.planned.function
        if function is not None:
            function = replace(function, columns=tuple(columns_of(self.tables.lake, table).names))
        views.run(plan.steps, function)
        if plan.checks:
            self._check(views.frames[plan.checked].where(F.col(WEIGHT) > 0), plan.checks)
        rows, held = views.frames[plan.changes], views.held.get(plan.changes)
        changes = NetChanges.of(self.tables.lake, table, rows, held)
        return self._apply(views, changes, table, log, states, _images(states))

    def _on_driver(
        self, table: LakeTable, states: Mapping[TableName, Sequence[InputState]]
    ) -> pa.Table | None:
        """Return the net changes if the driver holds all rows that they follow from, else None."""
        plan = self._plan
        if not plan.is_portable:
            return None
        held: dict[str, pa.Table] = {}
        for view, rows in self._views_on_driver(table, states):
            if rows is None:
                return None
            held[view] = rows
        wanted = to_arrow_schema(columns_of(self.tables.lake, table))
        return computed(plan.portable, held, wanted.append(pa.field(WEIGHT, pa.int64())))

    def _views_on_driver(
        self, table: LakeTable, states: Mapping[TableName, Sequence[InputState]]
    ) -> Iterator[tuple[str, pa.Table | None]]:
        """Yield the views that the steps read, and their rows if the driver holds them: first those that cost least."""
        plan = self._plan
        inputs = [(used, states[used.name][0]) for used in plan.inputs]
        for used, state in inputs:
            if plan.reads(used.changed):
                yield used.changed, state.held_changes
        for used, state in inputs:
            if plan.reads(used.now):
                yield used.now, self._small_input(state)
        if plan.reads(plan.output):
            yield plan.output, self.tables.small.rows(self.tables.lake, table, plan.key)

    def _apply(
        self,
        views: Views,
        changes: NetChanges,
        table: LakeTable,
        log: LakeTable | None,
        states: Mapping[TableName, Sequence[InputState]],
        images: int | None,
    ) -> StagedChanges:
        """Write net changes: first to the changelog, then to the result.

        `images` is the number of images of changes that tell them; None if the result was computed as a whole.
        """
        lake, record, reached = self.tables.lake, self._record(states), self._reached(states)
        changes = changes.held_if_few(lake, table)
        found = stage_changes(
            lake,
            table,
            changes,
            self._plan.key,
            placed=views.placed,
            index=self.tables.index,
            small=self.tables.files.of(table),
        )
        if log is not None:
            self._changelog.append(log, table, changes, record, reached)
        self.tables.commit(
            table, found.staged, record, reached, costs=self._costs_after(images), net=changes.held
        )
        return found

    def _check(self, rows: DataFrame, checks: Sequence[Expectation]) -> None:
        """Count the rows that do not meet the checks.

        Raises:
            PipelineError: there are some, and nothing may be published then.
        """
        self.checks = list(count_checks(rows, checks))
        for check, found in zip(checks, self.checks, strict=True):
            if found.failed and check.action is Action.FAIL:
                raise self._definition.header_error(
                    f"expect {check.name}",
                    f"{found.failed:,} of {found.rows:,} rows do not meet {check.name}: {check.condition}; "
                    "nothing was published",
                    "correct the rows at their source, or let the check warn or drop",
                )

    def _record(self, states: Mapping[TableName, Sequence[InputState]]) -> ResultRecord:
        inputs = {str(s.table.name): s.progress for found in states.values() for s in found}
        plan = self._plan
        return ResultRecord(
            self._definition.name, plan.fingerprint, self.boundary, inputs, tuple(plan.key), plan.state
        )

    def _reached(self, states: Mapping[TableName, Sequence[InputState]]) -> Reached:
        """Return how far the source's changes are in the result: to the boundary; the inputs know the times."""
        markers = [state.table.table.marker() for found in states.values() for state in found]
        known = [marker for marker in markers if marker is not None]
        furthest = max((m.position for m in known if m.position is not None), default=None)
        times = [m.watermark_ms for m in known if m.watermark_ms is not None]
        return Reached(self.boundary.position or furthest, max(times, default=None))


def _images(states: Mapping[TableName, Sequence[InputState]]) -> int:
    """Return the number of images of changes since the result."""
    return sum(state.pending.new for found in states.values() for state in found)
