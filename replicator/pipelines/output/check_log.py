"""Count the rows of a result that do not meet its checks.

The table `pipeline_checks` in the namespace `_ops` has what each refresh counted.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.jvm.spark import local_frame
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.commit import Staged, publish
from replicator.lake.files.data_files import POSITIONS, by_file
from replicator.lake.files.deletes import StagedDeletes, stage_positions
from replicator.lake.files.spark_tables import rows_of
from replicator.lake.others import refuse_foreign
from replicator.lake.properties import PIPELINE_CHECKS
from replicator.model.commit_marker import CommitMarker
from replicator.model.common import now_ms
from replicator.model.table import MIRROR_KEY
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.output.writer import stage_rows
from replicator.pipelines.query.definition import Action, Expectation

_FIELDS: Final = (
    ("pipeline", "string", pa.string()),
    ("check", "string", pa.string()),
    ("action", "string", pa.string()),
    ("rows", "long", pa.int64()),
    ("failed", "long", pa.int64()),
    ("boundary", "string", pa.string()),
    ("checked_at", "timestamptz", pa.timestamp("us", tz="UTC")),
)
_SCHEMA: Final = json.dumps(
    {
        "type": "struct",
        "schema-id": 0,
        "fields": [
            {"id": number, "name": name, "required": False, "type": kind}
            for number, (name, kind, _) in enumerate(_FIELDS, start=1)
        ],
    }
)
KEPT: Final = timedelta(days=90)
"""How long a count stays."""
_EXPIRE_EVERY: Final = 1_000
"""Old counts are deleted by one in this number of commits."""
_ARROW: Final = pa.schema([(name, kind) for name, _, kind in _FIELDS])


@dataclass(frozen=True, slots=True)
class CheckCounts:
    """What a check found.

    Attributes:
        rows: number of rows that were checked.
        failed: number of those that do not meet the condition.
    """

    name: str
    action: Action
    rows: int
    failed: int


def count_checks(rows: DataFrame, checks: Sequence[Expectation]) -> Iterator[CheckCounts]:
    """Yield what each check finds in rows."""
    meets = [F.coalesce(F.expr(f"({check.condition})"), F.lit(False)) for check in checks]
    counts = [F.count_if(~met).alias(f"n{i}") for i, met in enumerate(meets)]
    found = rows.agg(F.count(F.lit(1)).alias("rows"), *counts).collect()[0]
    for i, check in enumerate(checks):
        yield CheckCounts(check.name, check.action, int(found["rows"]), int(found[f"n{i}"]))


@dataclass(frozen=True, slots=True)
class CheckLog:
    """Appends to the table."""

    lake: Lake
    namespace: str
    mirror: str

    def add(self, counted: Mapping[str, Sequence[CheckCounts]], boundary: Boundary) -> None:
        """Append what the checks of pipelines found when they were refreshed to a boundary.

        Raises:
            ForeignTable, FencedError, CommitConflict, LakeUnavailable: as `publish`.
        """
        at = datetime.now(UTC)
        rows = [
            (name, check.name, str(check.action), check.rows, check.failed, str(boundary), at)
            for name, checks in counted.items()
            for check in checks
        ]
        if not rows:
            return
        table, columns = self._table(), zip(*rows, strict=True)
        found = pa.table([pa.array(c, f.type) for c, f in zip(columns, _ARROW, strict=True)], schema=_ARROW)
        base = table.marker()
        sequence = 1 if base is None else base.sequence + 1
        marker = CommitMarker(self.mirror, sequence, 0, committed_ms=now_ms())
        staged = stage_rows(self.lake, table, lambda: local_frame(self.lake.spark, found), held=found)
        deletes = self._old(table, at - KEPT) if sequence % _EXPIRE_EVERY == 0 else StagedDeletes()
        publish(self.lake, table, base, marker, Staged(staged.data, deletes))

    def _old(self, table: LakeTable, before: datetime) -> StagedDeletes:
        """Stage deletes of the rows from before a time. Merges of files remove them from the storage."""
        old = rows_of(self.lake, table).where(
            F.col("checked_at") < F.lit(before.isoformat()).cast("timestamp")
        )
        found = old.select(F.col("_file").alias("file_path"), F.col("_pos").alias("pos")).toArrow()
        snapshot = table.snapshot_id
        if snapshot is None or not found.num_rows:
            return StagedDeletes()
        return stage_positions(self.lake, table, snapshot, by_file(found.cast(POSITIONS)))

    def _table(self) -> LakeTable:
        if (table := self.lake.load(self.namespace, PIPELINE_CHECKS)) is not None:
            refuse_foreign(table, self.mirror)
            return table
        properties = {MIRROR_KEY: self.mirror}
        return self.lake.create(self.namespace, PIPELINE_CHECKS, _SCHEMA, None, properties)
