"""The order of pipelines: each follows those whose results it reads."""

import fnmatch
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from sqlglot import exp

from replicator.pipelines.definition import Definition, PipelineError


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """Namespace and name of a table in the lake; a pattern with * or ? names several equal tables."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"

    @property
    def is_pattern(self) -> bool:
        """Whether it may name several tables."""
        return not {"*", "?"}.isdisjoint(str(self))

    def matches(self, table: "TableName") -> bool:
        """Return whether a table has this name."""
        return fnmatch.fnmatchcase(table.namespace, self.namespace) and fnmatch.fnmatchcase(table.name, self.name)


def references(query: exp.Query) -> Iterator[exp.Table]:
    """Yield the tables that a query reads, but not its own common table expressions."""
    for table in query.find_all(exp.Table):
        if table.db or table.name not in _own(table):
            yield table


def _own(table: exp.Table) -> set[str]:
    names: set[str] = set()
    at = table.parent
    while at is not None:
        if isinstance(at, exp.Query) and (found := at.args.get("with_")) is not None:
            names |= {cte.alias for cte in found.expressions}
        at = at.parent
    return names


def name_of(table: exp.Table, definition: Definition) -> TableName:
    """Return the name of a table in a query.

    Raises:
        PipelineError: it lacks its namespace.
    """
    if not table.db or table.catalog:
        raise error_at(definition, table, f"{table.sql('spark')} must be NAMESPACE.TABLE, as in shop.orders")
    return TableName(table.db, table.name)


def in_order(definitions: Collection[Definition], outputs: Mapping[str, TableName]) -> Sequence[Definition]:
    """Return pipelines so that each follows those that it reads; `outputs` are their tables by name.

    Raises:
        PipelineError: pipelines read each other in a circle, or a table has two pipelines.
    """
    by_output: dict[TableName, Definition] = {}
    for definition in definitions:
        table = outputs[definition.name]
        if (other := by_output.get(table)) is not None:
            raise PipelineError(definition.file, 1, None, f"{table} is the result of {other.file} too")
        by_output[table] = definition
    by_name = {definition.name: definition for definition in definitions}
    before: dict[str, set[str]] = {definition.name: set() for definition in definitions}
    for definition in definitions:
        for reference in references(definition.query):
            wanted = name_of(reference, definition)
            before[definition.name] |= {d.name for table, d in by_output.items() if wanted.matches(table)}
    try:
        return [by_name[name] for name in TopologicalSorter(before).static_order()]
    except CycleError as error:
        names = [by_name[name] for name in error.args[1]]
        circle = " reads ".join(definition.name for definition in reversed(names))
        raise PipelineError(names[0].file, 1, None, f"pipelines read each other in a circle: {circle}") from None


def error_at(definition: Definition, node: exp.Expression, reason: str, hint: str | None = None) -> PipelineError:
    """Return the error for a part of a query, with its place in the file."""
    for part in node.walk(bfs=True):
        if "line" in part.meta:
            line, end = int(part.meta["line"]), int(part.meta["col"])
            return PipelineError(definition.file, line, max(1, end - int(part.meta["end"]) + int(part.meta["start"])), reason, hint)
    return PipelineError(definition.file, 1, None, reason, hint)
