"""Rows that stay when a table is emptied: those that changed after a TRUNCATE which arrived behind these changes."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.apply.lake import Lake, LakeTable
from replicator.apply.stage import spark_type_name
from replicator.model.change import RowKind
from replicator.model.names import quoted
from replicator.model.position import FILE_SHIFT


def recorded_changes(
    lake: Lake, changelog: LakeTable, change: str, key: Sequence[str], next_offsets: Mapping[int, int]
) -> DataFrame:
    """Changes that the changelog has before `next_offsets` (partition → offset), with places as decoded events have.

    `change` is the changelog's struct column. Columns: k0, k1, … (the key), partition, offset, op, hi, lo, ts_ms,
    server_id.
    """
    rows = lake.spark.read.table(changelog.sql_name)
    at = F.col(quoted(change))
    number = F.substring_index(at.getField("file"), ".", -1).cast("long")
    kind = F.when(at.getField("op").isin("d", "t"), F.lit(0)).otherwise(F.lit(1))
    wanted = F.lit(False)
    for partition, offset in next_offsets.items():
        wanted |= (at.getField("partition") == partition) & (at.getField("offset") < offset)
    return rows.where(wanted & (at.getField("kind") != str(RowKind.UPDATE_BEFORE))).select(
        *[F.col(quoted(column)).alias(f"k{i}") for i, column in enumerate(key)],
        *[at.getField(name).alias(name) for name in ("partition", "offset", "op", "server_id")],
        (F.shiftleft(number, FILE_SHIFT) + at.getField("pos")).alias("hi"),
        (at.getField("row").cast("long") * 2 + kind).alias("lo"),
        F.unix_millis(at.getField("source_ts")).alias("ts_ms"),
    )


def spared_rows(
    lake: Lake, table: LakeTable, key: Sequence[str], keep: DataFrame, but: DataFrame
) -> DataFrame:
    """The rows of `table` with a key of `keep` and none of `but` (both: columns k0, k1, …), added columns filled."""
    fills, columns = table.pending_fills(), table.columns()
    names = [f"k{i}" for i in range(len(key))]

    def value(name: str) -> SparkColumn:
        return (
            F.lit(fills[name]).cast(spark_type_name(columns[name])) if name in fills else F.col(quoted(name))
        )

    row = F.struct(*[value(name).alias(name) for name in columns]).alias("row")
    there = lake.spark.read.table(table.sql_name)
    keyed = there.select(*[F.col(quoted(c)).alias(n) for c, n in zip(key, names, strict=True)], row)
    kept = keyed.join(keep.select(*names).distinct(), names, "left_semi")
    return kept.join(but.select(*names), names, "left_anti").select("row.*")
