"""Which rows of an input a step needs, so that it need not read the others.

A step that starts with few rows, such as changed ones, and joins other inputs by equal columns needs of these only the
rows with values that the few rows have. An executor may read only them. It is an optimization: without it the result is
the same.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from replicator.model.common import quoted


@dataclass(frozen=True, slots=True)
class Narrow:
    """A step needs only rows of `view` of which `column` is, null or not, among the values of `by_column` in `by`."""

    view: str
    column: str
    by: str
    by_column: str


@dataclass(frozen=True, slots=True)
class Step:
    """A query of a refresh.

    Attributes:
        view: the name under which its result is registered.
        sql: the query in Spark SQL; if the function of the pipeline is called instead, how that looks.
        keep: whether the result is used several times, and is small.
        narrow: which rows of views it needs; others may be left out for this step.
        call: the views of which the function gets the rows, in the order of its inputs; empty for a query.
    """

    view: str
    sql: str
    keep: bool = False
    narrow: tuple[Narrow, ...] = ()
    call: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Equal:
    """Equal columns of joined rows: one of a source that may be narrowed, and one by which it is."""

    by: str
    by_column: str
    alias: str
    column: str


@dataclass(frozen=True, slots=True)
class Start:
    """A source with few rows: those of `by`, or if `column` is given, those with a value of `by_column` in `by`."""

    alias: str
    by: str
    column: str = ""
    by_column: str = ""


def equalities(conditions: Iterable[exp.Expr]) -> list[Equal]:
    """Return the columns that conditions make equal, in both directions."""
    found: list[Equal] = []
    for condition in conditions:
        left, right = condition.args.get("this"), condition.args.get("expression")
        if isinstance(condition, exp.EQ) and isinstance(left, exp.Column) and isinstance(right, exp.Column):
            found.append(Equal(left.table, left.name, right.table, right.name))
            found.append(Equal(right.table, right.name, left.table, left.name))
    return found


def narrowed(
    sql: str,
    start: Sequence[Start],
    equal: Sequence[Equal],
    views: Mapping[str, tuple[str, ...]],
    name: Callable[[], str],
) -> tuple[list[Step], tuple[Narrow, ...]]:
    """Return the steps that find the values by which views are narrowed, and how they narrow the step of a query.

    `views` are those of which rows of tables come, by alias: the first is narrowed, others are small. A view that the
    query reads twice stays whole.
    """
    steps: list[Step] = []
    narrows: list[Narrow] = []
    done: dict[str, Start] = {}
    for first in start:
        if first.alias in done or (first.column and not _reads_once(sql, views[first.alias][0])):
            continue
        done[first.alias] = first
        if first.column:
            narrows.append(Narrow(views[first.alias][0], first.column, first.by, first.by_column))
    for alias in (queue := list(done)):
        for edge in equal:
            if edge.by != alias or edge.alias in done or edge.alias not in views:
                continue
            view = views[edge.alias][0]
            if not _reads_once(sql, view):
                continue
            by = done[alias].by
            if done[alias].column:
                steps.append(_keys(done[alias], views[alias], edge.by_column, name()))
                by = steps[-1].view
            done[edge.alias] = Start(edge.alias, by, edge.column, edge.by_column)
            narrows.append(Narrow(view, edge.column, by, edge.by_column))
            queue.append(edge.alias)
    return steps, tuple(narrows)


def _reads_once(sql: str, view: str) -> bool:
    return sql.count(quoted(view)) == 1


def _keys(of: Start, views: tuple[str, ...], column: str, name: str) -> Step:
    """Return the step for the values of a column in the rows of narrowed views."""
    condition = f"_t.{quoted(of.column)} <=> _k.{quoted(of.by_column)}"
    rows = " UNION ALL ".join(f"SELECT {quoted(column)}, {quoted(of.column)} FROM {quoted(v)}" for v in views)
    sql = (
        f"SELECT DISTINCT _t.{quoted(column)} FROM ({rows}) AS _t "
        f"LEFT SEMI JOIN {quoted(of.by)} AS _k ON {condition}"
    )
    return Step(name, sql, keep=True, narrow=(Narrow(views[0], of.column, of.by, of.by_column),))
