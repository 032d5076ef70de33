"""The schema that a JSON event carries → `TableSchema`.

Debezium's envelope schema is Kafka Connect's JSON form: a struct with the fields `before`, `after`, `source`, …;
the columns are the fields of `after`. Semantic names (`io.debezium.time.MicroTimestamp`) tell what a number means.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from replicator.decode import mapping
from replicator.errors import DecodeError
from replicator.model.flat import MARKS
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import STRING, LakeType, Wire, decimal_column


def table_schema(value: bytes, key: bytes | None, *, flattened: bool = False) -> TableSchema:
    """The table's schema out of one event's `value` and `key`, both with schemas embedded.

    A flattened event (see `model.flat`) is a row itself.

    A key without an embedded schema gives the names of its fields. How decimals are written it does not say.

    Raises:
        DecodeError: the value has no envelope schema with an `after` struct.
    """
    try:
        fields = json.loads(value)["schema"]["fields"]
        if not flattened:
            fields = next(f for f in fields if f.get("field") == "after")["fields"]
        columns = tuple(column(field) for field in fields if not flattened or field["field"] not in MARKS)
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        raise DecodeError("the event carries no Debezium envelope schema") from None
    return TableSchema(columns, _key_names(key)).without_reserved()


def source_table(value: bytes) -> TableId | None:
    """The table that an event names as its source; None where it names none."""
    try:
        document = json.loads(value)
        source = document.get("payload", document)["source"]
        return TableId(str(source["db"]), str(source["table"]))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _key_names(key: bytes | None) -> tuple[str, ...]:
    if key is None:
        return ()
    try:
        document: Any = json.loads(key)
    except ValueError:
        return ()
    if isinstance(document, dict) and isinstance(document.get("schema"), dict):
        fields: Sequence[Mapping[str, Any]] = document["schema"].get("fields", [])
        return tuple(str(f["field"]) for f in fields)
    return tuple(document) if isinstance(document, dict) else ()


def column(field: Mapping[str, Any]) -> Column:
    """A column from its field in Kafka Connect's JSON form of a schema. Raises DecodeError for an unknown type."""
    lake_type, wire = _types(field)
    nullable = bool(field.get("optional", False))
    size = None
    if field.get("name") == mapping.DECIMAL and lake_type == STRING:
        size = int(field["parameters"].get("scale", 0))
    labels = mapping.respelt_labels(_labels(field))
    return Column(field["field"], lake_type, wire, nullable, respelt=labels, size=size)


def _labels(field: Mapping[str, Any]) -> list[str]:
    """The labels of an ENUM or SET as they stand in the DDL; in the schema's list, a comma inside has a backslash."""
    if field.get("name") not in (mapping.ENUM, mapping.ENUM_SET):
        return []
    allowed = str(field.get("parameters", {}).get("allowed", ""))
    # Backslashes come in pairs with what they escape, so that none before a separator is taken for its escape.
    labels = re.findall(r"((?:[^\\,]|\\.)*)(?:,|$)", allowed, flags=re.DOTALL)
    return [label.replace("\\,", ",") for label in labels]


def _types(field: Mapping[str, Any]) -> tuple[LakeType, Wire]:
    name = str(field.get("name") or "")
    if name == mapping.DECIMAL:
        parameters = field.get("parameters", {})
        # The precision is missing where the source has none, as for BIGINT UNSIGNED in old versions.
        digits = int(parameters.get("connect.decimal.precision", 38))
        return decimal_column(digits, int(parameters.get("scale", 0)))
    known = mapping.FORMS.get(name) or mapping.FORMS.get(str(field["type"]))
    if known is None or name in mapping.REFUSED:
        raise DecodeError(f"column {field.get('field')!r}: unknown type {name or field['type']!r}")
    return known
