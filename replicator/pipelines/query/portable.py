"""Queries that DuckDB answers exactly as Spark does: a refresh of rows that the driver holds needs no Spark job.

They compare, group, add and rank values of types that are the same in both, and convert numbers to a type with as many
digits after the point, and times to dates. What the two define differently (functions, other casts, division,
floating-point numbers, patterns) is left to Spark, and so is a query that DuckDB fails to answer, for instance because
a number overflows.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import sqlglot
from sqlglot import exp
from sqlglot.optimizer.annotate_types import annotate_types

from replicator.pipelines.query.analysis import Analysed
from replicator.pipelines.query.blocks import parts, sources_of
from replicator.pipelines.query.definition import DIALECT
from replicator.pipelines.query.narrow import Step
from replicator.pipelines.query.numeric import MAX_PRECISION, Exact, exact_type
from replicator.pipelines.query.views import Views

_NODES: Final[frozenset[type[exp.Expr]]] = frozenset(
    {
        exp.Select, exp.From, exp.Join, exp.Where, exp.Group, exp.Having, exp.Distinct, exp.Union, exp.Subquery,
        exp.Table, exp.TableAlias, exp.Alias, exp.Identifier, exp.Column, exp.Star, exp.Paren, exp.Literal, exp.Null,
        exp.Boolean, exp.And, exp.Or, exp.Not, exp.Is, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE,
        exp.NullSafeEQ, exp.In, exp.Between, exp.Case, exp.If, exp.Coalesce, exp.Add, exp.Sub, exp.Mul, exp.Neg,
        exp.Count, exp.Sum, exp.Min, exp.Max, exp.Window, exp.Order, exp.Ordered, exp.RowNumber, exp.Rank,
        exp.DenseRank, exp.TryCast, exp.Cast, exp.DataType, exp.DataTypeParam,
    }
)  # fmt: skip
"""What the query of a pipeline may have."""
_OF_STEPS: Final = _NODES | {exp.Struct, exp.PropertyEQ, exp.Dot}
"""What the steps of a refresh may have besides; their casts are between exact numbers of one scale."""
_RANKS: Final = (exp.RowNumber, exp.Rank, exp.DenseRank)
_REFUSED: Final[dict[type[exp.Expr], str]] = {exp.In: "query", exp.Case: "this", exp.Window: "spec"}
"""Parts that expressions may not have."""
_OF_TWO: Final = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.In, exp.Between
)  # fmt: skip
_COMPARISONS: Final = (*_OF_TWO, exp.Is, exp.Not)
_ALIKE: Final = (*_OF_TWO, exp.Coalesce, exp.Case)
_TIMES: Final = ("TIMESTAMPNTZ", "TIMESTAMPTZ", "TIMESTAMPLTZ")
"""Spark and DuckDB tell dates in UTC."""
_ARITHMETIC: Final = (exp.Add, exp.Sub, exp.Mul, exp.Neg)
_NUMBERS: Final = ("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL")
_CLASSES: Final = {
    **dict.fromkeys(_NUMBERS, "number"),
    **dict.fromkeys(("TEXT", "VARCHAR"), "text"),
    **{name: name for name in ("DATE", "BOOLEAN", *_TIMES)},
}


def portable_steps(analysed: Analysed, steps: Sequence[Step], views: Views) -> tuple[tuple[str, str], ...]:
    """Return the view and the SQL in DuckDB's dialect of each step of a refresh; nothing if only Spark may run them."""
    if analysed.parameters or analysed.definition.expectations or not _is_portable(analysed, views):
        return ()
    found = []
    for step in steps:
        query = sqlglot.parse_one(step.sql, read=DIALECT)
        if not all(type(node) in _OF_STEPS for node in query.walk()):
            return ()
        found.append((step.view, query.transform(_strict).sql("duckdb", comments=False)))
    return tuple(found)


def _strict(node: exp.Expr) -> exp.Expr:
    """Let a cast that is impossible fail, so that Spark decides what it gives."""
    if type(node) is not exp.TryCast:
        return node
    # What is replaced is not searched.
    return exp.Cast(this=node.this.transform(_strict), to=node.args["to"])


def _is_portable(analysed: Analysed, views: Views) -> bool:
    query = analysed.query
    if any(type(node) not in _NODES for node in query.walk()):
        return False
    schema: dict[str, object] = {
        f"in{n}": {name.lower(): kind for name, kind in read.schema.columns.items()}
        for n, read in enumerate(analysed.inputs)
    }
    typed = annotate_types(query.copy(), schema=schema, dialect=DIALECT)
    return all(_is_alike(node) and _is_exact(node, views) for node in typed.walk())


