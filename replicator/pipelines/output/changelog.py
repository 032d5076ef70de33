"""The changelog of a result: the rows that each refresh added and removed.

It has the columns of the result and the struct column of a mirror's changelog, so pipelines and consumers read it like
one. All changes of a commit have one offset: the number of the result's commit, in the only partition of a log that has
the name of the pipeline.

It is committed first, with the record that the result gets. If the process ends in between, it is one commit ahead, and
the changes of this commit are applied to the result from the changelog. If it does not lead to what the result has, for
instance because that was written without it for some time, it is made again, and begins with the next change.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from replicator import failpoints
from replicator.arrow_types import arrow_type
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.commit import Staged
from replicator.lake.files.spark_tables import columns_of, rows_of
from replicator.model.changelog import CHANGE_FIELDS, RowKind, change_column
from replicator.model.commit_marker import CommitMarker
from replicator.model.common import quoted
from replicator.model.types import LakeType, spark_sql_name
from replicator.pipelines.held import plain_values
from replicator.pipelines.inputs.positions import DIFFERENCE
from replicator.pipelines.inputs.states import BEFORE
from replicator.pipelines.inputs.tables import recorded_result
from replicator.pipelines.output.net_changes import NetChanges
from replicator.pipelines.output.record import ResultRecord
from replicator.pipelines.output.table import Reached, ResultTables, next_number
from replicator.pipelines.output.writer import stage_changes, stage_rows
from replicator.pipelines.query.names import WEIGHT, TableName

_PARTITION: Final = 0
"""As `ResultTables.commit` records it."""
_COPY: Final = "_replicator_copy"
_KINDS: Final = (
    ((RowKind.UPDATE_BEFORE, "u"), (RowKind.DELETE, "d")),
    ((RowKind.UPDATE_AFTER, "u"), (RowKind.INSERT, "c")),
)
"""Of a row that went and of one that came: its kind and operation if another one has its key, and if none has."""


@dataclass(frozen=True, slots=True)
class ResultChangelog:
    """The changelog of the result `name`."""

    tables: ResultTables
    name: TableName

    def drop(self) -> None:
        """Drop it, if there is one."""
        self.tables.lake.drop(self.name.changes.namespace, self.name.changes.name)

    def settled(self, table: LakeTable | None) -> tuple[LakeTable | None, LakeTable | None]:
        """Return a result and its changelog, after the last commit of that was applied to it, or a new changelog.

        A result that no refresh has written has no changelog yet.

        Raises:
            ForeignTable, ForeignChange: it is not one of this mirror, or was rolled back.
            CommitConflict, FencedError, LakeUnavailable: as a commit of the result.
        """
        record = recorded_result(table)
        if table is None or record is None:
            return table, None
        log = self.tables.load(self.name.changes)
        found = recorded_result(log)
        if log is None or found is None:
            return table, self._begun(table, record)
        ahead = _next(log, record) - _next(table, record)
        if found == record and not ahead:
            return table, log
        if ahead != 1:
            return table, self._begun(table, record)
        self._complete(table, log, found)
        return self.tables.load(self.name), log

    def append(
        self,
        log: LakeTable,
        table: LakeTable,
        changes: NetChanges,
        record: ResultRecord,
        reached: Reached,
        *,
        corrects: bool = False,
    ) -> None:
        """Commit net changes that the next commit of the result makes.

        `corrects`: no change of an input made them, but the result differed from its query.

        Raises:
            CommitConflict, FencedError, LakeUnavailable: as a commit of the result.
        """
        base, offset, lake = log.marker(), next_number(table, record.name), self.tables.lake
        entry = entry_of(reached, offset, 1 if base is None else base.sequence + 1)
        held = None if corrects else changes.held
        rows = None if held is None else logged_rows(held, record.key, entry)

        def frame() -> DataFrame:
            found = logged(changes.frame, record.key, entry)
            if not corrects:
                return found
            change = change_column(changes.columns)
            return found.withColumn(change, F.col(quoted(change)).withField("op", F.lit(DIFFERENCE)))

        staged = stage_rows(lake, log, frame, table, held=rows)
        marker = self.tables.commit(log, staged, record, reached, offset)
        self.tables.recent.committed(log, base, marker, staged)
        failpoints.reach("between-pipeline-commits")

    def _begun(self, table: LakeTable, record: ResultRecord) -> LakeTable:
        self.drop()
        none = rows_of(self.tables.lake, table).limit(0).withColumn(WEIGHT, F.lit(1))
        columns = logged(none, record.key, entry_of(Reached(), 0, 0))
        log = self.tables.create(self.name.changes, columns, (), f"changes of {self.name}")
        marker = table.marker()
        reached = Reached() if marker is None else Reached(marker.position, marker.watermark_ms)
        self.tables.commit(log, Staged(), record, reached, _next(table, record) - 1)
        return log

    def _complete(self, table: LakeTable, log: LakeTable, record: ResultRecord) -> None:
        lake, marker = self.tables.lake, log.marker() or CommitMarker("", 0, 0)
        columns = columns_of(lake, table).names
        change = F.col(quoted(change_column(columns)))
        weight = F.when(change.getField("kind").isin(*BEFORE), F.lit(-1)).otherwise(F.lit(1))
        rows = rows_of(lake, log).where(change.getField("commit") == F.lit(marker.sequence))
        changes = net(rows.select(*(F.col(quoted(name)) for name in columns), weight.alias(WEIGHT)))
        staged = stage_changes(lake, table, NetChanges.of(lake, table, changes), record.key).staged
        self.tables.commit(table, staged, record, Reached(marker.position, marker.watermark_ms))


def _next(table: LakeTable, record: ResultRecord) -> int:
    marker = table.marker()
    return (0 if marker is None else marker.next_offset(record.name, _PARTITION)) or 0


def difference(now: DataFrame, before: DataFrame) -> DataFrame:
    """Return the net changes from rows to others with the same columns."""
    return net(now.withColumn(WEIGHT, F.lit(1)).unionByName(before.withColumn(WEIGHT, F.lit(-1))))


def net(changes: DataFrame) -> DataFrame:
    """Return net changes: no row is twice in them."""
    columns = [F.col(quoted(name)) for name in changes.columns if name != WEIGHT]
    return changes.groupBy(*columns).agg(F.sum(WEIGHT).alias(WEIGHT)).where(F.col(WEIGHT) != 0)


def entry_of(reached: Reached, offset: int, commit: int) -> Mapping[str, object]:
    """Return what all changes of a commit have in their struct column; the time is in microseconds since the epoch."""
    position = reached.position
    return {
        "source_ts": None if reached.watermark_ms is None else 1000 * reached.watermark_ms,
        "file": None if position is None else position.file,
        "pos": None if position is None else position.pos,
        "partition": _PARTITION,
        "offset": offset,
        "commit": commit,
    }


def logged(changes: DataFrame, key: Sequence[str], entry: Mapping[str, object]) -> DataFrame:
    """Return net changes as rows of a changelog: a row for each copy, with the struct column."""
    columns = [name for name in changes.columns if name != WEIGHT]
    weight, replaced = F.col(WEIGHT), F.lit(False)
    if key:
        replaced = F.count(F.lit(1)).over(Window.partitionBy(*(F.col(quoted(c)) for c in key))) > 1
    before, after = (F.when(replaced, str(u)).otherwise(str(alone)) for (u, _), (alone, _) in _KINDS)
    values: dict[str, SparkColumn] = {name: F.lit(value) for name, value in entry.items()}
    values |= {
        "kind": F.when(weight < 0, before).otherwise(after),
        "op": F.when(replaced, "u").when(weight < 0, "d").otherwise("c"),
        "source_ts": F.timestamp_micros(values["source_ts"].cast("bigint")),
    }
    fields = [
        values.get(name, F.lit(None)).cast(spark_sql_name(LakeType.parse(kind))).alias(name)
        for name, kind in CHANGE_FIELDS
    ]
    copies = F.explode(F.array_repeat(F.lit(0), F.abs(weight).cast("int"))).alias(_COPY)
    marked = changes.select(
        *(F.col(quoted(c)) for c in columns), F.struct(*fields).alias(change_column(columns)), WEIGHT
    )
    return marked.select("*", copies).drop(_COPY, WEIGHT)


def logged_rows(changes: pa.Table, key: Sequence[str], entry: Mapping[str, object]) -> pa.Table | None:
    """Return what `logged` does of changes that the driver holds; None if values of the key are lists or structs."""
    if any(pa.types.is_nested(changes.schema.field(name).type) for name in key):
        return None
    weights = changes.column(WEIGHT).to_pylist()
    keys = list(zip(*(plain_values(changes.column(name)) for name in key), strict=True))
    times = Counter(keys)
    replaced = [times[values] > 1 for values in keys] if key else [False] * len(weights)
    kinds = [_KINDS[weight > 0][not twice] for weight, twice in zip(weights, replaced, strict=True)]
    repeated = [row for row, weight in enumerate(weights) for _ in range(abs(weight))]
    fields = {
        name: pa.repeat(pa.scalar(value, arrow_type(LakeType.parse(kind))), len(weights))
        for (name, kind), value in ((field, entry.get(field[0])) for field in CHANGE_FIELDS)
    }
    fields |= {
        "kind": pa.array([str(kind) for kind, _ in kinds], pa.string()),
        "op": pa.array([op for _, op in kinds], pa.string()),
    }
    rows = changes.drop_columns([WEIGHT])
    change = pa.StructArray.from_arrays(list(fields.values()), list(fields))
    return rows.append_column(change_column(rows.column_names), change).take(pa.array(repeated, pa.int64()))
