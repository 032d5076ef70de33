"""Compute the rows of a mirror from the changes of its changelog: any size, lazily, with Spark.

The last change of each key counts. A table without a key has each row as often as it was added more than removed. If
the key changed, the rows of each era are computed with its key, and are the first rows of the next era.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType
from pyspark.sql.window import Window

from replicator.jvm.json_columns import json_meaning
from replicator.model.changelog import RowKind
from replicator.model.common import quoted
from replicator.model.types import LakeType
from replicator.operations.rebuild.changes import AT, VALUES, Changes
from replicator.schema.evolution.row_plan import ColumnPlan, KeyEra, RowPlan, value_sql

LACKS_CHANGES: Final = "the changelog removes rows that it did not add, so it lacks changes"
_POSITION: Final = f"`{AT}`.`position_key`"


def _value(column: ColumnPlan, types: Mapping[str, LakeType]) -> str:
    return value_sql(column, types, VALUES, _POSITION)


def rebuilt_rows(changes: Changes, plan: RowPlan, types: Mapping[str, LakeType]) -> DataFrame:
    """Return the rows of the mirror, with the columns of `plan`. `types` are those of the changelog's columns.

    Evaluation fails if a row without a key was removed more often than it was added: then the changelog lacks changes.
    """
    row = F.struct(
        *[F.expr(_value(column, types)).alias(f"c{i}") for i, column in enumerate(plan.columns)],
        *[
            F.expr(_value(column, types)).alias(name)
            for number, era in enumerate(plan.eras)
            for column, name in zip(_own_columns(era), _own_names(number, era), strict=True)
        ],
    )
    events = changes.since_reset().select(
        row.alias("row"),
        changes.order().alias("at"),
        F.col(AT).getField("kind").alias("kind"),
        F.col(AT).getField("position_key").alias("position_key"),
    )
    starts = [era.start for era in plan.eras]
    ends: Sequence[int | None] = [*starts[1:], None]

    def fold(rows: DataFrame | None, number: int) -> DataFrame:
        era, end = plan.eras[number], ends[number]
        own = events if number == 0 else events.where(F.col("position_key") >= era.start)
        own = own if end is None else own.where(F.col("position_key") < end)
        own = _narrowed(own, plan, number)
        if rows is not None:
            rows = _narrowed(_without_removed(rows, number, era), plan, number)
        return _of_keys(rows, own, _key_names(number, era)) if era.key else _of_copies(rows, own)

    first, *later = range(len(plan.eras))
    rows = reduce(fold, later, fold(None, first))
    return rows.select(*[F.col(f"row.c{i}").alias(c.name) for i, c in enumerate(plan.columns)])


def _of_keys(before: DataFrame | None, events: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the last row of each key, of `before` and of `events`."""
    exists = (F.col("kind") != str(RowKind.DELETE)).alias("exists")
    changed = events.where(F.col("kind") != str(RowKind.UPDATE_BEFORE)).select("row", "at", exists)
    if before is not None:
        first = F.struct(F.lit(-1).cast("long").alias("a"), F.lit(-1).cast("long").alias("b"))
        changed = before.select("row", first.alias("at"), F.lit(True).alias("exists")).unionByName(changed)
    keys = [F.col(f"row.{name}").alias(f"k{i}") for i, name in enumerate(key)]
    last = F.max_by(F.struct("row", "exists"), "at").alias("last")
    found = changed.select("*", *keys).groupBy(*[f"k{i}" for i in range(len(key))]).agg(last)
    return found.where("last.exists").select(F.col("last.row").alias("row"))


def _of_copies(before: DataFrame | None, events: DataFrame) -> DataFrame:
    """Return each row as often as `before` has it and `events` add it, less their removals.

    A removal may have its JSON in another form than the row: then it removes the first row with the same meaning.
    """
    removes = F.col("kind").isin(str(RowKind.DELETE), str(RowKind.UPDATE_BEFORE))
    counted = events.select("row", F.when(removes, F.lit(-1)).otherwise(F.lit(1)).alias("n"))
    if before is not None:
        counted = before.select("row", F.lit(1).alias("n")).unionByName(counted)
    copies = counted.groupBy("row").agg(F.sum("n").alias("n"))
    alike = Window.partitionBy(_meaning(copies))
    upto = alike.orderBy("row").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    added, removed = (F.greatest(sign * F.col("n"), F.lit(0)) for sign in (F.lit(1), F.lit(-1)))
    unclaimed = F.greatest(F.sum(added).over(upto) - F.sum(removed).over(alike), F.lit(0))
    lacking = F.raise_error(F.lit(LACKS_CHANGES))
    checked = F.when(F.sum("n").over(alike) < 0, lacking.cast("long")).otherwise(F.least(added, unclaimed))
    repeated = F.array_repeat(F.col("row"), F.col("n").cast("int"))
    return copies.select("row", checked.alias("n")).where("n > 0").select(F.explode(repeated).alias("row"))


def _meaning(rows: DataFrame) -> SparkColumn:
    """Return a value that is the same for rows that differ only in the form of their JSON documents."""
    kind = rows.schema["row"].dataType
    values = []
    for field in kind.fields:  # type: ignore[attr-defined]  # a struct
        value = F.col("row").getField(field.name)
        if isinstance(field.dataType, StringType):
            value = F.when(value.rlike(r"^[\[{]"), json_meaning(value)).otherwise(value)
        values.append(value.alias(field.name))
    return F.struct(*values)


def _key_names(number: int, era: KeyEra) -> list[str]:
    return [f"e{number}k{i}" for i in range(len(era.key))]


def _condition_names(number: int, era: KeyEra) -> list[str]:
    return [f"e{number}r{i}" for i in range(len(era.removed_by))]


def _own_columns(era: KeyEra) -> list[ColumnPlan]:
    return [*era.key, *era.removed_by]


def _own_names(number: int, era: KeyEra) -> list[str]:
    """Return the fields of a row that only the fold of an era needs."""
    return _key_names(number, era) + _condition_names(number, era)


def _without_removed(rows: DataFrame, number: int, era: KeyEra) -> DataFrame:
    """Return the rows that remain at the beginning of an era."""
    if era.removed is None:
        return rows
    values = [quoted("row", name) for name in _condition_names(number, era)]
    return rows.where(~F.expr(f"({era.removed.format(*values)})"))


def _narrowed(rows: DataFrame, plan: RowPlan, number: int) -> DataFrame:
    """Return rows without the fields of earlier eras: images of one row may differ in them by their positions."""
    names = [f"c{i}" for i in range(len(plan.columns))] + _key_names(number, plan.eras[number])
    names += [n for i, era in enumerate(plan.eras) if i > number for n in _own_names(i, era)]
    fields = [F.col("row").getField(name).alias(name) for name in names]
    return rows.withColumn("row", F.struct(*fields))
