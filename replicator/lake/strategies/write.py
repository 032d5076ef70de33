"""Stage net changes for a mirror: as position deletes and an append (split), or with one MERGE.

A strategy only writes files; `TableWriter.commit` makes them visible. Split is the default because it is the fastest
in measurements: it finds the rows to delete with an inner join and broadcast keys, whereas MERGE needs an outer join,
which shuffles and sorts the whole target.
"""

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.window import Window

from replicator import failpoints
from replicator.errors import MissingRows
from replicator.jvm.json_columns import json_meaning
from replicator.lake import sql
from replicator.lake.catalog.tables import Lake, LakeTable, lake_errors
from replicator.lake.commit import Staged
from replicator.lake.files.data_files import (
    POSITIONS,
    FilePositions,
    by_file,
    cast_to_table,
    matching_positions,
    stage_data,
    with_partitions,
)
from replicator.lake.files.deletes import StagedDeletes, stage_positions
from replicator.lake.files.driver_files import WrittenData, writable_rows, write_data, write_equality_deletes
from replicator.lake.files.partitions import PartitionRows, data_file_ref
from replicator.lake.files.small_files import OWN_FILE, SmallChanges, SmallFiles, absorb
from replicator.lake.others import refuse_loss
from replicator.lake.rows.locations import FileKeys, RowChanges, RowLocationCache
from replicator.lake.rows.search import locate
from replicator.lake.strategies.equality import equality_keys
from replicator.model.changelog import NET
from replicator.model.common import counted, quoted
from replicator.model.types import LakeType, spark_sql_name

BRANCH: Final = "replicator_staging"

STRATEGY_PROPERTIES: Final[Mapping[str, Mapping[str, str]]] = {
    "split": {},
    "merge": dict.fromkeys(("write.merge.mode", "write.update.mode", "write.delete.mode"), "merge-on-read"),
    "copy-on-write": dict.fromkeys(
        ("write.merge.mode", "write.update.mode", "write.delete.mode"), "copy-on-write"
    ),
    "equality": {},
}


class DeleteStager(Protocol):
    """Stages the deletes of `positions` (file_path, pos) in a snapshot of a table."""

    def __call__(
        self, lake: Lake, table: LakeTable, snapshot_id: int, positions: DataFrame
    ) -> StagedDeletes: ...


@dataclass(frozen=True, slots=True)
class MirrorChange:
    """The net changes of a batch, to be staged.

    Attributes:
        key: the key columns of the table.
        keys: each changed key once (columns k0, k1, ...).
        rows: the new rows.
        clear: all earlier rows are removed in the same commit.
        stage_deletes: how the deletes of rows are staged.
    """

    key: Sequence[str]
    keys: DataFrame
    rows: DataFrame
    clear: bool
    stage_deletes: DeleteStager


@dataclass(frozen=True, slots=True)
class LocatedChange:
    """Net changes whose keys the driver holds.

    Attributes:
        key: the key columns of the table.
        keys: each changed key once (columns k0, k1, ...).
        frame: returns the new rows.
        rows: the new rows and their keys, in the same order, if the driver holds them; else None.
    """

    key: tuple[str, ...]
    keys: pa.Table
    frame: Callable[[], DataFrame]
    rows: tuple[pa.Table, pa.Table] | None = None


class WriteStrategy(Protocol):
    """Stages a change; `TableWriter.commit` makes the result visible in one commit."""

    def stage(self, lake: Lake, table: LakeTable, change: MirrorChange) -> Staged: ...


class Split:
    """Writes new data files, and position deletes for the rows with a changed key."""

    def stage(self, lake: Lake, table: LakeTable, change: MirrorChange) -> Staged:
        """Stage `change`; if the table is empty or is cleared, search no rows."""
        branch, snapshot_id = (None, table.snapshot_id) if change.clear else _filled(lake, table)
        data = stage_data(lake, table, cast_to_table(change.rows, table.columns()))
        failpoints.reach("after-data-files")
        deletes = StagedDeletes()
        if snapshot_id is not None and not change.clear and not table.is_empty:
            positions = matching_positions(lake, table, snapshot_id, change.key, change.keys)
            deletes = change.stage_deletes(lake, table, snapshot_id, positions)
            failpoints.reach("after-delete-files")
        return Staged(
            data, deletes, clear=change.clear and not table.is_empty, branch=branch, fills_done=True
        )


