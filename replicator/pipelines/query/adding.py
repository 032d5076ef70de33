"""The steps of a refresh that adds changes: those of the rule of signed changes."""

from collections.abc import Iterator, Sequence

from sqlglot import exp

from replicator.model.common import quoted
from replicator.pipelines.query.blocks import conditions_of, conjuncts, sources_of
from replicator.pipelines.query.definition import DIALECT
from replicator.pipelines.query.invertible import ROWS, Invertible, Term, struct
from replicator.pipelines.query.names import STATE, WEIGHT
from replicator.pipelines.query.narrow import Narrow, Start, Step, equalities, narrowed
from replicator.pipelines.query.signed import Part, changes
from replicator.pipelines.query.views import Views


def _parts(query: exp.Expr, views: Views) -> list[Step]:
    """Return the steps for the changes of a linear query: those that are its parts, and what narrows them."""
    found: list[Step] = []
    for number, part in enumerate(changes(query, views)):
        sql = part.query.sql(DIALECT)
        steps, narrows = _narrowed_part(part, sql, views)
        found += [*steps, Step(views.view(f"part{number}"), sql, narrow=narrows)]
    return found


def _narrowed_part(part: Part, sql: str, views: Views) -> tuple[list[Step], tuple[Narrow, ...]]:
    tables = {s.alias_or_name: s for s in sources_of(part.select) if isinstance(s, exp.Table)}
    if part.changed not in tables:
        return [], ()
    conditions = conditions_of(part.select)
    for join in part.select.args.get("joins") or ():
        conditions += conjuncts(join.args.get("on"))
    start = [Start(part.changed, views.input_of(tables[part.changed]).changed)]
    return narrowed(
        sql, start, equalities(conditions), views.of_sources(tables, removed=True), views.keys_view
    )


def linear_steps(query: exp.Expr, views: Views) -> list[Step]:
    """Return the steps for a linear query."""
    steps = _parts(query, views)
    rows = " UNION ALL ".join(
        f"SELECT {views.spelt('_p')}, _p.{quoted(WEIGHT)} AS _w FROM {quoted(s.view)} AS _p"
        for s in steps
        if not s.keep
    )
    return [*steps, views.net(rows)]


def grouped_steps(grouped: Invertible, views: Views) -> list[Step]:
    """Return the steps for a query with aggregates or DISTINCT."""
    steps = _parts(grouped.rows(), views)
    return [*steps, _delta(grouped, [s.view for s in steps if not s.keep], views), *_merged(grouped, views)]


def _delta(grouped: Invertible, parts: Sequence[str], views: Views) -> Step:
    """Return the step for the changes of the states of groups."""
    union = " UNION ALL ".join(f"SELECT * FROM {quoted(view)}" for view in parts)
    keys = [f"_c.{quoted(name)}" for name in grouped.keys]
    weight = exp.column(WEIGHT, "_c", quoted=True)
    sums = {ROWS: f"COALESCE(SUM(_c.{quoted(WEIGHT)}), 0)"}
    for term in grouped.terms:
        value = exp.column(f"_{term.name}", "_c", quoted=True)
        sums[term.name] = term.of_changes(value, weight).sql(DIALECT)
    columns = [f"{key} AS _k{n}" for n, key in enumerate(keys)]
    columns += [f"{sql} AS {quoted(name)}" for name, sql in sums.items()]
    extremes = {term.name for term in grouped.terms if term.extreme is not None}
    some = " OR ".join(f"{sql} <> 0" for name, sql in sums.items() if name not in extremes)
    group = f" GROUP BY {', '.join(keys)}" if keys else ""
    sql = f"SELECT {', '.join(columns)} FROM ({union}) AS _c{group} HAVING {some}"
    return Step(views.view("delta"), sql, keep=True)


def _merged(grouped: Invertible, views: Views) -> Iterator[Step]:
    """Yield the steps that add the changes of states to those in the result."""
    delta, merged = views.view("delta"), views.view("merged")
    spelling = views.spelling
    numbers = {name: n for n, name in enumerate(grouped.keys)}
    same = " AND ".join(f"_o.{quoted(spelling[k])} <=> _d._k{n}" for k, n in numbers.items()) or "TRUE"
    narrow = tuple(Narrow(views.output, spelling[k], delta, f"_k{n}") for k, n in numbers.items())
    terms = (Term(ROWS, exp.Star()), *grouped.terms)
    fields = [
        f"{t.merged(f'_o.{quoted(STATE)}.{quoted(t.name)}', f'_d.{quoted(t.name)}')} AS {quoted(t.name)}"
        for t in terms
    ]
    columns = [*(f"_d._k{n}" for n in numbers.values()), *fields]
    sql = (
        f"SELECT {', '.join(columns)} FROM {quoted(delta)} AS _d "
        f"LEFT JOIN {quoted(views.output)} AS _o ON {same}"
    )
    yield Step(merged, sql, narrow=narrow)
    state = struct([(name, exp.column(name, "state", quoted=True)) for name in grouped.fields]).sql(DIALECT)
    outputs = [
        f"{f'state._k{numbers[name]}' if name in numbers else grouped.results[name].sql(DIALECT)} AS {quoted(spelt)}"
        for name, spelt in spelling.items()
    ]
    filled = " WHERE state.`rows` > 0" if numbers else ""
    before = ", ".join(f"_o.{quoted(c)}" for c in (*views.analysed.columns, STATE))
    sql = (
        f"SELECT {', '.join(outputs)}, {state} AS {quoted(STATE)}, CAST(1 AS BIGINT) AS {quoted(WEIGHT)} "
        f"FROM {quoted(merged)} AS state{filled} UNION ALL "
        f"SELECT {before}, CAST(-1 AS BIGINT) AS {quoted(WEIGHT)} FROM {quoted(views.output)} AS _o "
        f"LEFT SEMI JOIN {quoted(delta)} AS _d ON {same}"
    )
    yield Step(views.view("net"), sql, keep=True, narrow=narrow)
