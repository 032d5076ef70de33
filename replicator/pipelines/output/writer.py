"""Stage net changes of a result, and rows that are added to a table."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator import failpoints
from replicator.errors import MissingRows
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.commit import Staged
from replicator.lake.files.data_files import FilePositions, by_file, stage_data, with_partitions
from replicator.lake.files.deletes import StagedDeletes, stage_positions
from replicator.lake.files.driver_files import writable_rows
from replicator.lake.files.partitions import PartitionRows
from replicator.lake.files.small_files import OWN_FILE, SmallChanges, SmallFiles, absorb
from replicator.lake.files.spark_tables import as_table
from replicator.lake.rows.locations import RowChanges, RowLocationCache
from replicator.lake.strategies.split import StagedRows, stage_added, write_parts
from replicator.model.common import counted, quoted
from replicator.pipelines.held import held_rows, plain_values
from replicator.pipelines.output.net_changes import NetChanges
from replicator.pipelines.output.places import WANTED, Index, known_positions, searched_positions
from replicator.pipelines.query.names import WEIGHT


class KeyViolated(Exception):  # noqa: N818 - as the errors of the engine
    """Rows of a result have the same key."""

    def __init__(self, key: Sequence[str], values: Sequence[object]) -> None:
        pairs = ", ".join(f"{name} = {value!r}" for name, value in zip(key, values, strict=True))
        super().__init__(f"several rows have the key {pairs}")


@dataclass(frozen=True, slots=True)
class StagedChanges:
    """Staged net changes, and how many rows are added and removed."""

    staged: Staged
    added: int = 0
    removed: int = 0


def stage_changes(
    lake: Lake,
    table: LakeTable,
    changes: NetChanges,
    key: Sequence[str],
    place: Sequence[str] = (),
    *,
    placed: Sequence[pa.Table] = (),
    index: RowLocationCache | None = None,
    small: SmallFiles | None = None,
) -> StagedChanges:
    """Stage net changes of a table.

    Args:
        key: columns that identify a row; empty without a key.
        place: columns that identify the removed rows, if not all rows; by default, `key`.
        placed: rows of the table that the driver holds, with their places; others are searched.
        index: where rows are by their key, as far as this process knows.
        small: the small files of the table, which the commit may absorb; None if they are not known.

    Raises:
        KeyViolated: rows with the same key are added.
        MissingRows: rows must be removed that the table does not have.
    """
    changes = changes.held_if_few(lake, table)
    if changes.held is not None:
        known = None
        if index is not None and not placed and not place:
            known = Index.of(index, table, key, changes.held)
        absorbed = None if known is None else small
        return _Changes(lake, table, changes, key, place or key, placed, known, absorbed).stage()
    kept = changes.frame.persist()
    try:
        return _Changes(lake, table, changes, key, place or key).stage()
    finally:
        kept.unpersist()


@dataclass(frozen=True, slots=True)
class _Changes:
    """Net changes of a table.

    Attributes:
        key, place, placed: see `stage_changes`.
        index: where the removed rows are; None if they are searched.
        small: the small files of the table; None if the commit absorbs none.
    """

    lake: Lake
    table: LakeTable
    changes: NetChanges
    key: Sequence[str]
    place: Sequence[str]
    placed: Sequence[pa.Table] = ()
    index: Index | None = None
    small: SmallFiles | None = None

    def stage(self) -> StagedChanges:
        added, removed = self._counts()
        if self.key:
            self._check_key()
        table, found, snapshot = self.table, self._positions(removed), self.table.snapshot_id
        positions = () if snapshot is None else with_partitions(table, snapshot, found)
        absorbed = absorb(table, self.small, self._parts() if added else [], positions)
        new = self._stage_rows(absorbed.rows)
        failpoints.reach("after-pipeline-files")
        deletes, own_file = StagedDeletes(), OWN_FILE if absorbed.files.deletes else None
        if snapshot is not None:
            deletes = stage_positions(self.lake, table, snapshot, absorbed.positions, own_file)
        staged = Staged(new.files, deletes)
        if (index := self.index) is not None:
            paths = frozenset(absorbed.files.paths)
            staged = replace(
                staged,
                row_changes=RowChanges(index.known, index.gone, new.located, new.files, paths),
                small_files=None
                if table.has_deletion_vectors
                else SmallChanges(new.written, deletes.written, absorbed.files),
            )
        return StagedChanges(staged, added, removed)

    def _counts(self) -> tuple[int, int]:
        if self.changes.held is not None:
            weights = self.changes.held.column(WEIGHT).to_pylist()
            return sum(w for w in weights if w > 0), -sum(w for w in weights if w < 0)
        weight, none = F.col(WEIGHT), F.lit(0)
        sums = self.changes.frame.agg(
            F.sum(F.greatest(weight, none)), F.sum(F.greatest(-weight, none))
        ).collect()[0]
        return int(sums[0] or 0), int(sums[1] or 0)

    def _check_key(self) -> None:
        if self.changes.held is None:
            check_unique(self.changes.frame.where(F.col(WEIGHT) > 0), self.key, F.sum(WEIGHT))
            return
        rows = zip(*(plain_values(self.changes.held.column(name)) for name in self.key), strict=True)
        copies = Counter[tuple[object, ...]]()
        for values, weight in zip(rows, self.changes.held.column(WEIGHT).to_pylist(), strict=True):
            copies[values] += max(weight, 0)
        if (twice := next((values for values, count in copies.items() if count > 1), None)) is not None:
            raise KeyViolated(self.key, twice)

    def _parts(self) -> Sequence[PartitionRows] | None:
        """Return the added rows by partition; None if Spark must write them."""
        if self.changes.held is None:
            return None
        copies = [max(weight, 0) for weight in self.changes.held.column(WEIGHT).to_pylist()]
        places = [number for number, count in enumerate(copies) for _ in range(count)]
        return writable_rows(
            self.table, self.changes.held.drop_columns([WEIGHT]).take(pa.array(places, pa.int64()))
        )

    def _stage_rows(self, parts: Sequence[PartitionRows] | None) -> StagedRows:
        if parts is not None:
            return write_parts(self.lake, self.table, parts, self.key)
        repeated = F.explode(F.array_repeat(F.lit(0), F.col(WEIGHT).cast("int")))
        rows = self.changes.frame.where(F.col(WEIGHT) > 0).withColumn(WANTED, repeated)
        return StagedRows(stage_data(self.lake, self.table, as_table(self.lake, self.table, rows)))

    def _positions(self, removed: int) -> list[FilePositions]:
        """Return where the removed rows are.

        Raises:
            MissingRows: the table does not have all of them.
        """
        found = self._removed(removed) if removed and self.table.snapshot_id is not None else []
        if (count := sum(len(of_file.positions) for of_file in found)) != removed:
            raise MissingRows(
                f"{counted(removed, 'row')} of {self.table.namespace}.{self.table.name} must be replaced, and it has "
                f"{count:,} of them: others have changed it",
                "compute it again: replicator pipeline rebuild NAME",
            )
        return found

    def _removed(self, removed: int) -> list[FilePositions]:
        """Return the positions of the removed rows."""
        if self.index is not None:
            return self.index.positions(self.lake, self.table, self._search)
        if self.changes.held is not None:
            known = known_positions(self.changes.held, self._identifying, self.placed)
            if known.num_rows == removed:
                return by_file(known)
        return self._search()

    @property
    def _identifying(self) -> list[str]:
        """The columns that identify the removed rows."""
        return list(self.place) or list(self.changes.columns)

    def _search(self) -> list[FilePositions]:
        found = searched_positions(
            self.lake,
            self.table,
            self.changes.frame,
            self.changes.held,
            self._identifying,
            unique=bool(self.place),
        )
        return by_file(found)


def check_unique(rows: DataFrame, key: Sequence[str], count: SparkColumn | None = None) -> None:
    """Check that no two rows have the same key; `count` is how many the rows of a group are, by default their number.

    Raises:
        KeyViolated: some have.
    """
    columns = [F.col(quoted(name)) for name in key]
    groups = rows.groupBy(*columns).agg((F.count(F.lit(1)) if count is None else count).alias(WANTED))
    found = groups.where(F.col(WANTED) > 1).limit(1).toArrow()
    if found.num_rows:
        raise KeyViolated(key, [plain_values(column)[0] for column in found.columns[: len(key)]])


def stage_rows(
    lake: Lake,
    table: LakeTable,
    rows: Callable[[], DataFrame],
    *like: LakeTable,
    held: pa.Table | None = None,
) -> Staged:
    """Stage rows that are added to a table: by the driver if they are few; `like` are others with such rows.

    `held` are the same rows if the driver holds them already.
    """
    few = held_rows(rows(), [table, *like]) if held is None else held
    parts = None if few is None else writable_rows(table, few)
    if parts is None:
        return Staged(stage_data(lake, table, as_table(lake, table, rows())))
    return stage_added(lake, table, parts)
