"""A SELECT as the rules see it: what it reads, by which conditions rows are combined, and which columns it has.

Subqueries in EXISTS, NOT EXISTS and IN become sources too. They take part only where they themselves changed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

from sqlglot import exp

from replicator.pipelines.query.functions import ORDER_DEPENDENT, UNMAINTAINED, names_of

_NULL_REJECTING: Final = (
    exp.Column,
    exp.Identifier,
    exp.Literal,
    exp.DataType,
    exp.DataTypeParam,
    exp.Cast,
    exp.TryCast,
    exp.Paren,
    exp.Neg,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Mod,
    exp.Lower,
    exp.Upper,
    exp.Trim,
    exp.Abs,
    exp.Round,
    exp.Floor,
    exp.Ceil,
    exp.Date,
    exp.TsOrDsToDate,
    exp.Year,
    exp.Month,
    exp.Day,
    exp.DateTrunc,
    exp.TimestampTrunc,
    exp.Var,
)
"""Expressions that are null if a column in them is."""
_AGGREGATE_WRAPPERS: Final = (exp.IgnoreNulls, exp.RespectNulls, exp.Filter, exp.WithinGroup)


class NotMaintained(Exception):  # noqa: N818 - the name says what happened
    """A part of a query for which no rule exists."""

    def __init__(self, reason: str, node: exp.Expr, hint: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Source:
    """A table or subquery that a block reads.

    Attributes:
        alias: its name in the block.
        query: the table, or the query of the subquery.
        known: the columns of which the values of changed rows are known; None for all.
        path: the conditions with a subquery in which it is, from the outermost; () for what stands in FROM.
    """

    alias: str
    query: exp.Expr
    known: frozenset[str] | None = None
    path: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on rows of sources.

    Attributes:
        expression: the condition.
        path: as of a source: it holds only for rows that the subquery combines.
        nullable: the aliases whose columns may be null in it because an outer join found no row.
    """

    expression: exp.Expr
    path: tuple[int, ...] = ()
    nullable: frozenset[str] = frozenset()

    @property
    def aliases(self) -> frozenset[str]:
        """The sources of its columns."""
        return aliases([self.expression])

    @property
    def rejects_nulls(self) -> bool:
        """Whether it is an equality that no null meets."""
        if not isinstance(self.expression, exp.EQ):
            return False
        return all(isinstance(node, (exp.EQ, *_NULL_REJECTING)) for node in self.expression.walk())

    @property
    def is_strict(self) -> bool:
        """Whether each combined row meets it, also where a row of its sources changed."""
        return self.rejects_nulls or not self.aliases & self.nullable

    def ends(self) -> tuple[str, str] | None:
        """Return the two sources that it makes equal; None if it does not."""
        if not isinstance(self.expression, exp.EQ) or not self.is_strict:
            return None
        left, right = aliases([self.expression.left]), aliases([self.expression.right])
        if len(left) != 1 or len(right) != 1 or left == right:
            return None
        return next(iter(left)), next(iter(right))


@dataclass(frozen=True, slots=True)
class Block:
    """A SELECT.

    Attributes:
        sources: what it reads.
        conditions: the conditions that combine or filter rows of sources.
        nullable: the aliases of sources whose columns may be null because an outer join found no row.
        columns: output column → expression of it over the sources, if the values of changed rows are known.
    """

    select: exp.Select
    sources: tuple[Source, ...]
    conditions: tuple[Condition, ...]
    nullable: frozenset[str]
    columns: Mapping[str, exp.Expr]


def known(query: exp.Expr) -> frozenset[str]:
    """Return the output columns of which the values of changed rows can be computed without the whole result.

    Raises:
        NotMaintained: there is no rule for a part of the query.
    """
    if isinstance(query, exp.SetOperation):
        places = [[name in known(part) for name in part.named_selects] for part in parts(query)]
        names = query.named_selects
        return frozenset(name for n, name in enumerate(names) if all(part[n] for part in places))
    return frozenset(block_of(select_of(query)).columns)


