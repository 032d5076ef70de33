"""The steps of a refresh that recomputes the affected keys."""

from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp

from replicator.model.common import quoted
from replicator.pipelines.query.affected import Branch, branches
from replicator.pipelines.query.blocks import (
    NotMaintained,
    block_of,
    conditions_of,
    conjuncts,
    known,
    parts,
    side_of,
    sources_of,
    unnested,
)
from replicator.pipelines.query.definition import DIALECT
from replicator.pipelines.query.narrow import Equal, Narrow, Start, Step, equalities, narrowed
from replicator.pipelines.query.signed import over_now
from replicator.pipelines.query.views import Views


def recomputing_steps(views: Views) -> tuple[tuple[str, ...], list[Step]]:
    """Return the columns by which the result is divided, and the steps.

    Raises:
        NotMaintained: there is no rule for a part of the query.
    """
    refused: NotMaintained | None = None
    for unit in _units(views):
        try:
            found = branches(views.analysed.query, unit, views)
        except NotMaintained as error:
            refused = refused or error
            continue
        return unit, _recomputed(unit, found, views)
    hint = "GROUP BY columns that are in the result, or give its window functions a PARTITION BY"
    raise refused or NotMaintained(
        "changes tell no part of the result that they touch", views.analysed.query, hint
    )


def _units(views: Views) -> Iterator[tuple[str, ...]]:
    """Yield the columns by which the result may be divided, the best ones first."""
    possible = known(views.analysed.query)
    names = [name for name in views.analysed.query.named_selects if name in possible]
    wanted = [key.lower() for key in views.analysed.definition.key]
    candidates = [tuple(n for n in names if n in wanted), _input_key(names, views), tuple(names)]
    candidates += [(name,) for name in names]
    yield from dict.fromkeys(candidate for candidate in candidates if candidate)


def _input_key(names: Sequence[str], views: Views) -> tuple[str, ...]:
    """Return the columns of the result that are the key of its first input with one; none if there are not."""
    query = unnested(views.analysed.query)
    if not isinstance(query, exp.Select):
        return ()
    for source in sources_of(query):
        if isinstance(source, exp.Table):
            key = {name.lower() for name in views.input_of(source).key}
            columns = {e.alias_or_name: e.unalias() for e in query.selects if e.alias_or_name in names}
            of_key = {
                c.name: n
                for n, c in columns.items()
                if isinstance(c, exp.Column) and c.table == source.alias_or_name and c.name in key
            }
            if key and key == of_key.keys():
                return tuple(of_key.values())
    return ()


def _recomputed(unit: Sequence[str], found: Sequence[Branch], views: Views) -> list[Step]:
    affected = views.view("affected")
    rows = rows_steps(unit, affected, views, views.view("rows"))
    return [*affected_steps(unit, found, views, affected), *rows, *_replaced(unit, affected, views)]


def affected_steps(
    unit: Sequence[str], found: Sequence[Branch], views: Views, affected: str
) -> Iterator[Step]:
    """Yield the steps for the values of a unit of which a row changed; the view `affected` has them."""
    names: list[str] = []
    for number, branch in enumerate(found):
        sql = branch.query.sql(DIALECT)
        before, narrows = _narrowed_branch(branch, sql, views)
        names.append(views.view(f"affected{number}"))
        yield from before
        yield Step(names[-1], sql, narrow=narrows)
    columns = ", ".join(quoted(name) for name in unit)
    union = " UNION ".join(f"SELECT {columns} FROM {quoted(view)}" for view in names)
    yield Step(affected, f"SELECT DISTINCT {columns} FROM ({union}) AS _u", keep=True)


def _narrowed_branch(branch: Branch, sql: str, views: Views) -> tuple[list[Step], tuple[Narrow, ...]]:
    tables = {s.alias: s.query for s in branch.sources if isinstance(s.query, exp.Table)}
    if branch.changed is None or branch.changed.alias not in tables:
        return [], ()
    start = [Start(branch.changed.alias, views.input_of(tables[branch.changed.alias]).changed)]
    of_sources = views.of_sources(tables, removed=True)
    return narrowed(sql, start, equalities(branch.conditions), of_sources, views.keys_view)


