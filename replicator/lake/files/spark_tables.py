"""Give Spark a table that no catalog has: of an earlier snapshot, of chosen files, or to write files without a commit.

Iceberg has no options for these any more and ignores unknown ones: Spark would read other rows, or commit what it
writes. So Spark gets the table object. It has the current schema even for an earlier snapshot; Spark's time travel has
the schema of that time, in which columns may have other names.

All rows of the lake are read so. When a query runs, Spark replaces a table of a catalog by its newest version: a frame
would have other rows each time it is used, and fail once a column was added. It does not replace these.
"""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from replicator.jvm.settings import STAGED_CATALOG
from replicator.lake.catalog.java import JavaClasses
from replicator.lake.catalog.tables import Lake, LakeTable, lake_errors
from replicator.model.common import quoted

_MAIN: Final = "main"


def columns_of(lake: Lake, table: LakeTable) -> StructType:
    """Return the columns of `rows_of`, which takes many more calls of Java."""
    return _spark_schema(lake.classes, table.schema_json())


@lru_cache(256)
def _spark_schema(classes: JavaClasses, schema_json: str) -> StructType:
    schema = classes.schema_parser.fromJson(schema_json)
    return StructType.fromJson(json.loads(classes.spark_schemas.convert(schema).json()))


def as_table(lake: Lake, table: LakeTable, rows: DataFrame) -> DataFrame:
    """Return rows with the columns and types of a table."""
    fields = columns_of(lake, table).fields
    return rows.select(*(F.col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in fields))


def rows_of(lake: Lake, table: LakeTable) -> DataFrame:
    """Return the rows of a table as it was loaded, whatever is committed later, and metadata columns."""
    return rows_of_snapshot(lake, table, table.snapshot_id)


def rows_of_snapshot(lake: Lake, table: LakeTable, snapshot_id: int | None) -> DataFrame:
    """Return the rows of a snapshot with the current columns of the table as it was loaded, and metadata columns.

    Without a snapshot, there are no rows.

    Raises:
        LakeUnavailable: the table does not have the snapshot any more.
    """
    classes = lake.classes.for_spark
    with lake_errors(f"snapshot {snapshot_id} of {table.namespace}.{table.name} cannot be read"):
        pinned = _pinned(lake, table, snapshot_id)
        return _frame(lake, pinned, classes.table(pinned))


def appended_rows(lake: Lake, table: LakeTable, since: int | None) -> DataFrame:
    """Return the rows that snapshots after `since` appended to a table as it was loaded, without metadata columns.

    `since` led to its current snapshot, or is the deleted parent of one that did; without it, these are all rows.

    Raises:
        LakeUnavailable: the table does not have the snapshots any more.
    """
    if since is None:
        return rows_of(lake, table)
    classes = lake.classes.for_spark
    with lake_errors(f"what was appended to {table.namespace}.{table.name} cannot be read"):
        pinned, options = _pinned(lake, table, table.snapshot_id), lake.classes.hash_map()
        options.put("start-snapshot-id", str(since))
        options.put("end-snapshot-id", str(table.snapshot_id))
        return _frame(lake, pinned, classes.table(pinned), options)


def _pinned(lake: Lake, table: LakeTable, snapshot_id: int | None) -> Any:
    """Return a Java table that stays as `table` was loaded, with another current snapshot."""
    java, classes = table.java, lake.classes.for_spark
    operations, name = java.operations(), java.name()
    metadata = operations.current()
    if table.snapshot_id != snapshot_id:
        builder = classes.table_metadata.buildFrom(metadata).setBranchSnapshot(snapshot_id, _MAIN)
        metadata = builder.discardChanges().withMetadataLocation(metadata.metadataFileLocation()).build()
    # It is never committed. Its table stays as it is when `table` is refreshed, and refers to the operations: some
    # catalogs close the access to a table's files once its operations are not in use any more.
    transaction = classes.transactions.replaceTableTransaction(name, operations, metadata)
    return classes.base_table(transaction.table().operations(), name)


@contextmanager
def rows_of_tasks(lake: Lake, table: LakeTable, tasks: Any) -> Iterator[DataFrame]:
    """Provide the rows of a Java list of scan tasks, and metadata columns. The list must not be empty."""
    manager, name = lake.classes.scan_tasks.get(), str(uuid.uuid4())
    manager.stageTasks(table.java, name, tasks)
    try:
        yield _frame(lake, table.java, lake.classes.for_spark.rewrite_table(table.java, name))
    finally:
        manager.removeTasks(table.java, name)


def _frame(lake: Lake, java: Any, table: Any, options: Any = None) -> DataFrame:
    classes = lake.classes.for_spark
    nothing, session = classes.option.empty(), lake.spark._jsparkSession  # noqa: SLF001 no public way
    relation = classes.relation.create(table, nothing, nothing)
    # A table for rewrites has the row ids of format version 3 as columns. With those, Spark finds no metadata columns.
    columns = relation.output().take(java.schema().columns().size())
    found = relation.options() if options is None else classes.options(options)
    relation = relation.copy(table, columns, nothing, nothing, found, nothing)
    return DataFrame(classes.dataset.ofRows(session, relation), lake.spark)


@contextmanager
def staging_table(lake: Lake, table: LakeTable) -> Iterator[tuple[str, str]]:
    """Provide a name in SQL under which rows are written to files without a commit, and the id of these files.

    Its catalog has no other tables, so nothing that is written to it can be committed.
    """
    cache, name = lake.classes.for_spark.table_cache.get(), str(uuid.uuid4())
    cache.add(name, table.java)
    try:
        yield f"{STAGED_CATALOG}.{quoted(name)}", name
    finally:
        cache.remove(name)
