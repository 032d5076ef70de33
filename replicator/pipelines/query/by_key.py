"""The steps to compute the result of a function: as a whole, or for the affected keys.

A refresh by key finds the values of the key in changed rows of each input that has the key, in their images before and
after, as the rule of affected keys does for a SELECT. The function gets the rows of its inputs with these values, and
what it returns replaces the rows of the result with them. An input without the key is given as a whole; so if it
changes, the result is computed as a whole.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from replicator.model.common import quoted
from replicator.pipelines.query.affected import branches
from replicator.pipelines.query.analysis import Analysed, Parameter
from replicator.pipelines.query.definition import DIALECT
from replicator.pipelines.query.names import WEIGHT, TableName, similar
from replicator.pipelines.query.narrow import Narrow, Step
from replicator.pipelines.query.python import MODEL
from replicator.pipelines.query.recomputing import affected_steps, rows_steps
from replicator.pipelines.query.signed import over_now
from replicator.pipelines.query.views import Views


def whole_steps(views: Views) -> list[Step]:
    """Return the steps that call the function with all rows; the view of the last one has the result."""
    return [*(_all_rows(p, views) for p in views.analysed.parameters), _call(views)]


@dataclass(frozen=True, slots=True)
class Keyed:
    """A refresh for the affected keys.

    Attributes:
        divided: the tables of which the changes tell the keys.
        undivided: those of which the function gets all rows.
    """

    steps: tuple[Step, ...]
    divided: frozenset[TableName]
    undivided: tuple[TableName, ...]


def keyed(views: Views) -> Keyed:
    """Return the refresh of a function for the affected keys.

    Raises:
        PipelineError: no input has the key.
        NotMaintained: there is no rule for a part of the query of an input.
    """
    analysed, key = views.analysed, [name.lower() for name in views.analysed.definition.by_key]
    with_key = [p for p in analysed.parameters if set(key) <= set(p.query.named_selects)]
    if not with_key:
        raise _no_key(analysed)
    affected = views.view("affected")
    found = [branch for p in with_key for branch in branches(p.query, key, views.of(p))]
    steps = list(affected_steps(key, found, views, affected))
    for parameter in analysed.parameters:
        if parameter in with_key:
            steps += rows_steps(key, affected, views.of(parameter), _view(parameter, views))
        else:
            steps.append(_all_rows(parameter, views))
    steps += [_call(views), *_replaced(key, affected, views)]
    undivided = dict.fromkeys(_tables((p for p in analysed.parameters if p not in with_key), analysed))
    return Keyed(tuple(steps), frozenset(_tables(with_key, analysed)), tuple(undivided))


def _tables(parameters: Iterable[Parameter], analysed: Analysed) -> Iterator[TableName]:
    for parameter in parameters:
        yield from (analysed.input_of(table).name for table in parameter.query.find_all(exp.Table))


def _no_key(analysed: Analysed) -> Exception:
    key = ", ".join(analysed.definition.by_key)
    known = [name for parameter in analysed.parameters for name in parameter.columns]
    hint = next((found for name in analysed.definition.by_key if (found := similar(name, known))), None)
    hint = hint or f"rename a column of an input: input NAME: SELECT id AS {key}, … FROM NAMESPACE.TABLE"
    return analysed.definition.header_error("by key", f"by key: no input has the column {key}", hint)


def _view(parameter: Parameter, views: Views) -> str:
    return views.view(f"input_{parameter.name}")


def _all_rows(parameter: Parameter, views: Views) -> Step:
    own = views.of(parameter)
    query = over_now(parameter.query, own)
    return Step(_view(parameter, views), f"SELECT {own.spelt('_q')} FROM ({query.sql(DIALECT)}) AS _q")


def _call(views: Views) -> Step:
    parameters = views.analysed.parameters
    shown = ", ".join(f"{p.name}={_view(p, views)}" for p in parameters)
    return Step(views.view(MODEL), f"{MODEL}({shown})", call=tuple(_view(p, views) for p in parameters))


def _replaced(key: Sequence[str], affected: str, views: Views) -> Iterator[Step]:
    """Yield the steps for the differences between the rows with affected keys now and before."""

    def with_keys(view: str) -> str:
        same = " AND ".join(f"_r.{quoted(name)} <=> _k.{quoted(name)}" for name in key)
        return f"SELECT _r.* FROM {quoted(view)} AS _r LEFT SEMI JOIN {quoted(affected)} AS _k ON {same}"

    rows, old = views.view("rows"), views.view("old")
    # A row with another key is not replaced by the next refresh, so it must not come.
    yield Step(rows, with_keys(views.view(MODEL)))
    narrow = tuple(Narrow(views.output, name, affected, name) for name in key)
    yield Step(old, with_keys(views.output), narrow=narrow)
    sql = (
        f"SELECT * EXCEPT (_w), CAST(SUM(_w) AS BIGINT) AS {quoted(WEIGHT)} FROM (SELECT *, 1 AS _w FROM "
        f"{quoted(rows)} UNION ALL SELECT *, -1 AS _w FROM {quoted(old)}) AS _c GROUP BY ALL HAVING SUM(_w) <> 0"
    )
    yield Step(views.view("net"), sql, keep=True)
