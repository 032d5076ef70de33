"""The versions of rows, of the events of their keys. Lazily, with Spark, for any size.

An event has the columns `v` (the row, a struct), `exists` (whether the key has a row after it), `at` (where and when it
was), `o` (its order among the events of its key) and `tx` (its transaction). A version has `v`, `first` (where it
begins) and `end` (where it ends; null if it has not).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.window import WindowSpec

PLACE: Final = (
    ("op", "string"),
    ("ts", "bigint"),
    ("file", "string"),
    ("pos", "bigint"),
    ("gtid", "string"),
    ("position", "bigint"),
)
"""The fields of a place in the source, with their types. `ts` is in microseconds; `position` is the binlog key."""
FIRST_ORDER: Final = -1
"""The commit and the offset of events that are before all changes."""
_ALL: Final = (Window.unboundedPreceding, Window.currentRow)


@dataclass(frozen=True, slots=True)
class Ending:
    """Where all rows of a table went: a TRUNCATE, or the first row of another snapshot.

    Attributes:
        order: commit and offset; events at this very order are after it.
        place: the values of `PLACE`.
    """

    order: tuple[int, int]
    place: tuple[object, ...]


def place(*values: SparkColumn) -> SparkColumn:
    """Return a struct `PLACE` of its values."""
    pairs = zip(values, PLACE, strict=True)
    return F.struct(*(value.cast(kind).alias(name) for value, (name, kind) in pairs))


def order(commit: SparkColumn, offset: SparkColumn, nth: SparkColumn) -> SparkColumn:
    """Return a struct by which the events of a key are ordered."""
    return F.struct(
        commit.cast("bigint").alias("commit"), offset.cast("bigint").alias("offset"), nth.alias("nth")
    )


def versions_of(
    events: DataFrame,
    key: Sequence[str],
    tracked: Sequence[str],
    endings: Sequence[Ending] = (),
    *,
    newest: bool = False,
) -> DataFrame:
    """Return the versions of all rows, or with `newest` the last one of each key.

    The last event of each transaction counts. A version begins where one of the columns `tracked` changes, and where
    the key had no row before. It has the values of its last event. Times of a key never go back; with `newest` they
    are those of the events, because the history does not have the times before.
    """
    keys = [F.col("v").getField(name).alias(f"k{i}") for i, name in enumerate(key)]
    names = [f"k{i}" for i in range(len(key))]
    by_key = Window.partitionBy(*names).orderBy("o")
    known = events.select("*", *keys, _epoch(endings).alias("epoch"))
    known = known.withColumn("next", F.lead(F.struct("tx", "epoch")).over(by_key))
    same = (F.col("next.tx") == F.col("tx")) & (F.col("next.epoch") == F.col("epoch"))
    settled = known.where(~F.coalesce(same, F.lit(False)))
    if not newest:
        running = F.max(F.col("at.ts")).over(by_key.rowsBetween(*_ALL))
        settled = settled.withColumn("at", F.col("at").withField("ts", running))
    return _grouped(_numbered(settled, by_key, tracked), names, endings, newest=newest)


def _numbered(settled: DataFrame, by_key: WindowSpec, tracked: Sequence[str]) -> DataFrame:
    """Return events with the number of their version, and with the event behind them."""
    values = F.struct(
        F.lit(0).alias("none"), *(F.col("v").getField(n).alias(f"t{i}") for i, n in enumerate(tracked))
    )
    rows = settled.withColumn("values", values)
    rows = rows.withColumn("before", F.lag(F.struct("exists", "epoch", "values")).over(by_key))
    rows = rows.withColumn("behind", F.lead(F.struct("at", "epoch")).over(by_key))
    continues = (
        F.col("before.exists")
        & (F.col("before.epoch") == F.col("epoch"))
        & F.col("before.values").eqNullSafe(F.col("values"))
    )
    begins = F.col("exists") & ~F.coalesce(continues, F.lit(False))
    number = F.sum(begins.cast("int")).over(by_key.rowsBetween(*_ALL))
    return rows.withColumn("number", number).where("exists")


def _grouped(
    numbered: DataFrame, keys: Sequence[str], endings: Sequence[Ending], *, newest: bool
) -> DataFrame:
    if newest:
        last = F.max("number").over(Window.partitionBy(*keys))
        numbered = numbered.withColumn("last", last).where("number = last")
    ended = F.when(F.col("behind.epoch") == F.col("epoch"), F.col("behind.at")).otherwise(
        _ending(endings, newest=newest)
    )
    rows = numbered.withColumn("ended", ended)
    found = rows.groupBy(*keys, "number").agg(
        F.min_by("at", "o").alias("first"), F.max_by(F.struct("v", "ended"), "o").alias("last")
    )
    return found.select(F.col("last.v").alias("v"), "first", F.col("last.ended").alias("end"))


def _epoch(endings: Sequence[Ending]) -> SparkColumn:
    """Return how many endings are before an event."""
    if not endings:
        return F.lit(0)
    here = F.struct(F.col("o.commit").alias("commit"), F.col("o.offset").alias("offset"))
    orders = F.array(*(F.struct(*_order(e)) for e in endings))
    return F.size(F.filter(orders, lambda order: order <= here))


def _ending(endings: Sequence[Ending], *, newest: bool) -> SparkColumn:
    """Return the place of the first ending after an event; null if there is none. Its time: see `versions_of`."""
    none = F.lit(None).cast(f"struct<{','.join(f'{name}:{kind}' for name, kind in PLACE)}>")
    if not endings:
        return none
    places = F.array(*(place(*map(F.lit, e.place)) for e in endings))
    found = F.get(places, F.col("epoch"))
    if not newest:
        found = found.withField("ts", F.greatest(found.getField("ts"), F.col("at.ts")))
    return F.when(F.col("epoch") < len(endings), found).otherwise(none)


def _order(ending: Ending) -> tuple[SparkColumn, SparkColumn]:
    commit, offset = ending.order
    return F.lit(commit).cast("bigint").alias("commit"), F.lit(offset).cast("bigint").alias("offset")
