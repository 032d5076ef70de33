"""What a strategy stages: the net changes of a batch, and the changes of rows that a schema change requires."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame

from replicator.lake.catalog.tables import Lake, LakeTable, lake_errors
from replicator.lake.commit import Staged
from replicator.lake.files.data_files import FilePositions
from replicator.lake.files.small_files import SmallFiles
from replicator.lake.rows.locations import FileKeys, RowLocationCache
from replicator.model.common import quoted
from replicator.model.types import LakeType, spark_sql_name
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.lake")
BRANCH: Final = "replicator_staging"


@dataclass(frozen=True, slots=True)
class MirrorChange:
    """The net changes of a batch, to be staged.

    Attributes:
        key: the key columns of the table.
        keys: each changed key once (columns k0, k1, ...).
        rows: the new rows.
        clear: all earlier rows are removed in the same commit.
        few: the changed keys are few, so that the driver may group the rows to delete.
    """

    key: Sequence[str]
    keys: DataFrame
    rows: DataFrame
    clear: bool
    few: bool = False


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """New rows that are in files already.

    Attributes:
        files: Iceberg's DataFile objects.
        keys: each changed key once (columns k0, k1, ...), also of deleted rows.
        superseded: rows in the files that later ones replace.
        located: the keys of the rows of each file; None if some are superseded.
    """

    files: Sequence[Any]
    keys: pa.Table
    superseded: Sequence[FilePositions]
    located: Sequence[FileKeys] | None


@dataclass(frozen=True, slots=True)
class LocatedChange:
    """Net changes with their keys in this process, where the locations of the rows are looked up.

    Attributes:
        key: the key columns of the table.
        keys: each changed key once (columns k0, k1, ...).
        frame: makes a frame of the new rows, for Spark to write.
        rows: the new rows and their keys, in the same order, if this process has them; else None.
        written: the new rows, if they are in files already; else None.
    """

    key: tuple[str, ...]
    keys: pa.Table
    frame: Callable[[], DataFrame]
    rows: tuple[pa.Table, pa.Table] | None = None
    written: WrittenRows | None = None


class WriteStrategy(ABC):
    """Stages changes of a mirror; `TableWriter.commit` makes the result visible in one commit.

    Attributes:
        properties: properties of the tables that it writes.
        keeps_other_columns: whether a changed row keeps the values of columns that others added to the table.
        takes_keys: whether the driver may plan a change whose keys it holds, see `stage_keys`.
    """

    properties: Mapping[str, str] = MappingProxyType({})
    keeps_other_columns: bool = False
    takes_keys: bool = False

    @abstractmethod
    def stage(self, lake: Lake, table: LakeTable, change: MirrorChange) -> Staged:
        """Stage a change with Spark; if the table is empty or is cleared, search no rows."""

    def obstacle(self, table: LakeTable, key: tuple[str, ...]) -> str | None:  # noqa: ARG002 none by default
        """Return why this strategy would not be exact for a table; None if it is."""
        return None

    def searches(self, table: LakeTable, key: tuple[str, ...], cache: RowLocationCache) -> bool:  # noqa: ARG002
        """Return whether `stage_keys` may have to search rows of the table."""
        return True

    def stage_keys(
        self,
        lake: Lake,
        table: LakeTable,
        change: LocatedChange,
        cache: RowLocationCache,
        small: SmallFiles | None,
    ) -> Staged:
        """Stage a change whose keys the driver holds; called only if `takes_keys`.

        The commit absorbs the newest of the table's `small` files. The table must not have columns that are still to be
        filled.
        """
        raise NotImplementedError


def stage_pending(lake: Lake, table: LakeTable) -> Staged | None:
    """Stage the row changes that a schema change requires; None if there are none."""
    if table.pending_clear() is not None:
        return Staged(clear=not table.is_empty, fills_done=True)
    if not table.pending_fills():
        return None
    branch, _ = filled(lake, table)
    return Staged(branch=branch, fills_done=True)


def filled(lake: Lake, table: LakeTable) -> tuple[str | None, int | None]:
    """Fill added columns on a branch. Return the branch, if any, and the snapshot on which the change is based."""
    fills = table.pending_fills()
    if not fills or table.is_empty:
        return None, table.snapshot_id
    columns: Mapping[str, LakeType] = table.columns()
    lake.create_branch(table, BRANCH)
    text = fill_statement(
        f"{table.sql_name}.`branch_{BRANCH}`", [(name, spark_sql_name(columns[name])) for name in fills]
    )
    lake.spark.sql(text, args={f"v{i}": value for i, value in enumerate(fills.values())})
    refresh(table)
    return BRANCH, int(table.java.refs().get(BRANCH).snapshotId())


def fill_statement(target: str, columns: Sequence[tuple[str, str]]) -> str:
    """Build an UPDATE that sets `columns` (name, Spark type) to the same values, bound as v0, v1, …, in every row."""
    assignments = ", ".join(
        f"{quoted(name)} = CAST(:v{i} AS {kind})" for i, (name, kind) in enumerate(columns)
    )
    return f"UPDATE {target} SET {assignments}"


def refresh(table: LakeTable) -> None:
    """Load the newest state of a table that a statement of Spark changed."""
    with lake_errors(f"table {table.namespace}.{table.name} cannot be read again"):
        table.refresh()


@lru_cache(10_000)
def report_obstacle(table: str, obstacle: str) -> None:
    """Log once why a table is written with position deletes."""
    _LOG.info("written as split, not as configured", table=table, reason=obstacle)
