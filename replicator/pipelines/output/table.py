"""The lake table of a result: made with the columns of its query, and committed with its record."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from replicator import failpoints
from replicator.config import Config
from replicator.lake.catalog.metadata import FORMAT_KEY, spec_of_schema, table_location
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.commit import Staged, publish
from replicator.lake.files.data_files import stage_data
from replicator.lake.files.small_files import SmallFileLog
from replicator.lake.files.spark_tables import as_table, columns_of
from replicator.lake.others import refuse_foreign, refuse_rollback
from replicator.lake.recent_changes import RecentChanges
from replicator.lake.rows.locations import RowLocationCache
from replicator.model.commit_marker import COMMIT_KEY, CommitMarker, PartitionProgress
from replicator.model.common import now_ms
from replicator.model.partitioning import PartitionField
from replicator.model.position import SourcePosition
from replicator.model.table import MIRROR_KEY
from replicator.pipelines.costs import COSTS_KEY, Costs
from replicator.pipelines.inputs.small_mirrors import SmallMirrors
from replicator.pipelines.inputs.tables import recorded_result
from replicator.pipelines.output.record import RECORD_KEY, ResultRecord
from replicator.pipelines.output.small_results import SmallResults
from replicator.pipelines.query.names import TableName

_COMMENT = "comment"
_REPLACE = "replace"
"""Iceberg's operation of maintenance, which changes no row."""


