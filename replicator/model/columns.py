"""What is done to columns before anything is written: they are left out, masked or hashed.

A rule goes by the column's name in the source, in any letter case, as MySQL compares them; `*` and `?` stand for any
letters. A masked or hashed column keeps its place and its name, and becomes text (one that is blanked keeps its type).
NULL stays NULL under every rule.
"""

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fnmatch import fnmatchcase
from typing import Final

from replicator.errors import UnfitColumns
from replicator.model.table import Column, TableSchema
from replicator.model.types import STRING, LakeType

RULES_KEY: Final = "replicator.column-rules"
"""Table property: column → what is done to it, as JSON; only columns that a rule is for."""

MASKED: Final = "*"
"""What stands for each letter that a mask hides."""

_BLOCK: Final = 64
"""Bytes that SHA-256 takes at a time."""


@dataclass(frozen=True, slots=True)
class KeyedHash:
    """HMAC-SHA256 of the value's canonical text in UTF-8 (of the bytes themselves where it is binary), as hexadecimal.

    Equal values have equal hashes in all columns and tables, so joins keep working. The key never shows in a repr.
    """

    key: bytes = field(repr=False)

    @property
    def pads(self) -> tuple[bytes, bytes]:
        """The inner and the outer key block of HMAC (RFC 2104)."""
        key = self.key if len(self.key) <= _BLOCK else hashlib.sha256(self.key).digest()
        block = key.ljust(_BLOCK, b"\0")
        return bytes(b ^ 0x36 for b in block), bytes(b ^ 0x5C for b in block)

    def of_text(self, text: str) -> str:
        """What is stored in place of a value whose canonical text is `text`."""
        return hmac.new(self.key, text.encode(), "sha256").hexdigest()

    def __str__(self) -> str:
        # Tells one key from another, and nothing of the key.
        return f"hash {self.of_text('replicator: which key is this?')[:8]}"


@dataclass(frozen=True, slots=True)
class FixedText:
    """The same text in place of every value."""

    text: str

    def of_text(self, text: str) -> str:  # noqa: ARG002 that is what it is for
        """What is stored in place of a value whose canonical text is `text`."""
        return self.text

    def __str__(self) -> str:
        return f"text {self.text}"


@dataclass(frozen=True, slots=True)
class KeepLast:
    """The canonical text with all but its last `count` letters hidden; all are where it has no more than that."""

    count: int

    def of_text(self, text: str) -> str:
        """What is stored in place of a value whose canonical text is `text`."""
        hidden = len(text) - self.count if len(text) > self.count else len(text)
        return MASKED * hidden + text[hidden:]

    def __str__(self) -> str:
        return f"keep_last {self.count}"


@dataclass(frozen=True, slots=True)
class Blank:
    """Null in place of every value; the values are not even read."""

    def __str__(self) -> str:
        return "null"


Mask = FixedText | KeepLast | Blank
Shield = KeyedHash | Mask

EXCLUDED: Final = "exclude"
"""What is done to a column that is left out, as `RULES_KEY` has it."""


@dataclass(frozen=True, slots=True)
class RuleSet:
    """Rules from one place of the configuration; patterns of column names. `key` is there where `hashes` are."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    hashes: tuple[str, ...] = ()
    masks: tuple[tuple[str, Mask], ...] = ()
    key: bytes | None = field(default=None, repr=False)

    def leaves_out(self, name: str) -> bool:
        """Whether a column is not to be mirrored."""
        return fits(name, self.exclude) or bool(self.include and not fits(name, self.include))

    def shield(self, name: str) -> Shield | None:
        """What is done to a column that stays: of a hash and a mask the hash."""
        if self.key is not None and fits(name, self.hashes):
            return KeyedHash(self.key)
        return next((mask for pattern, mask in self.masks if fits(name, (pattern,))), None)


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """The rules for one table: its own, then those of the mirror.

    A column stays where all of them let it; of masks and hashes the table's own count first.
    """

    sets: tuple[RuleSet, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.sets)

    def leaves_out(self, name: str) -> bool:
        """Whether the source's column `name` is not to be mirrored."""
        return any(rules.leaves_out(name) for rules in self.sets)

    def shield(self, name: str) -> Shield | None:
        """What is done to the values of the source's column `name`."""
        return next((found for rules in self.sets if (found := rules.shield(name)) is not None), None)

    def read(self, columns: Iterable[Column]) -> list[Column]:
        """The columns of an event that have to be read: neither those left out nor those blanked."""
        return [
            c
            for c in columns
            if not self.leaves_out(c.written) and not isinstance(self.shield(c.written), Blank)
        ]

    def shielded(self, schema: TableSchema, table: str) -> TableSchema:
        """What the lake has of a table whose schema is `schema`.

        Raises:
            UnfitColumns: a key column is left out or masked, so rows could not be told apart.
        """
        for column in schema.key_columns:
            shield = self.shield(column.written)
            if self.leaves_out(column.written) or not (shield is None or isinstance(shield, KeyedHash)):
                raise UnfitColumns(
                    f"column {column.written} of {table} is in its key, and is to be left out or masked",
                    "hash it instead: equal values stay equal; or take it out of the column rules",
                )
        kept = [c for c in schema.columns if not self.leaves_out(c.written)]
        columns = tuple(_shielded(c, self.shield(c.written)) for c in kept)
        left_out = tuple(c.written for c in schema.columns if self.leaves_out(c.written))
        return replace(schema, columns=columns, left_out=left_out)


