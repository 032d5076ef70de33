"""Which rows of a query's result may differ after changes of its inputs: the rule of affected keys.

The result is divided by the values of some of its columns, its unit. A refresh computes the units that changes may
have touched, evaluates the query for them alone, and replaces them. It is right for any unit, if no touched one is
left out; some more do no harm. So the queries here leave out what only narrows: conditions on aggregates, joins that
lead to no column of the unit, subqueries that did not change.

Of each table a query reads one of two relations:

    changed  the rows before and after each change
    either   the rows before or after the changes: those after them, and those that were removed or replaced
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from sqlglot import exp

from replicator.pipelines.query.blocks import (
    Block,
    Condition,
    NotMaintained,
    Source,
    alias_of,
    aliases,
    block_of,
    is_known,
    parts,
    select_of,
    union_of,
)
from replicator.pipelines.query.views import Views


@dataclass(frozen=True, slots=True)
class Branch:
    """A query for the units of which a row of one source changed.

    Attributes:
        query: the query.
        changed: the source that changed; None if it is for all rows.
        sources: the sources that it reads.
        conditions: the conditions that their rows meet.
    """

    query: exp.Query
    changed: Source | None
    sources: tuple[Source, ...]
    conditions: tuple[exp.Expr, ...]


def branches(query: exp.Expr, unit: Sequence[str], views: Views) -> list[Branch]:
    """Return the queries for the values of `unit` of all rows that may have appeared, gone or changed.

    Raises:
        NotMaintained: there is no rule for a part of the query.
    """
    return list(_Rule(views).changed(query, tuple(unit)))


@dataclass(frozen=True, slots=True)
class _Rule:
    views: Views

    def changed(self, query: exp.Expr, wanted: Sequence[str]) -> Iterator[Branch]:
        """Yield the queries for rows that may have changed."""
        if isinstance(query, exp.SetOperation):
            names = query.named_selects
            for part in parts(query):
                of_part = [part.named_selects[names.index(name)] for name in wanted]
                for branch in self.changed(part, of_part):
                    yield replace(branch, query=_renamed(branch.query, wanted))
            return
        block = block_of(select_of(query))
        for name in wanted:
            if name not in block.columns:
                raise NotMaintained(f"the values of {name} in changed rows are not known", query)
        for source in block.sources:
            yield from self._branches(block, wanted, source)

    def _either(self, query: exp.Expr, wanted: Sequence[str]) -> exp.Query:
        """Return the query for all rows that the result had before or has after the changes, and maybe more."""
        if isinstance(query, exp.SetOperation):
            names = query.named_selects
            found = []
            for part in parts(query):
                of_part = [part.named_selects[names.index(name)] for name in wanted]
                found.append(_renamed(self._either(part, of_part), wanted))
            return union_of(found)
        block = block_of(select_of(query))
        return union_of([branch.query for branch in self._branches(block, wanted, None)])

    def _branches(self, block: Block, wanted: Sequence[str], changed: Source | None) -> Iterator[Branch]:
        """Yield a query for each choice of outer joins that found no row.

        The rows are those to which a changed row of one source belongs; all if `changed` is None.
        """
        optional = sorted(aliases(block.columns[name] for name in wanted) & block.nullable)
        for count in range(len(optional) + 1):
            for nulls in combinations(optional, count):
                branch = self._branch(block, wanted, changed, frozenset(nulls))
                if branch is not None:
                    yield branch

    def _branch(
        self, block: Block, wanted: Sequence[str], changed: Source | None, nulls: frozenset[str]
    ) -> Branch | None:
        outputs = [_with_nulls(block.columns[name], nulls) for name in wanted]
        path = () if changed is None else changed.path
        sources = {s.alias: s for s in block.sources if s.path == path[: len(s.path)]}
        here = set() if changed is None else {changed.alias}
        needed = aliases(outputs) | here
        allowed = (sources.keys() - nulls) | here
        conditions = [c for c in block.conditions if c.path == path[: len(c.path)]]
        kept = _connected(conditions, sources, needed, allowed)
        if kept is None and nulls and _connected(conditions, sources, needed, sources.keys()) is not None:
            # A row that is joined through one that was not found was not found either.
            return None
        if kept is None:
            joined = " and ".join(sorted(needed))
            hint = "join them with = on columns"
            raise NotMaintained(f"{joined} are not joined by equal columns", block.select, hint)
        # If no source is needed, all columns are null: such a row may be in the result.
        used = tuple(c.expression for c in conditions if _applies(c, kept, sources))
        read = tuple(sources[alias] for alias in sorted(kept))
        query = self._query(outputs, wanted, used, read, changed)
        return Branch(query, changed, read, used)

    def _query(
        self,
        outputs: Sequence[exp.Expr],
        wanted: Sequence[str],
        conditions: Sequence[exp.Expr],
        sources: Sequence[Source],
        changed: Source | None,
    ) -> exp.Query:
        pairs = zip(outputs, wanted, strict=True)
        query = exp.select(*(exp.alias_(e.copy(), name, quoted=True) for e, name in pairs)).distinct()
        used = _used([*outputs, *conditions])
        for number, source in enumerate(sources):
            relation = self._relation(source, sorted(used.get(source.alias, ())), changed)
            query = query.from_(relation) if number == 0 else query.join(relation, join_type="cross")
        return query.where(*(c.copy() for c in conditions)) if conditions else query

    def _relation(self, source: Source, used: Sequence[str], changed: Source | None) -> exp.Expr:
        if isinstance(source.query, exp.Table):
            if source is changed:
                return _named(self.views.changed(source.query), source.alias)
            return _named(self.views.either(source.query, used), source.alias)
        wanted = used or sorted(source.known or ())[:1]
        if source is changed:
            inner = union_of([b.query for b in self.changed(source.query, wanted)])
        else:
            inner = self._either(source.query, wanted)
        return exp.Subquery(this=inner, alias=alias_of(source.alias))


def _applies(condition: Condition, kept: set[str], sources: Mapping[str, Source]) -> bool:
    return condition.aliases <= kept and condition.is_strict and is_known(condition.expression, sources)


def _named(relation: exp.Expr, alias: str) -> exp.Expr:
    relation.set("alias", alias_of(alias))
    return relation


def _renamed(query: exp.Query, names: Sequence[str]) -> exp.Query:
    if list(query.named_selects) == list(names):
        return query
    pairs = zip(query.named_selects, names, strict=True)
    columns = [exp.alias_(exp.column(old, "_r", quoted=True), new, quoted=True) for old, new in pairs]
    return exp.select(*columns).from_(exp.Subquery(this=query, alias=alias_of("_r")))


def _connected(
    conditions: Sequence[Condition],
    sources: Mapping[str, Source],
    needed: Collection[str],
    allowed: Collection[str],
) -> set[str] | None:
    """Return the fewest sources through which the needed ones are joined by equalities; None if they are not."""
    if not needed:
        return set()
    edges: dict[str, set[str]] = {alias: set() for alias in allowed}
    for condition in conditions:
        ends = condition.ends()
        if ends is not None and set(ends) <= set(allowed) and is_known(condition.expression, sources):
            edges[ends[0]].add(ends[1])
            edges[ends[1]].add(ends[0])
    start, *others = sorted(needed)
    kept = {start}
    for goal in others:
        found = _path(edges, kept, goal)
        if found is None:
            return None
        kept |= found
    return kept


def _path(edges: Mapping[str, set[str]], starts: set[str], goal: str) -> set[str] | None:
    before: dict[str, str | None] = dict.fromkeys(sorted(starts))
    queue = sorted(starts)
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


def _with_nulls(expression: exp.Expr, nulls: frozenset[str]) -> exp.Expr:
    def replaced(node: exp.Expr) -> exp.Expr:
        return exp.null() if isinstance(node, exp.Column) and node.table in nulls else node

    return expression.copy().transform(replaced)


def _used(expressions: Sequence[exp.Expr]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for column in (c for e in expressions for c in e.find_all(exp.Column)):
        found.setdefault(column.table, set()).add(column.name)
    return found