def _is_alike(node: exp.Expr) -> bool:
    """Return whether an expression means the same in both; its columns have known types."""
    alike = node.args.get(_REFUSED.get(type(node), "")) is None
    match node:
        case exp.Column():
            alike = _class(node) is not None
        case exp.Literal():
            alike = node.name.isprintable() and "\\" not in node.name and (node.is_string or _is_plain(node))
        case exp.Cast():
            alike = _converts_alike(_class(node.this), node.to)
        case exp.Window():
            alike = alike and isinstance(node.this, _RANKS)
        case exp.Union():
            columns = zip(*(part.selects for part in parts(node)), strict=False)
            alike = all(_are_comparable(values) for values in columns)
        case exp.Distinct():
            alike = len(node.expressions) <= 1
        case exp.Sum():
            alike = _class(node.this) == "number"
        case exp.If():
            alike = isinstance(node.parent, exp.Case)
        case _ if isinstance(node, _ALIKE):
            alike = alike and _are_comparable([e for e in _operands(node) if not isinstance(e, exp.Null)])
    return alike


def _converts_alike(kind: str | None, to: exp.DataType) -> bool:
    """Return whether a cast makes a date of a time, or a number of a number; see `_is_exact`."""
    if to.this is exp.DataType.Type.DATE:
        return kind in (*_TIMES, "DATE")
    # Without parameters, a decimal has other digits in DuckDB.
    has_digits = to.this is not exp.DataType.Type.DECIMAL or bool(to.expressions)
    return kind == "number" and to.this.name in _NUMBERS and has_digits


def _are_comparable(values: Sequence[exp.Expr]) -> bool:
    """Return whether values get one type, and none loses digits by that."""
    # Which of two comparisons without parentheses comes first is not the same in both.
    kinds = {None if isinstance(value, _COMPARISONS) else _class(value) for value in values}
    if None in kinds or len(kinds) > 1:
        return False
    if kinds != {"number"}:
        return True
    known = [_digits(value) for value in values]
    found = [exact for exact in known if exact is not None]
    if len(found) < len(known):
        return False
    return max(n.precision - n.scale for n in found) + max(n.scale for n in found) <= MAX_PRECISION


def _digits(value: exp.Expr) -> Exact | None:
    """Return the type of a number; None if it is not known."""
    if isinstance(value, (exp.Literal, exp.Paren, *_ARITHMETIC)):
        # Of arithmetic of columns, sqlglot does not know all digits.
        return exact_type(value, {})
    kind = value.type
    if kind is None or (kind.this is exp.DataType.Type.DECIMAL and not kind.expressions):
        return None
    return exact_type(exp.Cast(this=exp.null(), to=kind), {})


def _is_plain(number: exp.Literal) -> bool:
    return number.name.replace(".", "", 1).isdigit()


def _operands(node: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the expressions that get one type."""
    match node:
        case exp.Case():
            yield from (branch.args["true"] for branch in node.args["ifs"])
            if (other := node.args.get("default")) is not None:
                yield other
        case exp.In() | exp.Coalesce():
            yield from (node.this, *node.expressions)
        case exp.Between():
            yield from (node.this, node.args["low"], node.args["high"])
        case _:
            yield from (node.args["this"], node.args["expression"])


def _class(node: exp.Expr) -> str | None:
    """Return what a type is compared with; None if that is not known, or it is not the same in both."""
    if isinstance(node, (exp.Paren, exp.Distinct)):
        return _class(node.expressions[0] if isinstance(node, exp.Distinct) else node.this)
    if isinstance(node, _ARITHMETIC) or (isinstance(node, exp.Literal) and not node.is_string):
        return "number"
    kind = node.type
    return (
        None if kind is None or not isinstance(kind.this, exp.DataType.Type) else _CLASSES.get(kind.this.name)
    )


def _is_exact(node: exp.Expr, views: Views) -> bool:
    """Return whether numbers that are added, multiplied or converted are exact, and Spark keeps all their digits."""
    converts = isinstance(node, exp.Cast) and _class(node) == "number"
    if not converts and not isinstance(node, _ARITHMETIC):
        return True
    select = node.find_ancestor(exp.Select)
    tables = [] if select is None else [s for s in sources_of(select) if isinstance(s, exp.Table)]
    types = {(s.alias_or_name, name): kind for s in tables for name, kind in views.types(s).items()}
    found, given = exact_type(node, types), exact_type(node.this, types) if converts else None
    return found is not None and (not converts or (given is not None and given.scale <= found.scale))
