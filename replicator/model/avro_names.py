"""Column names as Debezium adjusts them for Avro, which allows only ASCII letters, digits and underscores."""

import re
from typing import Final

_ESCAPE: Final = re.compile(r"_u([0-9a-fA-F]{4})")


def adjusted(name: str) -> str:
    """Return the Avro name of the source column `name` (field.name.adjustment.mode=avro)."""
    letters = [c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in name]
    if letters and letters[0].isdigit():
        letters[0] = "_"
    return "".join(letters)


def may_be_adjusted(name: str) -> bool:
    """Return whether the Avro name `name` may differ from the source's name."""
    return "_" in name


def unescaped(name: str) -> str:
    """Undo the escaping of `name` for Avro (field.name.adjustment.mode=avro_unicode)."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), name)


def adjusted_patterns(pattern: str) -> tuple[str, ...]:
    """Return patterns that match the Avro names of all columns whose source names match `pattern`."""
    letters = [c if c in "*?" else adjusted(f"_{c}")[1:] for c in pattern]
    found = "".join(letters)
    if not found[:1].isdigit():
        return (found,)
    # Connectors either replace a leading digit by an underscore or insert one before it.
    return f"_{found[1:]}", f"_{found}"
