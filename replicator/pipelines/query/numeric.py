"""Types of exact numbers in Spark, of which sums can be subtracted from.

Spark's rules for the precision of decimals are those of `DecimalPrecision` with loss of precision allowed, its default.
A type may be wider here than in Spark, which looks at the value of an integer literal; its scale is the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

MAX_PRECISION: Final = 38
_MIN_SCALE: Final = 6
BIGINT: Final = "BIGINT"
_INTEGERS: Final = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, BIGINT: 20}
"""Integer types and the digits of the decimals that Spark converts them to."""


@dataclass(frozen=True, slots=True)
class Exact:
    """A type of exact numbers: an integer type if `integer` is given, else a decimal."""

    precision: int
    scale: int = 0
    integer: str | None = None

    @property
    def sql(self) -> str:
        """The type in Spark SQL."""
        return self.integer or f"DECIMAL({self.precision}, {self.scale})"

    @property
    def sum(self) -> "Exact":
        """The type of a sum of such numbers."""
        return _LONG if self.integer else Exact(min(MAX_PRECISION, self.precision + 10), self.scale)

    @property
    def mean(self) -> "Exact | None":
        """The type of the mean of decimals, if sum and count tell it to the last digit; None otherwise.

        The quotient has digits of its own number, so the mean is its rounding only if it has enough more.
        """
        if self.integer:
            return None
        mean = Exact(min(MAX_PRECISION, self.precision + 4), min(MAX_PRECISION, self.scale + 4))
        enough = (
            self.precision + 14 <= MAX_PRECISION and _divided(self.sum, Exact(20)).scale >= mean.scale + 8
        )
        return mean if enough else None


_LONG: Final = Exact(20, 0, BIGINT)


def exact_type(node: exp.Expr, types: Mapping[tuple[str, str], str]) -> Exact | None:
    """Return the type of an expression if it is exact and known; `types` are those of columns, by table and name."""
    if isinstance(node, exp.Column):
        return _parsed(types.get((node.table, node.name)))
    if isinstance(node, exp.Paren):
        return exact_type(node.this, types)
    if isinstance(node, exp.Neg):
        return exact_type(node.this, types)
    if isinstance(node, exp.Cast):
        return _of_data_type(node.to)
    if isinstance(node, exp.Literal):
        return _literal(node)
    if isinstance(node, (exp.Coalesce, exp.Case, exp.If)):
        return _same([exact_type(value, types) for value in _values(node)])
    rule = _OPERATIONS.get(type(node))
    if rule is not None and isinstance(node, exp.Binary):
        left, right = exact_type(node.left, types), exact_type(node.right, types)
        return rule(left, right) if left and right else None
    return None


def _parsed(text: str | None) -> Exact | None:
    return None if text is None else _of_data_type(exp.DataType.build(text, dialect="spark"))


def _of_data_type(kind: exp.DataType) -> Exact | None:
    name = kind.this.value if isinstance(kind.this, exp.DataType.Type) else ""
    if name in _INTEGERS:
        return Exact(_INTEGERS[name], 0, name)
    if kind.this is exp.DataType.Type.DECIMAL:
        parameters = [int(p.name) for p in kind.expressions] or [10]
        return Exact(parameters[0], parameters[1] if len(parameters) > 1 else 0)
    return None


def _literal(node: exp.Literal) -> Exact | None:
    if node.is_string:
        return None
    whole, dot, fraction = node.name.partition(".")
    if not (whole + fraction).isdigit():
        return None
    if not dot:
        kind = "INT" if int(whole) < 2**31 else BIGINT
        return Exact(_INTEGERS[kind], 0, kind) if int(whole) < 2**63 else None
    digits = len(whole.lstrip("0")) + len(fraction)
    return Exact(max(digits, len(fraction), 1), len(fraction)) if digits <= MAX_PRECISION else None


def _values(node: exp.Expr) -> list[exp.Expr]:
    """Return the expressions of which one is the result; NULL has every type."""
    if isinstance(node, exp.Coalesce):
        found = [node.this, *node.expressions]
    elif isinstance(node, exp.Case):
        found = [*(branch.args["true"] for branch in node.args["ifs"]), node.args.get("default")]
    else:
        found = [node.args["true"], node.args.get("false")]
    return [value for value in found if value is not None and not isinstance(value, exp.Null)]


def _same(kinds: list[Exact | None]) -> Exact | None:
    known = [kind for kind in kinds if kind is not None]
    if not known or len(known) < len(kinds):
        return None
    widest = known[0]
    for kind in known[1:]:
        widest = _wider(widest, kind)
    return widest if widest.precision <= MAX_PRECISION else None


def _wider(a: Exact, b: Exact) -> Exact:
    if a.integer and b.integer:
        return a if a.precision >= b.precision else b
    scale = max(a.scale, b.scale)
    return Exact(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)


def _adjusted(precision: int, scale: int) -> Exact:
    if precision <= MAX_PRECISION:
        return Exact(precision, scale)
    whole = precision - scale
    return Exact(MAX_PRECISION, max(MAX_PRECISION - whole, min(scale, _MIN_SCALE)))


def _summed(a: Exact, b: Exact) -> Exact | None:
    if a.integer and b.integer:
        return _wider(a, b)
    scale = max(a.scale, b.scale)
    precision = max(a.precision - a.scale, b.precision - b.scale) + scale + 1
    return _adjusted(precision, scale) if precision <= MAX_PRECISION else None


def _multiplied(a: Exact, b: Exact) -> Exact | None:
    if a.integer and b.integer:
        return _wider(a, b)
    precision = a.precision + b.precision + 1
    return _adjusted(precision, a.scale + b.scale) if precision <= MAX_PRECISION else None


def _divided(a: Exact, b: Exact) -> Exact:
    scale = max(_MIN_SCALE, a.scale + b.precision + 1)
    return _adjusted(a.precision - a.scale + b.scale + scale, scale)


_OPERATIONS: Final[dict[type[exp.Expr], Callable[[Exact, Exact], Exact | None]]] = {
    exp.Add: _summed,
    exp.Sub: _summed,
    exp.Mul: _multiplied,
}
