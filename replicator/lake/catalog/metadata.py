"""Build schemas and partition specs of new tables in Iceberg's JSON form. Pure: no JVM.

Format: Iceberg's table spec, "Appendix C: JSON serialization".
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from replicator.config import LakeConfig
from replicator.errors import UnfitColumns
from replicator.model.changelog import CHANGE_FIELDS
from replicator.model.partitioning import PartitionField
from replicator.model.table import Column, TableSchema
from replicator.model.types import LakeType

DEFAULT_FORMAT: Final = 2
"""The format version of tables for which no other one is configured."""
FORMAT_KEY: Final = "format-version"
"""The name under which Iceberg takes the format version of a table among its properties; it is stored elsewhere."""
_POSITION_DELETES_FORMAT: Final = 2
"""The highest format version that permits new position-delete files."""
ENGINE_PROPERTIES: Final[Mapping[str, str]] = {
    FORMAT_KEY: str(DEFAULT_FORMAT),
    # A commit that loses a race must not be retried on top of the winner: the marker decides. See `publish`.
    "commit.retry.num-retries": "0",
    "write.distribution-mode": "none",
    # With the default, 2 MB, columns of many distinct values get a dictionary with a lookup for each value, and their
    # files become larger.
    "write.parquet.dict-size-bytes": "65536",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
}


_MOMENTS: Final = frozenset({"timestamp", "timestamptz"})
_DAYS: Final = _MOMENTS | {"date"}
_CUT: Final = frozenset({"int", "long", "decimal", "string", "binary"})
_FIT: Final[Mapping[str, frozenset[str]]] = {
    "identity": _CUT | _DAYS | {"boolean", "float", "double"},
    "bucket": _CUT | _DAYS,
    "truncate": _CUT,
    "years": _DAYS,
    "months": _DAYS,
    "days": _DAYS,
    "hours": _MOMENTS,
}
"""Transform → lake types that it accepts; Iceberg's table spec, "Partition Transforms"."""


def has_deletion_vectors(format_version: int) -> bool:
    """Return whether a table of this format version requires deletion vectors in place of position-delete files."""
    return format_version > _POSITION_DELETES_FORMAT


def table_schema(schema: TableSchema) -> str:
    """Return a mirror's schema: the source's columns; the key is required and forms the identifier fields."""
    ids = {name: i for i, name in enumerate(schema.names, start=1)}
    fields = [_field(ids[c.name], c.name, c.type, required=c.name in schema.key) for c in schema.columns]
    return json.dumps(
        {
            "type": "struct",
            "schema-id": 0,
            "identifier-field-ids": [ids[name] for name in schema.key if _may_identify(schema, name)],
            "fields": fields,
        }
    )


def changelog_schema(schema: TableSchema, change_column: str) -> str:
    """Return a changelog's schema: the source's columns, all optional, and the struct of `CHANGE_FIELDS`."""
    count = len(schema.columns)
    fields = [_field(i, c.name, c.type) for i, c in enumerate(schema.columns, start=1)]
    inner = [_field(count + 2 + i, name, LakeType(kind)) for i, (name, kind) in enumerate(CHANGE_FIELDS)]
    change = {"id": count + 1, "name": change_column, "required": False}
    fields.append(change | {"type": {"type": "struct", "fields": inner}})
    return json.dumps({"type": "struct", "schema-id": 0, "fields": fields})


def partition_spec(schema: TableSchema, partition: Sequence[PartitionField]) -> str:
    """Return the partition spec of a table with `table_schema(schema)`.

    Raises:
        UnfitColumns: a partition field names a column that the source table lacks, or that has a type which its
            transform does not accept.
    """
    ids = {c.source_name.name: i for i, c in enumerate(schema.columns, start=1)}
    taken = set(schema.names)
    fields = []
    for number, part in enumerate(partition):
        if part.column not in ids:
            raise UnfitColumns(
                f"partition {part}: the table has no column {part.column}", f"its columns: {', '.join(ids)}"
            )
        column = schema.columns[ids[part.column] - 1]
        if column.type.name not in _FIT[part.transform]:
            raise UnfitColumns(
                f"partition {part}: {part.transform} does not accept {part.column}, which is {column.type} in the lake",
                f"{part.transform} accepts: {', '.join(sorted(_FIT[part.transform]))}",
            )
        name = _field_name(part, column.name, taken)
        taken.add(name)
        fields.append(
            {
                "name": name,
                "transform": _transform(part),
                "source-id": ids[part.column],
                "field-id": 1000 + number,
            }
        )
    return json.dumps({"spec-id": 0, "fields": fields})


def spec_of_schema(schema_json: str, partition: Sequence[PartitionField]) -> str:
    """Return the partition spec of a table with a schema in Iceberg's JSON form. Raises as `partition_spec`."""
    fields = json.loads(schema_json)["fields"]
    columns = [Column(f["name"], _lake_type(f["type"])) for f in fields]
    spec = json.loads(partition_spec(TableSchema(tuple(columns)), partition))
    for part in spec["fields"]:
        # `partition_spec` numbers the columns by their place.
        part["source-id"] = fields[part["source-id"] - 1]["id"]
    return json.dumps(spec)


def _lake_type(kind: Any) -> LakeType:
    if isinstance(kind, str):
        try:
            return LakeType.parse(kind)
        except ValueError:
            return LakeType(kind)
    return LakeType(str(kind["type"]))


def folder_name(table: str) -> str | None:
    """Return a folder for the files of a table whose name is unsafe in paths of some stores; None if it is safe."""
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", table):
        return None
    readable = re.sub(r"[^A-Za-z0-9-]+", "_", table)
    return f"{readable}-{hashlib.sha256(table.encode()).hexdigest()[:12]}"


def table_location(lake: LakeConfig, namespace: str, name: str) -> str | None:
    """Return the location of a table whose name cannot be part of a path; None if the catalog chooses it."""
    folder = folder_name(name)
    if folder is None or not lake.kind.names_folders or lake.warehouse is None:
        return None
    return f"{lake.warehouse.rstrip('/')}/{namespace}/{folder}"


def _field(number: int, name: str, kind: LakeType, *, required: bool = False) -> dict[str, Any]:
    found: str | dict[str, Any] = str(kind).replace(" ", "")
    if kind.name == "list<float>":
        # Ids must be distinct; the catalog assigns new ones.
        element = 10_000 + number
        found = {"type": "list", "element-id": element, "element": "float", "element-required": False}
    return {"id": number, "name": name, "required": required, "type": found}


def _may_identify(schema: TableSchema, name: str) -> bool:
    column = schema.column(name)
    return column is not None and column.type.name not in ("float", "double")


def _transform(part: PartitionField) -> str:
    if part.width is not None:
        return f"{part.transform}[{part.width}]"
    return part.transform.removesuffix("s")


def _field_name(part: PartitionField, column: str, taken: set[str]) -> str:
    """Return the field's name; it may equal a column's name only if it has that column's own values."""
    if part.transform == "identity":
        return column
    name = f"{column}_{part.transform.removesuffix('s')}"
    while name in taken:
        name += "_"
    return name