def stored_type(column: Column) -> LakeType:
    """The type of the column's values after its `shield`, where `type` is the one before."""
    return column.type if column.shield is None or isinstance(column.shield, Blank) else STRING


def fits(name: str, patterns: Iterable[str]) -> bool:
    """Whether a column's name fits one of `patterns`."""
    return any(fnmatchcase(name.casefold(), pattern.casefold()) for pattern in patterns)


def _shielded(column: Column, shield: Shield | None) -> Column:
    if shield is None:
        return column
    if isinstance(shield, Blank):
        return replace(column, shield=shield, fill=None, fill_unknown=False)
    text = None if column.fill is None else canonical_text(column.fill, column.type)
    fill = None if text is None else shield.of_text(text)
    unknown = column.fill_unknown or (column.fill is not None and fill is None)
    return replace(column, type=STRING, shield=shield, fill=fill, fill_unknown=unknown)


def canonical_text(constant: str, lake_type: LakeType) -> str | None:
    """The text that a value of `lake_type` is hashed as, of a constant as a definition has it.

    None for floating point, which the engine writes as Java does.
    """
    match lake_type.name:
        case "int" | "long":
            return str(int(Decimal(constant)))
        case "decimal":
            return f"{Decimal(constant).quantize(Decimal(1).scaleb(-lake_type.scale)):f}"
        case "timestamp":
            whole, _, fraction = constant.partition(".")
            fraction = fraction.rstrip("0")
            return f"{whole}.{fraction}" if fraction else whole
        case "string" | "date":
            return constant
        case _:
            return None


def rules_in_force(schema: TableSchema) -> dict[str, str]:
    """Column → what is done to it, of a schema that `ColumnRules.shielded` made; without columns left as they are."""
    shields = {c.name: str(c.shield) for c in schema.columns if c.shield is not None}
    return shields | dict.fromkeys(schema.left_out, EXCLUDED)


def rules_to_json(rules: Mapping[str, str]) -> str:
    return json.dumps(dict(rules), sort_keys=True, ensure_ascii=False)


def rules_from_json(text: str | None) -> dict[str, str]:
    """Read what `rules_to_json` wrote; no text, no rules."""
    return {} if text is None else {str(k): str(v) for k, v in json.loads(text).items()}


def check_unchanged(
    recorded: Mapping[str, str], present: Iterable[str], schema: TableSchema, table: str
) -> dict[str, str]:
    """The rules to record for a lake table with columns `present` and rules `recorded` that takes rows of `schema`.

    Raises:
        UnfitColumns: the rules for a column that the table knows already were changed; old and new values would
            stand side by side.
    """
    wanted = rules_in_force(schema)
    known = {*recorded, *present}
    changed = sorted(
        name
        for name in {*schema.names, *schema.left_out}
        if name in known and recorded.get(name) != wanted.get(name)
    )
    if changed:
        was = ", ".join(f"{name} ({recorded.get(name, 'as it is')})" for name in changed)
        raise UnfitColumns(
            f"the column rules of {table} were changed, and the lake has rows that were written by other ones: {was}",
            "put the rules back as they were; or drop the table and its changelog in the lake and start again, "
            "with a log or a new snapshot that has all rows",
        )
    return dict(recorded) | wanted
