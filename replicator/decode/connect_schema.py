"""Parse the schema in a JSON event to a `TableSchema`.

Debezium's envelope schema has Kafka Connect's JSON form: a struct with the fields `before`, `after`, `source`, …; the
columns are the fields of `after`. Semantic names (`io.debezium.time.MicroTimestamp`) define the meaning of a number.
"""

import re
from collections.abc import Iterator
from typing import Final

from replicator.errors import DecodeError
from replicator.model.document import Document, parse_json
from replicator.model.events import METADATA_FIELDS
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import STRING, Encoding, LakeType
from replicator.schema.types import mysql
from replicator.schema.types.table import DECIMAL, ENUM, ENUM_SET

_SOURCE_NAME: Final = "__debezium.source.column.name"
"""Parameter of a field: the column's name in the source."""
_MOST_FIELDS: Final = mysql.MOST_COLUMNS + len(METADATA_FIELDS)
_LABEL_PARTS: Final = re.compile(r"\\.|\\|,|[^\\,]+", re.DOTALL)


def table_schema(value: bytes, key: bytes | None, *, flattened: bool = False) -> TableSchema:
    """Return the table's schema from `value` and `key` of an event with embedded schemas.

    A flattened event (see `model.events`) is a row itself. The schema does not define the encoding of decimals. Of a
    key without an embedded schema, the names of its fields are used; a key that cannot be read, or that names other
    columns, is ignored.

    Raises:
        DecodeError: the value has no envelope schema with an `after` struct.
    """
    fields = Document.parse(value).object("schema").objects("fields", _MOST_FIELDS)
    if not flattened:
        row = next((field for field in fields if field.get("field") == "after"), None)
        if row is None:
            raise DecodeError("the event has no Debezium envelope schema")
        fields = row.objects("fields", _MOST_FIELDS)
    columns = tuple(column(f) for f in fields if not (flattened and _is_metadata(f)))
    mysql.check_columns(columns)
    names = {c.name for c in columns}
    key_names = tuple(dict.fromkeys(_key_names(key)))
    return TableSchema(columns, key_names if names.issuperset(key_names) else ()).without_reserved()


def _is_metadata(field: Document) -> bool:
    name = field.get("field")
    # The name may be any JSON value; `column` refuses what is not text.
    return isinstance(name, str) and name in METADATA_FIELDS


def source_table(value: bytes) -> TableId | None:
    """Return the table in an event's source block; None if there is none."""
    try:
        event = Document.parse(value)
        return table_of((event.optional_object("payload") or event).object("source"))
    except DecodeError:
        return None


def table_of(source: Document) -> TableId:
    """Return the table in a source block.

    Raises:
        DecodeError: the block has no table.
    """
    return TableId(source.text("db", mysql.LONGEST_NAME), source.text("table", mysql.LONGEST_NAME))


def _key_names(key: bytes | None) -> Iterator[str]:
    try:
        document = Document.of({} if key is None else parse_json(key))
        schema = document.get("schema")
        if isinstance(schema, dict):
            fields = Document.of(schema, "schema").objects("fields", _MOST_FIELDS)
            return iter([f.text("field") for f in fields])
    except DecodeError:
        return iter(())
    return iter(document.fields)


def column(field: Document) -> Column:
    """Parse a column from its field in Kafka Connect's JSON form of a schema.

    Raises:
        DecodeError: the field has an unknown type.
    """
    lake_type, encoding = _types(field)
    nullable = bool(field.get("optional"))
    size = None
    if field.get("name") == DECIMAL and lake_type == STRING:
        size = _scale(field)
    labels = mysql.respelt_labels(_labels(field))
    name, source = field.text("field", mysql.LONGEST_NAME), source_name(field)
    if source == name:
        source = None
    return Column(name, lake_type, encoding, nullable, respelt=labels, size=size, source=source)


def source_name(field: Document) -> str | None:
    """Return the column's name in the source, which connectors add if they change it; None if it is missing."""
    parameters = field.optional_object("parameters")
    return None if parameters is None else parameters.optional_text(_SOURCE_NAME, mysql.LONGEST_NAME)


def _labels(field: Document) -> list[str]:
    """Return the labels of an ENUM or SET as in the DDL; in the schema's list, a comma in a label has a backslash."""
    if field.get("name") not in (ENUM, ENUM_SET):
        return []
    parameters = field.optional_object("parameters")
    allowed = (parameters and parameters.optional_text("allowed")) or ""
    labels: list[list[str]] = [[]]
    # A backslash is matched together with the character that it escapes, so that an escaped backslash before a
    # separator is not taken for the separator's escape.
    for part in _LABEL_PARTS.findall(allowed):
        if part == ",":
            labels.append([])
        else:
            labels[-1].append("," if part == "\\," else part)
    if len(labels) > mysql.MOST_LABELS:
        raise DecodeError(f"ENUM has {len(labels)} labels, more than {mysql.MOST_LABELS}")
    return ["".join(parts) for parts in labels]


def _types(field: Document) -> tuple[LakeType, Encoding]:
    name = field.optional_text("name") or ""
    if name == DECIMAL:
        parameters = field.optional_object("parameters") or Document({})
        # The precision is missing if the source has none, as for BIGINT UNSIGNED in old versions.
        digits = parameters.optional_number("connect.decimal.precision", 1, mysql.MOST_DIGITS)
        return mysql.decimal_form(38 if digits is None else digits, _scale(field))
    kind = field.text("type")
    known = mysql.FORMS.get(name) or mysql.FORMS.get(kind)
    if known is None or name in mysql.REFUSED:
        raise DecodeError(f"column {field.get('field')!r}: unknown type {name or kind!r}"[:200])
    return known


def _scale(field: Document) -> int:
    parameters = field.optional_object("parameters") or Document({})
    return parameters.optional_number("scale", 0, mysql.MOST_DIGITS) or 0
