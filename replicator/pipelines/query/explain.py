"""What `pipeline show` says of a plan: what it reads, how it is kept current, and what a refresh costs, in words."""

from collections.abc import Iterator
from typing import Final

from replicator.model.common import counted
from replicator.pipelines.query.narrow import Narrow
from replicator.pipelines.query.plan import Plan, Rule
from replicator.pipelines.query.views import Input

_RULES = {
    Rule.SIGNED: "changes are added",
    Rule.AFFECTED: "rows that changes touch are recomputed",
    Rule.FULL: "computed as a whole at each refresh",
}
_FEW: Final = "DuckDB if the rows are few, without a Spark job; else Spark"


def explained(plan: Plan) -> list[str]:
    """Return the lines that explain a plan."""
    return [*_inputs(plan), *_rule(plan), *_cost(plan), *_checks(plan)]


def _inputs(plan: Plan) -> Iterator[str]:
    yield "reads"
    for item in plan.inputs:
        several = f" ({counted(len(item.tables), 'table')})" if item.name.is_pattern else ""
        yield f"  {item.name}{several}: {', '.join(item.columns) or 'the number of its rows'}"


def _rule(plan: Plan) -> Iterator[str]:
    yield f"kept current by: {plan.rule}, {_RULES[plan.rule]}"
    if plan.unit:
        yield f"  recomputed: the rows with the {', '.join(plan.unit)} that changes touch"
    if plan.undivided:
        yield f"  as a whole if {' or '.join(map(str, plan.undivided))} changes, which has no such column"
    if plan.state:
        yield "  the result has a hidden column _state: the numbers to which changes are added"
    if plan.keep_expired:
        yield "  rows that are deleted from a log table stay in the result"
    if plan.reason:
        yield f"  why not cheaper: {plan.reason}"
    yield (
        f"identified by: {', '.join(plan.key)}"
        if plan.key
        else "identified by: all columns; rows may be there twice"
    )


def _cost(plan: Plan) -> Iterator[str]:
    yield "a refresh reads"
    if plan.rule is Rule.FULL:
        yield from (f"  {item.name}: all rows" for item in plan.inputs)
        return
    for item in plan.inputs:
        yield f"  {item.name}: its changes{_of_now(plan, item)}"
    if found := _narrows(plan, plan.output):
        yield f"  the result: rows by {_columns(found)}"
    elif any(f"`{plan.output}`" in step.sql for step in plan.steps):
        yield "  the result: all rows"
    yield f"computed by: {_FEW if plan.is_portable else 'Spark'}"


def _of_now(plan: Plan, item: Input) -> str:
    """Return what a refresh reads of the rows of an input, beside its changes."""
    reading = [step for step in plan.steps if f"`{item.now}`" in step.sql]
    if not reading:
        return ""
    if any(item.now not in {narrow.view for narrow in step.narrow} for step in reading):
        return ", and all rows"
    return f", and rows by {_columns(_narrows(plan, item.now))}"


def _narrows(plan: Plan, view: str) -> list[Narrow]:
    return [narrow for step in plan.steps for narrow in step.narrow if narrow.view == view]


def _columns(narrows: list[Narrow]) -> str:
    return " or ".join(dict.fromkeys(narrow.column for narrow in narrows))


def _checks(plan: Plan) -> Iterator[str]:
    if plan.checks:
        yield "checks"
        yield from (f"  {check.name}: {check.condition}, {check.action}" for check in plan.checks)
