"""Which rows of a query's result may differ after changes of its inputs: the rule of affected keys.

The result is divided by the values of some of its columns, its unit. A refresh computes the units that changes may
have touched, evaluates the query for them alone, and replaces them. It is right for any unit, if no touched one is
left out; some more do no harm. So the queries here leave out what only narrows: conditions on aggregates, joins that
lead to no column of the unit, subqueries that did not change.

A query is parsed and qualified by sqlglot. Of each table it reads one of three relations, by a `Relations`:

    now      the rows after the changes
    changed  the rows before and after each change
    either   the rows before or after the changes: `now` and those that were removed or replaced
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import reduce
from itertools import combinations
from typing import Final

from sqlglot import exp


class Relation(StrEnum):
    """A state of an input table."""

    NOW = "now"
    CHANGED = "changed"
    EITHER = "either"


class NotMaintained(Exception):
    """A part of a query for which no rule exists."""

    def __init__(self, reason: str, node: exp.Expression) -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node


_SIDES: Final = {"": "inner", "INNER": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


@dataclass(frozen=True, slots=True)
class Source:
    """A table or subquery in the FROM of a block.

    Attributes:
        alias: its name in the block.
        query: the table, or the query of the subquery.
        condition: number of the condition with a subquery that it comes from; it matters only if that changed.
    """

    alias: str
    query: exp.Expression
    condition: int | None = None

    def known(self) -> frozenset[str] | None:
        """The columns of which the values of changed rows are known; None for all."""
        return None if isinstance(self.query, exp.Table) else known(self.query)


@dataclass(frozen=True, slots=True)
class Block:
    """A SELECT, as the rule sees it.

    Attributes:
        sources: what it reads.
        conditions: the conditions that combine or filter rows of sources.
        nullable: the aliases of sources whose columns may be null because an outer join found no row.
        columns: output column → expression of it over the sources, if the values of changed rows are known.
    """

    sources: tuple[Source, ...]
    conditions: tuple[exp.Expression, ...]
    nullable: frozenset[str]
    columns: Mapping[str, exp.Expression]
    select: exp.Select


def known(query: exp.Expression) -> frozenset[str]:
    """Return the output columns of which the values of changed rows can be computed without the whole result."""
    if isinstance(query, exp.SetOperation):
        places = [[name in known(part) for name in part.named_selects] for part in _parts(query)]
        return frozenset(name for n, name in enumerate(query.named_selects) if all(part[n] for part in places))
    return frozenset(_block(_select(query)).columns)


def changed_keys(query: exp.Expression, unit: Sequence[str]) -> exp.Query:
    """Return the query for the values of `unit` of all rows that may have appeared, gone or changed.

    Raises:
        NotMaintained: there is no rule for a part of the query.
    """
    branches = list(_changed(query, tuple(unit)))
    if not branches:
        raise NotMaintained("the query reads no table", query)
    return reduce(lambda a, b: exp.union(a, b, distinct=True), branches)


# Rows that may have changed.


def _changed(query: exp.Expression, wanted: Sequence[str]) -> Iterator[exp.Query]:
    if isinstance(query, exp.SetOperation):
        names = query.named_selects
        for part in _parts(query):
            of_part = [part.named_selects[names.index(name)] for name in wanted]
            yield from (_renamed(branch, wanted) for branch in _changed(part, of_part))
        return
    block = _block(_select(query))
    for name in wanted:
        if name not in block.columns:
            raise NotMaintained(f"the values of {name} in changed rows are not known", query)
    for source in block.sources:
        yield from _branches(block, wanted, source)


def _either(query: exp.Expression, wanted: Sequence[str]) -> exp.Query:
    """Return the query for all rows that the result had before or has after the changes, and maybe more."""
    if isinstance(query, exp.SetOperation):
        names, parts = query.named_selects, []
        for part in _parts(query):
            of_part = [part.named_selects[names.index(name)] for name in wanted]
            parts.append(_renamed(_either(part, of_part), wanted))
        return reduce(lambda a, b: exp.union(a, b, distinct=False), parts)
    block = _block(_select(query))
    return reduce(lambda a, b: exp.union(a, b, distinct=False), _branches(block, wanted, None))


def _branches(block: Block, wanted: Sequence[str], changed: Source | None) -> Iterator[exp.Query]:
    """Yield the queries for the wanted columns of rows to which a changed row of one source belongs; None for all rows.

    There is one for each choice of outer joins that found no row.
    """
    outputs = [block.columns[name] for name in wanted]
    optional = sorted(_aliases(outputs) & block.nullable)
    for count in range(len(optional) + 1):
        for nulls in combinations(optional, count):
            # A row that is joined through one that was not found was not found either.
            if (branch := _branch(block, wanted, changed, frozenset(nulls))) is not None:
                yield branch


def _branch(block: Block, wanted: Sequence[str], changed: Source | None, nulls: frozenset[str]) -> exp.Query | None:
    outputs = [_with_nulls(block.columns[name], nulls) for name in wanted]
    needed = _aliases(outputs) | ({changed.alias} if changed is not None else set())
    of = None if changed is None else changed.condition
    sources = {s.alias: s for s in block.sources if s.condition is None or s.condition == of}
    allowed = {alias for alias in sources if alias not in nulls or (changed is not None and alias == changed.alias)}
    kept = _connected(block, needed, allowed)
    if kept is None and nulls and _connected(block, needed, set(sources)) is not None:
        return None
    if kept is None:
        raise NotMaintained(f"{', '.join(sorted(needed))} are not joined by equalities of known columns", block.select)
    kept = kept or {next(iter(allowed), next(iter(sources)))}
    conditions = [c for c in block.conditions if _aliases([c]) <= kept and _is_known(c, sources, changed)]
    strict = [c for c in conditions if not _filters_nullable(c, block, kept)]
    query = exp.select(*(exp.alias_(e.copy(), name, quoted=True) for e, name in zip(outputs, wanted, strict=True)))
    if not wanted:
        query = exp.select(exp.alias_(exp.Literal.number(1), "_", quoted=True))
    used = _used([*outputs, *strict])
    for number, alias in enumerate(sorted(kept)):
        relation = _relation(sources[alias], used.get(alias, set()), changed)
        query = query.from_(relation) if number == 0 else query.join(relation, join_type="cross")
    return query.where(*(c.copy() for c in strict)).distinct() if strict else query.distinct()


def _relation(source: Source, used: set[str], changed: Source | None) -> exp.Expression:
    relation = Relation.CHANGED if source is changed else Relation.EITHER
    if isinstance(source.query, exp.Table):
        return relation_of(source.query, relation, source.alias)
    wanted = sorted(used) or sorted(known(source.query))
    if relation is Relation.EITHER:
        return exp.Subquery(this=_either(source.query, wanted), alias=_alias(source.alias))
    return exp.Subquery(this=changed_keys(source.query, wanted), alias=_alias(source.alias))


def relation_of(table: exp.Table, relation: Relation, alias: str | None = None) -> exp.Table:
    """Return the reference to a relation of a table."""
    name = f"{table.db}.{table.name}" if table.db else table.name
    this = exp.to_identifier(f"{relation}:{name}", quoted=True)
    return exp.Table(this=this, alias=_alias(alias or table.alias_or_name))


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True))


def _renamed(query: exp.Query, names: Sequence[str]) -> exp.Query:
    if list(query.named_selects) == list(names):
        return query
    inner = query.subquery(_alias("_r"))
    pairs = zip(query.named_selects, names, strict=True)
    columns = [exp.alias_(exp.column(old, "_r", quoted=True), new, quoted=True) for old, new in pairs]
    return exp.select(*columns).from_(inner)


def _connected(block: Block, needed: set[str], allowed: set[str]) -> set[str] | None:
    """Return the fewest sources through which the needed ones are joined by equalities; None if they are not."""
    if not needed:
        return set()
    sources = {s.alias: s for s in block.sources}
    edges: dict[str, set[str]] = {alias: set() for alias in allowed}
    for condition in block.conditions:
        ends = _aliases([condition])
        if isinstance(condition, exp.EQ) and len(ends) == 2 and ends <= allowed and _is_known(condition, sources):
            first, second = ends
            if _aliases([condition.this]) != _aliases([condition.expression]):
                edges[first].add(second)
                edges[second].add(first)
    start, *others = sorted(needed)
    kept = {start}
    for goal in others:
        found = _path(edges, kept, goal)
        if found is None:
            return None
        kept |= found
    return kept


def _path(edges: Mapping[str, set[str]], starts: set[str], goal: str) -> set[str] | None:
    before: dict[str, str | None] = dict.fromkeys(starts)
    queue = list(sorted(starts))
    for alias in queue:
        for neighbour in sorted(edges[alias]):
            if neighbour not in before:
                before[neighbour] = alias
                queue.append(neighbour)
    if goal not in before:
        return None
    found: set[str] = set()
    at: str | None = goal
    while at is not None:
        found.add(at)
        at = before[at]
    return found


def _is_known(condition: exp.Expression, sources: Mapping[str, Source], changed: Source | None = None) -> bool:
    for column in condition.find_all(exp.Column):
        source = sources.get(column.table)
        if source is None or ((names := source.known()) is not None and column.name not in names):
            return False
    return True


def _filters_nullable(condition: exp.Expression, block: Block, kept: set[str]) -> bool:
    """Whether a condition of WHERE would see nulls of an outer join, which branches with joined rows do not have."""
    return condition.args.get("of_where", False) and bool(_aliases([condition]) & block.nullable)


def _with_nulls(expression: exp.Expression, nulls: frozenset[str]) -> exp.Expression:
    def replaced(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Column) and node.table in nulls:
            return exp.cast(exp.null(), node.type) if node.type and not node.is_type("unknown") else exp.null()
        return node

    return expression.copy().transform(replaced)


def _aliases(expressions: Sequence[exp.Expression]) -> set[str]:
    return {column.table for e in expressions for column in e.find_all(exp.Column)}


def _used(expressions: Sequence[exp.Expression]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for column in (c for e in expressions for c in e.find_all(exp.Column)):
        found.setdefault(column.table, set()).add(column.name)
    return found


# Reading a block.


def _parts(query: exp.SetOperation) -> list[exp.Query]:
    if not isinstance(query, exp.Union):
        raise NotMaintained(f"{query.key.upper()} is not maintained", query)
    return [p for side in (query.this, query.expression) for p in (_parts(side) if isinstance(side, exp.SetOperation) else [_select(side)])]


def _select(query: exp.Expression) -> exp.Select:
    while isinstance(query, exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select):
        raise NotMaintained("only SELECT and UNION are maintained", query)
    return query


def _block(select: exp.Select) -> Block:
    for arg in ("limit", "offset", "order", "laterals", "distribute", "cluster", "sort"):
        if select.args.get(arg):
            raise NotMaintained(f"{arg.upper()} is not maintained", select.args[arg] if isinstance(select.args[arg], exp.Expression) else select)
    sources, conditions, nullable = _from(select)
    where = select.args.get("where")
    for number, condition in enumerate(exp.and_(where.this).flatten() if False else _conjuncts(where.this if where else None)):
        if condition.find(exp.Query):
            more, its = _of_subquery(condition, number)
            sources += more
            conditions += its
        else:
            marked = condition.copy()
            marked.set("of_where", True)
            conditions.append(marked)
    by_alias = {s.alias: s for s in sources}
    columns = {name: e for name, e in _columns(select).items() if _is_known(e, by_alias)}
    return Block(tuple(sources), tuple(conditions), frozenset(nullable), columns, select)


def _conjuncts(condition: exp.Expression | None) -> list[exp.Expression]:
    if condition is None:
        return []
    if isinstance(condition, exp.Paren):
        return _conjuncts(condition.this)
    if isinstance(condition, exp.And):
        return [*_conjuncts(condition.this), *_conjuncts(condition.expression)]
    return [condition]


def _from(select: exp.Select) -> tuple[list[Source], list[exp.Expression], set[str]]:
    first = select.args["from_"].this if select.args.get("from_") else None
    if first is None:
        raise NotMaintained("a SELECT without FROM is not maintained", select)
    sources, conditions, nullable = [_source(first)], [], set()
    for number, join in enumerate(select.args.get("joins") or (), 1000):
        side = (join.side or join.kind or "").upper()
        source = _source(join.this)
        if join.kind.upper() in ("SEMI", "ANTI"):
            sources.append(Source(source.alias, source.query, condition=number))
            conditions += _conjuncts(join.args.get("on"))
            continue
        if side in ("RIGHT", "FULL"):
            nullable |= {s.alias for s in sources}
        if side in ("LEFT", "FULL"):
            nullable.add(source.alias)
        sources.append(source)
        conditions += _conjuncts(join.args.get("on"))
    return sources, conditions, nullable


def _source(node: exp.Expression) -> Source:
    if isinstance(node, exp.Table):
        return Source(node.alias_or_name, node)
    if isinstance(node, exp.Subquery):
        return Source(node.alias_or_name, node.this)
    raise NotMaintained("only tables and subqueries can be read", node)


def _of_subquery(condition: exp.Expression, number: int) -> tuple[list[Source], list[exp.Expression]]:
    """Return the sources and conditions of `EXISTS (…)`, `NOT EXISTS (…)` or `x IN (…)`."""
    inner = condition.this if isinstance(condition, exp.Not) else condition
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if isinstance(inner, exp.Exists):
        select = _select(inner.this)
        if _is_grouped(select):
            raise NotMaintained("an EXISTS with aggregates is not maintained", inner)
        block = _block(select)
        equal: list[exp.Expression] = []
    elif isinstance(inner, exp.In) and inner is condition:
        name = inner.args["query"].this.named_selects[0]
        alias = f"_in{number}"
        source = Source(alias, inner.args["query"].this, condition=number)
        return [source], [exp.EQ(this=inner.this.copy(), expression=exp.column(name, alias, quoted=True))]
    else:
        raise NotMaintained("a subquery is maintained only as EXISTS, NOT EXISTS or IN of a condition", condition)
    renames = {s.alias: f"_{s.alias}{number}" for s in block.sources}
    sources = [Source(renames[s.alias], s.query, condition=number) for s in block.sources]

    def renamed(node: exp.Expression) -> exp.Expression:
        if isinstance(node, exp.Column) and node.table in renames:
            return exp.column(node.name, renames[node.table], quoted=True)
        return node

    return sources, [c.copy().transform(renamed) for c in [*equal, *block.conditions]]


def _is_grouped(select: exp.Select) -> bool:
    return bool(select.args.get("group")) or any(_has_aggregate(e) for e in select.expressions)


def _has_aggregate(expression: exp.Expression) -> bool:
    return any(a for a in expression.find_all(exp.AggFunc) if not isinstance(a.parent, exp.Window) and a.find_ancestor(exp.Query) is expression.find_ancestor(exp.Query))


def _columns(select: exp.Select) -> dict[str, exp.Expression]:
    """Return the outputs of which the values of changed rows are known: the group, or the partition of all windows."""
    outputs = {e.alias_or_name: e.unalias() for e in select.expressions}
    windows = [w for e in [*select.expressions, select.args.get("qualify")] if e is not None for w in e.find_all(exp.Window)]
    group = select.args.get("group")
    if _is_grouped(select):
        keys = list(group.expressions) if group else []
        if group and any(group.args.get(a) for a in ("cube", "rollup", "grouping_sets", "all", "totals")):
            raise NotMaintained("GROUPING SETS are not maintained", group)
        outputs = {name: e for name, e in outputs.items() if e in keys}
    for window in windows:
        partition = window.args.get("partition_by") or []
        outputs = {name: e for name, e in outputs.items() if e in partition}
    return {name: e for name, e in outputs.items() if not e.find(exp.Query) and not _has_aggregate(e)}