@dataclass(frozen=True, slots=True)
class Reached:
    """How far the source's changes are in a result: the furthest of its inputs.

    Attributes:
        position: position in the source.
        watermark_ms: the latest source time of a change.
    """

    position: SourcePosition | None = None
    watermark_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ResultTables:
    """Loads, creates and commits to the tables of results.

    Attributes:
        index: where the rows of results are by their keys.
        files: the small files of results and their changelogs.
        recent: what the newest commits changed.
        small: the rows of small results.
        mirrors: the rows of small mirrors.
    """

    config: Config
    lake: Lake
    index: RowLocationCache
    files: SmallFileLog = field(default_factory=SmallFileLog)
    recent: RecentChanges = field(default_factory=RecentChanges)
    small: SmallResults = field(default_factory=SmallResults)
    mirrors: SmallMirrors = field(default_factory=SmallMirrors)

    def load(self, name: TableName) -> LakeTable | None:
        """Load a table; None if there is none.

        Raises:
            ForeignTable: it is not one of this mirror.
            ForeignChange: it was rolled back.
        """
        table = self.lake.load(name.namespace, name.name)
        if table is not None:
            refuse_foreign(table, self.config.mirror.name)
            refuse_rollback(self.lake, table, is_mirror=False)
        return table

    def create(
        self,
        name: TableName,
        rows: DataFrame,
        partition: Sequence[PartitionField],
        description: str,
        others: Mapping[str, str] = MappingProxyType({}),
    ) -> LakeTable:
        """Create a table with the columns of `rows`, all optional: SQL's results have no other constraints.

        `others` are further properties of the table.

        Raises:
            UnfitColumns: the partition does not fit the columns.
            LakeUnavailable: the catalog failed.
        """
        self.lake.ensure_namespace(name.namespace)
        java: Any = rows._jdf.schema()  # noqa: SLF001 no public way
        classes = self.lake.classes
        schema = str(classes.schema_parser.toJson(classes.spark_schemas.convert(java.asNullable())))
        properties = {
            FORMAT_KEY: str(self.config.apply.format_version),
            MIRROR_KEY: self.config.mirror.name,
            **({_COMMENT: description} if description else {}),
            **others,
        }
        location = table_location(self.config.lake, name.namespace, name.name)
        spec = spec_of_schema(schema, partition) if partition else None
        return self.lake.create(name.namespace, name.name, schema, spec, properties, location)

    def fits(self, table: LakeTable, rows: DataFrame) -> bool:
        """Return whether rows have the columns of a table, with the same types and in the same order."""
        present = columns_of(self.lake, table).fields
        columns = [(field.name, field.dataType.simpleString()) for field in rows.schema.fields]
        return columns == [(field.name, field.dataType.simpleString()) for field in present]

    def commit_all(
        self,
        name: TableName,
        table: LakeTable | None,
        rows: DataFrame,
        record: ResultRecord,
        reached: Reached,
        partition: Sequence[PartitionField],
        description: str,
        *,
        costs: Callable[[], Costs | None] = lambda: None,
    ) -> None:
        """Make rows all those of the result `name` in one commit; `table` is its table, None if there is none yet.

        Rows with other columns get a table of their own, which takes the place of the old one when it is complete.
        `costs` returns what is recorded of it, after the rows were written.

        Raises:
            FencedError, CommitConflict, LakeUnavailable: as `commit`.
        """
        replaces = table is not None and not self.fits(table, rows)
        own = _next_name(name, record.fingerprint) if replaces else name
        if replaces:
            table = self.lake.load(own.namespace, own.name)
        if table is None:
            table = self.create(own, rows, partition, description)
        data = stage_data(self.lake, table, as_table(self.lake, table, rows))
        failpoints.reach("after-pipeline-files")
        staged = Staged(data, clear=not table.is_empty)
        self.commit(table, staged, record, reached, costs=costs())
        if replaces:
            self.put_in_place(name, record.fingerprint)

    def put_in_place(self, name: TableName, fingerprint: str) -> LakeTable | None:
        """Give a complete table the name of the result whose place it takes; return it, None if there is none.

        Both tables are renamed before the old one is dropped: not every catalog can rename, and then nothing is lost.
        If the process is killed in between, the same call completes it.

        Raises:
            LakeUnavailable: the catalog failed, or cannot rename tables.
        """
        ready = _next_name(name, fingerprint)
        record = recorded_result(self.lake.load(ready.namespace, ready.name))
        if record is None or record.fingerprint != fingerprint:
            return None
        former = f"{name.name}__former"
        if self.lake.load(name.namespace, name.name) is not None:
            self.lake.drop(name.namespace, former)
            self.lake.rename(name.namespace, name.name, former)
            failpoints.reach("between-pipeline-renames")
        self.lake.rename(name.namespace, ready.name, name.name)
        self.lake.drop(name.namespace, former)
        return self.lake.load(name.namespace, name.name)

    def commit(
        self,
        table: LakeTable,
        staged: Staged,
        record: ResultRecord,
        reached: Reached,
        offset: int | None = None,
        costs: Costs | None = None,
        net: pa.Table | None = None,
    ) -> CommitMarker:
        """Make staged rows visible, together with the marker and the record, in one atomic commit; return the marker.

        `offset` is the number of the result's commit; None for the next one of `table`, which is the result itself.
        A commit that its changelog does not have repeats the number before.
        `costs` is what its refreshes took; None if nothing is to be recorded. `net` are the changes that are staged, if
        the driver holds them.

        Raises:
            FencedError, CommitConflict, LakeUnavailable: as `publish`; nothing was committed.
        """
        base = table.marker()
        sequence = 1 if base is None else base.sequence + 1
        marker = CommitMarker(
            self.config.mirror.name,
            sequence,
            0,
            {
                record.name: {
                    0: PartitionProgress((next_number(table, record.name) if offset is None else offset) + 1)
                }
            },
            position=reached.position,
            watermark_ms=reached.watermark_ms,
            committed_ms=now_ms(),
        )
        failpoints.reach("before-pipeline-commit")
        properties = {**staged.properties, RECORD_KEY: record.to_json()}
        if costs is not None:
            properties[COSTS_KEY] = costs.to_json()
        since = table.snapshot_id
        head = publish(self.lake, table, base, marker, replace(staged, properties=properties))
        self.small.committed(table.uuid, since, head, net, record.key)
        if staged.row_changes is not None:
            self.index.committed(table, staged.row_changes, head)
        if staged.small_files is not None:
            self.files.committed(table, since, staged.small_files, head)
        failpoints.reach("after-pipeline-commit")
        return marker


def _next_name(name: TableName, fingerprint: str) -> TableName:
    """Return the name of the table that takes the place of a result with other columns."""
    return TableName(name.namespace, f"{name.name}__{fingerprint}")


def changed_by_others(table: LakeTable) -> bool:
    """Return whether a snapshot that the table still has changed rows, and no refresh made it."""

    def changed(snapshot: Any) -> bool:
        summary = snapshot.summary()
        # An empty table gets an empty snapshot with its first tag.
        is_empty = summary.get("changed-partition-count") == "0"
        return snapshot.operation() != _REPLACE and summary.get(COMMIT_KEY) is None and not is_empty

    return any(map(changed, table.java.snapshots()))


def next_number(table: LakeTable, pipeline: str) -> int:
    """Return the number of the next commit of a result, which is the offset of its changes in the changelog."""
    marker = table.marker()
    if marker is None:
        return 1
    return marker.next_offset(pipeline, 0) or marker.sequence + 1
