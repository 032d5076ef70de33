"""Give each column of a table one canonical form, which MySQL and the lake compute as the same bytes.

| form   | bytes                                                                        | columns                     |
|--------|------------------------------------------------------------------------------|-----------------------------|
| DIGITS | an integer in decimal digits; a decimal with all digits of its scale         | integers, YEAR, BIT(1),     |
|        |                                                                              | DECIMAL                     |
| DAYS   | days since 1970-01-01, in digits                                             | DATE                        |
| MICROS | microseconds since 1970-01-01 00:00, of the wall clock or in UTC, in digits  | DATETIME, TIMESTAMP, TIME   |
| DOUBLE | the eight bytes of the IEEE double, little-endian; 0 for -0                  | FLOAT, DOUBLE               |
| TEXT   | UTF-8                                                                        | CHAR, VARCHAR, TEXT, ENUM,  |
|        |                                                                              | SET                         |
| BYTES  | the bytes                                                                    | BINARY, BLOB, BIT, spatial  |
| JSON   | the text that MySQL shows (`mysql_json`)                                     | JSON                        |
| FLOATS | the elements as 32-bit floats, little-endian, in upper-case hexadecimal      | VECTOR                      |
| CLOCK  | the text that MySQL shows, in UTC; only in hashes of rows with a key         | DATE, DATETIME, TIMESTAMP   |

A row text is the forms of all columns that are not NULL, then the length of each TEXT and BYTES value but that of the
last such column, then a digit for each nullable column (1 is NULL), with `|` between the parts. It is unambiguous: the
parts at the end have only digits, and of the others only TEXT, BYTES, JSON and the eight bytes of DOUBLE may contain
`|`. The lengths tell where all TEXT and BYTES but one end. JSON ends where its text ends, and what is behind a `|`
inside JSON is no JSON, since it has an odd number of quotes. So what is left is the last TEXT or BYTES.

Rows whose hashes differ are compared form by form if they have a key. So their hashes may use what MySQL computes
faster than the form, as long as equal texts are equal values: a zero date, which is NULL or 1970-01-01 in the lake, has
no text in common with it.

The hash of a row is the first 64 bits of SHA-256 of its text. The checksum of a set of rows is their number and their
combined hashes, so their order does not matter. The hashes of rows that a key identifies are combined by
exclusive or, which MySQL does fastest: rows of the source all differ, so one that is twice in the mirror changes the
number. Those of other rows are summed modulo 2^64, so that equal rows count.
"""

import decimal
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from replicator.model.common import quoted
from replicator.model.types import LakeType
from replicator.schema.types.table import Form, Wire, type_of
from replicator.sources.mysql.table_rows import SourceColumn

MODULUS: Final = 1 << 64
"""Checksums are sums modulo this number."""
_UNICODE: Final = frozenset({"utf8mb4", "utf8mb3", "utf8", "ascii"})
"""Character sets whose bytes are UTF-8."""


_MEASURED: Final = frozenset({Form.TEXT, Form.BYTES})
"""Forms of any length that may contain every byte."""
_NO_LITERALS: Final = ("bit", "enum", "set")
"""Types that are compared as numbers, or whose text is not their value."""
_WIRE_FORMS: Final[Mapping[Wire, Form]] = {
    Wire.LONG: Form.DIGITS,
    Wire.DOUBLE: Form.DOUBLE,
    Wire.TEXT: Form.TEXT,
    Wire.BYTES: Form.BYTES,
    Wire.DAYS: Form.DAYS,
    Wire.MICROS: Form.MICROS,
    Wire.FLOATS: Form.FLOATS,
}


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """A column as the lake's side of a comparison needs it.

    Attributes:
        source: its name in the source.
        lake: its name in the lake.
        form: its canonical form.
        declared: its declared type in the source.
        nullable: whether the source allows NULL.
    """

    source: str
    lake: str
    form: Form
    declared: str
    nullable: bool

    @property
    def fraction(self) -> int:
        """Number of digits of seconds behind the point, of a time."""
        return int((re.findall(r"\((\d)\)", self.declared) or ["0"])[0])

    @property
    def is_measured(self) -> bool:
        """Whether its values may contain everything, so that their length is needed to tell where they end."""
        return self.form in _MEASURED


