"""MySQL types as text, such as ``DECIMAL(12, 2)``, and which changes of a type keep the values of existing rows.

ALTER TABLE may convert, round, pad, strip or clip values, and without strict `sql_mode` also values that the new type
cannot hold. No event has the results. So a type keeps values only if it holds all values of the other one, unchanged.

Rules: MySQL's reference manual, "Out-of-Range and Overflow Handling", "The CHAR and VARCHAR Types", "The ENUM Type",
"The SET Type", "Data Type Storage Requirements", "Supported Character Sets and Collations".

ALTER TABLE rewrites the rows in the source, and the log has only the statement. If a new type keeps all values, the
lake follows in place. Otherwise the table is read again.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from replicator.model.types import LakeType, spark_sql_name
from replicator.schema.types.table import NAMES, TYPES, MySqlType

_NATIVE: Final = re.compile(
    r"([A-Z][A-Z0-9 ]*?)(?:\((\d+)(?:,\s*(\d+))?\))?((?: UNSIGNED| ZEROFILL| SIGNED)*)(?: CHARACTER SET (\w+))?"
)
_ATTRIBUTES: Final = re.compile(r" (?:SIGNED|ZEROFILL|BINARY)\b")
_WITH_LABELS: Final = re.compile(r"(ENUM|SET)\(('.*')\)", re.DOTALL | re.IGNORECASE)
_LABEL: Final = re.compile(r"'((?:[^']|'')*)'")
_MOST_CHARACTER_BYTES: Final = 4
_FOUR_BYTES: Final = frozenset({"UTF8MB4", "UTF16", "UTF16LE", "UTF32", "GB18030"})
"""Character sets with all characters of Unicode."""
_THREE_BYTES: Final = frozenset({"UTF8", "UTF8MB3", "UCS2"})
"""Those with all characters that UTF-8 writes with up to three bytes."""
_LONGEST_SHOWN: Final = 100


@dataclass(frozen=True, slots=True)
class NativeType:
    """A type of the source.

    Attributes:
        digits: the first number in parentheses; 0 without one.
        scale: the second one; None without one.
        labels: of an ENUM or SET, in order; empty if they are unknown.
        charset: the character set of a text, in upper case; None if it is unknown.
    """

    base: str
    digits: int = 0
    scale: int | None = None
    zerofill: bool = False
    unsigned: bool = False
    labels: tuple[str, ...] = ()
    charset: str | None = None

    @classmethod
    def parse(cls, text: str) -> "NativeType":
        """Parse a type as `table_definitions` writes it."""
        if found := _WITH_LABELS.fullmatch(text.strip()):
            labels = tuple(label.replace("''", "'") for label in _LABEL.findall(found[2]))
            return cls(found[1].upper(), labels=labels)
        match = _NATIVE.fullmatch(text.upper().strip())
        if match is None:
            return cls(text.upper())
        zerofill = "ZEROFILL" in match[1] + match[4]
        scale = None if match[3] is None else int(match[3])
        unsigned = zerofill or "UNSIGNED" in match[4]
        base = _ATTRIBUTES.sub("", match[1].strip())
        base, charset = NAMES.get(base, base), match[5]
        if base == "SERIAL":
            return cls("BIGINT", unsigned=True)
        if charset == "BINARY":
            base, charset = base.replace("CHAR", "BINARY").replace("TEXT", "BLOB"), None
        size = TYPES[base].size if base in TYPES else 0
        digits = 0 if base == "YEAR" else int(match[2] or size)
        return cls(base, digits, scale, zerofill, unsigned, charset=charset)

    @property
    def family(self) -> str:
        """The family of the type: types of one family have the same kind of values."""
        return (self._type.family if self._type else "") or self.base

    @property
    def _type(self) -> MySqlType | None:
        return TYPES.get(self.base)

    @property
    def range(self) -> tuple[Decimal, Decimal]:
        """The least and the greatest number of an integer or decimal."""
        bits = self._type.bits if self._type else 0
        if bits:
            least, most = (0, 2**bits - 1) if self.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            return Decimal(least), Decimal(most)
        # Arithmetic would round to the digits of the context.
        number = Decimal((0, (9,) * self.digits, -(self.scale or 0)))
        return Decimal(0) if self.unsigned else number.copy_negate(), number

    def keeps(self, before: "NativeType") -> bool:
        """Return whether all values of a column of the type `before` stay as they are if it gets this type."""
        if self == before:
            return True
        if self.family != before.family and not (before.labels and self.family == "text"):
            return False
        match self.family:
            case "integer":
                kept = self._has_range_of(before)
            case "DECIMAL":
                kept = (self.scale or 0) == (before.scale or 0) and self._has_range_of(before)
            case "float":
                kept = self.scale is before.scale is None and (before.unsigned or not self.unsigned)
            case "text":
                # CHAR strips trailing spaces.
                is_stripped = self.base == "CHAR" != before.base
                kept = not is_stripped and self._is_as_long_as(before) and self._has_characters_of(before)
            case "bytes":
                kept = self.base != "BINARY" and self._is_as_long_as(before)
            case "ENUM" | "SET":
                # A value of a SET has its labels in the order of the definition.
                common = tuple(label for label in self.labels if label in before.labels)
                order = tuple if self.base == "SET" else frozenset
                kept = bool(common) and order(common) == order(before.labels)
            case _:
                kept = self.base == before.base != "BIT" and self.digits >= before.digits
        return kept

    def _has_range_of(self, before: "NativeType") -> bool:
        return self.range[0] <= before.range[0] and before.range[1] <= self.range[1]

    def _is_as_long_as(self, before: "NativeType") -> bool:
        longest, most = before.longest, self.most_characters
        if most is None:
            most = self.most_bytes
            if longest is not None and (before.labels or before.most_characters):
                longest *= _MOST_CHARACTER_BYTES
        return longest is not None and most is not None and longest <= most

    def _has_characters_of(self, before: "NativeType") -> bool:
        now, was = self.charset, before.charset
        if before.labels:
            was = "ASCII" if "".join(before.labels).isascii() else "UTF8MB4"
        if now is None or was is None or now in (was, *_FOUR_BYTES) or was == "ASCII":
            return True
        return now in _THREE_BYTES and was not in _FOUR_BYTES

    @property
    def most_characters(self) -> int | None:
        """The maximum length of a text whose type limits its characters; else None."""
        return self.digits if self.family == "text" and self.digits else None

    @property
    def most_bytes(self) -> int | None:
        """The maximum length of other texts, and of bytes; None if it is not known."""
        return self.digits or (self._type.most_bytes if self._type else None)

    @property
    def longest(self) -> int | None:
        """The maximum length of a text, in characters, or of bytes; None if it is not known."""
        if self.labels:
            return max(map(len, self.labels)) if self.base == "ENUM" else len(",".join(self.labels))
        return self.most_characters or self.most_bytes


def with_labels(base: str, labels: Iterable[str]) -> str:
    """Return an ENUM or SET as text."""
    return f"{base}({', '.join(_quoted(label) for label in labels)})"


def shown(native: str, other: str) -> str:
    """Return a type for a message that also shows `other`: without the character set if that is the same."""
    charset = NativeType.parse(native).charset
    if charset is not None and NativeType.parse(other).charset == charset:
        native = re.sub(r" CHARACTER SET \w+$", "", native)
    return native if len(native) <= _LONGEST_SHOWN else f"{native[:_LONGEST_SHOWN]}…"


def _quoted(label: str) -> str:
    return "'" + label.replace("'", "''") + "'"


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
