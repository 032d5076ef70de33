"""Conversions of MySQL values by a type change, as Spark SQL for existing rows of the lake.

No event contains the new values: ALTER TABLE rewrites the rows in the source, and the log has only the statement. If
the result can be computed exactly, the lake computes it too; otherwise the table pauses.

Rules: MySQL's reference manual, "ALTER TABLE Statement", "Fractional Seconds in Time Values", "Rounding Behavior",
"Conversion Between Date and Time Types", "The YEAR Type".
"""

from typing import Final

from replicator.model.types import LakeType, spark_sql_name
from replicator.schema.mysql_types import DECIMALS, TEXTS
from replicator.schema.native_types import BYTES, NativeType

_CLOCKS: Final = frozenset({"DATETIME", "TIMESTAMP", "TIME"})
_OF_ANY_LENGTH: Final = BYTES - {"BINARY"} | {"VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"}
"""Types whose values are neither padded nor stripped to a length."""
_BYTES_AND_TEXT: Final = (("bytes", "text"), ("text", "bytes"))
_LAST_YEAR: Final = 2155
_PLAIN_SCALE: Final = 6
"""Decimals with more fraction digits may be written with an exponent."""


def needs_rewrite(old: LakeType, new: LakeType, was: str | None, now: str | None) -> bool:
    """Return whether existing rows must be rewritten if a column's source type changes from `was` to `now`.

    `was` and `now` are None if the source's types are unknown.
    """
    if not (old.holds(new) or new.widens(old)) or (old.name, new.name) == ("double", "float"):
        return True
    if was is None or now is None:
        return False
    before, after = NativeType.parse(was), NativeType.parse(now)
    if after.base in ("BINARY", "CHAR") and before.base != after.base:
        # BINARY pads shorter values, and CHAR strips trailing spaces.
        return True
    if before.family != after.family:
        return not _is_same_value(before, after)
    padded = after.base in ("BINARY", "BIT") and after.digits != before.digits
    scale, former = after.scale or 0, before.scale or 0
    rounded = after.base in DECIMALS and scale < former
    # Decimals that are text in the lake have all fraction digits.
    rewritten = after.base in DECIMALS and new.name == "string" and scale != former
    return padded or rounded or rewritten or (after.base in _CLOCKS and after.digits < before.digits)


def _is_same_value(before: NativeType, after: NativeType) -> bool:
    """Return whether all values of a type are the same in another family's type with the same lake type."""
    families = before.family, after.family
    if before.range is not None and families == ("integer", "decimal"):
        return after.unfit(before) == []
    if families == ("YEAR", "integer"):
        return after.range is not None and after.range[1] >= _LAST_YEAR
    if families == ("decimal", "text"):
        longest = before.digits + len("-0.")
        most = after.most_characters or after.most_bytes
        return after.base in TEXTS and not before.zerofill and most is not None and longest <= most
    # The lake has the values of a text whose character set is "binary" as bytes.
    return families in _BYTES_AND_TEXT and "BINARY" in (before.charset, after.charset)


def changes_expressions(was: str | None, now: str | None) -> bool:
    """Return whether expressions may have other results if a column's source type changes from `was` to `now`.

    So it is even if the values stay the same: `MD5(c)` depends on the character set, `c + 0` on the order of labels.
    """
    if was is None or now is None or was == now:
        return False
    before, after = NativeType.parse(was), NativeType.parse(now)
    if before.zerofill or after.zerofill or before.unsigned != after.unsigned:
        return True
    families = before.family, after.family
    if families == ("decimal", "decimal"):
        return before.scale != after.scale
    if before.labels and before.base == after.base:
        return after.labels[: len(before.labels)] != before.labels
    if {before.base, after.base} <= _OF_ANY_LENGTH:
        return before.charset != after.charset or families[0] != families[1]
    return families != ("integer", "integer") and before != after


def unfit_values(was: str | None, now: str | None, *, nulls_end: bool = False) -> list[str]:
    """Return Spark SQL that is true for values ``{0}`` which a column cannot have any more; empty if all values fit.

    Only types of one family, which are known, are compared: other values are converted. `nulls_end` is whether the
    column could be NULL before, and cannot any more.
    """
    if was is None or now is None:
        return []
    before, after = NativeType.parse(was), NativeType.parse(now)
    unfit = after.unfit(before) if before.family == after.family else []
    return [*unfit, *(["{0} IS NULL"] if nulls_end else [])]


def rewriting(old: LakeType, new: LakeType, was: str | None, now: str | None) -> str | None:
    """Return Spark SQL that computes the new value from the old one, ``{0}``; None if the source's result is unknown.

    The SQL yields null for values that cannot be converted.
    """
    if was is None or now is None:
        return None
    before, after = NativeType.parse(was), NativeType.parse(now)
    using = _rewritten(before, after, old, new)
    unfit = [] if after.is_cast_exactly else after.unfit(before)
    if using is None or not unfit:
        return using
    conditions = " AND ".join(f"NOT {condition.format(f'({using})')}" for condition in unfit)
    return f"CASE WHEN {conditions} THEN {using} END"


def _rewritten(before: NativeType, after: NativeType, old: LakeType, new: LakeType) -> str | None:
    """Return what `rewriting` returns, without a check whether the type of the source holds the result."""
    if before.base in _CLOCKS and before.base == after.base:
        return _rounded(before.base, after.digits)
    if after.base in ("BINARY", "BIT"):
        return _padded(before, after)
    if after.base == "CHAR" and before.family == "text":
        return "RTRIM({0})"
    return _converted(before, after, old, new)


def _converted(before: NativeType, after: NativeType, old: LakeType, new: LakeType) -> str | None:
    """Return Spark SQL that converts values of one family to another; None if the result is not known exactly."""
    if before.zerofill and after.family == "text":
        return None
    if before.base == "YEAR" and after.base in TEXTS:
        return "LPAD(CAST({0} AS STRING), 4, '0')"
    number = before.family in ("integer", "decimal", "YEAR")
    if number and after.base in TEXTS:
        return "CAST({0} AS STRING)" if old.scale <= _PLAIN_SCALE else None
    if number:
        return _number(after.family, new)
    if before.base in TEXTS:
        return _parsed(after.family, new)
    if before.family == after.family == "float":
        return f"CAST({{0}} AS {spark_sql_name(new)})"
    return _of_day(before.base, after.base)


def _padded(before: NativeType, after: NativeType) -> str | None:
    """Pad values to a fixed length with zero bytes: BINARY at the end, BIT at the beginning."""
    if after.base == "BINARY" and before.base in BYTES:
        return f"CASE WHEN LENGTH({{0}}) <= {after.digits} THEN RPAD({{0}}, {after.digits}, X'00') END"
    size = (after.digits + 7) // 8
    if after.base == before.base == "BIT" and min(before.digits, after.digits) > 1:
        fits = f"LENGTH({{0}}) <= {size}"
        if after.digits < before.digits:
            # Without strict `sql_mode`, greater numbers become the greatest one.
            fits += f" AND CAST(CONV(HEX({{0}}), 16, 10) AS DECIMAL(20, 0)) < {2**after.digits}"
        return f"CASE WHEN {fits} THEN LPAD({{0}}, {size}, X'00') END"
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
            return f"CASE {short} WHEN {{0}} = 0 OR {{0}} BETWEEN 1901 AND {_LAST_YEAR} THEN {{0}} END"
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
    if was == "DATE" and now in TEXTS:
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
