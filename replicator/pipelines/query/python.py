"""Read pipeline files in Python: a header, and a function from DataFrames to a DataFrame.

    # key: customer_id
    # by key: customer_id
    # input orders: shop.orders
    # input customers: SELECT id AS customer_id, name FROM shop.customers

    def model(orders, customers):
        return orders.groupBy("customer_id").count().join(customers, "customer_id")

The header is that of a SELECT, in comments of Python before all code, with one more line for each input: a table, or a
SELECT in one line. The function `model` gets each under its name. Nothing here runs the code.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from replicator.errors import PipelineError
from replicator.pipelines.query.definition import (
    DIALECT,
    PYTHON,
    Definition,
    Refresh,
    check_name,
    parse_header,
)
from replicator.pipelines.query.names import TableName

MODEL: Final = "model"
"""The name of the function."""
_SELECTS: Final = ("select", "with", "(")


def parse_function(text: str, name: str, file: str, namespace: str) -> Definition:
    """Parse the text of a pipeline file in Python, without running it; `namespace` is the usual one of results.

    Raises:
        PipelineError: it is not a header and a function `model` with the inputs as parameters.
    """
    check_name(name, file)
    header = parse_header(text, file, PYTHON)
    inputs: dict[str, str] = header.pop("inputs")
    lines = dict[str, int](header.pop("lines"))
    tree = _parsed(text, file)
    model = _model(tree, file)
    lines[MODEL] = model.lineno
    query = _query(dict(_inputs(inputs, lines, text, file))) if inputs else exp.select("1")
    found = Definition(
        name,
        file,
        text,
        query,
        header.pop("table", TableName(namespace, name)),
        **header,
        inputs=tuple(inputs),
        lines=tuple(lines.items()),
        code=ast.dump(tree),
    )
    _check_parameters(found, model)
    return _with_refresh(found)


def _parsed(text: str, file: str) -> ast.Module:
    try:
        return ast.parse(text, file)
    except SyntaxError as error:
        raise PipelineError.at(
            file, error.lineno or 1, error.offset, f"not valid Python: {error.msg}"
        ) from None
    except ValueError as error:
        raise PipelineError.at(file, 1, None, f"not valid Python: {error}") from None


def _model(tree: ast.Module, file: str) -> ast.FunctionDef:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == MODEL:
            return node
    raise PipelineError.at(
        file, 1, None, f"has no function {MODEL}", f"write def {MODEL}(…), with the inputs as parameters"
    )


def _check_parameters(definition: Definition, model: ast.FunctionDef) -> None:
    if not definition.inputs:
        raise definition.header_error(
            MODEL, "the header names no input", "write before all code, for each: # input orders: shop.orders"
        )
    given = model.args
    named = [p.arg for p in (*given.args, *given.kwonlyargs)]
    optional = {*(p.arg for p in given.args[len(given.args) - len(given.defaults) :])}
    optional |= {
        p.arg for p, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value is not None
    }
    for name in named:
        if name not in definition.inputs and name not in optional:
            hint = f"write before all code: # input {name}: NAMESPACE.TABLE"
            raise definition.header_error(MODEL, f"the header has no input {name}", hint)
    for name in definition.inputs:
        if name not in named and given.kwarg is None:
            reason = f"{MODEL}() has no parameter {name}"
            raise definition.header_error(
                f"input {name}", reason, f"write def {MODEL}({', '.join(definition.inputs)})"
            )


def _with_refresh(definition: Definition) -> Definition:
    """Return the definition with how its result is refreshed: as a whole if the file says no key."""
    if definition.by_key:
        return definition
    if definition.refresh is Refresh.INCREMENTAL and "refresh" in dict(definition.lines):
        raise definition.header_error(
            "refresh",
            "it is not known which rows a function needs for a part of its result",
            "name the columns by which it computes its result: # by key: customer_id",
        )
    return replace(definition, refresh=Refresh.FULL)


def _inputs(
    inputs: Mapping[str, str], lines: Mapping[str, int], text: str, file: str
) -> Iterator[tuple[str, exp.Query]]:
    """Yield the inputs as queries, of which the nodes know their places in the file."""
    rows = text.splitlines(keepends=True)
    for name, value in inputs.items():
        number = lines[f"input {name}"]
        column = rows[number - 1].index(value, rows[number - 1].index(":")) if value else 0
        try:
            query = _input(name, value)
        except ValueError as error:
            raise PipelineError.at(file, number, column + 1, f"input {name}: {error}") from None
        start = sum(map(len, rows[: number - 1])) + column
        for node in query.walk():
            if "start" in node.meta:
                node.meta["start"] += start
        yield name, query


def _input(name: str, value: str) -> exp.Query:
    if not name.isidentifier():
        raise ValueError("its name must be one of a parameter: letters, digits and _")
    try:
        if not value.lower().startswith(_SELECTS):
            return exp.select("*").from_(sqlglot.parse_one(value, into=exp.Table, dialect=DIALECT))
        query = sqlglot.parse_one(value, dialect=DIALECT)
    except (ParseError, TokenError):
        raise ValueError(f'"{value}" is not a table or a SELECT; write it as in shop.orders') from None
    if not isinstance(query, exp.Query):
        raise ValueError(f"{query.key.upper()} is not a SELECT")
    return query


def _query(inputs: Mapping[str, exp.Query]) -> exp.Select:
    """Return a SELECT that reads the inputs under their names."""
    first, *others = (exp.Subquery(this=query, alias=_alias(name)) for name, query in inputs.items())
    query = exp.select("1").from_(first)
    for other in others:
        query = query.join(other, join_type="cross")
    return query


def _alias(name: str) -> exp.TableAlias:
    return exp.TableAlias(this=exp.to_identifier(name, quoted=True))