def parts(query: exp.SetOperation) -> list[exp.Select]:
    """Return the queries that UNION combines.

    Raises:
        NotMaintained: it is INTERSECT or EXCEPT.
    """
    if not isinstance(query, exp.Union):
        hint = "write it with EXISTS or NOT EXISTS"
        raise NotMaintained(f"{query.key.upper()} is not maintained", query, hint)
    refuse_clauses(query)
    found: list[exp.Select] = []
    for side in (query.this, query.expression):
        inner = unnested(side)
        found += parts(inner) if isinstance(inner, exp.SetOperation) else [select_of(inner)]
    return found


def sources_of(select: exp.Query) -> list[exp.Expr]:
    """Return the tables and subqueries in FROM."""
    return [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]


def unnested(query: exp.Expr) -> exp.Query:
    """Return the query in parentheses.

    Raises:
        NotMaintained: it is no query.
    """
    while isinstance(query, exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Query):
        raise NotMaintained("only SELECT and UNION are maintained", query)
    return query


def select_of(query: exp.Expr) -> exp.Select:
    """Return a query that is one SELECT.

    Raises:
        NotMaintained: it is none.
    """
    query = unnested(query)
    if not isinstance(query, exp.Select):
        raise NotMaintained("only SELECT and UNION are maintained", query)
    return query


def refuse_clauses(query: exp.Query) -> None:
    """Refuse what makes the result depend on more than the rows that belong together.

    Raises:
        NotMaintained: the query has such a clause.
    """
    if query.args.get("limit") or query.args.get("offset"):
        hint = "number the rows with row_number() OVER (PARTITION BY …) and filter by the number in an outer query"
        raise NotMaintained("LIMIT is not maintained", query.args.get("limit") or query, hint)
    for arg, name in (
        ("order", "ORDER BY"),
        ("sort", "SORT BY"),
        ("distribute", "DISTRIBUTE BY"),
        ("cluster", "CLUSTER BY"),
    ):
        if (clause := query.args.get(arg)) is not None:
            raise NotMaintained(f"{name} has no meaning for a table", clause, f"remove {name}")
    if found := query.args.get("laterals"):
        raise NotMaintained("LATERAL VIEW is not maintained", found[0])


def block_of(select: exp.Select) -> Block:
    """Read a SELECT.

    Raises:
        NotMaintained: there is no rule for a part of it.
    """
    refuse_clauses(select)
    refuse_values(select)
    sources, conditions, nullable = _from(select)
    for number, condition in enumerate(conditions_of(select)):
        if condition.find(exp.Query):
            more, its = _of_subquery(condition, number, frozenset(nullable))
            sources += more
            conditions += its
        else:
            conditions.append(Condition(condition, (), frozenset(nullable)))
    by_alias = {source.alias: source for source in sources}
    columns = {name: e for name, e in _columns(select).items() if is_known(e, by_alias)}
    return Block(select, tuple(sources), tuple(conditions), frozenset(nullable), columns)


def alias_of(name: str) -> exp.TableAlias:
    """Return the alias of a table or subquery."""
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True))


def union_of(queries: Iterable[exp.Query]) -> exp.Query:
    """Return the query for the rows of all queries."""
    return reduce(lambda a, b: exp.union(a, b, distinct=False), queries)


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """Return the conditions that AND combines."""
    if condition is None:
        return []
    if isinstance(condition, exp.Paren):
        return conjuncts(condition.this)
    if isinstance(condition, exp.And):
        return [*conjuncts(condition.left), *conjuncts(condition.right)]
    return [condition]


def conditions_of(select: exp.Select) -> list[exp.Expr]:
    """Return the conditions of WHERE."""
    where = select.args.get("where")
    return conjuncts(where.this if where else None)


def is_known(expression: exp.Expr, sources: Mapping[str, Source]) -> bool:
    """Return whether the value is known of changed rows of these sources."""
    for column in expression.find_all(exp.Column):
        source = sources.get(column.table)
        if source is None or (source.known is not None and column.name not in source.known):
            return False
    return True


def aliases(expressions: Iterable[exp.Expr]) -> frozenset[str]:
    """Return the sources of all columns in expressions."""
    return frozenset(column.table for e in expressions for column in e.find_all(exp.Column))


