"""MySQL types as text, such as ``DECIMAL(12, 2)``, and which values they can hold.

Without strict `sql_mode`, `ALTER TABLE` changes values that the new type cannot hold. In strict mode, MySQL refuses the
statement, but it cuts off trailing spaces, and writes labels of ENUM and SET as the new type spells them. So a value
that does not fit shows that the source has another one.

Rules: MySQL's reference manual, "Out-of-Range and Overflow Handling", "The CHAR and VARCHAR Types", "The ENUM Type",
"The SET Type", "Data Type Storage Requirements", "Supported Character Sets and Collations".
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from replicator.model.types import MAX_DECIMAL_PRECISION
from replicator.schema.mysql_types import CHARS, DECIMALS, GEOMETRIES, TEXTS, VARCHARS

BYTES: Final = frozenset({"BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"})
_NATIVE: Final = re.compile(
    r"([A-Z][A-Z0-9 ]*?)(?:\((\d+)(?:,\s*(\d+))?\))?((?: UNSIGNED| ZEROFILL| SIGNED)*)(?: CHARACTER SET (\w+))?"
)
_ATTRIBUTES: Final = re.compile(r" (?:SIGNED|ZEROFILL|BINARY)\b")
_WITH_LABELS: Final = re.compile(r"(ENUM|SET)\(('.*')\)", re.DOTALL | re.IGNORECASE)
_LABEL: Final = re.compile(r"'((?:[^']|'')*)'")
_SYNONYMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("INTEGER", "INT4"), "INT"),
    **dict.fromkeys(("BOOL", "BOOLEAN", "INT1"), "TINYINT"),
    "INT2": "SMALLINT",
    **dict.fromkeys(("INT3", "MIDDLEINT"), "MEDIUMINT"),
    "INT8": "BIGINT",
    "FLOAT4": "FLOAT",
    **dict.fromkeys(("FLOAT8", "DOUBLE PRECISION"), "DOUBLE"),
    **dict.fromkeys(CHARS, "CHAR"),
    **dict.fromkeys(VARCHARS, "VARCHAR"),
    **dict.fromkeys(("LONG", "LONG VARCHAR"), "MEDIUMTEXT"),
    "CHAR BYTE": "BINARY",
    "LONG VARBINARY": "MEDIUMBLOB",
}
"""MySQL's other name of a type → its name; definitions have the name that the statement has."""
_INTEGERS: Final = frozenset({"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT"})
_FLOATS: Final = frozenset({"FLOAT", "DOUBLE", "REAL"})
_INTEGER_BITS: Final = {"TINYINT": 8, "SMALLINT": 16, "MEDIUMINT": 24, "INT": 32, "BIGINT": 64}
_MOST_BYTES: Final = {"TINY": 2**8 - 1, "MEDIUM": 2**24 - 1, "LONG": 2**32 - 1, "": 2**16 - 1}
_MOST_CHARACTER_BYTES: Final = 4
_FOUR_BYTES: Final = frozenset({"UTF8MB4", "UTF16", "UTF16LE", "UTF32", "GB18030"})
"""Character sets with all characters of Unicode."""
_THREE_BYTES: Final = frozenset({"UTF8", "UTF8MB3", "UCS2"})
"""Those with all characters that UTF-8 writes with up to three bytes."""
_FOUR_BYTE_CHARACTER: Final = r"[\x{10000}-\x{10ffff}]"
_MEMBER: Final = "`_replicator_member`"
"""A variable in SQL; a column of the same name would be hidden by it."""
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
        return cls(_SYNONYMS.get(base, base), int(match[2] or 0), scale, zerofill, unsigned, charset=match[5])

    @property
    def family(self) -> str:
        """The family of the type: types of one family with the same lake type have the same values in the lake."""
        families = (
            *(("integer", _INTEGERS), ("decimal", DECIMALS), ("float", _FLOATS)),
            *(("bytes", BYTES), ("geometry", GEOMETRIES)),
        )
        for name, bases in families:
            if self.base in bases:
                return name
        # In the lake, labels and JSON documents are text.
        return "text" if self.base in TEXTS or self.base in ("ENUM", "SET", "JSON") else self.base

    @property
    def range(self) -> tuple[Decimal, Decimal] | None:
        """The least and the greatest number; None for other types, and for decimals that are text in the lake."""
        if self.base in _INTEGERS:
            bits = _INTEGER_BITS[self.base]
            least, most = (0, 2**bits - 1) if self.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
            return Decimal(least), Decimal(most)
        if self.base in DECIMALS and 0 < self.digits <= MAX_DECIMAL_PRECISION:
            # Arithmetic would round to the digits of the context.
            number = Decimal((0, (9,) * self.digits, -(self.scale or 0)))
            return Decimal(0) if self.unsigned else number.copy_negate(), number
        return None

    @property
    def is_cast_exactly(self) -> bool:
        """Whether the lake's type has the same range, so that a cast fails if a value does not fit."""
        return not self.unsigned and (self.base in ("INT", "BIGINT") or self.family == "decimal")

    def unfit(self, before: "NativeType") -> list[str]:
        """Return Spark SQL that is true for values ``{0}`` of the type `before` that do not fit; empty if all do."""
        found = [
            self._unfit_range(before),
            self._unfit_length(before),
            self._unfit_labels(before),
            self._unfit_characters(before),
            self._unfit_format(before),
        ]
        return [condition for condition in found if condition is not None]

    def _unfit_range(self, before: "NativeType") -> str | None:
        if self.range is None:
            return None
        least, most = self.range
        if before.range is not None and least <= before.range[0] and before.range[1] <= most:
            return None
        return f"{{0}} NOT BETWEEN {least:f} AND {most:f}"

    def _unfit_length(self, before: "NativeType") -> str | None:
        most = self.most_characters
        if most is not None:
            longest = before.longest_text
            return None if longest is not None and longest <= most else f"CHAR_LENGTH({{0}}) > {most}"
        most = self.most_bytes
        if most is None:
            return None
        size = before.most_bytes
        if size is None and before.longest_text is not None:
            size = _MOST_CHARACTER_BYTES * before.longest_text
        return None if size is not None and size <= most else f"OCTET_LENGTH({{0}}) > {most}"

    def _unfit_labels(self, before: "NativeType") -> str | None:
        """Compare exactly: MySQL ignores letter case, and then writes the new label."""
        if not self.labels:
            return None
        kept = set(before.labels)
        if self.base == "ENUM":
            if kept and before.base == "ENUM" and kept <= set(self.labels):
                return None
            # An empty text is MySQL's value for an unknown label.
            return f"{{0}} NOT IN ({', '.join(map(_literal, ('', *self.labels)))})"
        if kept and before.base in ("ENUM", "SET"):
            common = tuple(label for label in self.labels if label in kept)
            if common == before.labels or (before.base == "ENUM" and len(common) == len(kept)):
                return None
        # The members in the order of the definition, each once.
        labels = f"ARRAY({', '.join(map(_literal, self.labels))})"
        is_member = f"{_MEMBER} -> ARRAY_CONTAINS(SPLIT({{0}}, ','), {_MEMBER})"
        return f"{{0}} <> ARRAY_JOIN(FILTER({labels}, {is_member}), ',')"

    def _unfit_characters(self, before: "NativeType") -> str | None:
        now, was = self.charset, before.charset
        if now is None or was is None or now in (was, *_FOUR_BYTES) or was == "ASCII":
            return None
        if now not in _THREE_BYTES:
            # Which characters it has depends on the character set; all have those of ASCII.
            return "OCTET_LENGTH({0}) > CHAR_LENGTH({0})"
        return f"{{0}} RLIKE {_literal(_FOUR_BYTE_CHARACTER)}" if was in _FOUR_BYTES else None

    def _unfit_format(self, before: "NativeType") -> str | None:
        """Return a condition for all values if the source writes them in another form, which the lake does not know."""
        if before.base == "JSON" and self.base in TEXTS:
            return "{0} IS NOT NULL"
        if self.family != "float" or self.scale is None:
            return None
        whole, had = self.digits - self.scale, before.digits - (before.scale or 0)
        fits = before.scale is not None and before.scale <= self.scale and had <= whole
        return None if fits else "{0} IS NOT NULL"

    @property
    def most_characters(self) -> int | None:
        """The maximum length of a text whose type limits its characters; else None."""
        return self.digits if self.base in TEXTS and self.digits else None

    @property
    def most_bytes(self) -> int | None:
        """The maximum length of other texts, and of bytes; None if it is not known."""
        if self.base in ("BINARY", "VARBINARY"):
            return self.digits or None
        if self.base.endswith(("TEXT", "BLOB")) and not self.digits:
            return _MOST_BYTES[self.base[:-4]]
        return None

    @property
    def longest_text(self) -> int | None:
        """The maximum length of a value as text, in characters; None if it is not known."""
        if self.range is not None:
            return max(len(f"{number:f}") for number in self.range)
        if self.base == "ENUM" and self.labels:
            return max(map(len, self.labels))
        if self.base == "SET" and self.labels:
            return len(",".join(self.labels))
        return 10 if self.base == "DATE" else self.most_characters or self.most_bytes


def with_labels(base: str, labels: Iterable[str]) -> str:
    """Return an ENUM or SET as text."""
    return f"{base}({', '.join(_quoted(label) for label in labels)})"


def shown(native: str | None, other: str | None) -> str | None:
    """Return a type for a message that also shows `other`: without the character set if that is the same.

    A type that is unknown is None.
    """
    if native is None:
        return None
    charset = NativeType.parse(native).charset
    if charset is not None and other is not None and NativeType.parse(other).charset == charset:
        native = re.sub(r" CHARACTER SET \w+$", "", native)
    return native if len(native) <= _LONGEST_SHOWN else f"{native[:_LONGEST_SHOWN]}…"


def _quoted(label: str) -> str:
    return "'" + label.replace("'", "''") + "'"


def _literal(text: str) -> str:
    """Return Spark SQL for a text; as bytes, because it may have any characters, also braces."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"