def stage_located(
    lake: Lake, table: LakeTable, change: LocatedChange, cache: RowLocationCache, small: SmallFiles | None
) -> Staged:
    """Stage a change as `Split` does, with the row locations that this process knows.

    The commit absorbs the newest of the table's `small` files. The table must not have columns that are still to be
    filled.
    """
    known = cache.of(table, change.key)
    positions: Sequence[FilePositions] = ()
    if table.snapshot_id is not None:
        found = locate(lake, table, known, change.keys, cache)
        positions = with_partitions(table, table.snapshot_id, found)
    absorbed = absorb(table, small, _driver_rows(table, change), positions)
    rows = _stage_rows(lake, table, change, absorbed.rows)
    failpoints.reach("after-data-files")
    deletes = StagedDeletes()
    if table.snapshot_id is not None:
        own_file = OWN_FILE if absorbed.files.deletes else None
        deletes = stage_positions(lake, table, table.snapshot_id, absorbed.positions, own_file)
        failpoints.reach("after-delete-files")
    removed = frozenset(absorbed.files.paths)
    # The driver cannot merge the files of a table with row lineage: it does not know the ids of the rows.
    small_files = SmallChanges(rows.written, deletes.written, absorbed.files)
    return Staged(
        rows.files,
        deletes,
        row_changes=RowChanges(known, change.keys, rows.located, rows.files, removed),
        small_files=None if table.has_deletion_vectors else small_files,
    )


@dataclass(frozen=True, slots=True)
class _StagedRows:
    """The files of new rows.

    Attributes:
        files: Iceberg's DataFile objects.
        located: the keys of the rows of each file; None if they are not known.
        written: those of the files that the driver wrote.
    """

    files: list[Any]
    located: Sequence[FileKeys] | None = None
    written: Sequence[WrittenData] = ()


def _driver_rows(table: LakeTable, change: LocatedChange) -> list[PartitionRows] | None:
    """Return the new rows by partition, if the driver holds them and can write them; else None."""
    return None if change.rows is None else writable_rows(table, change.rows[0])


def _stage_rows(
    lake: Lake, table: LakeTable, change: LocatedChange, parts: Sequence[PartitionRows] | None
) -> _StagedRows:
    """Write rows: on the driver those of `parts`, with Spark the new rows of `change` if it is None."""
    if parts is not None:
        written = [write_data(lake, table, part) for part in parts]
        located = [
            FileKeys(part.rows.select(change.key), data.ref)
            for part, data in zip(parts, written, strict=True)
        ]
        return _StagedRows([data.file for data in written], located, written)
    data = stage_data(lake, table, cast_to_table(change.frame(), table.columns()))
    if change.rows is None or len(data) != 1 or table.is_partitioned or table.is_sorted:
        return _StagedRows(data)
    # One task wrote one file, in the order of the rows that it was given.
    return _StagedRows(data, [FileKeys(change.rows[1], data_file_ref(table, data[0]))])


def stage_equality(lake: Lake, table: LakeTable, change: LocatedChange) -> Staged | None:
    """Stage a change with the changed keys as equality deletes: no row of the table is read.

    Return None if the keys do not have the table's types. The table must fit, see `equality_obstacle`.
    """
    keys = equality_keys(table, change.key, change.keys)
    if keys is None:
        return None
    rows = _stage_rows(lake, table, change, _driver_rows(table, change))
    failpoints.reach("after-data-files")
    deletes = []
    # Every key is deleted, also of inserts: after a redelivery or a replay the table may have the row.
    if not table.is_empty and keys.num_rows:
        deletes.append(write_equality_deletes(lake, table, keys))
        failpoints.reach("after-delete-files")
    return Staged(rows.files, equality_deletes=deletes)


def stage_by_identity(
    lake: Lake, table: LakeTable, source: Sequence[str], net: DataFrame, json: Collection[str], *, clear: bool
) -> Staged:
    """Stage the net changes of a table without a key: `net` has the number of rows to add or remove (`net_rows`).

    `source` names the columns k0, k1, … of `net`. Those of `json` are compared by meaning: rows that were read from the
    source may have their JSON in another form than events.

    Raises:
        MissingRows: the table has fewer rows than must be deleted.
        ForeignColumns: rows must be deleted in which others may have written values of their own columns.
    """
    deleted = net.where(F.col(NET) < 0)
    wanted = int(deleted.agg(F.coalesce(-F.sum(NET), F.lit(0)).alias("n")).collect()[0].n)
    if wanted and not clear:
        # Rows that are equal in the source may have different values.
        refuse_loss(table, "a changed or deleted row of a table without a key")
    branch, snapshot_id = (None, table.snapshot_id) if clear else _filled(lake, table)
    columns = table.columns()
    names = [f"k{i}" for i in range(len(source))]
    added = net.where(F.col(NET) > 0).withColumn("copy", F.explode(F.array_repeat(F.lit(0), F.col(NET))))
    rows = added.select(*[F.col(name).alias(column) for name, column in zip(names, source, strict=True)])
    data = stage_data(lake, table, cast_to_table(rows, columns))
    failpoints.reach("after-data-files")
    deletes = StagedDeletes()
    if wanted:
        searched = None if clear else snapshot_id
        positions = _equal_positions(lake, table, searched, columns, source, deleted, json)
        if positions is None or positions.num_rows < wanted or snapshot_id is None:
            found = 0 if positions is None else positions.num_rows
            raise MissingRows(
                f"expected to delete or change {counted(wanted, 'row')} of {table.namespace}.{table.name}, "
                f"found {found}; the table has no key, so rows are identified by all their values",
                "drop the lake table (replicator drop) and take a new snapshot of it, or mirror only its changes: "
                'keyless = "changelog"',
            )
        deletes = stage_positions(lake, table, snapshot_id, by_file(positions))
        failpoints.reach("after-delete-files")
    return Staged(data, deletes, clear=clear and not table.is_empty, branch=branch, fills_done=True)


