"""Groups whose results follow from those before and the changed rows alone.

`count`, `sum` and `avg` of exact numbers, `bool_and` and `bool_or` can be inverted: what a row added is subtracted when
it is removed. So a group needs no row but its changed ones. Its state is the number of its rows, and for each
aggregated expression the number of values that are not null, or their sum. Its results are expressions over that state.
Of log tables, which only grow, nothing is subtracted: the state may also have the `max` or `min` of values.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

from replicator.pipelines.query.blocks import (
    NotMaintained,
    grouped_by,
    has_aggregate,
    is_grouped,
    parts,
    refuse_clauses,
    select_of,
    shown,
    sources_of,
    unnested,
)
from replicator.pipelines.query.names import STATE
from replicator.pipelines.query.numeric import BIGINT, MAX_PRECISION, Exact, exact_type
from replicator.pipelines.query.signed import check_rows
from replicator.pipelines.query.views import Views

ROWS: Final = "rows"
"""The field of a state that has the number of the group's rows."""
_TOO_LONG: Final = "{} of numbers with too many digits, which cannot be subtracted"


@dataclass(frozen=True, slots=True)
class Term:
    """What a group's state has of an expression: the number of its values, their sum, or the largest or smallest.

    Attributes:
        name: its field in the state.
        value: the expression, of a row.
        sum: the type of the sum; None for the number of values that are not null.
        extreme: MAX or MIN; None for a sum or a number.
    """

    name: str
    value: exp.Expr
    sum: Exact | None = None
    extreme: type[exp.AggFunc] | None = None

    def of_rows(self) -> exp.Expr:
        """Return it for the rows of a group."""
        if self.extreme is not None:
            return self.extreme(this=self.value.copy())
        if self.sum is None:
            return exp.Count(this=self.value.copy())
        return exp.cast(
            exp.Coalesce(this=exp.Sum(this=self.value.copy()), expressions=[_zero()]), self.sum.sql
        )

    def of_changes(self, value: exp.Expr, weight: exp.Expr) -> exp.Expr:
        """Return what it changes by, from the value and the weight of changed rows."""
        if self.extreme is not None:
            # Each changed row is among those that there are now: only a join takes some away, and gives them again.
            return self.extreme(this=value)
        if self.sum is None:
            counted = (
                exp.case()
                .when(exp.Not(this=exp.Is(this=value, expression=exp.null())), weight.copy())
                .else_("0")
            )
            return exp.Coalesce(this=exp.Sum(this=counted), expressions=[_zero()])
        added, gone = (
            exp.Coalesce(this=exp.Sum(this=exp.case().when(when, value.copy())), expressions=[_zero()])
            for when in (
                exp.GT(this=weight.copy(), expression=_zero()),
                exp.LT(this=weight.copy(), expression=_zero()),
            )
        )
        return exp.cast(exp.Sub(this=added, expression=gone), self.sum.sql)

    def merged(self, before: str, change: str) -> str:
        """Return it after a change, as SQL; `before` is null in a new group."""
        if self.extreme is not None:
            return f"{'GREATEST' if self.extreme is exp.Max else 'LEAST'}({before}, {change})"
        return f"CAST(COALESCE({before}, 0) + {change} AS {self.sum.sql if self.sum else BIGINT})"


def _zero() -> exp.Expr:
    return exp.Literal.number(0)


@dataclass(frozen=True, slots=True)
class Invertible:
    """A query with aggregates to which changes are added.

    Attributes:
        select: the query.
        keys: output column → expression over a row, of the group; none if the result is one row.
        terms: the state of a group, beside the number of its rows.
        results: output column → expression over the state, whose fields are columns of the table `state`.
    """

    select: exp.Select
    keys: Mapping[str, exp.Expr]
    terms: tuple[Term, ...]
    results: Mapping[str, exp.Expr]

    @property
    def fields(self) -> list[str]:
        """The fields of the state."""
        return [ROWS, *(term.name for term in self.terms)]

    def rows(self) -> exp.Select:
        """Return the linear query for the keys and the aggregated values of each row."""
        columns = [exp.alias_(e.copy(), name, quoted=True) for name, e in self.keys.items()]
        columns += [exp.alias_(term.value.copy(), f"_{term.name}", quoted=True) for term in self.terms]
        select = self.select.copy()
        for arg in ("group", "distinct"):
            select.set(arg, None)
        select.set("expressions", columns or [exp.alias_(_zero(), "_0", quoted=True)])
        return select

    def with_state(self) -> exp.Select:
        """Return the query with its state as last column."""
        copy = self.select.copy()
        if copy.args.get("distinct"):
            copy.set("distinct", None)
            copy.set("group", exp.Group(expressions=[e.copy() for e in self.keys.values()]))
        fields: list[tuple[str, exp.Expr]] = [(ROWS, exp.cast(exp.Count(this=exp.Star()), "BIGINT"))]
        fields += [(term.name, term.of_rows()) for term in self.terms]
        return copy.select(exp.alias_(struct(fields), STATE, quoted=True))


