"""Decide whether a table can be written with equality deletes, and give keys the form that such files need.

An equality-delete file has keys. It applies to all data files of earlier commits, and of its partition, or of all
partitions if its own spec has none. Readers compare the keys by field id.
"""

import json

import pyarrow as pa

from replicator.lake.arrow_schemas import arrow_schema
from replicator.lake.catalog import LakeTable
from replicator.schema.changes import PENDING_CLEAR_KEY


def equality_obstacle(table: LakeTable, key: tuple[str, ...]) -> str | None:
    """Return why equality deletes of `key` would not be exact in `table`; None if they are."""
    fields = {field["name"]: field for field in json.loads(table.schema_json())["fields"]}
    if not key:
        return "it has no key"
    if table.is_partitioned:
        return "it is partitioned, and a row may move to another partition"
    if any(fields[name]["type"] in ("float", "double") for name in key):
        return "a key column is a floating-point number"
    if not all(fields[name]["required"] for name in key):
        return "a key column may be null"
    if table.pending_fills() or table.property(PENDING_CLEAR_KEY) is not None:
        return "the rows of an earlier schema are being changed"
    return None


def equality_keys(table: LakeTable, key: tuple[str, ...], keys: pa.Table) -> pa.Table | None:
    """Return `keys`, given as columns in the order of `key`, with the table's names, types and field ids.

    None if the conversion could change a value.
    """
    schema = arrow_schema(table.schema_json())
    wanted = pa.schema([schema.field(name) for name in key])
    if not all(_is_exact(found, field.type) for found, field in zip(keys.schema.types, wanted, strict=True)):
        return None
    try:
        return pa.table(keys.columns, names=wanted.names).cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, ValueError):
        return None


def _is_exact(found: pa.DataType, wanted: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_timestamp)
    return found == wanted or any(same(found) and same(wanted) for same in kinds)
