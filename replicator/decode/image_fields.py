"""Read which fields the row of an event without a schema has. Pure; for a few events.

All events between two schema changes have the same fields, whatever columns the connector leaves out.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from replicator.model.position import SourcePosition, binlog_number

_FLAT: Final = "__"
"""What the names of metadata fields in flattened events begin with."""


@dataclass(frozen=True, slots=True)
class ImageFields:
    """The names of the fields in an event's row, and its position with the source's time, milliseconds or 0."""

    names: frozenset[str]
    position: SourcePosition
    ts_ms: int = 0


def image_fields(value: bytes, *, flattened: bool) -> ImageFields | None:
    """Return the fields of a JSON event without a schema; None if it has no row or no position."""
    try:
        event = json.loads(value)
        if not isinstance(event, dict):
            return None
        if flattened:
            metadata = {name: found for name, found in event.items() if name.startswith(_FLAT)}
            source = {name.removeprefix("__source_"): found for name, found in metadata.items()}
            return _fields(event.keys() - metadata.keys(), source)
        row = next((event[name] for name in ("after", "before") if isinstance(event.get(name), dict)), None)
        return (
            None
            if row is None or not isinstance(event.get("source"), dict)
            else _fields(row, event["source"])
        )
    except (ValueError, TypeError, RecursionError):
        # Decoding reports it.
        return None


def _fields(names: Any, source: Mapping[str, Any]) -> ImageFields | None:
    file, gtid = source.get("file"), source.get("gtid")
    if not isinstance(file, str) or not names:
        return None
    binlog_number(file)
    position = SourcePosition(
        file,
        int(source.get("pos") or 0),
        0,
        int(source.get("server_id") or 0),
        gtid if isinstance(gtid, str) else None,
    )
    return ImageFields(frozenset(names), position, int(source.get("ts_ms") or 0))
