"""Changes that are computed from changes alone: the rule of signed changes.

Filters, projections, UNION ALL and inner joins are linear: the changes of their result follow from those of their
inputs, as rows with the weight 1 or -1. The changes of a join are a sum over its inputs, with D(T) for the changes of
T, T for its rows after them, and T' for those before:

    D(A join B join C) = D(A) join B' join C'  +  A join D(B) join C'  +  A join B join D(C)

T' is T without D(T): its rows with the weight 1, and the changes with the opposite weight.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from sqlglot import exp

from replicator.pipelines.query.blocks import (
    NotMaintained,
    alias_of,
    conditions_of,
    is_grouped,
    parts,
    refuse_clauses,
    refuse_values,
    select_of,
    side_of,
    sources_of,
    union_of,
    unnested,
)
from replicator.pipelines.query.names import WEIGHT
from replicator.pipelines.query.views import Views


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the changes of a query: those that follow from the changes of one input of a join.

    Attributes:
        query: the query for the changed rows with their weights.
        select: the SELECT that it is of; its sources are read as below.
        changed: the alias of the source of which it reads the changes.
    """

    query: exp.Query
    select: exp.Select
    changed: str


def check_linear(query: exp.Expr) -> None:
    """Refuse a query that is not linear.

    Raises:
        NotMaintained: a part of it is not.
    """
    query = unnested(query)
    if isinstance(query, exp.SetOperation):
        if query.args.get("distinct"):
            raise NotMaintained("UNION without ALL", query)
        for part in parts(query):
            check_linear(part)
        return
    select = select_of(query)
    refuse_clauses(select)
    if is_grouped(select):
        raise NotMaintained("a GROUP BY within the query", select)
    check_rows(select)
    if select.args.get("distinct"):
        raise NotMaintained("DISTINCT within the query", select)


def check_rows(select: exp.Select) -> None:
    """Refuse a SELECT whose FROM and WHERE are not linear.

    Raises:
        NotMaintained: a part of them is not.
    """
    refuse_values(select)
    if select.args.get("from_") is None:
        raise NotMaintained("a SELECT without FROM", select)
    for node in select.walk(prune=lambda n: isinstance(n, exp.Query) and n is not select):
        if isinstance(node, exp.Window):
            raise NotMaintained("a window function", node)
    if (
        inner := next((c.find(exp.Query) for c in conditions_of(select) if c.find(exp.Query)), None)
    ) is not None:
        raise NotMaintained("a condition with a subquery", inner)
    for join in select.args.get("joins") or ():
        if side_of(join) != "INNER":
            raise NotMaintained("an outer, semi or anti join", join)
    for source in sources_of(select):
        if isinstance(source, exp.Subquery):
            check_linear(source.this)
        elif not isinstance(source, exp.Table) or not isinstance(source.this, exp.Identifier):
            raise NotMaintained("something other than a table in FROM", source)


def changes(query: exp.Expr, views: Views) -> Iterator[Part]:
    """Yield queries for the changes of a linear query; their sum is the change."""
    query = unnested(query)
    if isinstance(query, exp.SetOperation):
        names = query.named_selects
        for select in parts(query):
            for part in changes(select, views):
                query_ = part.query
                for name, column in zip(names, query_.selects, strict=False):
                    column.replace(exp.alias_(column.unalias().copy(), name, quoted=True))
                yield Part(query_, part.select, part.changed)
        return
    select = select_of(query)
    for number, source in enumerate(sources_of(select)):
        yield Part(_changed(select, number, views), select, source.alias_or_name)


def _changed(select: exp.Select, changed: int, views: Views) -> exp.Query:
    """Return the query for the changes that follow from those of one source: earlier ones after, later ones before."""
    copy = select.copy()
    weights: list[exp.Expr] = []
    for number, source in enumerate(sources_of(copy)):
        alias = source.alias_or_name
        inner = unnested(source) if isinstance(source, exp.Subquery) else source
        if number < changed:
            relation = _now(inner, views)
        else:
            weights.append(exp.column(WEIGHT, alias, quoted=True))
            relation = _delta(inner, views) if number == changed else _before(inner, views)
        _replace(source, relation, alias)
    weight = reduce(lambda a, b: exp.Mul(this=a, expression=b), weights)
    copy.select(exp.alias_(weight, WEIGHT, quoted=True), copy=False)
    return copy


def _replace(source: exp.Expr, relation: exp.Expr, alias: str) -> None:
    relation.set("alias", alias_of(alias))
    source.replace(relation)


def _now(inner: exp.Expr, views: Views) -> exp.Expr:
    if isinstance(inner, exp.Table):
        return views.now(inner)
    return exp.Subquery(this=over_now(unnested(inner), views))


def over_now(query: exp.Query, views: Views) -> exp.Query:
    """Return the query over the rows after the changes."""
    copy = query.copy()
    for table in list(copy.find_all(exp.Table)):
        _replace(table, views.now(table), table.alias_or_name)
    return copy


def _delta(inner: exp.Expr, views: Views) -> exp.Expr:
    if isinstance(inner, exp.Table):
        return views.changed(inner)
    return exp.Subquery(this=union_of(part.query for part in changes(inner, views)))


def _before(inner: exp.Expr, views: Views) -> exp.Expr:
    """Return the rows before the changes, with weights."""
    columns = list(views.types(inner)) if isinstance(inner, exp.Table) else inner.named_selects  # type: ignore[attr-defined]
    now, delta = _now(inner, views), _delta(inner, views)
    for relation, alias in ((now, "_n"), (delta, "_d")):
        relation.set("alias", alias_of(alias))
    after = exp.select(*(exp.column(c, "_n", quoted=True) for c in columns)).from_(now)
    after.select(exp.alias_(exp.Literal.number(1), WEIGHT, quoted=True), copy=False)
    undone = exp.select(*(exp.column(c, "_d", quoted=True) for c in columns)).from_(delta)
    opposite = exp.Neg(this=exp.column(WEIGHT, "_d", quoted=True))
    undone.select(exp.alias_(opposite, WEIGHT, quoted=True), copy=False)
    return exp.Subquery(this=union_of([after, undone]))