@dataclass(frozen=True, slots=True)
class ComparedColumn(LakeColumn):
    """A column that is compared.

    Attributes:
        type: the type that it must have in the lake.
        expression: the SQL expression of the form.
        is_ordered: whether both sides order its values alike: integers and BINARY.
        width: the length of its values in bytes, of BINARY; None for other types.
    """

    type: LakeType
    expression: str
    is_ordered: bool
    width: int | None = None

    @property
    def is_unsigned(self) -> bool:
        """Whether it has no negative numbers."""
        return "unsigned" in self.declared

    @property
    def null_test(self) -> str:
        """The SQL condition that its form is NULL; that of a zero date is, although the value is not."""
        value = self.expression if self.form in (Form.DAYS, Form.MICROS) else quoted(self.source)
        return f"({value} IS NULL)"

    @property
    def has_literals(self) -> bool:
        """Whether `literal` gives a value that MySQL finds in an index."""
        return self.form in (Form.DIGITS, Form.TEXT, Form.BYTES) and not self.declared.startswith(
            _NO_LITERALS
        )

    def literal(self, value: bytes) -> str:
        """Return a canonical form as SQL text, for a comparison with the column."""
        match self.form:
            case Form.DIGITS:
                return f"{decimal.Decimal(value.decode()):f}"
            case Form.TEXT:
                # An introducer: the comparison then uses the column's collation.
                return f"_utf8mb4 x'{value.hex()}'"
            case Form.BYTES:
                return f"x'{value.hex()}'"
        raise ValueError(f"no literal of the form {self.form}")


_Column = TypeVar("_Column", bound=LakeColumn)


def compared_column(source: SourceColumn, lake: str) -> ComparedColumn:
    """Return how to compare a column; `lake` is its name in the lake."""
    name, declared = source.column.name, source.declared
    kind = declared.partition("(")[0].partition(" ")[0]
    found = type_of(kind)
    form = (found and found.canonical) or _WIRE_FORMS[source.wire]
    return ComparedColumn(
        source=name,
        lake=lake,
        form=form,
        type=source.column.type,
        declared=declared,
        nullable=source.column.nullable,
        expression=_expression(source, form, kind),
        is_ordered=kind == "binary" or (found is not None and found.bits > 0),
        width=int(re.findall(r"\d+", declared)[0]) if kind == "binary" else None,
    )


def hashed_column(column: ComparedColumn) -> ComparedColumn:
    """Return the form that is faster to hash and tells different values apart; see the module."""
    if column.type.name not in ("date", "timestamp", "timestamptz"):
        return column
    return replace(column, form=Form.CLOCK, expression=quoted(column.source))


def _expression(source: SourceColumn, form: Form, kind: str) -> str:
    """Return the expression of a form: as cheap as possible, since MySQL computes it for every row."""
    name = quoted(source.column.name)
    match form:
        case Form.DIGITS if kind not in ("year", "bit") and "zerofill" not in source.declared:
            return name
        case Form.DIGITS:
            # As a number: YEAR and ZEROFILL have leading zeros, BIT is a byte.
            return f"({name} + 0)"
        case Form.DOUBLE:
            # The internal form of a point has its coordinates as IEEE doubles. Adding zero makes 0 of -0.
            return f"SUBSTRING(POINT({name} + 0e0, 0), 10, 8)"
        case Form.TEXT if source.charset not in _UNICODE:
            return f"CONVERT({name} USING utf8mb4)"
        case Form.TEXT:
            return name
        case _:
            return source.expression


def measured(columns: Sequence[_Column]) -> list[_Column]:
    """Return the columns whose lengths are in row texts."""
    return [column for column in columns if column.is_measured][:-1]


def row_text(columns: Sequence[ComparedColumn]) -> str:
    """Return the SQL expression of the row text."""
    parts = [column.expression for column in columns]
    parts += [f"LENGTH({column.expression})" for column in measured(columns)]
    nullable = [column.null_test for column in columns if column.nullable]
    if nullable:
        parts.append(nullable[0] if len(nullable) == 1 else f"CONCAT({', '.join(nullable)})")
    # A separator of this type makes MySQL join bytes, whatever the character sets of the texts. A literal would not.
    return f"CONCAT_WS(CAST('|' AS BINARY), {', '.join(parts)})"


def row_hash(columns: Sequence[ComparedColumn]) -> str:
    """Return the SQL expression of the hash of a row, as eight bytes, big-endian.

    A row text above `max_allowed_packet` is NULL in MySQL; such a row has no hash there, and differs.
    """
    return f"UNHEX({_digits_of_hash(columns)})"


def combined_hash(columns: Sequence[ComparedColumn], *, distinct: bool) -> str:
    """Return the SQL expression of the combined hashes of rows: eight bytes if they are `distinct`, else a number."""
    if distinct:
        return f"BIT_XOR({row_hash(columns)})"
    return f"SUM(IFNULL(CAST(CONV({_digits_of_hash(columns)}, 16, 10) AS UNSIGNED), 0))"


def _digits_of_hash(columns: Sequence[ComparedColumn]) -> str:
    return f"LEFT(SHA2({row_text(columns)}, 256), 16)"