def struct(fields: Sequence[tuple[str, exp.Expr]]) -> exp.Expr:
    """Return a struct of named values."""
    return exp.Struct(
        expressions=[
            exp.PropertyEQ(this=exp.to_identifier(name, quoted=True), expression=value)
            for name, value in fields
        ]
    )


def invertible(query: exp.Expr, views: Views) -> Invertible:
    """Return how changes are added to a query with aggregates or DISTINCT.

    Raises:
        NotMaintained: they cannot be.
    """
    select = select_of(query)
    refuse_clauses(select)
    if (having := select.args.get("having") or select.args.get("qualify")) is not None:
        raise NotMaintained("HAVING, because a group must be known before it is in the result", having)
    check_rows(select)
    outputs = {e.alias_or_name: e.unalias() for e in select.expressions}
    if not is_grouped(select):
        if not select.args.get("distinct"):
            raise NotMaintained("no aggregate", select)
        return Invertible(select, outputs, (), {})
    if select.args.get("distinct"):
        raise NotMaintained("DISTINCT of aggregates", select)
    keys = grouped_by(select)
    of_group = {name: e for name, e in outputs.items() if e in keys}
    if missing := [key for key in keys if key not in of_group.values()]:
        raise NotMaintained("an expression of GROUP BY that is not in the result", missing[0])
    state = _State(_types(select, views), views.only_grow)
    results = {name: state.result(e) for name, e in outputs.items() if name not in of_group}
    return Invertible(select, of_group, tuple(state.terms), results)


def _types(select: exp.Select, views: Views) -> dict[tuple[str, str], str]:
    """Return the known types of the columns of sources: those of tables, and those that subqueries pass on."""
    found: dict[tuple[str, str], str] = {}
    for source in sources_of(select):
        if isinstance(source, exp.Table):
            found |= {(source.alias_or_name, name): kind for name, kind in views.types(source).items()}
            continue
        branches = _branches(unnested(source))
        for place, name in enumerate(branches[0].named_selects):
            kinds = [exact_type(b.selects[place].unalias(), _types(b, views)) for b in branches]
            if kinds[0] is not None and all(kind == kinds[0] for kind in kinds):
                found[source.alias_or_name, name] = kinds[0].sql
    return found


def _branches(query: exp.Expr) -> list[exp.Select]:
    return parts(query) if isinstance(query, exp.SetOperation) else [select_of(query)]