def refuse_values(select: exp.Select) -> None:
    """Refuse subqueries as values, and functions for which there is no rule.

    Raises:
        NotMaintained: the SELECT has one.
    """
    clauses = [select.args.get(arg) for arg in ("group", "having", "qualify")]
    joins = [join.args.get("on") for join in select.args.get("joins") or ()]
    for part in [*select.expressions, *(c for c in (*clauses, *joins) if c is not None)]:
        if (inner := part.find(exp.Query)) is not None:
            raise NotMaintained("a subquery as a value is not maintained", inner, "join it in FROM instead")
    for node in select.walk(prune=lambda n: isinstance(n, exp.Query) and n is not select):
        names = names_of(node)
        if names & ORDER_DEPENDENT and not is_windowed(node):
            hint = "use min, max, or row_number() OVER (PARTITION BY … ORDER BY …)"
            raise NotMaintained(f"{shown(node)} depends on the order of rows", node, hint)
        if names & UNMAINTAINED or isinstance(node, exp.UDTF):
            raise NotMaintained(f"{shown(node)} is not maintained", node)


def shown(node: exp.Expr) -> str:
    """Return the name of a function as an error has it."""
    if isinstance(node, exp.Anonymous):
        return f"{node.name.lower()}()"
    return f"{node.sql('spark', comments=False).partition('(')[0].lower()}()"


# FROM.


def _from(select: exp.Select) -> tuple[list[Source], list[Condition], set[str]]:
    clause = select.args.get("from_")
    if clause is None:
        raise NotMaintained("a SELECT without FROM is not maintained", select)
    sources = [_source(clause.this)]
    conditions: list[Condition] = []
    nullable: set[str] = set()
    for number, join in enumerate(select.args.get("joins") or (), 1000):
        source = _source(join.this)
        side = side_of(join)
        if side in ("SEMI", "ANTI"):
            path = (number,)
            sources.append(replace(source, path=path))
            conditions += [Condition(c, path, frozenset(nullable)) for c in conjuncts(join.args.get("on"))]
            continue
        for condition in conjuncts(join.args.get("on")):
            # A row that does not meet it may be in the result of an outer join, without the other side.
            if side == "INNER" or len(aliases([condition])) > 1:
                conditions.append(Condition(condition, (), frozenset(nullable)))
        if side in ("RIGHT", "FULL"):
            nullable |= {s.alias for s in sources if not s.path}
        if side in ("LEFT", "FULL"):
            nullable.add(source.alias)
        sources.append(source)
    return sources, conditions, nullable


def side_of(join: exp.Join) -> str:
    """Return the kind of a join: INNER, LEFT, RIGHT, FULL, SEMI or ANTI.

    Raises:
        NotMaintained: it is a NATURAL or ASOF join.
    """
    if join.method:
        raise NotMaintained(f"{join.method} JOIN is not maintained", join, "write the columns with ON")
    if join.kind.upper() in ("SEMI", "ANTI"):
        return join.kind.upper()
    return join.side.upper() or "INNER"


def _source(node: exp.Expr) -> Source:
    for arg in ("pivots", "joins", "sample", "when", "version", "laterals"):
        if node.args.get(arg):
            raise NotMaintained(f"{arg.upper().removesuffix('S')} within FROM is not maintained", node)
    if isinstance(node, exp.Table) and isinstance(node.this, exp.Identifier):
        return Source(node.alias_or_name, node)
    if isinstance(node, exp.Subquery):
        query = unnested(node.this)
        return Source(node.alias_or_name, query, known(query))
    raise NotMaintained("only tables and subqueries are maintained in FROM", node)


# Conditions with subqueries.


def _of_subquery(
    condition: exp.Expr, number: int, nullable: frozenset[str]
) -> tuple[list[Source], list[Condition]]:
    """Return the sources and conditions of `EXISTS (…)`, `NOT EXISTS (…)` or `x IN (…)`."""
    inner = condition.this if isinstance(condition, exp.Not) else condition
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if isinstance(inner, exp.In) and inner.args.get("query") is not None:
        return _of_in(inner, number, nullable, negated=inner is not condition)
    if not isinstance(inner, exp.Exists):
        hint = "write it as a condition of its own after AND"
        raise NotMaintained("a subquery is maintained only as EXISTS, NOT EXISTS or IN", condition, hint)
    select = select_of(inner.this)
    if is_grouped(select):
        hint = "write it as IN (SELECT … GROUP BY … HAVING …)"
        raise NotMaintained("an EXISTS with aggregates is not maintained", inner, hint)
    block = block_of(select)
    names = {source.alias: f"_{source.alias}{number}" for source in block.sources}
    sources = [replace(s, alias=names[s.alias], path=(number, *s.path)) for s in block.sources]
    conditions = [
        Condition(
            _with_aliases(c.expression, names),
            (number, *c.path),
            frozenset(names.get(a, a) for a in c.nullable) | nullable,
        )
        for c in block.conditions
    ]
    return sources, conditions


