"""Find the rows that maintenance moved to other data files."""

import uuid
from typing import Any, Final

from pyspark.sql import functions as F

from replicator.config import CATALOG_NAME
from replicator.lake.catalog import Lake, LakeTable, lake_errors
from replicator.lake.row_locations import MovedRows
from replicator.model.identifiers import quoted
from replicator.model.types import LakeType

_REWRITE: Final = "replace"
"""The operation of a snapshot that rewrote files without changing rows; Iceberg's table spec, "Snapshots"."""


def moved_rows(
    lake: Lake, table: LakeTable, before: int, key_columns: tuple[tuple[str, LakeType], ...], most: int
) -> MovedRows | None:
    """Return the key and the new location of all rows in files that were added since the snapshot `before`.

    None if there are more than `most` rows, if a commit since then changed rows instead of only rewriting files, or if
    `before` is not an ancestor of the current snapshot.
    """
    with lake_errors(f"the new files of {table.namespace}.{table.name} cannot be read"):
        files = _added_files(table, before)
        if files is None or sum(int(file.recordCount()) for file in files) > most:
            return None
        if not files:
            return MovedRows({})
        rows = _rows(lake, table, files, [name for name, _ in key_columns])
    *keys, paths, positions = (column.to_pylist() for column in rows.columns)
    return MovedRows(dict(zip(zip(*keys, strict=True), zip(paths, positions, strict=True), strict=True)))


def _added_files(table: LakeTable, before: int) -> list[Any] | None:
    """Return the data files that rewrites added since the snapshot `before`; None if other commits were made too."""
    io = table.java.io()
    added: dict[str, Any] = {}
    removed: set[str] = set()
    snapshot = table.java.currentSnapshot()
    while snapshot is not None and int(snapshot.snapshotId()) != before:
        if snapshot.operation() != _REWRITE:
            return None
        added |= {str(file.location()): file for file in snapshot.addedDataFiles(io)}
        removed |= {str(file.location()) for file in snapshot.removedDataFiles(io)}
        parent = snapshot.parentId()
        snapshot = None if parent is None else table.java.snapshot(parent)
    return None if snapshot is None else [file for path, file in added.items() if path not in removed]


def _rows(lake: Lake, table: LakeTable, files: list[Any], key: list[str]) -> Any:
    """Read the key columns and positions of the rows in `files`. Deletes are not applied: no row may be deleted."""
    classes, java = lake.classes, table.java
    no_deletes = lake.array(classes.delete_file, [])
    schema, residual = classes.schema_parser.toJson(java.schema()), classes.residual_evaluator
    everything = residual.unpartitioned(classes.expressions.alwaysTrue())
    tasks = classes.array_list()
    for file in files:
        spec = classes.partition_spec_parser.toJson(java.specs().get(file.specId()))
        tasks.add(classes.file_scan_task(file, no_deletes, schema, spec, everything))
    manager, name = classes.scan_tasks.get(), str(uuid.uuid4())
    manager.stageTasks(java, name, tasks)
    try:
        reader = lake.spark.read.format("iceberg").option("scan-task-set-id", name)
        rows = reader.load(f"{CATALOG_NAME}.{quoted(table.namespace)}.{quoted(table.name)}")
        columns = [F.col(quoted(column)).alias(f"k{i}") for i, column in enumerate(key)]
        return rows.select(*columns, F.col("_file"), F.col("_pos")).toArrow()
    finally:
        manager.removeTasks(java, name)
