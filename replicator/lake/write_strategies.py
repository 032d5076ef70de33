"""How net changes get into a mirror: position deletes and an append (split), or one MERGE.

Each strategy stages; `publish` makes the result visible in one step. Split is the default because it measures best:
finding the rows to delete is an inner join with a broadcast key list, while MERGE must be an outer join, which shuffles
and sorts the whole target.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from replicator import failpoints
from replicator.errors import MissingRows
from replicator.jvm.spark import local_frame
from replicator.lake import sql
from replicator.lake.catalog import Lake, LakeTable, lake_errors
from replicator.lake.commit import Staged
from replicator.lake.data_files import (
    POSITIONS,
    cast_to_table,
    matching_positions,
    stage_data,
    stage_deletes_on_driver,
)
from replicator.lake.row_locations import RowChanges, RowKey, RowLocation, RowLocations
from replicator.model.changelog import NET
from replicator.model.identifiers import quoted
from replicator.model.types import LakeType, spark_sql_name

BRANCH: Final = "replicator_staging"

STRATEGY_PROPERTIES: Final[Mapping[str, Mapping[str, str]]] = {
    "split": {},
    "merge": dict.fromkeys(("write.merge.mode", "write.update.mode", "write.delete.mode"), "merge-on-read"),
    "copy-on-write": dict.fromkeys(
        ("write.merge.mode", "write.update.mode", "write.delete.mode"), "copy-on-write"
    ),
}


class DeleteWriter(Protocol):
    """Writes position-delete files for `positions` (file_path, pos) in a snapshot of a table."""

    def __call__(self, lake: Lake, table: LakeTable, snapshot_id: int, positions: DataFrame) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class MirrorChange:
    """The net changes of a batch, to be staged.

    Attributes:
        key: the key columns of the table.
        keys: each changed key once (columns k0, k1, ...).
        rows: the new rows.
        clear: all earlier rows are removed in the same commit.
        write_deletes: how position-delete files are written.
    """

    key: Sequence[str]
    keys: DataFrame
    rows: DataFrame
    clear: bool
    write_deletes: DeleteWriter


@dataclass(frozen=True, slots=True)
class LocatedChange:
    """Net changes that the driver holds.

    Attributes:
        keys: each changed key once (columns k0, k1, ...).
        row_keys: the keys of `rows`, in the same order.
        rows: the new rows.
        locations: the known locations of rows before the change.
    """

    keys: pa.Table
    row_keys: pa.Table
    rows: DataFrame
    locations: RowLocations


class WriteStrategy(Protocol):
    """Stages a change; `TableWriter.commit` makes the result visible in one commit."""

    def stage(self, lake: Lake, table: LakeTable, change: MirrorChange) -> Staged: ...


class Split:
    """New data files, and position deletes for the rows that have a changed key."""

    def stage(self, lake: Lake, table: LakeTable, change: MirrorChange) -> Staged:
        """Stage `change`. A table that is empty or is cleared is not searched."""
        branch, snapshot_id = (None, table.snapshot_id) if change.clear else _filled(lake, table)
        data = stage_data(lake, table, cast_to_table(change.rows, table.columns()))
        failpoints.reach("after-data-files")
        deletes = []
        if snapshot_id is not None and not change.clear and not table.is_empty:
            positions = matching_positions(lake, table, snapshot_id, change.key, change.keys)
            deletes = change.write_deletes(lake, table, snapshot_id, positions)
            failpoints.reach("after-delete-files")
        return Staged(
            data, deletes, clear=change.clear and not table.is_empty, branch=branch, fills_done=True
        )


def stage_located(lake: Lake, table: LakeTable, change: LocatedChange) -> Staged:
    """Stage a change as `Split` does, with the row locations that this process knows.

    The table must have no columns that are still to be filled.
    """
    changed: dict[RowKey, RowLocation | None] = dict.fromkeys(_tuples(change.keys))
    written = _tuples(change.row_keys)
    data = stage_data(lake, table, cast_to_table(change.rows, table.columns())) if written else []
    failpoints.reach("after-data-files")
    known = len(data) <= 1 and not table.is_partitioned and not table.is_sorted
    if known and written:
        # One task wrote one file, in the order of the rows that it was given.
        path = str(data[0].location())
        changed |= {key: (path, position) for position, key in enumerate(written)}
    deletes = []
    if table.snapshot_id is not None:
        positions = _positions(lake, table, change.locations, change.keys)
        deletes = stage_deletes_on_driver(lake, table, table.snapshot_id, positions)
        failpoints.reach("after-delete-files")
    return Staged(data, deletes, row_changes=RowChanges(change.locations, changed if known else None))


def _positions(lake: Lake, table: LakeTable, recent: RowLocations, keys: pa.Table) -> pa.Table:
    """Where the rows of `keys` are now: remembered, or searched for in the base."""
    found: list[RowLocation] = []
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


def _tuples(rows: pa.Table) -> list[RowKey]:
    return list(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def stage_by_identity(
    lake: Lake, table: LakeTable, source: Sequence[str], net: DataFrame, *, clear: bool
) -> Staged:
    """Stage the net changes of a table without a key: `net` has the number of rows to add or remove (`net_rows`).

    `source` names the columns k0, k1, … of `net`.

    Raises:
        MissingRows: fewer rows are there than are to go.
    """
    branch, snapshot_id = (None, table.snapshot_id) if clear else _filled(lake, table)
    columns = table.columns()
    names = [f"k{i}" for i in range(len(source))]
    came = net.where(F.col(NET) > 0).withColumn("copy", F.explode(F.array_repeat(F.lit(0), F.col(NET))))
    rows = came.select(*[F.col(name).alias(column) for name, column in zip(names, source, strict=True)])
    data = stage_data(lake, table, cast_to_table(rows, columns))
    failpoints.reach("after-data-files")
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
        deletes = stage_deletes_on_driver(lake, table, snapshot_id, places)
        failpoints.reach("after-delete-files")
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
            F.col(name).cast(spark_sql_name(columns[column])).alias(name)
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


class Merge:
    """One MERGE statement on a branch. Its mode (merge-on-read, copy-on-write) is a property of the table."""

    def stage(self, lake: Lake, table: LakeTable, change: MirrorChange) -> Staged:
        """Stage `change`; as `Split` if the table is empty or is cleared."""
        if change.clear or table.is_empty:
            return Split().stage(lake, table, change)
        branch, _ = _filled(lake, table)
        if branch is None:
            lake.create_branch(table, BRANCH)
        columns = table.columns()
        view = f"net_{uuid.uuid4().hex}"
        net_rows = cast_to_table(change.rows, columns)
        names = [f"k{i}" for i in range(len(change.key))]
        images = net_rows.select(
            *[F.col(quoted(column)).alias(name) for column, name in zip(change.key, names, strict=True)],
            F.struct(*[F.col(quoted(name)) for name in columns]).alias("row"),
        )
        change.keys.select(*names).join(images, names, "left").createOrReplaceTempView(view)
        try:
            statement = sql.merge(f"{table.sql_name}.`branch_{BRANCH}`", view, list(columns), change.key)
            lake.spark.sql(statement)
        finally:
            lake.spark.catalog.dropTempView(view)
        failpoints.reach("after-data-files")
        _refresh(table)
        return Staged(branch=BRANCH, fills_done=True)


def stage_pending(lake: Lake, table: LakeTable) -> Staged | None:
    """Stage the row changes that a schema change left to do; None if there are none."""
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
        f"{table.sql_name}.`branch_{BRANCH}`", [(name, spark_sql_name(columns[name])) for name in fills]
    )
    lake.spark.sql(text, args={f"v{i}": value for i, value in enumerate(fills.values())})
    _refresh(table)
    return BRANCH, int(table.java.refs().get(BRANCH).snapshotId())


def _refresh(table: LakeTable) -> None:
    with lake_errors(f"table {table.namespace}.{table.name} cannot be read again"):
        table.java.refresh()