def rows_steps(unit: Sequence[str], affected: str, views: Views, name: str) -> Iterator[Step]:
    """Yield the steps for the rows of the affected units as they are now; the view `name` has them."""
    same = " AND ".join(f"_q.{quoted(name)} <=> _k.{quoted(name)}" for name in unit)
    query = over_now(views.analysed.query, views)
    sql = (
        f"SELECT {views.spelt('_q')} FROM ({query.sql(DIALECT)}) AS _q "
        f"LEFT SEMI JOIN {quoted(affected)} AS _k ON {same}"
    )
    steps, narrows = _narrowed_rows(sql, unit, affected, views)
    yield from steps
    yield Step(name, sql, narrow=narrows)


def _narrowed_rows(
    sql: str, unit: Sequence[str], affected: str, views: Views
) -> tuple[list[Step], tuple[Narrow, ...]]:
    steps: list[Step] = []
    narrows: list[Narrow] = []
    for select, columns in _origins(views.analysed.query, {name: name for name in unit}):
        tables = {s.alias_or_name: s for s in sources_of(select) if isinstance(s, exp.Table)}
        start = [Start(c.table, affected, c.name, name) for name, c in columns.items() if c.table in tables]
        more, its = narrowed(
            sql, start, _downstream(select), views.of_sources(tables, removed=False), views.keys_view
        )
        steps += more
        narrows += its
    return steps, tuple(narrows)


def _replaced(unit: Sequence[str], affected: str, views: Views) -> Iterator[Step]:
    """Yield the steps for the differences between the affected units now and before."""
    spelling = views.spelling
    same = " AND ".join(f"_o.{quoted(spelling[name])} <=> _k.{quoted(name)}" for name in unit)
    columns = ", ".join(quoted(c) for c in views.analysed.columns)
    narrow = tuple(Narrow(views.output, spelling[name], affected, name) for name in unit)
    sql = (
        f"SELECT {columns} FROM {quoted(views.output)} AS _o "
        f"LEFT SEMI JOIN {quoted(affected)} AS _k ON {same}"
    )
    yield Step(views.view("old"), sql, narrow=narrow)
    rows, old = quoted(views.view("rows")), quoted(views.view("old"))
    yield views.net(f"SELECT {columns}, 1 AS _w FROM {rows} UNION ALL SELECT {columns}, -1 AS _w FROM {old}")


def _origins(query: exp.Expr, unit: Mapping[str, str]) -> Iterator[tuple[exp.Select, dict[str, exp.Column]]]:
    """Yield the SELECTs whose rows a restriction of the unit restricts, and the columns that are columns of the unit.

    `unit` are columns of the result by those of the query.
    """
    query = unnested(query)
    if isinstance(query, exp.SetOperation):
        for part in parts(query):
            places = {n: unit[name] for n, name in enumerate(query.named_selects) if name in unit}
            yield from _origins(part, {part.named_selects[n]: name for n, name in places.items()})
        return
    if not isinstance(query, exp.Select):
        return
    block = block_of(query)
    found: dict[str, exp.Column] = {}
    for expression in query.selects:
        column, name = expression.unalias(), expression.alias_or_name
        if (
            name in unit
            and name in block.columns
            and isinstance(column, exp.Column)
            and column.table not in block.nullable
        ):
            found[unit[name]] = column
    yield query, found
    for source in sources_of(query):
        if isinstance(source, exp.Subquery):
            inner = {c.name: name for name, c in found.items() if c.table == source.alias_or_name}
            if inner:
                yield from _origins(source.this, inner)


def _downstream(select: exp.Select) -> list[Equal]:
    """Return equal columns of joins: those by which a source may be narrowed without a change of other rows."""
    found: list[Equal] = []
    joins = select.args.get("joins") or []
    if any(side_of(join) in ("RIGHT", "FULL") for join in joins):
        return []
    inner = conditions_of(select)
    nullable: set[str] = set()
    for join in joins:
        alias, side = join.this.alias_or_name, side_of(join)
        if side == "INNER":
            inner += conjuncts(join.args.get("on"))
            continue
        nullable.add(alias)
        found += [e for e in equalities(conjuncts(join.args.get("on"))) if e.alias == alias]
    strict = [e for e in equalities(inner) if e.alias not in nullable and e.by not in nullable]
    return [*strict, *found]
