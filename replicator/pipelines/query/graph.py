"""The order of pipelines: each follows those whose results it reads."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

from sqlglot import exp

from replicator.errors import PipelineError
from replicator.pipelines.query.definition import Definition
from replicator.pipelines.query.names import TableName


def references(query: exp.Query) -> Iterator[exp.Table]:
    """Yield the tables that a query reads, but not its own common table expressions."""
    for table in query.find_all(exp.Table):
        if table.db or table.name.lower() not in _own(table) or "." in table.name:
            yield table


def _own(table: exp.Table) -> set[str]:
    names: set[str] = set()
    at = table.parent
    while at is not None:
        if isinstance(at, exp.Query) and (found := at.args.get("with_")) is not None:
            names |= {cte.alias.lower() for cte in found.expressions}
        at = at.parent
    return names


def name_of(table: exp.Table, definition: Definition) -> TableName:
    """Return the name of a table in a query; a quoted one may have the dot within: `shop_*.orders`.

    Raises:
        PipelineError: it lacks its namespace.
    """
    namespace, name = table.db, table.name
    if not namespace:
        namespace, _, name = name.partition(".")
    if not namespace or not name or table.catalog or not isinstance(table.this, exp.Identifier):
        shown = table.sql("spark", comments=False).partition(" AS ")[0]
        reason = f"{shown} is no table of the lake: NAMESPACE.TABLE, as in shop.orders"
        raise definition.error(table, reason, f"write the namespace of {table.name or 'the table'} before it")
    return TableName(namespace, name)


def reads(definition: Definition) -> tuple[TableName, ...]:
    """Return what a pipeline reads, each table or pattern once, in the order of the text.

    Raises:
        PipelineError: a table lacks its namespace.
    """
    return tuple(dict.fromkeys(name_of(table, definition) for table in references(definition.query)))


@dataclass(frozen=True, slots=True)
class Ordered:
    """Pipelines, each after those that it reads.

    Attributes:
        refused: those that read each other in a circle, or write the table of another one → why.
    """

    definitions: tuple[Definition, ...] = ()
    refused: Mapping[str, PipelineError] = field(default_factory=dict)


def in_order(definitions: Collection[Definition]) -> Ordered:
    """Return pipelines in an order in which they can be refreshed."""
    refused = dict(_of_one_table(definitions))
    left = {d.name: d for d in definitions if d.name not in refused}
    wanted = {name: reads(d) for name, d in left.items()}
    while True:
        before = {
            name: {other for other, d in left.items() if any(w.names(d.table) for w in wanted[name])}
            for name in left
        }
        try:
            names = tuple(TopologicalSorter(before).static_order())
        except CycleError as error:
            circle = [left.pop(name) for name in reversed(error.args[1][1:])]
            for _ in range(len(circle)):
                refused[circle[0].name] = _circle([*circle, circle[0]])
                circle = [*circle[1:], circle[0]]
        else:
            return Ordered(tuple(left[name] for name in names), refused)


def _of_one_table(definitions: Collection[Definition]) -> Iterator[tuple[str, PipelineError]]:
    """Yield the pipelines whose table has another one, too: none of them may write it."""
    for definition in definitions:
        table = definition.table
        others = [d for d in definitions if d is not definition and d.table == table]
        if others:
            hint = f"give one of them another table: {definition.setting(f'table: {table}_2')}"
            yield (
                definition.name,
                definition.header_error("table", f"{table} is the result of {others[0].file} too", hint),
            )


def _circle(circle: Sequence[Definition]) -> PipelineError:
    """Return the error for pipelines of which each reads the next, and the last is the first."""
    first, second = circle[0], circle[1]
    at = next(t for t in references(first.query) if name_of(t, first).names(second.table))
    shown = " reads ".join(definition.name for definition in circle)
    reason = f"pipelines read each other in a circle: {shown}"
    if len(circle) == 2:
        reason = f"the pipeline {first.name} reads its own result"
    return first.error(at, reason, "take one of these tables out of the FROM of its pipeline")
