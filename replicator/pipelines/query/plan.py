"""How the result of a pipeline is brought up to date: the SQL that an executor runs, and in which order.

An executor registers views, runs `Plan.steps` in order, each under its name, and applies the rows of the last one to
the table of the result. All SQL is Spark's. The names of views are plain words and begin with the name of the pipeline.

Of each input (`Plan.inputs`) there are the views

    now      its rows at the position of the refresh
    changed  a row for each row that appeared (`_weight` = 1) or went (`_weight` = -1) since the last refresh; an update
             is two rows. So `now` without `changed` are the rows before. Updates of other columns than the named ones
             may be left out. Inputs that only grow have rows with 1 only.

with at least the columns that the query names (`Input.columns`), in any letter case. An input that is a pattern has the
rows of all its tables, and their name as `_origin`. The view `Plan.output` has the rows of the result before the
refresh, with its hidden column.

The last step, `Plan.changes`, gives rows with the columns of the result, `_state` too if `Plan.state`, and
`_weight`: the number of copies of this row that are added; below 0, that are removed. It is net: no row is in it
twice. If the result has a key, an update is two rows with the same key, and a weight other than 1 or -1 or two added
rows of one key tell that the key does not identify rows. Values must be cast to the types of the result's table,
which are those of `Plan.full`, the query for the whole result over the views `now`.

Checks count over the rows of `Plan.checked` with a weight above 0: they have those too that `drop` leaves out.

If the result is computed by a function, `Plan.full` reads what `Plan.before` leads to, and a step of both calls the
function (`Step.call`). `Plan.columns` is empty then: only Spark tells them.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Final

from replicator.model.changelog import change_column
from replicator.model.common import quoted
from replicator.pipelines.query.adding import grouped_steps, linear_steps
from replicator.pipelines.query.analysis import Analysed, Read
from replicator.pipelines.query.blocks import NotMaintained, unnested
from replicator.pipelines.query.by_key import keyed, whole_steps
from replicator.pipelines.query.definition import DIALECT, Action, Definition, Expectation, Refresh
from replicator.pipelines.query.invertible import Invertible, invertible
from replicator.pipelines.query.names import STATE, WEIGHT, TableName
from replicator.pipelines.query.narrow import Step
from replicator.pipelines.query.portable import portable_steps
from replicator.pipelines.query.recomputing import recomputing_steps
from replicator.pipelines.query.signed import check_linear, over_now
from replicator.pipelines.query.views import Input, Views

_VERSION: Final = 1
"""Of the rules: a result of another version is recomputed."""
_CHANGE: Final = change_column(())


class Rule(StrEnum):
    """How a result is brought up to date."""

    SIGNED = "signed"
    """By adding the changes of the inputs."""
    AFFECTED = "affected"
    """By recomputing the rows that changes may have touched."""
    FULL = "full"
    """As a whole."""


@dataclass(frozen=True)
class Plan:
    """How a result is brought up to date; see the top of this module.

    Attributes:
        rule: the rule by which it is.
        reason: why not by a cheaper one; None for the cheapest.
        columns: the columns of the result, without the hidden one.
        key: the columns that identify a row; empty if rows have no key.
        unit: the columns of which the rows are recomputed for the values that changes touched, by `Rule.AFFECTED`.
        state: whether the result has the hidden column.
        before: the steps that `full` needs before it; none for a SELECT.
        full: the query for the whole result.
        full_unchecked: the same with the rows that `drop` leaves out.
        steps: the queries of a refresh; none if it computes `full`.
        fingerprint: a hash of all that decides the rows; a result of another one must be recomputed.
        keep_expired: whether rows stay in the result that were deleted from a log table.
        undivided: the inputs of which a function gets all rows in `steps`: if one changed, the whole must be computed.
        translate: returns `portable`.
    """

    rule: Rule
    reason: str | None
    inputs: tuple[Input, ...]
    columns: tuple[str, ...]
    key: tuple[str, ...]
    unit: tuple[str, ...]
    state: bool
    output: str
    before: tuple[Step, ...]
    full: str
    full_unchecked: str
    steps: tuple[Step, ...]
    changes: str
    checked: str
    checks: tuple[Expectation, ...]
    fingerprint: str
    keep_expired: bool
    undivided: tuple[TableName, ...] = ()
    translate: Callable[[], tuple[tuple[str, str], ...]] = field(default=tuple, compare=False, repr=False)

    @cached_property
    def portable(self) -> tuple[tuple[str, str], ...]:
        """The views and queries of `steps` for DuckDB, which gives the same; none if only Spark does.

        They are made when they are needed: that takes as long as all else, and the state of a pipeline needs none.
        """
        return self.translate()

    @property
    def is_portable(self) -> bool:
        """Whether DuckDB may compute a refresh; tables of a pattern are united by Spark."""
        return not any(used.name.is_pattern for used in self.inputs) and bool(self.portable)

    def reads(self, view: str) -> bool:
        """Return whether a step reads a view."""
        return any(quoted(view) in step.sql for step in self.steps)


def plan_of(analysed: Analysed) -> Plan:
    """Choose how the result of a pipeline is brought up to date.

    Raises:
        PipelineError: the pipeline demands that it is by what changed, and that is impossible.
    """
    definition = analysed.definition
    named = (*analysed.columns, *(name for read in analysed.inputs for name in read.columns))
    if (reason := reserved(named)) is not None:
        raise definition.error(analysed.query, reason, "name the column otherwise with AS")
    if (reason := reserved(analysed.columns, changelog=definition.changelog)) is not None:
        raise definition.header_error("changelog", reason, "name the column otherwise with AS")
    drops = tuple(e.condition for e in definition.expectations if e.action is Action.DROP)
    planner = _Planner(analysed, Views(analysed), drops)
    if definition.keep_expired:
        return planner.keeping()
    if definition.refresh is Refresh.FULL:
        whole = "the file says refresh: full"
        if definition.inputs and not definition.by_key:
            whole = "the function has no key by which it computes its result"
        return planner.full(whole)
    try:
        return planner.maintained()
    except NotMaintained as error:
        refused = definition.error(
            error.node, f"cannot be maintained incrementally: {error.reason}", _hint(error, definition)
        )
        if definition.refresh is Refresh.INCREMENTAL:
            raise refused from None
        return planner.full(refused.message)


def reserved(columns: Iterable[str], *, changelog: bool = False) -> str | None:
    """Return why a result cannot have one of the columns; None if it can have all.

    `changelog`: whether it has one.
    """
    for name in columns:
        if name.lower() in (STATE, WEIGHT):
            return f"{name} is the name of a hidden column"
        if changelog and name.lower() == _CHANGE:
            return f"{_CHANGE} is the column of the changelog that tells what changed"
    return None


def _hint(error: NotMaintained, definition: Definition) -> str:
    otherwise = f"write {definition.setting('refresh: auto')} in the header to compute it as a whole"
    return f"{error.hint}; or {otherwise}" if error.hint else otherwise


@dataclass(frozen=True, slots=True)
class _Planner:
    """Makes the plan of one pipeline."""

    analysed: Analysed
    views: Views
    drops: tuple[str, ...]

    def maintained(self) -> Plan:
        """Return the plan of the cheapest rule that applies.

        Raises:
            NotMaintained: none applies.
        """
        if self.analysed.parameters:
            return self._keyed()
        self._refuse_unchanging(self.analysed.inputs)
        try:
            return self._signed()
        except NotMaintained as error:
            place = self.analysed.definition.error(error.node, "").message.removesuffix(": ")
            reason = f"changes cannot be added because of {error.reason} ({place})"
        unit, steps = recomputing_steps(self.views)
        return self._plan(Rule.AFFECTED, reason, steps, None, unit)

    def full(self, reason: str) -> Plan:
        """Return the plan to compute the result as a whole."""
        return self._plan(Rule.FULL, reason, (), None)

    def keeping(self) -> Plan:
        """Return the plan by which rows stay in the result that were deleted from a log table.

        Raises:
            PipelineError: they could not stay.
        """
        definition = self.analysed.definition
        otherwise = "leave keep_expired out of the header"
        if not any(read.schema.is_log for read in self.analysed.inputs):
            raise definition.header_error("keep_expired", "keep_expired: no log table is read", otherwise)
        if definition.inputs:
            reason = "keep_expired: a function gets the rows that are left, so that others cannot stay"
            raise definition.header_error("keep_expired", reason, otherwise)
        if definition.refresh is not Refresh.INCREMENTAL:
            reason = (
                "keep_expired needs refresh: incremental: the whole is computed of the rows that are left"
            )
            raise definition.header_error("keep_expired", reason, otherwise)
        try:
            self._refuse_unchanging(self.analysed.inputs)
            return self._signed()
        except NotMaintained as error:
            reason = f"expired rows cannot be kept: changes cannot be added because of {error.reason}"
            raise definition.error(error.node, reason, otherwise) from None

    def _keyed(self) -> Plan:
        """Return the plan for a function that is called for the affected keys."""
        found = keyed(self.views)
        self._refuse_unchanging([read for read in self.analysed.inputs if read.name in found.divided])
        plan = self._plan(Rule.AFFECTED, None, found.steps, None, self.analysed.definition.by_key)
        return replace(plan, undivided=found.undivided)

    def _refuse_unchanging(self, inputs: Iterable[Read]) -> None:
        """Refuse inputs of which the changes are not known."""
        for read in inputs:
            if not read.schema.has_changelog:
                hint = (
                    "write changelog: true in the header of the pipeline that computes it"
                    if read.schema.is_result
                    else f"write changelog = true in the [[table]] of {read.name.name} in the configuration"
                )
                raise NotMaintained(f"{read.name} has no changelog", read.node, hint)

    def _signed(self) -> Plan:
        query = unnested(self.analysed.query)
        try:
            check_linear(query)
        except NotMaintained:
            grouped = invertible(query, self.views)
        else:
            return self._plan(Rule.SIGNED, None, linear_steps(query, self.views), None)
        if self.drops:
            raise NotMaintained("a check that drops groups, which may come back", query)
        return self._plan(Rule.SIGNED, None, grouped_steps(grouped, self.views), grouped)

    def _plan(
        self,
        rule: Rule,
        reason: str | None,
        steps: Sequence[Step],
        grouped: Invertible | None,
        unit: tuple[str, ...] = (),
    ) -> Plan:
        definition, views = self.analysed.definition, self.views
        before = whole_steps(views) if self.analysed.parameters else []
        if before:
            unchecked = f"SELECT * FROM {quoted(before[-1].view)}"
        else:
            query = over_now(grouped.with_state() if grouped else self.analysed.query, views)
            state = grouped is not None
            unchecked = f"SELECT {views.spelt('_q', state=state)} FROM ({query.sql(DIALECT)}) AS _q"
        full = unchecked
        last = steps[-1].view if steps else ""
        if self.drops:
            full = f"SELECT * FROM ({unchecked}) AS _r WHERE {self._kept()}"
            if steps:
                sql = f"SELECT * FROM {quoted(last)} WHERE {self._kept()}"
                steps = [*steps, Step(views.view("changes"), sql)]
        return Plan(
            rule=rule,
            reason=reason,
            inputs=views.inputs,
            columns=self.analysed.columns,
            key=tuple(views.spelling.get(name.lower(), name) for name in definition.key),
            unit=tuple(views.spelling.get(name, name) for name in unit),
            state=grouped is not None,
            output=views.output,
            before=tuple(before),
            full=full,
            full_unchecked=unchecked,
            steps=tuple(steps),
            changes=steps[-1].view if steps else "",
            checked=last,
            checks=definition.expectations,
            fingerprint=self._fingerprint(grouped),
            keep_expired=definition.keep_expired,
            translate=lambda: portable_steps(self.analysed, steps, views),
        )

    def _kept(self) -> str:
        """Return the condition of the rows that no `drop` leaves out."""
        return " AND ".join(f"COALESCE(({condition}), FALSE)" for condition in self.drops)

    def _fingerprint(self, grouped: Invertible | None) -> str:
        definition = self.analysed.definition
        inputs = [
            (str(read.name).lower(), [str(table) for table in read.tables]) for read in self.analysed.inputs
        ]
        state = () if grouped is None else [(t.name, t.value.sql(DIALECT), t.sum) for t in grouped.terms]
        parts: tuple[object, ...] = (
            _VERSION,
            inputs,
            self.analysed.query.sql(DIALECT, comments=False),
            [name.lower() for name in self.analysed.columns],
            sorted(name.lower() for name in definition.key),
            sorted(self.drops),
            grouped is not None,
            state,
        )
        if definition.inputs:
            parts = (*parts, definition.code, sorted(name.lower() for name in definition.by_key))
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
