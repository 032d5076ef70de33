"""Compare the definition of a table in the source with the newest one that the log has. Pure.

Only what decides which values the connector writes for a row is compared: names and order of the columns, their types
as far as the binlog has other bytes for them, character sets, labels, NULL, and the key. So a difference means that
events are, or soon may be, decoded wrongly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Final

from replicator.model.table import Column
from replicator.schema.history.versions import SchemaVersion
from replicator.schema.types.native import NativeType
from replicator.schema.types.table import GEOMETRIES, TEXTS

_LONGEST_SHOWN: Final = 200
_UTF8: Final = frozenset({"UTF8", "UTF8MB3", "UTF8MB4"})
"""Character sets in which the same bytes are the same text."""
_LAST_SHOWN: Final = "\uffff"
_MOST_MILLIS: Final = 3
"""Fraction digits of a DATETIME up to which the connector writes milliseconds."""


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column as the source shows it.

    Attributes:
        column: how the lake has it.
        default: the text of its default; None if it has none.
    """

    name: str
    native: NativeType
    column: Column
    default: str | None = None


@dataclass(frozen=True, slots=True)
class SourceDefinition:
    """The definition of a table in the source.

    Attributes:
        primary: the columns of its primary key, also of an invisible one; empty if it has none.
        unique: the columns of each key whose values identify a row: it is unique, and no column may be NULL.
    """

    columns: tuple[SourceColumn, ...]
    primary: tuple[str, ...] = ()
    unique: frozenset[frozenset[str]] = frozenset()


def differences(source: SourceDefinition, known: SchemaVersion) -> tuple[str, ...]:
    """Return how the source's definition of a table differs from the newest known version; empty if it does not."""
    names = [c.source_name.name for c in known.schema.columns]
    wanted = [c.name for c in source.columns]
    if names != wanted:
        return (f"its columns are {_listed(wanted)}, and not {_listed(names)}",)
    found = (
        _difference(theirs, NativeType.parse(known.source_types[ours.name]), ours)
        for theirs, ours in zip(source.columns, known.schema.columns, strict=True)
        if ours.name in known.source_types
    )
    return tuple(text for text in (*found, _key_difference(source, known)) if text is not None)


def _difference(source: SourceColumn, known: NativeType, column: Column) -> str | None:
    wanted, had = _form(source.native, source.column), _form(known, column)
    if wanted != had:
        return f"column {source.name} is {wanted}, and not {had}"
    if source.column.nullable and not column.nullable:
        # The connector would write 0 or '' for NULL. The reverse has no effect.
        return f"column {source.name} may be NULL"
    fill = column.fill
    if fill is not None and source.default is not None and _shown(fill) != _shown(source.default):
        # Existing rows got it. The connector reads statements as UTF-8, whatever the session's character set was.
        return f"the default of column {source.name} is {source.default!r}, and not {fill!r}"
    return None


def _shown(text: str) -> str:
    """Return a text as the source shows it: it has no characters beyond U+FFFF in definitions."""
    return "".join(c if c <= _LAST_SHOWN else "?" for c in text).rstrip(" ")


def _form(native: NativeType, column: Column) -> str:
    """Return what determines how the values of a column are read from the binlog."""
    match native.base:
        case base if base in TEXTS:
            # A connector that knows no character set reads UTF-8.
            is_utf8 = native.charset is None or native.charset in _UTF8
            return f"text in {'utf8mb4' if is_utf8 else str(native.charset).lower()}"
        case "ENUM" | "SET" as base:
            return f"{base} ({', '.join(repr(_shown(label)) for label in native.labels)})"
        case "DECIMAL":
            form = f"DECIMAL({native.digits}, {native.scale or 0})"
        case base if native.family == "integer":
            form = f"{base} UNSIGNED" if native.unsigned else base
        case _ if native.family == "float":
            # FLOAT(7, 4) is a FLOAT that arrives as a double.
            form = str(column.type).upper()
        case "BINARY" | "BIT" as base:
            form = f"{base}({native.digits})"
        case _ if native.family == "bytes":
            form = "VARBINARY"
        case "DATETIME" if native.digits > _MOST_MILLIS:
            form = "DATETIME with microseconds"
        case base:
            form = "GEOMETRY" if base in GEOMETRIES else base
    return form


def _key_difference(source: SourceDefinition, known: SchemaVersion) -> str | None:
    key = [c.source_name.name.casefold() for c in known.schema.columns if c.name in known.schema.key]
    primary = [name.casefold() for name in source.primary]
    if primary:
        if sorted(key) == sorted(primary):
            return None
        return f"its primary key is {_listed(source.primary)}, and not {_listed(known.schema.key)}"
    keys = ({name.casefold() for name in names} for names in source.unique)
    if not key or any(names <= set(key) for names in keys):
        return None
    return f"{_listed(known.schema.key)} is not a unique key"


def _listed(names: Sequence[str]) -> str:
    return shorten(f"({', '.join(names)})", _LONGEST_SHOWN, placeholder=" …)")
