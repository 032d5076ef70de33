"""Conversions of MySQL values by a type change, as Spark SQL for existing rows of the lake.

No event contains the new values: ALTER TABLE rewrites the rows in the source, and the log has only the statement. If
the result can be computed exactly, the lake computes it too; otherwise the table pauses.

Without strict `sql_mode`, MySQL changes values that the new type cannot hold. In strict mode, it refuses the statement,
but cuts off trailing spaces. So a value that does not fit shows that the source has another one.

Rules: MySQL's reference manual, "ALTER TABLE Statement", "Fractional Seconds in Time Values", "Rounding Behavior",
"Conversion Between Date and Time Types", "The YEAR Type", "Out-of-Range and Overflow Handling", "The CHAR and VARCHAR
Types", "Data Type Storage Requirements".
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from replicator.model.types import MAX_DECIMAL_PRECISION, LakeType, spark_sql_name
from replicator.schema.mysql_types import DECIMALS

_NATIVE: Final = re.compile(r"([A-Z ]+?)(?:\((\d+)(?:,\s*(\d+))?\))?((?: UNSIGNED| ZEROFILL| SIGNED)*)")
_INTEGERS: Final = frozenset(
    {"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER", "BIGINT", "BOOL", "BOOLEAN"}
)
_FLOATS: Final = frozenset({"FLOAT", "DOUBLE", "REAL", "DOUBLE PRECISION"})
_TEXTS: Final = frozenset(
    {
        *("CHAR", "VARCHAR", "NCHAR", "NVARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"),
        *("CHARACTER", "CHARACTER VARYING", "NATIONAL VARCHAR", "NATIONAL CHARACTER"),
    }
)
_BYTES: Final = frozenset({"BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"})
_CLOCKS: Final = frozenset({"DATETIME", "TIMESTAMP", "TIME"})
_INTEGER_BITS: Final = {"TINYINT": 8, "BOOL": 8, "BOOLEAN": 8, "SMALLINT": 16, "MEDIUMINT": 24, "BIGINT": 64}
_MOST_BYTES: Final = {"TINY": 2**8 - 1, "MEDIUM": 2**24 - 1, "LONG": 2**32 - 1, "": 2**16 - 1}
_MOST_CHARACTER_BYTES: Final = 4
_PLAIN_SCALE: Final = 6
"""Decimals with more fraction digits may be written with an exponent."""


@dataclass(frozen=True, slots=True)
class _Native:
    """A type of the source; `digits` is the first number in parentheses, and `scale` the second one."""

    base: str
    digits: int
    zerofill: bool
    scale: int = 0
    unsigned: bool = False

    @classmethod
    def parse(cls, text: str) -> "_Native":
        match = _NATIVE.fullmatch(text.upper().strip())
        if match is None:
            return cls(text.upper(), 0, zerofill=False)
        zerofill = "ZEROFILL" in match[4]
        unsigned = zerofill or "UNSIGNED" in match[4]
        return cls(match[1].strip(), int(match[2] or 0), zerofill, int(match[3] or 0), unsigned)

    @property
    def family(self) -> str:
        """The family of the type: types of one family with the same lake type have the same values in the lake."""
        families = (("integer", _INTEGERS), ("decimal", DECIMALS), ("float", _FLOATS), ("bytes", _BYTES))
        for name, bases in families:
            if self.base in bases:
                return name
        # In the lake, labels and JSON documents are text.
        return "text" if self.base in _TEXTS | {"ENUM", "SET", "JSON"} else self.base

    @property
    def range(self) -> tuple[Decimal, Decimal] | None:
        """The least and the greatest number; None for other types, and for decimals that are text in the lake."""
        if self.base in _INTEGERS:
            bits = _INTEGER_BITS.get(self.base, 32)
            least, most = (0, 2**bits - 1) if self.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            return Decimal(least), Decimal(most)
        if self.base in DECIMALS and 0 < self.digits <= MAX_DECIMAL_PRECISION:
            # Arithmetic would round to the digits of the context.
            number = Decimal((0, (9,) * self.digits, -self.scale))
            return Decimal(0) if self.unsigned else number.copy_negate(), number
        return None

    @property
    def most_characters(self) -> int | None:
        """The maximum length of a text whose type limits its characters; else None."""
        return self.digits if self.base in _TEXTS and self.digits else None

    @property
    def most_bytes(self) -> int | None:
        """The maximum length of other texts, and of bytes; None if it is not known."""
        if self.base in ("BINARY", "VARBINARY"):
            return self.digits or None
        if self.base.endswith(("TEXT", "BLOB")) and not self.digits:
            return _MOST_BYTES[self.base[:-4]]
        return None

    @property
    def is_cast_exactly(self) -> bool:
        """Whether the lake's type has the same range, so that a cast fails if a value does not fit."""
        return not self.unsigned and (self.base in ("INT", "INTEGER", "BIGINT") or self.family == "decimal")

    @property
    def longest_text(self) -> int | None:
        """The maximum length of a value as text, in characters; None if it is not known."""
        if self.range is not None:
            return max(len(f"{number:f}") for number in self.range)
        return 10 if self.base == "DATE" else self.most_characters or self.most_bytes

    def holds(self, other: "_Native") -> bool:
        """Return whether all values of `other` certainly fit."""
        if self.range is not None:
            if other.range is None:
                return False
            (least, most), (other_least, other_most) = self.range, other.range
            return least <= other_least and other_most <= most
        if self.most_characters is not None:
            length = other.longest_text
            return length is not None and length <= self.most_characters
        if self.most_bytes is not None:
            size = other.most_bytes
            if size is None and other.longest_text is not None:
                size = _MOST_CHARACTER_BYTES * other.longest_text
            return size is not None and size <= self.most_bytes
        return True

    def unfit(self) -> str | None:
        """Return Spark SQL that is true for values ``{0}`` which do not fit; None if nothing is known of that."""
        if self.range is not None:
            return "{{0}} NOT BETWEEN {:f} AND {:f}".format(*self.range)
        if self.most_characters is not None:
            return f"CHAR_LENGTH({{0}}) > {self.most_characters}"
        return None if self.most_bytes is None else f"OCTET_LENGTH({{0}}) > {self.most_bytes}"


