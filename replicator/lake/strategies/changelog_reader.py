"""Find rows that survive a TRUNCATE because they changed after it, although their changes arrived before it."""

from collections.abc import Mapping, Sequence

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.jvm.position_columns import position_key, row_key, transaction
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.model.changelog import RESTATED_KEY, RowKind, restated
from replicator.model.common import quoted
from replicator.model.types import spark_sql_name


def recorded_changes(
    lake: Lake, changelog: LakeTable, change: str, key: Sequence[str], next_offsets: Mapping[int, int]
) -> DataFrame:
    """Read changes in the changelog before `next_offsets` (partition → offset), with positions as in decoded events.

    `change` is the changelog's struct column. Columns of the result: k0, k1, … (the key), partition, offset, op,
    position_key, row_key, ts_ms, server_id, gtid_origin, gtid_number.
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
        *transaction(at.getField("gtid")),
        position_key(number, at.getField("pos")).alias("position_key"),
        row_key(at.getField("row"), kind).alias("row_key"),
        F.unix_millis(at.getField("source_ts")).alias("ts_ms"),
    )


def has_repeated_offsets(changelog: LakeTable) -> bool:
    """Return whether a topic was recreated, so that the changelog may have two changes with the same offset."""
    found = restated(changelog.property(RESTATED_KEY))
    return found is not None and found.topics > 0


def surviving_table_rows(
    lake: Lake, table: LakeTable, key: Sequence[str], keep: DataFrame, but: DataFrame
) -> DataFrame:
    """Read the rows of `table` whose key is in `keep` and not in `but`, with added columns filled.

    `keep` and `but` have the key columns k0, k1, ….
    """
    fills, columns = table.pending_fills(), table.columns()
    names = [f"k{i}" for i in range(len(key))]

    def value(name: str) -> SparkColumn:
        return (
            F.lit(fills[name]).cast(spark_sql_name(columns[name])) if name in fills else F.col(quoted(name))
        )

    row = F.struct(*[value(name).alias(name) for name in columns]).alias("row")
    present = lake.spark.read.table(table.sql_name)
    keyed = present.select(*[F.col(quoted(c)).alias(n) for c, n in zip(key, names, strict=True)], row)
    kept = keyed.join(keep.select(*names).distinct(), names, "left_semi")
    return kept.join(but.select(*names), names, "left_anti").select("row.*")