def _of_in(
    inner: exp.In, number: int, nullable: frozenset[str], *, negated: bool
) -> tuple[list[Source], list[Condition]]:
    if negated:
        hint = "write NOT EXISTS: NOT IN finds nothing as soon as one value is null"
        raise NotMaintained("NOT IN with a subquery is not maintained", inner, hint)
    query = unnested(inner.args["query"])
    source = Source(f"_in{number}", query, known(query), (number,))
    values = inner.this.expressions if isinstance(inner.this, exp.Tuple) else [inner.this]
    equal = [
        exp.EQ(this=value.copy(), expression=exp.column(name, source.alias, quoted=True))
        for value, name in zip(values, query.named_selects, strict=True)
    ]
    return [source], [Condition(e, source.path, nullable) for e in equal]


def _with_aliases(expression: exp.Expr, names: Mapping[str, str]) -> exp.Expr:
    def renamed(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and node.table in names:
            return exp.column(node.name, names[node.table], quoted=True)
        return node

    return expression.copy().transform(renamed)


# Columns.


def is_windowed(node: exp.Expr) -> bool:
    """Return whether a function is that of a window."""
    parent = node.parent
    child = node
    while isinstance(parent, _AGGREGATE_WRAPPERS) and parent.this is child:
        child, parent = parent, parent.parent
    return isinstance(parent, exp.Window) and parent.this is child


def has_aggregate(expression: exp.Expr) -> bool:
    """Return whether an expression has an aggregate that is not that of a window."""
    return any(not is_windowed(aggregate) for aggregate in aggregates_in(expression))


def aggregates_in(expression: exp.Expr) -> Iterator[exp.AggFunc]:
    """Yield the aggregates of an expression, also of windows, that are not in a subquery."""
    for node in expression.walk(prune=lambda node: isinstance(node, exp.Query)):
        if isinstance(node, exp.AggFunc):
            yield node


def is_grouped(select: exp.Select) -> bool:
    """Return whether rows of the result stand for groups."""
    having = select.args.get("having")
    return (
        bool(select.args.get("group"))
        or having is not None
        or any(has_aggregate(e) for e in select.expressions)
    )


def grouped_by(select: exp.Select) -> list[exp.Expr]:
    """Return the expressions of GROUP BY.

    Raises:
        NotMaintained: it has several sets of them, or names none.
    """
    group = select.args.get("group")
    if group is None:
        return []
    several = (exp.Cube, exp.Rollup, exp.GroupingSets)
    if (
        group.args.get("rollup")
        or group.args.get("cube")
        or any(isinstance(e, several) for e in group.expressions)
    ):
        raise NotMaintained("CUBE, ROLLUP and GROUPING SETS are not maintained", group, "use UNION ALL")
    if group.args.get("all"):
        raise NotMaintained("GROUP BY ALL is not maintained", group, "name the columns")
    return list(group.expressions)


def _columns(select: exp.Select) -> dict[str, exp.Expr]:
    """Return the outputs of which the values of changed rows are known: the group, or the partition of all windows."""
    outputs = {e.alias_or_name: e.unalias() for e in select.expressions}
    clauses: Sequence[exp.Expr | None] = [*select.expressions, select.args.get("qualify")]
    if is_grouped(select):
        keys = grouped_by(select)
        outputs = {name: e for name, e in outputs.items() if e in keys}
    for window in (w for clause in clauses if clause is not None for w in clause.find_all(exp.Window)):
        partition = window.args.get("partition_by") or []
        outputs = {name: e for name, e in outputs.items() if e in partition}
    return {name: e for name, e in outputs.items() if not has_aggregate(e)}
