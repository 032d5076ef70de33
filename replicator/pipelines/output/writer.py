"""Stage the rows of a result: all of them, or its net changes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from replicator import failpoints
from replicator.errors import MissingRows
from replicator.jvm.spark import local_frame
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.commit import Staged
from replicator.lake.files.data_files import POSITIONS, by_file, stage_data
from replicator.lake.files.deletes import StagedDeletes, stage_positions
from replicator.lake.files.driver_files import writable_rows, write_data
from replicator.lake.files.spark_tables import rows_of
from replicator.model.common import counted, quoted
from replicator.pipelines.held import held_rows
from replicator.pipelines.inputs.states import WEIGHT
from replicator.pipelines.literals import is_among

_WANTED: Final = "_replicator_wanted"
_PATH: Final = "_replicator_path"
_POS: Final = "_replicator_pos"


class KeyViolated(Exception):  # noqa: N818 - as the errors of the engine
    """Rows of a result have the same key."""

    def __init__(self, key: Sequence[str], values: Sequence[object]) -> None:
        pairs = ", ".join(f"{name} = {value!r}" for name, value in zip(key, values, strict=True))
        super().__init__(f"several rows have the key {pairs}")


def as_table(lake: Lake, table: LakeTable, rows: DataFrame) -> DataFrame:
    """Return rows with the columns and types of a table."""
    fields = rows_of(lake, table).schema.fields
    return rows.select(*(F.col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in fields))


def stage_all(lake: Lake, table: LakeTable, rows: DataFrame) -> Staged:
    """Stage rows that replace all rows of a table."""
    data = stage_data(lake, table, as_table(lake, table, rows))
    failpoints.reach("after-pipeline-files")
    return Staged(data, clear=not table.is_empty)


@dataclass(frozen=True, slots=True)
class StagedChanges:
    """Staged net changes, and how many rows are added and removed."""

    staged: Staged
    added: int = 0
    removed: int = 0


def weighted(lake: Lake, table: LakeTable, changes: DataFrame) -> DataFrame:
    """Return net changes with the columns and types of a table, and `WEIGHT`."""
    fields = rows_of(lake, table).schema.fields
    columns = [F.col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in fields]
    return changes.select(*columns, F.col(WEIGHT).cast("bigint"))


def stage_changes(
    lake: Lake, table: LakeTable, changes: DataFrame, key: Sequence[str], place: Sequence[str] = ()
) -> StagedChanges:
    """Stage net changes of a table, as `weighted` returns them: `WEIGHT` counts copies, below 0 removed ones.

    Args:
        key: columns that identify a row; empty without a key.
        place: columns that identify the removed rows, if not all rows; by default, `key`.

    Raises:
        KeyViolated: rows with the same key are added.
        MissingRows: rows must be removed that the table does not have.
    """
    if (few := held_rows(changes, [table])) is not None:
        return _stage(lake, table, local_frame(lake.spark, few), few, key, place or key)
    kept = changes.persist()
    try:
        return _stage(lake, table, kept, None, key, place or key)
    finally:
        kept.unpersist()


def _stage(
    lake: Lake,
    table: LakeTable,
    changes: DataFrame,
    held: pa.Table | None,
    key: Sequence[str],
    place: Sequence[str],
) -> StagedChanges:
    added, removed = _counts(changes, held)
    if key:
        _check_key(changes, held, key)
    data = _stage_rows(lake, table, changes, held) if added else []
    failpoints.reach("after-pipeline-files")
    deletes = _stage_deletes(lake, table, changes, held, removed, place) if removed else StagedDeletes()
    return StagedChanges(Staged(data, deletes), added, removed)


def _stage_deletes(
    lake: Lake,
    table: LakeTable,
    changes: DataFrame,
    held: pa.Table | None,
    removed: int,
    key: Sequence[str],
) -> StagedDeletes:
    gone = changes.where(F.col(WEIGHT) < 0).withColumn(_WANTED, -F.col(WEIGHT)).drop(WEIGHT)
    snapshot = table.snapshot_id
    names = list(key) or [name for name in gone.columns if name != _WANTED]
    found = POSITIONS.empty_table()
    if snapshot is not None:
        found = _positions(rows_of(lake, table).where(_is_near(held, names)), gone, names, unique=bool(key))
    if found.num_rows != removed or snapshot is None:
        raise MissingRows(
            f"{counted(removed, 'row')} of {table.namespace}.{table.name} must be replaced, and it has "
            f"{found.num_rows:,} of them: others have changed it",
            "compute it again: replicator pipeline rebuild NAME",
        )
    return stage_positions(lake, table, snapshot, by_file(found))


def _counts(changes: DataFrame, held: pa.Table | None) -> tuple[int, int]:
    if held is not None:
        weights = held.column(WEIGHT).to_pylist()
        return sum(w for w in weights if w > 0), -sum(w for w in weights if w < 0)
    weight = F.col(WEIGHT)
    row = changes.agg(F.sum(F.greatest(weight, F.lit(0))), F.sum(F.greatest(-weight, F.lit(0)))).collect()[0]
    return int(row[0] or 0), int(row[1] or 0)


def _check_key(changes: DataFrame, held: pa.Table | None, key: Sequence[str]) -> None:
    if held is not None:
        rows = zip(*(held.column(name).to_pylist() for name in (*key, WEIGHT)), strict=True)
        copies = Counter[tuple[object, ...]]()
        for *values, weight in rows:
            copies[tuple(values)] += max(weight, 0)
        if (twice := next((values for values, count in copies.items() if count > 1), None)) is not None:
            raise KeyViolated(key, twice)
        return
    columns = [F.col(quoted(name)) for name in key]
    groups = changes.where(F.col(WEIGHT) > 0).groupBy(*columns).agg(F.sum(WEIGHT).alias(_WANTED))
    for row in groups.where(F.col(_WANTED) > 1).limit(1).collect():
        raise KeyViolated(key, list(row)[: len(key)])


def _stage_rows(lake: Lake, table: LakeTable, changes: DataFrame, held: pa.Table | None) -> list[object]:
    if held is not None:
        copies = [max(weight, 0) for weight in held.column(WEIGHT).to_pylist()]
        places = [number for number, count in enumerate(copies) for _ in range(count)]
        copied = held.drop_columns([WEIGHT]).take(pa.array(places, pa.int64()))
        if (written := _written(lake, table, copied)) is not None:
            return written
    repeated = F.explode(F.array_repeat(F.lit(0), F.col(WEIGHT).cast("int")))
    rows = changes.where(F.col(WEIGHT) > 0).withColumn(_WANTED, repeated)
    return list(stage_data(lake, table, as_table(lake, table, rows)))


def stage_rows(lake: Lake, table: LakeTable, rows: DataFrame, *like: LakeTable) -> list[object]:
    """Stage rows that are added to a table: by the driver if they are few; `like` are others with such rows."""
    few = held_rows(rows, [table, *like])
    written = None if few is None else _written(lake, table, few)
    return list(stage_data(lake, table, as_table(lake, table, rows))) if written is None else written


def _written(lake: Lake, table: LakeTable, rows: pa.Table) -> list[object] | None:
    """Write rows on the driver; return None if only Spark can."""
    parts = writable_rows(table, rows)
    return None if parts is None else [write_data(lake, table, part).file for part in parts]


def _is_near(held: pa.Table | None, names: Sequence[str]) -> SparkColumn:
    """Return a condition that all removed rows meet, so that files without such rows are skipped."""
    found = F.lit(True)
    if held is not None:
        gone = held.filter(pc.less(held.column(WEIGHT), 0))
        for name in names:
            if pa.types.is_nested(held.schema.field(name).type):
                continue
            condition = is_among(name, pc.unique(gone.column(name)))
            found = found if condition is None else found & condition
    return found


def _positions(stored: DataFrame, gone: DataFrame, names: Sequence[str], *, unique: bool) -> pa.Table:
    """Return the positions of the removed rows, by the columns `names`; of equal rows, as many as are removed."""
    places = [F.col("_file").alias(_PATH), F.col("_pos").alias(_POS)]
    stored = stored.select(*(F.col(quoted(name)) for name in names), *places)
    wanted = gone.select(*(F.col(quoted(n)).alias(f"_replicator_g{i}") for i, n in enumerate(names)), _WANTED)
    same = [stored[quoted(n)].eqNullSafe(F.col(f"_replicator_g{i}")) for i, n in enumerate(names)]
    found = stored.join(F.broadcast(wanted), reduce(SparkColumn.__and__, same))
    if not unique:
        alike = Window.partitionBy(*(F.col(quoted(name)) for name in names)).orderBy(_PATH, _POS)
        found = found.withColumn("_replicator_nth", F.row_number().over(alike))
        found = found.where(F.col("_replicator_nth") <= F.col(_WANTED))
    chosen = found.select(F.col(_PATH).alias("file_path"), F.col(_POS).alias("pos"))
    return chosen.toArrow().cast(POSITIONS)
