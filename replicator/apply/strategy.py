"""How net changes get into a mirror: position deletes and an append (split), or one MERGE.

Each strategy stages; `publish` makes the result visible in one step. Split is the default because it measures best:
finding the rows to delete is an inner join with a broadcast key list, while MERGE must be an outer join, which shuffles
and sorts the whole target.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from replicator.apply import sql
from replicator.apply.lake import Lake, LakeTable, lake_errors
from replicator.apply.publish import Staged
from replicator.apply.recent import Key, Place, Recent
from replicator.apply.stage import (
    POSITIONS,
    aligned,
    matching_positions,
    spark_type_name,
    stage_data,
    stage_deletes,
    stage_few_deletes,
)
from replicator.errors import MissingRows
from replicator.failpoints import reach
from replicator.model.change import NET
from replicator.model.names import quoted
from replicator.model.types import LakeType
from replicator.spark import local_frame

BRANCH: Final = "replicator_staging"

STRATEGY_PROPERTIES: Final[Mapping[str, Mapping[str, str]]] = {
    "split": {},
    "merge": dict.fromkeys(("write.merge.mode", "write.update.mode", "write.delete.mode"), "merge-on-read"),
    "copy-on-write": dict.fromkeys(
        ("write.merge.mode", "write.update.mode", "write.delete.mode"), "copy-on-write"
    ),
}


def split(
    lake: Lake,
    table: LakeTable,
    key: Sequence[str],
    keys: DataFrame,
    rows: DataFrame,
    *,
    clear: bool,
    few: bool,
) -> Staged:
    """Stage `rows` as new data files, and deletes for whatever has a key of `keys` now.

    `clear` empties the table in the same step; then, as in an empty table, nothing is to be looked up.
    `few` rows are handled with fewer Spark jobs.
    """
    branch, snapshot_id = (None, table.snapshot_id) if clear else _filled(lake, table)
    data = stage_data(lake, table, aligned(rows, table.columns()))
    reach("after-data-files")
    deletes = []
    if snapshot_id is not None and not clear and not table.is_empty:
        positions = matching_positions(lake, table, snapshot_id, key, keys)
        if few:
            deletes = stage_few_deletes(lake, table, snapshot_id, positions.toArrow())
        else:
            deletes = stage_deletes(lake, table, snapshot_id, positions)
        reach("after-delete-files")
    return Staged(data, deletes, clear=clear and not table.is_empty, branch=branch, fills_done=True)


@dataclass(frozen=True, slots=True)
class Few:
    """Few net changes, on the driver: keys (k0, k1, …) that changed; rows, and their keys in the same order."""

    keys: pa.Table
    row_keys: pa.Table
    rows: DataFrame


def split_few(
    lake: Lake, table: LakeTable, recent: Recent, few: Few
) -> tuple[Staged, Mapping[Key, Place | None] | None]:
    """`split` for few changes. Also tells where the rows are then; None where that cannot be known.

    The table must have no columns that are yet to be filled.
    """
    changed: dict[Key, Place | None] = dict.fromkeys(_tuples(few.keys))
    written = _tuples(few.row_keys)
    data = stage_data(lake, table, aligned(few.rows, table.columns())) if written else []
    reach("after-data-files")
    known = len(data) <= 1 and not table.is_partitioned and not table.is_sorted
    if known and written:
        # One task wrote one file, in the order in which it was given the rows.
        path = str(data[0].location())
        changed |= {key: (path, position) for position, key in enumerate(written)}
    deletes = []
    if table.snapshot_id is not None:
        positions = _positions(lake, table, recent, few.keys)
        deletes = stage_few_deletes(lake, table, table.snapshot_id, positions)
        reach("after-delete-files")
    return Staged(data, deletes), changed if known else None


def _positions(lake: Lake, table: LakeTable, recent: Recent, keys: pa.Table) -> pa.Table:
    """Where the rows of `keys` are now: remembered, or searched for in the base."""
    found: list[Place] = []
    unknown: list[int] = []
    for i, key in enumerate(_tuples(keys)):
        if key not in recent.places:
            unknown.append(i)
        elif (place := recent.places[key]) is not None:
            found.append(place)
    remembered = POSITIONS.empty_table()
    if found:
        paths, positions = zip(*found, strict=True)
        remembered = pa.table([paths, positions], schema=POSITIONS)
    if not unknown or recent.base is None:
        return remembered
    names = [name for name, _ in recent.key_columns]
    wanted = local_frame(lake.spark, keys.take(unknown))
    searched = matching_positions(lake, table, recent.base, names, wanted).toArrow()
    return pa.concat_tables([remembered, searched.cast(POSITIONS)])


def _tuples(rows: pa.Table) -> list[Key]:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def by_identity(
    lake: Lake, table: LakeTable, source: Sequence[str], net: DataFrame, *, clear: bool
) -> Staged:
    """Stage net changes of a table without a key: as many rows go or come as `net` says (see `collapse.net_rows`).

    `source` names the columns k0, k1, … of `net`.

    Raises:
        MissingRows: fewer rows are there than are to go.
    """
    branch, snapshot_id = (None, table.snapshot_id) if clear else _filled(lake, table)
    columns = table.columns()
    names = [f"k{i}" for i in range(len(source))]
    came = net.where(F.col(NET) > 0).withColumn("copy", F.explode(F.array_repeat(F.lit(0), F.col(NET))))
    rows = came.select(*[F.col(name).alias(column) for name, column in zip(names, source, strict=True)])
    data = stage_data(lake, table, aligned(rows, columns))
    reach("after-data-files")
    went = net.where(F.col(NET) < 0)
    wanted = int(went.agg(F.coalesce(-F.sum(NET), F.lit(0)).alias("n")).collect()[0].n)
    deletes: list[Any] = []
    if wanted:
        places = _some_positions(lake, table, None if clear else snapshot_id, columns, source, went)
        if places is None or places.num_rows < wanted or snapshot_id is None:
            found = 0 if places is None else places.num_rows
            raise MissingRows(
                f"{wanted} rows of {table.namespace}.{table.name} are to be removed or changed, and {found} of them "
                "are there; the table has no key, so rows are told apart by all their values",
                "drop the table in the lake and take a new snapshot of it, or mirror only its changes: "
                'keyless = "changelog"',
            )
        deletes = stage_few_deletes(lake, table, snapshot_id, places)
        reach("after-delete-files")
    return Staged(data, deletes, clear=clear and not table.is_empty, branch=branch, fills_done=True)


def _some_positions(
    lake: Lake,
    table: LakeTable,
    snapshot_id: int | None,
    columns: Mapping[str, LakeType],
    source: Sequence[str],
    went: DataFrame,
) -> pa.Table | None:
    """Where rows of a snapshot stand that equal those of `went`, of each as many as are to go; None in an empty table.

    Which of several equal rows goes does not matter.
    """
    if snapshot_id is None or table.is_empty:
        return None
    names = [f"k{i}" for i in range(len(source))]
    there = lake.spark.read.option("snapshot-id", str(snapshot_id)).table(table.sql_name)
    there = there.select(
        *[F.col(quoted(column)).alias(f"t{i}") for i, column in enumerate(source)],
        F.col("_file").alias("file_path"),
        F.col("_pos").alias("pos"),
    )
    gone = went.select(
        *[
            F.col(name).cast(spark_type_name(columns[column])).alias(name)
            for name, column in zip(names, source, strict=True)
        ],
        (-F.col(NET)).alias("wanted"),
    )
    same = F.lit(True)
    for i in range(len(source)):
        same &= F.col(f"t{i}").eqNullSafe(F.col(f"k{i}"))
    matches = there.join(F.broadcast(gone), same).select(*names, "wanted", "file_path", "pos")
    order = Window.partitionBy(*names).orderBy("file_path", "pos")
    chosen = matches.withColumn("nth", F.row_number().over(order)).where(F.col("nth") <= F.col("wanted"))
    return chosen.select("file_path", "pos").toArrow().cast(POSITIONS)


def merge(
    lake: Lake,
    table: LakeTable,
    key: Sequence[str],
    keys: DataFrame,
    rows: DataFrame,
    *,
    clear: bool,
    few: bool,
) -> Staged:
    """Stage one MERGE on a branch; its mode (merge-on-read, copy-on-write) is a property of the table."""
    if clear or table.is_empty:
        return split(lake, table, key, keys, rows, clear=clear, few=few)
    branch, _ = _filled(lake, table)
    if branch is None:
        lake.create_branch(table, BRANCH)
    columns = table.columns()
    view = f"net_{uuid.uuid4().hex}"
    net_rows = aligned(rows, columns)
    names = [f"k{i}" for i in range(len(key))]
    images = net_rows.select(
        *[F.col(quoted(column)).alias(name) for column, name in zip(key, names, strict=True)],
        F.struct(*[F.col(quoted(name)) for name in columns]).alias("row"),
    )
    keys.select(*names).join(images, names, "left").createOrReplaceTempView(view)
    try:
        lake.spark.sql(sql.merge(f"{table.sql_name}.`branch_{BRANCH}`", view, list(columns), key))
    finally:
        lake.spark.catalog.dropTempView(view)
    reach("after-data-files")
    _refresh(table)
    return Staged(branch=BRANCH, fills_done=True)


def finish(lake: Lake, table: LakeTable) -> Staged | None:
    """Stage what a change of the schema left to be done to the rows; None where that is nothing."""
    if table.pending_clear() is not None:
        return Staged(clear=not table.is_empty, fills_done=True)
    if not table.pending_fills():
        return None
    branch, _ = _filled(lake, table)
    return Staged(branch=branch, fills_done=True)


def _filled(lake: Lake, table: LakeTable) -> tuple[str | None, int | None]:
    """Fill columns that were added, on a branch. Returns the branch, if any, and the snapshot to go on from."""
    fills = table.pending_fills()
    if not fills or table.is_empty:
        return None, table.snapshot_id
    columns: Mapping[str, LakeType] = table.columns()
    lake.create_branch(table, BRANCH)
    text = sql.fill(
        f"{table.sql_name}.`branch_{BRANCH}`", [(name, spark_type_name(columns[name])) for name in fills]
    )
    lake.spark.sql(text, args={f"v{i}": value for i, value in enumerate(fills.values())})
    _refresh(table)
    return BRANCH, int(table.java.refs().get(BRANCH).snapshotId())


def _refresh(table: LakeTable) -> None:
    with lake_errors(f"table {table.namespace}.{table.name} cannot be read again"):
        table.java.refresh()
