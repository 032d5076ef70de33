"""Raw records of the log, and how Debezium names what is in them.

Flattened events have only the row, with the metadata of the change in fields whose names begin with ``__``. Debezium's
transformation ExtractNewRecordState makes them. It keeps the metadata that the engine needs only with these options:

    add.fields=op,source.file,source.pos,source.row,source.ts_ms,source.server_id,source.gtid,source.snapshot
    delete.tombstone.handling.mode=rewrite

A delete then arrives as the deleted row with ``__deleted`` set. An update has no before-image, so the changelog gets
only the row after it. A TRUNCATE never arrives.
"""

import re
from dataclasses import dataclass
from typing import Final

SOURCE_FIELDS: Final = (
    ("file", "string"),
    ("pos", "long"),
    ("row", "int"),
    ("server_id", "long"),
    ("gtid", "string"),
    ("ts_ms", "long"),
    ("snapshot", "string"),
)
"""Names and types; the type names are the same in Avro and in Spark SQL."""


SOURCE: Final = tuple(name for name, _ in SOURCE_FIELDS)
"""Fields that are read from the source block; each is named ``__source_`` plus its name."""

METADATA_FIELDS: Final = frozenset({"__op", "__deleted", *(f"__source_{name}" for name in SOURCE)})
"""Fields of a flattened event that are not columns."""

ADD_FIELDS: Final = ("op", *(f"source.{name}" for name in SOURCE if name not in ("gtid", "snapshot")))
"""Fields that the connector option `add.fields` must list."""


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


@dataclass(frozen=True, slots=True)
class RawRecord:
    """One record of a topic; `timestamp` in milliseconds since the epoch."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record that cannot be decoded, and the reason."""

    record: RawRecord
    reason: str