@dataclass
class _State:
    """The terms that results need, as they are found."""

    types: Mapping[tuple[str, str], str]
    only_grows: bool
    terms: list[Term] = field(default_factory=list)

    def result(self, expression: exp.Expr) -> exp.Expr:
        """Return an output as an expression over the state."""

        def replaced(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Filter) and isinstance(node.this, exp.AggFunc):
                return self._aggregate(_filtered(node))
            if isinstance(node, exp.AggFunc):
                return self._aggregate(node)
            if isinstance(node, exp.Column) and node.table != "state":
                raise NotMaintained("a column outside of aggregates", node)
            return node

        return expression.copy().transform(replaced)

    def _aggregate(self, node: exp.AggFunc) -> exp.Expr:
        rule = _AGGREGATES.get(type(node))
        argument = node.this
        if rule is None:
            raise _not_subtracted(node)
        if isinstance(argument, exp.Distinct) or has_aggregate(argument) or node.expressions:
            raise NotMaintained(
                f"{shown(node)} of distinct or several values, which cannot be subtracted", node
            )
        return rule(self, node)

    def count(self, node: exp.AggFunc) -> exp.Expr:
        """Return the number of rows, or of values."""
        if isinstance(node.this, (exp.Star, exp.Literal)):
            return _field(ROWS)
        return self._term(node.this)

    def sum(self, node: exp.AggFunc) -> exp.Expr:
        """Return the sum of values; null if there are none."""
        kind = self._exact(node)
        if kind.scale and kind.sum.precision >= MAX_PRECISION:
            # The sum of two such sums would lose its last digit.
            raise NotMaintained(_TOO_LONG.format(shown(node)), node, "CAST the argument to fewer digits")
        return _if_any(self._term(node.this), self._term(node.this, kind.sum))

    def mean(self, node: exp.AggFunc) -> exp.Expr:
        """Return the mean of values; null if there are none."""
        kind, value = self._exact(node), node.this
        if kind.integer == BIGINT:
            # Their sum may be more than a BIGINT, which is no error of a mean.
            value, kind = exp.cast(value, f"DECIMAL({kind.precision}, 0)"), Exact(kind.precision, 0)
            total, mean = self._term(value, kind.sum), None
        else:
            total, mean = self._term(value, kind.sum), kind.mean
            if not kind.integer and mean is None:
                raise NotMaintained(_TOO_LONG.format(shown(node)), node, "CAST the argument to fewer digits")
        count = self._term(node.this)
        if mean is None:
            quotient: exp.Expr = exp.Div(
                this=exp.cast(total, "DOUBLE"), expression=exp.cast(count.copy(), "DOUBLE")
            )
        else:
            divided = exp.Div(this=total, expression=exp.cast(count.copy(), "DECIMAL(20, 0)"))
            quotient = exp.cast(divided, mean.sql)
        return _if_any(count, quotient)

    def some(self, node: exp.AggFunc) -> exp.Expr:
        """Return whether one value is true; null if there are none."""
        return _if_any(self._term(node.this), exp.GT(this=self._term(_one_if(node.this)), expression=_zero()))

    def all(self, node: exp.AggFunc) -> exp.Expr:
        """Return whether all values are true; null if there are none."""
        count = self._term(node.this)
        return _if_any(count, exp.EQ(this=self._term(_one_if(node.this)), expression=count.copy()))

    def count_if(self, node: exp.AggFunc) -> exp.Expr:
        """Return the number of true values."""
        return self._term(_one_if(node.this))

    def extreme(self, node: exp.AggFunc) -> exp.Expr:
        """Return the largest or the smallest value."""
        if not self.only_grows:
            raise _not_subtracted(node)
        return self._term(node.this, extreme=type(node))

    def _exact(self, node: exp.AggFunc) -> Exact:
        kind = exact_type(node.this, self.types)
        if kind is None:
            reason = (
                f"{shown(node)} of numbers that are not exact or of unknown type, which cannot be subtracted"
            )
            raise NotMaintained(reason, node, "CAST the argument to DECIMAL(p, s) or BIGINT")
        return kind

    def _term(
        self, value: exp.Expr, total: Exact | None = None, extreme: type[exp.AggFunc] | None = None
    ) -> exp.Column:
        for term in self.terms:
            if (term.value, term.sum, term.extreme) == (value, total, extreme):
                return _field(term.name)
        kind = extreme.key if extreme is not None else "count" if total is None else "sum"
        name = f"{kind}{len(self.terms)}"
        self.terms.append(Term(name, value.copy(), total, extreme))
        return _field(name)


_AGGREGATES: Final[dict[type[exp.Expr], Callable[[_State, exp.AggFunc], exp.Expr]]] = {
    exp.Count: _State.count,
    exp.CountIf: _State.count_if,
    exp.Sum: _State.sum,
    exp.Avg: _State.mean,
    exp.LogicalOr: _State.some,
    exp.LogicalAnd: _State.all,
    exp.Max: _State.extreme,
    exp.Min: _State.extreme,
}


def _not_subtracted(node: exp.AggFunc) -> NotMaintained:
    return NotMaintained(f"{shown(node)}, which cannot be subtracted", node)


def _filtered(node: exp.Filter) -> exp.AggFunc:
    """Return `aggregate(x) FILTER (WHERE condition)` as one of values that are null where the condition is not true."""
    aggregate: exp.AggFunc = node.this.copy()
    condition = node.expression.this
    argument = aggregate.this
    if isinstance(argument, exp.Distinct):
        return aggregate
    value = exp.Literal.number(1) if isinstance(argument, (exp.Star, exp.Literal)) else argument
    aggregate.set("this", exp.case().when(condition.copy(), value.copy()))
    return aggregate


def _field(name: str) -> exp.Column:
    return exp.column(name, "state", quoted=True)


def _if_any(count: exp.Expr, value: exp.Expr) -> exp.Expr:
    return exp.case().when(exp.GT(this=count.copy(), expression=_zero()), value)


def _one_if(condition: exp.Expr) -> exp.Expr:
    return exp.case().when(condition.copy(), exp.Literal.number(1))
