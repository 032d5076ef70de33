"""Which changes of a column's type leave the values of existing rows as they are.

ALTER TABLE rewrites the rows in the source, and the log has only the statement. If a new type keeps all values, the
lake follows in place. Otherwise the table is read again.
"""

from typing import Final

from replicator.model.types import LakeType, spark_sql_name
from replicator.schema.native_types import BYTES, NativeType

_OF_ANY_LENGTH: Final = BYTES - {"BINARY"} | {"VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"}
"""Types whose values are neither padded nor stripped to a length."""
_CAST: Final = frozenset({"int", "long", "float", "double", "decimal", "string"})
"""Lake types that Spark casts to each other."""


def fits_in_place(old: LakeType, new: LakeType) -> bool:
    """Return whether a column of the lake can stay if its type changes: it has, or can get, all values of `new`."""
    return (old.holds(new) or new.widens(old)) and (old.name, new.name) != ("double", "float")


def keeps_values(was: str | None, now: str | None) -> bool:
    """Return whether all values stay as they are if a column's source type changes from `was` to `now`, if known."""
    if was is None or now is None or was == now:
        return True
    return NativeType.parse(now).keeps(NativeType.parse(was))


def cast(old: LakeType, new: LakeType) -> str | None:
    """Return Spark SQL that casts a value ``{0}``, a guess that a re-read corrects; None for NULL."""
    return f"TRY_CAST({{0}} AS {spark_sql_name(new)})" if {old.name, new.name} <= _CAST else None


def changes_expressions(was: str | None, now: str | None) -> bool:
    """Return whether expressions may have other results if a column's source type changes from `was` to `now`.

    So it is even if the values stay the same: `MD5(c)` depends on the character set, `c + 0` on the order of labels.
    """
    if was is None or now is None or was == now:
        return False
    before, after = NativeType.parse(was), NativeType.parse(now)
    if before.zerofill or after.zerofill or before.unsigned != after.unsigned:
        return True
    if before.labels and before.base == after.base:
        return after.labels[: len(before.labels)] != before.labels
    if {before.base, after.base} <= _OF_ANY_LENGTH:
        return before.charset != after.charset
    return not {before.family, after.family} <= {"integer", "DECIMAL"} and before != after
