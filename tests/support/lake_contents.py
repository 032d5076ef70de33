"""Read a lake's contents as plain JSON values: rows, markers, schema states, pauses and quarantine.

They are read by PyIceberg and by column name, so that the reader does not depend on the engine.
"""

import json
from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pyiceberg.catalog import Catalog

_FIELD_IDS = "replicator.columns"
"""The property with field ids, which depend on in how many steps the lake was written."""
_OF_THE_RUN = ("committed_ms", "batch", "sequence")
"""Keys of a marker that depend on when, and in how many steps, the lake was written."""


def contents(catalog: Catalog, namespace: str) -> dict[str, Any]:
    """Return everything that a mirror keeps in the lake, without times of its own clock."""
    found: dict[str, Any] = {}
    for part, name in (("mirror", namespace), ("changelog", f"{namespace}_changes")):
        tables = {t[-1]: catalog.load_table(t) for t in sorted(catalog.list_tables(name))}
        found[part] = {name: _rows(table) for name, table in tables.items()}
        found[f"{part} columns"] = {
            name: {field.name: str(field.field_type) for field in table.schema().fields}
            for name, table in tables.items()
        }
        found[f"{part} properties"] = {name: _properties(t.properties) for name, t in tables.items()}
    bad = (f"{namespace}_ops", "quarantine")
    quarantine = _rows(catalog.load_table(bad)) if catalog.table_exists(bad) else []
    found["quarantine"] = [_without(row, ("quarantined_at", "resolved_at")) for row in quarantine]
    pauses = catalog.load_namespace_properties(f"{namespace}_ops")
    found["pauses"] = {k: _parsed(v) for k, v in sorted(pauses.items()) if k.startswith("replicator.")}
    return found


def _rows(table: Any) -> list[dict[str, Any]]:
    rows = [_plain(row) for row in table.scan().to_arrow().to_pylist()]
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


def _properties(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return the properties of the engine, with JSON parsed."""
    found: dict[str, Any] = {}
    for name, text in sorted(properties.items()):
        if name.startswith("replicator.") and name != _FIELD_IDS:
            found[name] = json.loads(text) if text.startswith("{") else text
    if (marker := found.get("replicator.marker")) is not None:
        found["replicator.marker"] = _without(marker, _OF_THE_RUN)
    if (state := found.get("replicator.schema")) is not None:
        state["changes"] = [_without(note, ("made_ms",)) for note in state["changes"]]
    return found


def _parsed(text: str) -> Any:
    return json.loads(text) if text.startswith(("{", "[")) else text


def _without(values: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case list():
            return [_plain(inner) for inner in value]
        case bytes():
            return value.hex()
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case _:
            return value
