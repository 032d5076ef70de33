"""The order of pipelines: each follows those whose results it reads."""

from collections.abc import Collection, Iterator, Sequence
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


def in_order(definitions: Collection[Definition], namespace: str) -> Sequence[Definition]:
    """Return pipelines so that each follows those that it reads; `namespace` is the usual one of results.

    Raises:
        PipelineError: pipelines read each other in a circle, or a table has two pipelines.
    """
    by_output: dict[TableName, Definition] = {}
    for definition in definitions:
        table = definition.output(namespace)
        if (other := by_output.get(table)) is not None:
            reason = f"{table} is the result of {other.file} too"
            raise definition.header_error(
                "table", reason, f"give one of them another table: -- table: {table}_2"
            )
        by_output[table] = definition
    by_name = {definition.name: definition for definition in definitions}
    before = {
        d.name: {o.name for wanted in reads(d) for table, o in by_output.items() if wanted.names(table)}
        for d in definitions
    }
    try:
        return [by_name[name] for name in TopologicalSorter(before).static_order()]
    except CycleError as error:
        circle = [by_name[name] for name in reversed(error.args[1])]
        raise _circle(circle, namespace) from None


def _circle(circle: Sequence[Definition], namespace: str) -> PipelineError:
    """Return the error for pipelines of which each reads the next, and the last is the first."""
    first, second = circle[0], circle[1]
    output = second.output(namespace)
    at = next(t for t in references(first.query) if name_of(t, first).names(output))
    shown = " reads ".join(definition.name for definition in circle)
    reason = f"pipelines read each other in a circle: {shown}"
    if len(circle) == 2:
        reason = f"the pipeline {first.name} reads its own result"
    return first.error(at, reason, "take one of these tables out of the FROM of its pipeline")
