"""A pipeline's query with the tables that it reads: each column resolved, each star expanded.

The analysed query has no WITH and no named window, and its tables are `in0`, `in1`, …: the inputs by number. Names in
it are lower-case, as Spark does not tell upper from lower case; the columns of the result keep the spelling of the file
or of the input.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sqlglot import exp
from sqlglot.errors import OptimizeError, SqlglotError
from sqlglot.optimizer.qualify import qualify
from sqlglot.optimizer.scope import traverse_scope

from replicator.pipelines.query.blocks import alias_of, sources_of
from replicator.pipelines.query.definition import DIALECT, Definition
from replicator.pipelines.query.functions import refuse_functions, use_known_names
from replicator.pipelines.query.graph import name_of, references
from replicator.pipelines.query.grouping import check_groups
from replicator.pipelines.query.header import check_header
from replicator.pipelines.query.names import STATE, TableName, similar

ORIGIN: Final = "_origin"
"""Column of the rows of a pattern: namespace and name of the table."""
_UNRESOLVED: Final = re.compile(r"Unknown column: (?P<a>.+)|Column '(?P<b>[^']+)' could not be resolved")
_INPUT: Final = "in"


@dataclass(frozen=True, slots=True)
class InputSchema:
    """What is known of a table that a pipeline may read.

    Attributes:
        columns: name → type in Spark SQL, in the order of the table.
        key: the columns that identify a row; empty if it has none.
        has_changelog: whether its changes are known.
        is_result: whether it is the result of a pipeline.
        is_log: whether it is a log table, to which rows are only appended.
    """

    columns: Mapping[str, str]
    key: tuple[str, ...] = ()
    has_changelog: bool = True
    is_result: bool = False
    is_log: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """An input of a pipeline.

    Attributes:
        name: the table, or the pattern of tables.
        tables: the table, or those that match the pattern, in the order of their names.
        schema: its columns, for a pattern with that for the origin.
        columns: those that the query names, in the order of the table.
    """

    name: TableName
    tables: tuple[TableName, ...]
    schema: InputSchema
    columns: tuple[str, ...]
    node: exp.Table = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Parameter:
    """What a function gets.

    Attributes:
        query: its query over `in0`, `in1`, …
        columns: its columns as they are to be spelt.
    """

    name: str
    query: exp.Query
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Analysed:
    """A pipeline whose query was resolved.

    Attributes:
        query: the query over `in0`, `in1`, …
        inputs: these inputs.
        columns: the columns of the result as they are to be spelt; of a function, none are known.
        parameters: what a function gets; none for a SELECT.
    """

    definition: Definition
    query: exp.Query
    inputs: tuple[Read, ...]
    columns: tuple[str, ...] = ()
    parameters: tuple[Parameter, ...] = ()

    def input_of(self, table: exp.Table) -> Read:
        """Return the input that a table in the query is."""
        return self.inputs[int(table.name.removeprefix(_INPUT))]


def analyse(definition: Definition, schemas: Mapping[TableName, InputSchema]) -> Analysed:
    """Resolve the query of a pipeline; `schemas` are all tables that it may read.

    Raises:
        PipelineError: a table or column does not exist, or a function has no lasting result.
    """
    refuse_functions(definition)
    query = definition.query.copy()
    use_known_names(query)
    reads: dict[TableName, Read] = {}
    for table in list(references(query)):
        name = name_of(table, definition)
        if name not in reads:
            reads[name] = _read(name, table, definition, schemas)
        _renamed(table, f"{_INPUT}{list(reads).index(name)}")
    inputs = tuple(reads.values())
    _refuse_recursion(query, definition)
    query = _without_ctes(_resolved(query, definition, inputs))
    _expand_named_windows(query)
    check_groups(definition, query)
    used = tuple(_with_used(query, inputs))
    if definition.inputs:
        return Analysed(definition, query, used, parameters=tuple(_parameters(query, definition, inputs)))
    columns = _spelt(query, definition.query, definition, inputs)
    check_header(definition, columns)
    return Analysed(definition, query, used, columns)


def _parameters(query: exp.Query, definition: Definition, inputs: Sequence[Read]) -> Iterator[Parameter]:
    for resolved, written in zip(sources_of(query), sources_of(definition.query), strict=True):
        columns = _spelt(resolved.this, written.this, definition, inputs)
        yield Parameter(written.alias_or_name, resolved.this, columns)


def _read(
    name: TableName, node: exp.Table, definition: Definition, schemas: Mapping[TableName, InputSchema]
) -> Read:
    found = sorted(table for table in schemas if name.names(table))
    if not found:
        known = [str(table) for table in schemas]
        reason = f"no table {name} in the lake"
        raise definition.error(
            node, reason, similar(str(name), known) or "replicator status lists the tables"
        )
    if not name.is_pattern:
        schema = schemas[found[0]]
        visible = {column: kind for column, kind in schema.columns.items() if column != STATE}
        return Read(name, (found[0],), replace(schema, columns=visible), (), node.copy())
    first, *others = found
    columns = schemas[first].columns
    for other in others:
        if _lower(schemas[other].columns) != _lower(columns):
            differing = sorted(set(_lower(schemas[other].columns).items()) ^ set(_lower(columns).items()))
            reason = f"{first} and {other} must have equal columns; they differ in {differing[0][0]}"
            raise definition.error(
                node, reason, "give the table another name, or name the tables with UNION ALL"
            )
    key = schemas[first].key
    schema = InputSchema(
        {**columns, ORIGIN: "string"},
        (ORIGIN, *key) if key and all(schemas[table].key == key for table in found) else (),
        all(schemas[table].has_changelog for table in found),
        is_log=all(schemas[table].is_log for table in found),
    )
    return Read(name, tuple(found), schema, (), node.copy())


def _lower(columns: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): kind for name, kind in columns.items()}


def _renamed(table: exp.Table, name: str) -> None:
    """Replace the name of a table by that of its input; it keeps the name by which columns refer to it."""
    alias = table.alias or (table.name.rpartition(".")[2] if not table.db else table.name)
    position = table.this.meta.copy()
    if not table.alias:
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
    table.set("this", exp.to_identifier(name))
    table.this.meta.update(position)
    table.set("db", None)


def _refuse_recursion(query: exp.Query, definition: Definition) -> None:
    for clause in query.find_all(exp.With):
        if clause.args.get("recursive"):
            raise definition.error(
                clause, "WITH RECURSIVE is not supported", "write the steps as a finite UNION ALL"
            )


# Columns.


def _resolved(query: exp.Query, definition: Definition, inputs: Sequence[Read]) -> exp.Query:
    schema: dict[str, object] = {f"{_INPUT}{n}": _lower(read.schema.columns) for n, read in enumerate(inputs)}
    before = query.copy()
    try:
        qualify(query, schema=schema, dialect=DIALECT, validate_qualify_columns=True)
    except OptimizeError as error:
        if (match := _UNRESOLVED.search(str(error))) is not None:
            raise _unresolved(match["a"] or match["b"], before, definition, inputs) from None
        raise definition.error(before, f"cannot be analysed: {error}") from None
    except SqlglotError as error:
        raise definition.error(before, f"cannot be analysed: {error}") from None
    return query


def _unresolved(column: str, query: exp.Query, definition: Definition, inputs: Sequence[Read]) -> Exception:
    nodes = [c for c in query.find_all(exp.Column) if c.name.lower() == column.lower()]
    node = next((c for c in nodes if not c.table or not _has(c, query, inputs)), nodes[0] if nodes else query)
    known = [name for read in inputs for name in read.schema.columns]
    holders = [read for read in inputs if column.lower() in _lower(read.schema.columns)]
    if isinstance(node, exp.Column) and not node.table and len(holders) > 1:
        tables = " and ".join(str(read.name) for read in holders)
        return definition.error(
            node, f"{column} is a column of {tables}", f"write the table's alias before it: a.{column}"
        )
    shown = node.sql(DIALECT).replace("`", "") if isinstance(node, exp.Column) else column
    where = next(_tables(query, inputs, node), None)
    reason = f"no column {shown}" + (f" in {where.name}" if where else "")
    if where is not None:
        known = list(where.schema.columns)
    elif isinstance(node, exp.Column) and node.table and holders:
        reason = (
            f"no table or alias {node.table} in this FROM" if not _alias_exists(node.table, query) else reason
        )
    hint = similar(column, known) or (f"its columns are {', '.join(known)}" if where else None)
    return definition.error(node, reason, hint)


def _alias_exists(alias: str, query: exp.Query) -> bool:
    names = {source.alias_or_name.lower() for source in query.find_all(exp.Table, exp.Subquery, exp.CTE)}
    return alias.lower() in names


def _tables(query: exp.Query, inputs: Sequence[Read], node: exp.Expr) -> Iterator[Read]:
    """Yield the input whose column is missing, if it is clear."""
    if isinstance(node, exp.Column) and node.table:
        for table in query.find_all(exp.Table):
            if table.alias_or_name.lower() == node.table.lower() and re.fullmatch(r"in\d+", table.name):
                yield inputs[int(table.name.removeprefix(_INPUT))]
        return
    select = node.find_ancestor(exp.Select)
    # In a condition, it may be a column of the query around it.
    if select is None or "from_" not in select.args or not isinstance(select.parent, exp.Subquery | None):
        return
    names = {source.name if isinstance(source, exp.Table) else "" for source in sources_of(select)}
    if len(names) == 1 and re.fullmatch(r"in\d+", name := names.pop()):
        yield inputs[int(name.removeprefix(_INPUT))]


def _has(column: exp.Column, query: exp.Query, inputs: Sequence[Read]) -> bool:
    return any(column.name.lower() in _lower(r.schema.columns) for r in _tables(query, inputs, column))


def _with_used(query: exp.Query, inputs: Sequence[Read]) -> Iterator[Read]:
    used: dict[str, set[str]] = {}
    for scope in traverse_scope(query):
        for column in scope.columns:
            source = scope.sources.get(column.table)
            if isinstance(source, exp.Table):
                used.setdefault(source.name, set()).add(column.name)
    for number, read in enumerate(inputs):
        names = used.get(f"{_INPUT}{number}", set())
        columns = tuple(name for name in read.schema.columns if name.lower() in names)
        yield Read(read.name, read.tables, read.schema, columns, read.node)


def _spelt(
    query: exp.Query, outer: exp.Query, definition: Definition, inputs: Sequence[Read]
) -> tuple[str, ...]:
    """Return the columns of a query as the file spells them, where it is `outer`; those of a star as the input does."""
    spelling = {name.lower(): name for read in reversed(inputs) for name in read.schema.columns}
    while isinstance(outer, (exp.SetOperation, exp.Subquery)):
        outer = outer.this
    for expression in outer.selects:
        if isinstance(expression.unalias(), exp.Star) or (
            isinstance(expression, exp.Column) and expression.is_star
        ):
            continue
        if not expression.output_name:
            shown = expression.sql(DIALECT, comments=False)
            raise definition.error(
                expression, f"{shown} has no name in the result", "add AS and a name for the column"
            )
        spelling[expression.output_name.lower()] = expression.output_name
    columns = tuple(spelling.get(name, name) for name in query.named_selects)
    if twice := [name for n, name in enumerate(query.named_selects) if name in query.named_selects[:n]]:
        nodes = [e for e in outer.selects if e.output_name.lower() == twice[0]]
        reason = f"the result has two columns {spelling.get(twice[0], twice[0])}"
        raise definition.error(
            (nodes or [outer])[-1], reason, "name one of them otherwise with AS, or leave it out"
        )
    return columns


# WITH and named windows.


def _without_ctes(query: exp.Query) -> exp.Query:
    """Return the query with each common table expression in the places where it is read."""
    for owner in reversed(list(query.find_all(exp.Query))):
        if (clause := owner.args.get("with_")) is None:
            continue
        bodies: dict[str, exp.Query] = {}
        for cte in clause.expressions:
            bodies[cte.alias] = _inlined(cte.this, bodies)
        owner.set("with_", None)
        _inlined(owner, bodies)
    return query


def _inlined(query: exp.Query, bodies: Mapping[str, exp.Query]) -> exp.Query:
    for table in list(query.find_all(exp.Table)):
        if table.name in bodies:
            subquery = exp.Subquery(this=bodies[table.name].copy(), alias=alias_of(table.alias_or_name))
            subquery.set("joins", table.args.get("joins"))
            table.replace(subquery)
    return query


def _expand_named_windows(query: exp.Query) -> None:
    for select in list(query.find_all(exp.Select)):
        named = {w.name: w for w in select.args.get("windows") or ()}
        for window in list(select.find_all(exp.Window)):
            name = window.alias
            if name in named and window.parent is not select:
                for part in ("partition_by", "order", "spec"):
                    if (value := named[name].args.get(part)) is not None and not window.args.get(part):
                        window.set(
                            part, [v.copy() for v in value] if isinstance(value, list) else value.copy()
                        )
                window.set("alias", None)
        select.set("windows", None)