def needs_rewrite(old: LakeType, new: LakeType, was: str | None, now: str | None) -> bool:
    """Return whether existing rows must be rewritten if a column's source type changes from `was` to `now`.

    `was` and `now` are None if the source's types are unknown.
    """
    if not (old.holds(new) or new.widens(old)) or (old.name, new.name) == ("double", "float"):
        return True
    if was is None or now is None:
        return False
    before, after = _Native.parse(was), _Native.parse(now)
    if after.base in ("BINARY", "CHAR") and before.base != after.base:
        # BINARY pads shorter values, and CHAR strips trailing spaces.
        return True
    if before.family == after.family:
        padded = after.base in ("BINARY", "BIT") and after.digits != before.digits
        rounded = after.base in DECIMALS and after.scale < before.scale
        return padded or rounded or (after.base in _CLOCKS and after.digits < before.digits)
    return "TIME" in (before.base, after.base) or after.base in ("YEAR", "BIT") or before.base == "BIT"


def unfit_values(was: str | None, now: str | None, *, nulls_end: bool = False) -> list[str]:
    """Return Spark SQL that is true for values ``{0}`` which a column cannot have any more; empty if all values fit.

    Only types of one family, which are known, are compared: other values are converted. `nulls_end` is whether the
    column could be NULL before, and cannot any more.
    """
    if was is None or now is None:
        return []
    before, after = _Native.parse(was), _Native.parse(now)
    unfit = None if before.family != after.family or after.holds(before) else after.unfit()
    return [*([] if unfit is None else [unfit]), *(["{0} IS NULL"] if nulls_end else [])]


def rewriting(old: LakeType, new: LakeType, was: str | None, now: str | None) -> str | None:
    """Return Spark SQL that computes the new value from the old one, ``{0}``; None if the source's result is unknown.

    The SQL yields null for values that cannot be converted.
    """
    if was is None or now is None:
        return None
    before, after = _Native.parse(was), _Native.parse(now)
    using = _rewritten(before, after, old, new)
    unfit = None if after.is_cast_exactly or after.holds(before) else after.unfit()
    if using is None or unfit is None:
        return using
    return f"CASE WHEN NOT {unfit.format(f'({using})')} THEN {using} END"


