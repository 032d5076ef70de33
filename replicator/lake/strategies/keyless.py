"""Stage the net changes of a table without a key: a row is identified by all its values."""

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from replicator import failpoints
from replicator.errors import MissingRows
from replicator.jvm.json_columns import json_meaning
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.commit import Staged
from replicator.lake.files.data_files import (
    POSITIONS,
    by_file,
    cast_to_table,
    stage_data,
)
from replicator.lake.files.deletes import StagedDeletes, stage_positions
from replicator.lake.files.spark_tables import rows_of_snapshot
from replicator.lake.others import refuse_loss
from replicator.lake.strategies.changes import filled
from replicator.model.changelog import NET
from replicator.model.common import counted, quoted
from replicator.model.types import LakeType, spark_sql_name


def stage_by_identity(
    lake: Lake, table: LakeTable, source: Sequence[str], net: DataFrame, json: Collection[str], *, clear: bool
) -> Staged:
    """Stage the net changes of a table without a key: `net` has the number of rows to add or remove (`net_rows`).

    `source` names the columns k0, k1, … of `net`. Those of `json` are compared by meaning: rows that were read from the
    source may have their JSON in another form than events.

    Raises:
        MissingRows: the table has fewer rows than must be deleted.
        ForeignColumns: rows must be deleted in which others may have written values of their own columns.
    """
    deleted = net.where(F.col(NET) < 0)
    wanted = int(deleted.agg(F.coalesce(-F.sum(NET), F.lit(0)).alias("n")).collect()[0].n)
    if wanted and not clear:
        # Rows that are equal in the source may have different values.
        refuse_loss(table, "a changed or deleted row of a table without a key")
    branch, snapshot_id = (None, table.snapshot_id) if clear else filled(lake, table)
    columns = table.columns()
    names = [f"k{i}" for i in range(len(source))]
    added = net.where(F.col(NET) > 0).withColumn("copy", F.explode(F.array_repeat(F.lit(0), F.col(NET))))
    rows = added.select(*[F.col(name).alias(column) for name, column in zip(names, source, strict=True)])
    data = stage_data(lake, table, cast_to_table(rows, columns))
    failpoints.reach("after-data-files")
    deletes = StagedDeletes()
    if wanted:
        searched = None if clear else snapshot_id
        positions = None
        if searched is not None and not table.is_empty:
            stored = rows_of_snapshot(lake, table, searched)
            positions = _equal_positions(stored, columns, source, deleted, json)
        if positions is None or positions.num_rows < wanted or snapshot_id is None:
            found = 0 if positions is None else positions.num_rows
            raise MissingRows(
                f"expected to delete or change {counted(wanted, 'row')} of {table.namespace}.{table.name}, "
                f"found {found}; the table has no key, so rows are identified by all their values",
                "drop the lake table (replicator drop) and take a new snapshot of it, or mirror only its changes: "
                'keyless = "changelog"',
            )
        deletes = stage_positions(lake, table, snapshot_id, by_file(positions))
        failpoints.reach("after-delete-files")
    return Staged(data, deletes, clear=clear and not table.is_empty, branch=branch, fills_done=True)


def _equal_positions(
    rows: DataFrame,
    columns: Mapping[str, LakeType],
    source: Sequence[str],
    deleted: DataFrame,
    json: Collection[str],
) -> pa.Table:
    """Return the positions of rows that equal those of `deleted`, each as often as it must be deleted.

    Which of several equal rows is deleted does not matter; one with the same JSON text is preferred.
    """
    names = [f"k{i}" for i in range(len(source))]
    given = {
        column: F.col(name).cast(spark_sql_name(columns[column]))
        for name, column in zip(names, source, strict=True)
    }
    stored = {column: F.col(quoted(column)) for column in source}
    rows = rows.select(
        *[_meaning(stored[column], column, json).alias(f"t{i}") for i, column in enumerate(source)],
        _texts(stored, json).alias("text"),
        F.col("_file").alias("file_path"),
        F.col("_pos").alias("pos"),
    )
    unwanted = deleted.select(
        *[_meaning(given[column], column, json).alias(f"k{i}") for i, column in enumerate(source)],
        _texts(given, json).alias("text"),
        (-F.col(NET)).alias("wanted"),
    )
    if json:
        unwanted = unwanted.groupBy(*names).agg(
            F.sum("wanted").alias("wanted"), F.collect_set("text").alias("texts")
        )
    else:
        unwanted = unwanted.withColumn("texts", F.array("text"))
    same = F.lit(True)
    for i in range(len(source)):
        same &= F.col(f"t{i}").eqNullSafe(F.col(f"k{i}"))
    matches = rows.join(F.broadcast(unwanted.drop("text")), same).select(
        *names, "wanted", F.array_contains("texts", F.col("text")).alias("same_text"), "file_path", "pos"
    )
    order = Window.partitionBy(*names).orderBy(F.col("same_text").desc(), "file_path", "pos")
    chosen = matches.withColumn("nth", F.row_number().over(order)).where(F.col("nth") <= F.col("wanted"))
    return chosen.select("file_path", "pos").toArrow().cast(POSITIONS)


def _meaning(value: SparkColumn, column: str, json: Collection[str]) -> SparkColumn:
    """Return the value by which rows without a key are compared."""
    return json_meaning(value) if column in json else value


def _texts(values: Mapping[str, SparkColumn], json: Collection[str]) -> SparkColumn:
    """Return a hash of the JSON texts of a row; 0 if it has none."""
    texts = [value for column, value in values.items() if column in json]
    return F.xxhash64(*texts) if texts else F.lit(0).cast("long")
