"""Run one MERGE on a branch."""

import uuid
from collections.abc import Sequence

from pyspark.sql import functions as F

from replicator import failpoints
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.commit import Staged
from replicator.lake.files.data_files import cast_to_table
from replicator.lake.strategies.changes import BRANCH, MirrorChange, WriteStrategy, filled, refresh
from replicator.lake.strategies.split import Split
from replicator.model.common import quoted


class Merge(WriteStrategy):
    """Runs one MERGE on a branch, which changes some columns of a row and keeps the others.

    `mode` is that of Iceberg: merge-on-read or copy-on-write.
    """

    keeps_other_columns = True

    def __init__(self, mode: str) -> None:
        self.properties = dict.fromkeys(("write.merge.mode", "write.update.mode", "write.delete.mode"), mode)

    def stage(self, lake: Lake, table: LakeTable, change: MirrorChange) -> Staged:
        """Stage `change`; as `Split` if the table is empty or is cleared."""
        if change.clear or table.is_empty:
            return Split().stage(lake, table, change)
        branch, _ = filled(lake, table)
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
            lake.spark.sql(merge_statement(target, view, list(columns), change.key, users))
        finally:
            lake.spark.catalog.dropTempView(view)
        failpoints.reach("after-data-files")
        refresh(table)
        return Staged(branch=BRANCH, fills_done=True)


def merge_statement(
    target: str, view: str, columns: Sequence[str], key: Sequence[str], others: Sequence[str] = ()
) -> str:
    """Build a MERGE of net changes into `target` (already quoted), which has `columns` and `others`.

    The columns `others` keep their values in rows that are updated, and are null in new ones. `view` has the key as k0,
    k1, … and the new row in the struct `row`, which is null if the row is deleted.
    """
    on = " AND ".join(f"t.{quoted(column)} = s.k{i}" for i, column in enumerate(key))
    update = ", ".join(f"t.{quoted(c)} = s.row.{quoted(c)}" for c in columns)
    names = ", ".join(quoted(c) for c in (*columns, *others))
    values = ", ".join([*(f"s.row.{quoted(c)}" for c in columns), *(["NULL"] * len(others))])
    return (
        f"MERGE INTO {target} t USING {quoted(view)} s ON {on} "
        "WHEN MATCHED AND s.row IS NULL THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {update} "
        f"WHEN NOT MATCHED AND s.row IS NOT NULL THEN INSERT ({names}) VALUES ({values})"
    )