def _rewritten(before: _Native, after: _Native, old: LakeType, new: LakeType) -> str | None:
    """Return what `rewriting` returns, without a check whether the type of the source holds the result."""
    if before.base in _CLOCKS and before.base == after.base:
        return _rounded(before.base, after.digits)
    if after.base in ("BINARY", "BIT"):
        return _padded(before, after)
    if after.base == "CHAR" and before.family == "text":
        return "RTRIM({0})"
    return _converted(before, after, old, new)


def _converted(before: _Native, after: _Native, old: LakeType, new: LakeType) -> str | None:
    """Return Spark SQL that converts values of one family to another; None if the result is not known exactly."""
    if before.zerofill and after.family == "text":
        return None
    number = before.family in ("integer", "decimal", "YEAR")
    if number and after.base in _TEXTS:
        return "CAST({0} AS STRING)" if old.scale <= _PLAIN_SCALE else None
    if number:
        return _number(after.family, new)
    if before.base in _TEXTS:
        return _parsed(after.family, new)
    if before.family == after.family == "float":
        return f"CAST({{0}} AS {spark_sql_name(new)})"
    return _of_day(before.base, after.base)


def _padded(before: _Native, after: _Native) -> str | None:
    """Pad values to a fixed length with zero bytes: BINARY at the end, BIT at the beginning."""
    if after.base == "BINARY" and before.base in _BYTES:
        return f"CASE WHEN LENGTH({{0}}) <= {after.digits} THEN RPAD({{0}}, {after.digits}, X'00') END"
    size = (after.digits + 7) // 8
    if after.base == before.base == "BIT" and before.digits > 1:
        return f"CASE WHEN LENGTH({{0}}) <= {size} THEN LPAD({{0}}, {size}, X'00') END"
    return None


def _number(family: str, new: LakeType) -> str | None:
    """Convert an integer or decimal to another numeric type; a DECIMAL of more than 38 digits is text in the lake."""
    match family:
        case "integer":
            return f"TRY_CAST(ROUND({{0}}) AS {spark_sql_name(new)})"
        case "decimal" | "float" if new.name != "string":
            return f"TRY_CAST({{0}} AS {spark_sql_name(new)})"
        case "YEAR":
            short = "WHEN {0} BETWEEN 1 AND 69 THEN {0} + 2000 WHEN {0} BETWEEN 70 AND 99 THEN {0} + 1900"
            return f"CASE {short} ELSE {{0}} END"
        case _:
            return None


def _parsed(family: str, new: LakeType) -> str | None:
    """Parse text as a value of another type."""
    match family:
        case "integer" | "decimal" if new.name != "string":
            return f"TRY_CAST({{0}} AS {spark_sql_name(new)})"
        case "DATE":
            return "CASE WHEN {0} RLIKE '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}$' THEN TRY_CAST({0} AS DATE) END"
        case _:
            return None


def _of_day(was: str, now: str) -> str | None:
    """Convert DATE and DATETIME; the time of day is rounded to whole seconds before it is cut off."""
    if was == "DATE" and now in _TEXTS:
        return "CAST({0} AS STRING)"
    return {
        ("DATE", "DATETIME"): "CAST({0} AS TIMESTAMP_NTZ)",
        ("DATETIME", "DATE"): "CAST({0} + INTERVAL '0.5' SECOND AS DATE)",
    }.get((was, now))


def _rounded(base: str, digits: int) -> str:
    """Round to `digits` fraction digits, half up; a TIME is rounded away from zero."""
    unit = 10 ** (6 - digits)
    if base == "TIME":
        return f"CAST(SIGNUM({{0}}) * FLOOR((ABS({{0}}) + {unit // 2}) / {unit}) * {unit} AS BIGINT)"
    micros = "UNIX_MICROS(CAST({0} AS TIMESTAMP))"
    rounded = f"TIMESTAMP_MICROS(CAST(FLOOR(({micros} + {unit // 2}) / {unit}) * {unit} AS BIGINT))"
    return f"CAST({rounded} AS TIMESTAMP_NTZ)" if base == "DATETIME" else rounded
