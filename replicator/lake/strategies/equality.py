"""Equality deletes: which tables can be written with them, the form of their keys, and their removal by a rewrite.

An equality-delete file has keys. It applies to all data files of earlier commits, and of its partition, or of all
partitions if its own spec has none. Readers compare the keys by field id.
"""

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from replicator import failpoints
from replicator.lake.catalog.java import each_of
from replicator.lake.catalog.tables import Lake, LakeTable, lake_errors
from replicator.lake.commit import Staged
from replicator.lake.files.arrow_schemas import arrow_schema
from replicator.lake.files.driver_files import write_equality_deletes
from replicator.lake.files.parquet import fitting
from replicator.lake.files.small_files import SmallFiles
from replicator.lake.rows.locations import RowLocationCache
from replicator.lake.strategies.changes import LocatedChange, report_obstacle
from replicator.lake.strategies.split import Split, driver_rows, stage_rows
from replicator.schema.evolution.changes import PENDING_CLEAR_KEY


class Equality(Split):
    """Writes the changed keys as equality deletes: no row of the table is read."""

    def obstacle(self, table: LakeTable, key: tuple[str, ...]) -> str | None:
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

    def searches(self, table: LakeTable, key: tuple[str, ...], cache: RowLocationCache) -> bool:  # noqa: ARG002
        """Return False: only the keys are needed."""
        return False

    def stage_keys(
        self,
        lake: Lake,
        table: LakeTable,
        change: LocatedChange,
        cache: RowLocationCache,
        small: SmallFiles | None,
    ) -> Staged:
        """Stage the keys as deletes; as `Split` if they do not have the table's types."""
        keys = equality_keys(table, change.key, change.keys)
        if keys is None:
            report_obstacle(table.sql_name, "its keys have another type than those of the source")
            return super().stage_keys(lake, table, change, cache, small)
        rows = stage_rows(lake, table, change, driver_rows(table, change))
        failpoints.reach("after-data-files")
        deletes = []
        # Every key is deleted, also of inserts: after a redelivery or a replay the table may have the row.
        if not table.is_empty and keys.num_rows:
            deletes.append(write_equality_deletes(lake, table, keys))
            failpoints.reach("after-delete-files")
        return Staged(rows.files, equality_deletes=deletes)


def equality_keys(table: LakeTable, key: tuple[str, ...], keys: pa.Table) -> pa.Table | None:
    """Return `keys`, given as columns in the order of `key`, with the table's names, types and field ids.

    None if the conversion could change a value.
    """
    schema = arrow_schema(table.schema_json())
    wanted = pa.schema([schema.field(name) for name in key])
    if not all(_is_exact(found, field.type) for found, field in zip(keys.schema.types, wanted, strict=True)):
        return None
    return fitting(keys.rename_columns(wanted.names), wanted)


def _is_exact(found: pa.DataType, wanted: pa.DataType) -> bool:
    kinds = (pa.types.is_integer, pa.types.is_decimal, pa.types.is_timestamp)
    return found == wanted or any(same(found) and same(wanted) for same in kinds)


def apply_equality_deletes(lake: Lake, table: LakeTable) -> None:
    """Rewrite all data files to which deletes apply, then remove all equality deletes.

    `table` is refreshed.
    """
    if not table.total("total-equality-deletes"):
        return
    with lake_errors(f"equality deletes of {table.namespace}.{table.name} cannot be applied"):
        # Iceberg's action registers its catalog in the active session of the thread, and reads with the given one.
        jvm: Any = lake.spark._jvm  # noqa: SLF001 no public way
        jvm.org.apache.spark.sql.SparkSession.setActiveSession(lake.spark._jsparkSession)  # noqa: SLF001
        actions = lake.classes.spark_actions.get(lake.spark._jsparkSession)  # noqa: SLF001 no public way
        actions.rewriteDataFiles(table.java).binPack().option("delete-file-threshold", "1").execute()
        table.refresh()
        drop_unused_equality_deletes(lake, table, {})
        table.refresh()


def drop_unused_equality_deletes(lake: Lake, table: LakeTable, summary: Mapping[str, str]) -> None:
    """Remove the equality-delete files that apply to no data file, in a commit of its own with `summary`.

    Later data files have higher sequence numbers, so none of them will ever need these files. Iceberg itself keeps them
    as long as the table has any older data file.
    """
    used, rewrite = _used_deletes(table), table.java.newRewrite()
    unused = [file for path, file in _equality_deletes(lake, table).items() if path not in used]
    if not unused:
        return
    for file in unused:
        rewrite.deleteFile(file)
    for name, value in summary.items():
        rewrite.set(name, value)
    rewrite.commit()


def _used_deletes(table: LakeTable) -> set[str]:
    """Return the paths of the delete files that readers of the current snapshot open."""
    tasks = each_of(table.java.newScan().planFiles())
    return {str(file.location()) for task in tasks for file in task.deletes()}


def _equality_deletes(lake: Lake, table: LakeTable) -> dict[str, Any]:
    """Return path → DeleteFile of the equality-delete files of the current snapshot."""
    java, files = table.java, {}
    snapshot = java.currentSnapshot()
    for manifest in [] if snapshot is None else snapshot.deleteManifests(java.io()):
        reader = lake.classes.manifest_files.readDeleteManifest(manifest, java.io(), java.specs())
        for file in each_of(reader):
            if str(file.content()) == "EQUALITY_DELETES":
                files[str(file.location())] = file.copy()
    return files