def _equal_positions(
    lake: Lake,
    table: LakeTable,
    snapshot_id: int | None,
    columns: Mapping[str, LakeType],
    source: Sequence[str],
    deleted: DataFrame,
    json: Collection[str],
) -> pa.Table | None:
    """Return the positions of rows that equal those of `deleted`, each as often as it must be deleted.

    Which of several equal rows is deleted does not matter; one with the same JSON text is preferred. None if the table
    is empty.
    """
    if snapshot_id is None or table.is_empty:
        return None
    names = [f"k{i}" for i in range(len(source))]
    given = {
        column: F.col(name).cast(spark_sql_name(columns[column]))
        for name, column in zip(names, source, strict=True)
    }
    stored = {column: F.col(quoted(column)) for column in source}
    rows = lake.spark.read.option("snapshot-id", str(snapshot_id)).table(table.sql_name)
    rows = rows.select(
        *[_meaning(stored[column], column, json).alias(f"t{i}") for i, column in enumerate(source)],
        _texts(stored, json).alias("text"),
        F.col("_file").alias("file_path"),
        F.col("_pos").alias("pos"),
    )
    unwanted = deleted.select(
        *[_meaning(given[column], column, json).alias(f"k{i}") for i, column in enumerate(source)],
        _texts(given, json).alias("text"),
        (-F.col(NET)).alias("wanted"),
    )
    if json:
        unwanted = unwanted.groupBy(*names).agg(
            F.sum("wanted").alias("wanted"), F.collect_set("text").alias("texts")
        )
    else:
        unwanted = unwanted.withColumn("texts", F.array("text"))
    same = F.lit(True)
    for i in range(len(source)):
        same &= F.col(f"t{i}").eqNullSafe(F.col(f"k{i}"))
    matches = rows.join(F.broadcast(unwanted.drop("text")), same).select(
        *names, "wanted", F.array_contains("texts", F.col("text")).alias("same_text"), "file_path", "pos"
    )
    order = Window.partitionBy(*names).orderBy(F.col("same_text").desc(), "file_path", "pos")
    chosen = matches.withColumn("nth", F.row_number().over(order)).where(F.col("nth") <= F.col("wanted"))
    return chosen.select("file_path", "pos").toArrow().cast(POSITIONS)


def _meaning(value: SparkColumn, column: str, json: Collection[str]) -> SparkColumn:
    """Return the value by which rows without a key are compared."""
    return json_meaning(value) if column in json else value


def _texts(values: Mapping[str, SparkColumn], json: Collection[str]) -> SparkColumn:
    """Return a hash of the JSON texts of a row; 0 if it has none."""
    texts = [value for column, value in values.items() if column in json]
    return F.xxhash64(*texts) if texts else F.lit(0).cast("long")


class Merge:
    """Runs one MERGE on a branch. A property of the table sets its mode (merge-on-read, copy-on-write)."""

    def stage(self, lake: Lake, table: LakeTable, change: MirrorChange) -> Staged:
        """Stage `change`; as `Split` if the table is empty or is cleared."""
        if change.clear or table.is_empty:
            return Split().stage(lake, table, change)
        branch, _ = _filled(lake, table)
        if branch is None:
            lake.create_branch(table, BRANCH)
        columns, users = table.engine_columns(), table.user_columns()
        view = f"net_{uuid.uuid4().hex}"
        net_rows = cast_to_table(change.rows, columns)
        names = [f"k{i}" for i in range(len(change.key))]
        images = net_rows.select(
            *[F.col(quoted(column)).alias(name) for column, name in zip(change.key, names, strict=True)],
            F.struct(*[F.col(quoted(name)) for name in columns]).alias("row"),
        )
        change.keys.select(*names).join(images, names, "left").createOrReplaceTempView(view)
        try:
            target = f"{table.sql_name}.`branch_{BRANCH}`"
            statement = sql.merge(target, view, list(columns), change.key, users)
            lake.spark.sql(statement)
        finally:
            lake.spark.catalog.dropTempView(view)
        failpoints.reach("after-data-files")
        _refresh(table)
        return Staged(branch=BRANCH, fills_done=True)


def stage_pending(lake: Lake, table: LakeTable) -> Staged | None:
    """Stage the row changes that a schema change requires; None if there are none."""
    if table.pending_clear() is not None:
        return Staged(clear=not table.is_empty, fills_done=True)
    if not table.pending_fills():
        return None
    branch, _ = _filled(lake, table)
    return Staged(branch=branch, fills_done=True)


def _filled(lake: Lake, table: LakeTable) -> tuple[str | None, int | None]:
    """Fill added columns on a branch. Return the branch, if any, and the snapshot on which the change is based."""
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
