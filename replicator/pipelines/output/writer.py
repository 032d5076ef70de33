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
from replicator.pipelines.held import held_rows, plain_values
from replicator.pipelines.inputs.states import WEIGHT
from replicator.pipelines.literals import is_near

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
    """Return net changes with the columns and types of a table, and `WEIGHT`; `changes` itself if it has them."""
    fields = rows_of(lake, table).schema.fields
    wanted = [*((f.name, f.dataType.simpleString()) for f in fields), (WEIGHT, "bigint")]
    if [(f.name, f.dataType.simpleString()) for f in changes.schema.fields] == wanted:
        return changes
    columns = [F.col(quoted(f.name)).cast(f.dataType).alias(f.name) for f in fields]
    return changes.select(*columns, F.col(WEIGHT).cast("bigint"))


def with_places(rows: DataFrame) -> DataFrame:
    """Return rows of `rows_of`, each with its data file and its position there."""
    return rows.select("*", F.col("_file").alias(_PATH), F.col("_pos").alias(_POS))


def without_places(rows: pa.Table) -> pa.Table:
    """Return the rows of `with_places` as they are."""
    return rows.drop_columns([_PATH, _POS])


def stage_changes(
    lake: Lake,
    table: LakeTable,
    changes: DataFrame,
    key: Sequence[str],
    place: Sequence[str] = (),
    *,
    held: pa.Table | None = None,
    placed: Sequence[pa.Table] = (),
) -> StagedChanges:
    """Stage net changes of a table, as `weighted` returns them: `WEIGHT` counts copies, below 0 removed ones.

    Args:
        key: columns that identify a row; empty without a key.
        place: columns that identify the removed rows, if not all rows; by default, `key`.
        held: the changes, if the driver holds them already.
        placed: rows of the table that the driver holds, with their places; others are searched.

    Raises:
        KeyViolated: rows with the same key are added.
        MissingRows: rows must be removed that the table does not have.
    """
    names = place or key
    if held is not None:
        return _stage(lake, table, changes, held, key, names, placed)
    if (few := held_rows(changes, [table])) is not None:
        return _stage(lake, table, local_frame(lake.spark, few), few, key, names, placed)
    kept = changes.persist()
    try:
        return _stage(lake, table, kept, None, key, names, ())
    finally:
        kept.unpersist()


def _stage(
    lake: Lake,
    table: LakeTable,
    changes: DataFrame,
    held: pa.Table | None,
    key: Sequence[str],
    place: Sequence[str],
    placed: Sequence[pa.Table],
) -> StagedChanges:
    added, removed = _counts(changes, held)
    if key:
        _check_key(changes, held, key)
    data = _stage_rows(lake, table, changes, held) if added else []
    failpoints.reach("after-pipeline-files")
    deletes = StagedDeletes()
    if removed:
        deletes = _stage_deletes(lake, table, changes, held, removed, place, placed)
    return StagedChanges(Staged(data, deletes), added, removed)


def _stage_deletes(
    lake: Lake,
    table: LakeTable,
    changes: DataFrame,
    held: pa.Table | None,
    removed: int,
    key: Sequence[str],
    placed: Sequence[pa.Table],
) -> StagedDeletes:
    snapshot = table.snapshot_id
    names = list(key) or [name for name in changes.columns if name != WEIGHT]
    found = POSITIONS.empty_table() if held is None else _known_positions(held, names, placed)
    if snapshot is not None and found.num_rows != removed:
        gone = changes.where(F.col(WEIGHT) < 0).withColumn(_WANTED, -F.col(WEIGHT)).drop(WEIGHT)
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
        rows = zip(*(plain_values(held.column(name)) for name in key), strict=True)
        copies = Counter[tuple[object, ...]]()
        for values, weight in zip(rows, held.column(WEIGHT).to_pylist(), strict=True):
            copies[values] += max(weight, 0)
        if (twice := next((values for values, count in copies.items() if count > 1), None)) is not None:
            raise KeyViolated(key, twice)
        return
    check_unique(changes.where(F.col(WEIGHT) > 0), key, F.sum(WEIGHT))


def check_unique(rows: DataFrame, key: Sequence[str], count: SparkColumn | None = None) -> None:
    """Check that no two rows have the same key; `count` is how many the rows of a group are, by default their number.

    Raises:
        KeyViolated: some have.
    """
    columns = [F.col(quoted(name)) for name in key]
    groups = rows.groupBy(*columns).agg((F.count(F.lit(1)) if count is None else count).alias(_WANTED))
    found = groups.where(F.col(_WANTED) > 1).limit(1).toArrow()
    if found.num_rows:
        raise KeyViolated(key, [plain_values(column)[0] for column in found.columns[: len(key)]])


def _stage_rows(lake: Lake, table: LakeTable, changes: DataFrame, held: pa.Table | None) -> list[object]:
    if held is not None:
        copies = [max(weight, 0) for weight in held.column(WEIGHT).to_pylist()]
        places = [number for number, count in enumerate(copies) for _ in range(count)]
        copied = held.drop_columns([WEIGHT]).take(pa.array(places, pa.int64()))
        if (written := written_rows(lake, table, copied)) is not None:
            return written
    repeated = F.explode(F.array_repeat(F.lit(0), F.col(WEIGHT).cast("int")))
    rows = changes.where(F.col(WEIGHT) > 0).withColumn(_WANTED, repeated)
    return list(stage_data(lake, table, as_table(lake, table, rows)))


def stage_rows(lake: Lake, table: LakeTable, rows: DataFrame, *like: LakeTable) -> list[object]:
    """Stage rows that are added to a table: by the driver if they are few; `like` are others with such rows."""
    few = held_rows(rows, [table, *like])
    written = None if few is None else written_rows(lake, table, few)
    return list(stage_data(lake, table, as_table(lake, table, rows))) if written is None else written


def written_rows(lake: Lake, table: LakeTable, rows: pa.Table) -> list[object] | None:
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
            condition = is_near(name, pc.unique(gone.column(name)))
            found = found if condition is None else found & condition
    return found


def _known_positions(held: pa.Table, names: Sequence[str], placed: Sequence[pa.Table]) -> pa.Table:
    """Return the positions of the removed rows among those that the driver holds, by the columns `names`.

    They are not all if rows have copies, or if values are not equal as they are in SQL.
    """
    kinds = [held.schema.field(name).type for name in names]
    places: dict[tuple[object, ...], tuple[object, object]] = {}
    for rows in () if any(pa.types.is_floating(k) or pa.types.is_nested(k) for k in kinds) else placed:
        values = zip(*(plain_values(rows.column(name)) for name in names), strict=True)
        where = zip(rows.column(_PATH).to_pylist(), rows.column(_POS).to_pylist(), strict=True)
        for value, place in zip(values, where, strict=True):
            if places.setdefault(value, place) != place:
                return POSITIONS.empty_table()
    gone = held.filter(pc.less(held.column(WEIGHT), 0)) if places else held.slice(0, 0)
    wanted = zip(*(plain_values(gone.column(name)) for name in names), strict=True)
    found = [places[values] for values in wanted if values in places]
    return pa.table({"file_path": [p for p, _ in found], "pos": [n for _, n in found]}, schema=POSITIONS)


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
