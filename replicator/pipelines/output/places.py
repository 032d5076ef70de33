"""Where the rows are that a refresh removes from a result: file and position of each."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.files.data_files import POSITIONS, FilePositions
from replicator.lake.files.spark_tables import rows_of
from replicator.lake.rows.locations import RowLocationCache, RowLocations
from replicator.lake.rows.search import locate
from replicator.model.common import quoted
from replicator.pipelines.held import are_equal_as_in_sql, plain_values
from replicator.pipelines.literals import is_near
from replicator.pipelines.query.names import WEIGHT

WANTED: Final = "_replicator_wanted"
_PATH: Final = "_replicator_path"
_POS: Final = "_replicator_pos"


def with_places(rows: DataFrame) -> DataFrame:
    """Return rows of `rows_of`, each with its data file and its position there."""
    return rows.select("*", F.col("_file").alias(_PATH), F.col("_pos").alias(_POS))


def without_places(rows: pa.Table) -> pa.Table:
    """Return the rows of `with_places` as they are."""
    return rows.drop_columns([_PATH, _POS])


@dataclass(frozen=True, slots=True)
class Index:
    """The index of the rows of a result by their key, for one commit.

    Attributes:
        known: the index.
        gone: the keys of the rows that the commit removes, as columns k0, k1, ….
    """

    cache: RowLocationCache
    known: RowLocations
    gone: pa.Table

    @classmethod
    def of(
        cls, cache: RowLocationCache, table: LakeTable, key: Sequence[str], held: pa.Table
    ) -> "Index | None":
        """Return the index for net changes that the driver holds; None if rows cannot be found by their key."""
        if not are_equal_as_in_sql(held.schema, key) or not set(key) <= table.columns().keys():
            return None
        gone = held.filter(pc.less(held.column(WEIGHT), 0)).select(list(key))
        return cls(
            cache, cache.of(table, tuple(key)), gone.rename_columns([f"k{i}" for i in range(len(key))])
        )

    def positions(
        self, lake: Lake, table: LakeTable, search: Callable[[], list[FilePositions]]
    ) -> list[FilePositions]:
        """Return the positions of the removed rows in the current snapshot of the table.

        They are searched until that has taken as long as reading all keys of the table would.
        """
        known = self.known
        if known.is_complete or self.cache.is_worth_reading(known, table.total_rows):
            return locate(lake, table, known, self.gone, self.cache)
        began = time.monotonic()
        found = search()
        known.searched_s += time.monotonic() - began
        return found


def _is_near(held: pa.Table | None, names: Sequence[str]) -> SparkColumn:
    """Return a condition that all removed rows meet, so that files without such rows are skipped."""
    found = F.lit(True)
    if held is not None:
        gone = held.filter(pc.less(held.column(WEIGHT), 0))
        for name in names:
            if pa.types.is_nested(held.schema.field(name).type):
                continue
            condition = is_near(name, pc.unique(gone.column(name)))
            found = found if condition is None else found & condition
    return found


def known_positions(held: pa.Table, names: Sequence[str], placed: Sequence[pa.Table]) -> pa.Table:
    """Return the positions of the removed rows among those that the driver holds, by the columns `names`.

    They are not all if rows have copies, or if values are not equal as they are in SQL.
    """
    places: dict[tuple[object, ...], tuple[object, object]] = {}
    for rows in placed if are_equal_as_in_sql(held.schema, names) else ():
        values = zip(*(plain_values(rows.column(name)) for name in names), strict=True)
        where = zip(rows.column(_PATH).to_pylist(), rows.column(_POS).to_pylist(), strict=True)
        for value, place in zip(values, where, strict=True):
            if places.setdefault(value, place) != place:
                return POSITIONS.empty_table()
    gone = held.filter(pc.less(held.column(WEIGHT), 0)) if places else held.slice(0, 0)
    wanted = zip(*(plain_values(gone.column(name)) for name in names), strict=True)
    found = [places[values] for values in wanted if values in places]
    return pa.table({"file_path": [p for p, _ in found], "pos": [n for _, n in found]}, schema=POSITIONS)


def searched_positions(
    lake: Lake,
    table: LakeTable,
    changes: DataFrame,
    held: pa.Table | None,
    names: Sequence[str],
    *,
    unique: bool,
) -> pa.Table:
    """Return the positions of the rows that net changes remove from a table.

    The columns `names` identify them; if they are not `unique`, of equal rows as many are found as are removed. `held`
    are the changes if the driver holds them.
    """
    stored = rows_of(lake, table).where(_is_near(held, names))
    gone = changes.where(F.col(WEIGHT) < 0).withColumn(WANTED, -F.col(WEIGHT)).drop(WEIGHT)
    places = [F.col("_file").alias(_PATH), F.col("_pos").alias(_POS)]
    stored = stored.select(*(F.col(quoted(name)) for name in names), *places)
    wanted = gone.select(*(F.col(quoted(n)).alias(f"_replicator_g{i}") for i, n in enumerate(names)), WANTED)
    same = [stored[quoted(n)].eqNullSafe(F.col(f"_replicator_g{i}")) for i, n in enumerate(names)]
    found = stored.join(F.broadcast(wanted), reduce(SparkColumn.__and__, same))
    if not unique:
        alike = Window.partitionBy(*(F.col(quoted(name)) for name in names)).orderBy(_PATH, _POS)
        found = found.withColumn("_replicator_nth", F.row_number().over(alike))
        found = found.where(F.col("_replicator_nth") <= F.col(WANTED))
    chosen = found.select(F.col(_PATH).alias("file_path"), F.col(_POS).alias("pos"))
    return chosen.toArrow().cast(POSITIONS)
