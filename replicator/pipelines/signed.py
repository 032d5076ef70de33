"""Aggregates that changes are added to: the rule of signed changes.

`count`, `sum` and `avg` of exact numbers can be inverted: what a row added is subtracted when it goes. So a group needs
no row but its changed ones. A group's state is the number of its rows, and for each aggregated expression the number
and sum of its values that are not null. Its results are expressions over that state.

Changes of a join are the sum over its tables that changed, by inclusion and exclusion: with D(T) for the signed changes
of T, and T for its rows after them,

    D(A join B) = D(A) join B + A join D(B) - D(A) join D(B)
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import Final

from sqlglot import exp

from replicator.pipelines.affected import NotMaintained, Relation, relation_of

WEIGHT: Final = "_weight"
"""Column of a changed row: 1 if it was added, -1 if it was removed."""
ROWS: Final = "rows"
_EXACT: Final = (*exp.DataType.INTEGER_TYPES, exp.DataType.Type.DECIMAL)


@dataclass(frozen=True, slots=True)
class Term:
    """What a group's state has of an expression: the number of its values, or their sum, as column `name`."""

    value: exp.Expression
    name: str
    is_sum: bool

    def of_row(self, weight: exp.Expression) -> exp.Expression:
        """Return what a row with a weight adds to it."""
        if self.is_sum:
            return exp.Mul(this=exp.Paren(this=self.value.copy()), expression=weight.copy())
        some = exp.Not(this=exp.Is(this=self.value.copy(), expression=exp.null()))
        return exp.case().when(some, weight.copy()).else_("0")


@dataclass(frozen=True, slots=True)
class Invertible:
    """An aggregate that changes are added to.

    Attributes:
        keys: output column → expression over the input, of the group.
        terms: what is summed.
        results: output column → expression over the state, whose columns are those of the table `state`.
        select: the block.
    """

    keys: Mapping[str, exp.Expression]
    terms: tuple[Term, ...]
    results: Mapping[str, exp.Expression]
    select: exp.Select

    @property
    def state(self) -> list[str]:
        """The columns of a group's state."""
        return [ROWS, *(term.name for term in self.terms)]

    def changes(self, changed: Collection[str]) -> exp.Query:
        """Return the query for the changes of the states of groups after changes of some inputs, by alias."""
        parts = [self._part(some) for n in range(1, len(changed) + 1) for some in combinations(sorted(changed), n)]
        rows = reduce(lambda a, b: exp.union(a, b, distinct=False), parts).subquery("c")
        columns = [exp.column(name, "c", quoted=True) for name in self.keys]
        sums = [_named(exp.Sum(this=exp.column(name, "c", quoted=True)), name) for name in self.state]
        query = exp.select(*columns, *sums).from_(rows)
        return query.group_by(*(c.copy() for c in columns)) if columns else query

    def _part(self, changed: Collection[str]) -> exp.Query:
        """Return the weighted values of the rows of a join in which some inputs are replaced by their changes."""
        select = self.select.copy()
        for table in list(select.find_all(exp.Table)):
            relation = Relation.CHANGED if table.alias_or_name in changed else Relation.NOW
            table.replace(relation_of(table, relation))
        weights = [exp.column(WEIGHT, alias, quoted=True) for alias in changed]
        sign = exp.Literal.number(1 if len(changed) % 2 else -1)
        weight = reduce(lambda a, b: exp.Mul(this=a, expression=b), weights, sign)
        columns = [_named(e.copy(), name) for name, e in self.keys.items()]
        columns.append(_named(weight.copy(), ROWS))
        columns += [_named(term.of_row(weight), term.name) for term in self.terms]
        for arg in ("group", "having"):
            select.set(arg, None)
        select.set("expressions", columns)
        return select


def invertible(query: exp.Expression) -> Invertible:
    """Return how changes are added to a query.

    Raises:
        NotMaintained: it must be computed by affected keys.
    """
    if not isinstance(query, exp.Select):
        raise NotMaintained("only a SELECT with GROUP BY", query)
    for arg in ("having", "distinct", "qualify", "limit", "order"):
        if query.args.get(arg):
            raise NotMaintained(f"{arg.upper()}", query)
    for join in query.args.get("joins") or ():
        if join.side or join.kind.upper() not in ("", "INNER", "CROSS"):
            raise NotMaintained("an outer join", join)
    for inner in query.find_all(exp.Query):
        if inner is not query:
            raise NotMaintained("a subquery", inner)
    if query.find(exp.Window):
        raise NotMaintained("a window", query)
    group = query.args.get("group")
    keys = list(group.expressions) if group else []
    outputs = {e.alias_or_name: e.unalias() for e in query.expressions}
    of_group = {name: e for name, e in outputs.items() if e in keys}
    if missing := [k for k in keys if k not in of_group.values()]:
        raise NotMaintained("an expression of GROUP BY is not in the result", missing[0])
    terms: list[Term] = []
    results = {name: _result(e.copy(), terms) for name, e in outputs.items() if name not in of_group}
    if not results:
        raise NotMaintained("no aggregate", query)
    return Invertible(of_group, tuple(terms), results, query)


def _result(expression: exp.Expression, terms: list[Term]) -> exp.Expression:
    """Return an output as an expression over the state; adds what it sums to `terms`."""
    def replaced(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Count) and (isinstance(node.this, exp.Star) or isinstance(node.this, exp.Literal)):
            return _state(ROWS)
        if isinstance(node, exp.Count) and not isinstance(node.this, exp.Distinct) and not node.expressions:
            return _count(node.this, terms)
        if isinstance(node, exp.Sum) and not isinstance(node.this, exp.Distinct):
            some = exp.GT(this=_count(_exact(node), terms), expression=exp.Literal.number(0))
            return exp.case().when(some, _sum(node.this, terms))
        if isinstance(node, exp.Avg) and not isinstance(node.this, exp.Distinct):
            count = exp.Nullif(this=_count(_exact(node), terms), expression=exp.Literal.number(0))
            return exp.Div(this=_sum(node.this, terms), expression=count)
        if isinstance(node, exp.AggFunc):
            raise NotMaintained(f"{node.key.upper()} cannot be subtracted", node)
        if isinstance(node, exp.Column) and node.table != "state":
            raise NotMaintained("a column outside of aggregates", node)
        return node

    return expression.transform(replaced)


def _exact(node: exp.Expression) -> exp.Expression:
    value: exp.Expression = node.this
    if value.type is None or not value.is_type(*_EXACT):
        raise NotMaintained(f"{node.key.upper()} of numbers that are not exact", node)
    return value


def _count(value: exp.Expression, terms: list[Term]) -> exp.Column:
    return _term(value, terms, is_sum=False)


def _sum(value: exp.Expression, terms: list[Term]) -> exp.Column:
    return _term(value, terms, is_sum=True)


def _term(value: exp.Expression, terms: list[Term], *, is_sum: bool) -> exp.Column:
    for term in terms:
        if term.value == value and term.is_sum == is_sum:
            return _state(term.name)
    terms.append(Term(value.copy(), f"{'sum' if is_sum else 'count'}{len(terms)}", is_sum))
    return _state(terms[-1].name)


def _state(name: str) -> exp.Column:
    return exp.column(name, "state", quoted=True)


def _named(expression: exp.Expression, name: str) -> exp.Expression:
    return exp.alias_(expression, name, quoted=True)
