"""Make the open versions of a history equal to the rows of the mirror, where the changelog does not tell all."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.model.common import quoted
from replicator.pipelines.history.definition import Kind
from replicator.pipelines.history.layout import Layout


def as_in_mirror(
    versions: DataFrame, mirror: DataFrame, layout: Layout, begun: SparkColumn, now: SparkColumn
) -> DataFrame:
    """Return versions, of which those that have not ended are the rows of the mirror.

    Versions of rows that the mirror lacks end `now`. A row of the mirror without a version has one from `begun`; if it
    had one before, from `now`. Versions of other rows get the mirror's values, and keep those of dropped columns.
    """
    ended, current = versions.where(F.col("end").isNotNull()), versions.where(F.col("end").isNull())
    known = [name for name in layout.types if name in mirror.columns]
    rows = mirror.select(F.struct(*(_cast(name, layout) for name in known)).alias("m"))
    same = [F.col("v").getField(name).eqNullSafe(F.col("m").getField(name)) for name in layout.key]
    pairs = current.join(rows, reduce(SparkColumn.__and__, same), "full_outer")
    value = F.struct(*(_value(name, known) for name in layout.types))
    begins = F.when(F.col("v").isNull(), begun).otherwise(F.col("first"))
    ends = F.when(F.col("m").isNull(), _not_before(now)).otherwise(F.col("end"))
    found = pairs.select(value.alias("v"), begins.alias("first"), ends.alias("end"))
    found = _again(found, ended, layout.key, begun, now)
    if layout.kind is Kind.DELETED:
        # It has one row of each key.
        there = rows.select(*(F.col("m").getField(c).alias(f"k{i}") for i, c in enumerate(layout.key)))
        ended = ended.join(there, _same(layout.key), "left_anti")
    return ended.unionByName(found)


def _again(
    found: DataFrame, ended: DataFrame, key: Sequence[str], begun: SparkColumn, now: SparkColumn
) -> DataFrame:
    """Return versions, of which those from `begun` begin `now` if the row had one before."""
    names = [f"k{i}" for i in range(len(key))]
    before = ended.select(
        *(F.col("v").getField(c).alias(n) for c, n in zip(key, names, strict=True))
    ).distinct()
    marked = found.join(before.withColumn("had", F.lit(True)), _same(key), "left")
    is_new = F.col("first").eqNullSafe(begun) & F.col("had").isNotNull()
    return marked.select("v", F.when(is_new, now).otherwise(F.col("first")).alias("first"), "end")


def _same(key: Sequence[str]) -> SparkColumn:
    pairs = (F.col("v").getField(c).eqNullSafe(F.col(f"k{i}")) for i, c in enumerate(key))
    return reduce(SparkColumn.__and__, pairs)


def _cast(name: str, layout: Layout) -> SparkColumn:
    return F.col(quoted(name)).cast(layout.types[name]).alias(name)


def _value(name: str, known: Sequence[str]) -> SparkColumn:
    stored = F.col("v").getField(name)
    if name not in known:
        return stored.alias(name)
    return F.when(F.col("m").isNotNull(), F.col("m").getField(name)).otherwise(stored).alias(name)


def _not_before(now: SparkColumn) -> SparkColumn:
    return now.withField("ts", F.greatest(now.getField("ts"), F.col("first.ts")))
