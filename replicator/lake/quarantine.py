"""Write the quarantine table: events that cannot be decoded or applied, each with its raw record and the reason."""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.arrow_types import arrow_type
from replicator.errors import ForeignTable
from replicator.jvm.spark import local_frame
from replicator.lake.catalog.schema_update import add_columns
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.commit import Staged, publish
from replicator.lake.files.data_files import cast_to_table, stage_data
from replicator.lake.files.spark_tables import rows_of
from replicator.lake.properties import QUARANTINE
from replicator.lake.strategies.changes import MirrorChange
from replicator.lake.strategies.registry import SPLIT
from replicator.model.commit_marker import CommitMarker, OffsetRange
from replicator.model.common import now_ms
from replicator.model.events import BadRecord
from replicator.model.quarantine import RESOLVED_FIELDS, LogCoordinate, ReadRows, Resolution
from replicator.model.shapes import to_iceberg
from replicator.model.table import TableId
from replicator.model.types import TIMESTAMPTZ, LakeType

_FIELDS: Final = (
    ("table", "string"),
    ("topic", "string"),
    ("partition", "int"),
    ("offset", "long"),
    ("timestamp", "timestamptz"),
    ("key", "binary"),
    ("value", "binary"),
    ("reason", "string"),
    ("quarantined_at", "timestamptz"),
    *RESOLVED_FIELDS,
)
_KEY: Final = ("topic", "partition", "offset")
_KNOWN_BY: Final = ["partition", "offset", "timestamp"]
"""Columns that identify an event of a topic; the timestamp is needed because a recreated topic starts at offset 0."""
_PLACES: Final = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())])
_SCHEMA: Final = to_iceberg({name: LakeType.parse(kind) for name, kind in _FIELDS})


class Quarantine:
    """The mirror's quarantine table. All tables share it, so one thread writes at a time."""

    def __init__(self, lake: Lake, namespace: str, mirror: str) -> None:
        self._lake = lake
        self._namespace = namespace
        self._mirror = mirror
        self._lock = threading.Lock()
        self._watched: set[str] = set()

    def add(
        self, table: TableId, topic: str, decoded: DataFrame, batch: int, *, redacted: bool = False
    ) -> None:
        """Append the bad events of a decoded frame that are not in quarantine yet.

        If `redacted`, key and value are omitted, because an event that cannot be decoded cannot be masked either.
        """
        nothing = F.lit(None).cast("binary")
        rows = decoded.where(F.col("bad").isNotNull()).select(
            F.lit(str(table)).alias("table"),
            F.lit(topic).alias("topic"),
            "partition",
            "offset",
            F.timestamp_millis("timestamp").alias("timestamp"),
            (nothing if redacted else F.col("raw_key")).alias("key"),
            (nothing if redacted else F.col("raw_value")).alias("value"),
            (_without_words(F.col("bad")) if redacted else F.col("bad")).alias("reason"),
            F.current_timestamp().alias("quarantined_at"),
        )
        with self._lock:
            target = self._table()
            if not target.is_empty:
                rows = rows.join(F.broadcast(self._known(target, topic)), _KNOWN_BY, "left_anti")
            self._append(target, rows, batch)

    def add_records(self, bad: Sequence[BadRecord], batch: int) -> list[BadRecord]:
        """Append records of one topic that belong to no table; return those that were not in quarantine yet."""
        with self._lock:
            target = self._table()
            known: set[tuple[int, int, int]] = set()
            if not target.is_empty:
                known = _in_log(self._known(target, bad[0].record.topic))
            fresh = [b for b in bad if (b.record.partition, b.record.offset, b.record.timestamp) not in known]
            if fresh:
                self._append(target, local_frame(self._lake.spark, _rows(fresh)), batch)
            return fresh

    def resolve(self, places: Collection[LogCoordinate], resolution: Resolution) -> int:
        """Record the resolution of the events at `places` and delete their payload, in one commit.

        Resolved events do not change, so the call is idempotent. Return the number of events that were unresolved.
        """
        with self._lock:
            if not places or (target := self._with_events()) is None:
                return 0
            columns = list(zip(*[(p.topic, p.partition, p.offset) for p in sorted(places)], strict=True))
            chosen = local_frame(
                self._lake.spark, pa.table(dict(zip(_KEY, columns, strict=True)), schema=_PLACES)
            )
            unresolved = self._read(target).where(F.col("state").isNull())
            rows = unresolved.join(F.broadcast(chosen), list(_KEY), "left_semi").toArrow()
            if not rows.num_rows:
                return 0
            changed = _resolved(rows, resolution, now_ms())
            keys = changed.select(_KEY).rename_columns([f"k{i}" for i in range(len(_KEY))])
            new, old = (local_frame(self._lake.spark, found) for found in (changed, keys))
            change = MirrorChange(_KEY, old, new, clear=False, few=True)
            staged = SPLIT.stage(self._lake, target, change)
            self._publish(target, staged, 0)
            return int(rows.num_rows)

    def dropped(self, topic: str) -> set[tuple[int, int, int]]:
        """Return (partition, offset, log timestamp in milliseconds) of the dropped events of a topic."""
        with self._lock:
            target = self._table()
            if target.is_empty:
                return set()
            return _in_log(self._known(target, topic).where(F.col("state") == Resolution.DROPPED))

    def resolve_read(self, table: TableId, read: ReadRows) -> int:
        """Resolve the events whose changes are in the rows that were read from the source. Idempotent.

        Return the number of events that were unresolved.
        """
        found = self._events_of(table, read.topic)
        places = [at for at, ms, state in found if state is None and read.contain(at, ms)]
        return self.resolve(places, Resolution.REREAD)

    def count_unread(self, table: TableId, read: ReadRows, until: Mapping[int, int]) -> int:
        """Return the number of events before `until` whose changes may be missing in rows; see `ReadRows.may_lack`.

        Dropped events do not count: the operator does not want their changes.
        """
        found = self._events_of(table, read.topic)
        return sum(state != Resolution.DROPPED and read.may_lack(at, ms, until) for at, ms, state in found)

    def _events_of(self, table: TableId, topic: str) -> list[tuple[LogCoordinate, int, str | None]]:
        """Return the events of a table: where they are, when they were quarantined (ms), and their resolution."""
        with self._lock:
            if (target := self._with_events()) is None:
                return []
            own = (F.col("table") == str(table)) & (F.col("topic") == topic)
            quarantined = F.unix_millis("quarantined_at").alias("ms")
            rows = self._read(target).where(own).select(*_KEY, quarantined, "state").collect()
        return [(LogCoordinate(r.topic, r.partition, r.offset), r.ms, r.state) for r in rows]

    def watch(self, tables: Iterable[str]) -> None:
        """Note that `tables` were paused: events in quarantine that paused them may now be decoded."""
        self._watched.update(tables)

    def resolve_applied(
        self, table: TableId, ranges: Sequence[OffsetRange], decoded: Callable[[], DataFrame]
    ) -> None:
        """Resolve the events of a previously paused table that were applied with `ranges`.

        `decoded` returns the decoded frame of these ranges; it is not called for other tables.
        """
        if str(table) not in self._watched:
            return
        self._watched.discard(str(table))
        if (target := self._with_events()) is None:
            return
        waiting = self._read(target).where((F.col("topic") == ranges[0].topic) & F.col("state").isNull())
        still_bad = decoded().where(F.col("bad").isNotNull()).select("partition", "offset")
        places = waiting.join(still_bad, ["partition", "offset"], "left_anti").select(*_KEY).collect()
        ends = {r.partition: r for r in ranges}
        taken = [
            LogCoordinate(*place)
            for place in places
            if (r := ends.get(place.partition)) is not None and r.start <= place.offset < r.end
        ]
        self.resolve(taken, Resolution.REPLAYED)
        if any((r := ends.get(place.partition)) is not None and place.offset >= r.end for place in places):
            self._watched.add(str(table))

    def _with_events(self) -> LakeTable | None:
        """Return the table; None if it has no events."""
        present = self._lake.load(self._namespace, QUARANTINE)
        return None if present is None or present.is_empty else self._table(present)

    def _table(self, present: LakeTable | None = None) -> LakeTable:
        """Return the table with all columns; it is made if there is none. `present` is the table, if it was loaded."""
        if present is None and (present := self._lake.load(self._namespace, QUARANTINE)) is None:
            return self._lake.create(self._namespace, QUARANTINE, _SCHEMA, None, {})
        columns = present.columns()
        if not {n for n, _ in _FIELDS} - {n for n, _ in RESOLVED_FIELDS} <= columns.keys():
            raise ForeignTable(
                f"{self._namespace}.{QUARANTINE} exists, and is no quarantine table; it was not changed",
                "rename that table, or choose another lake.namespace; then start the mirror again",
            )
        lacking = {n: LakeType.parse(kind) for n, kind in RESOLVED_FIELDS if n not in columns}
        if lacking:
            add_columns(self._lake, present, lacking)
        return present

    def _append(self, target: LakeTable, rows: DataFrame, batch: int) -> None:
        files = stage_data(self._lake, target, cast_to_table(rows, target.columns()))
        self._publish(target, Staged(files), batch)

    def _publish(self, target: LakeTable, staged: Staged, batch: int) -> None:
        base = target.marker()
        marker = CommitMarker(
            mirror=self._mirror,
            sequence=1 if base is None else base.sequence + 1,
            batch=batch,
            committed_ms=now_ms(),
        )
        publish(self._lake, target, base, marker, staged)

    def _known(self, target: LakeTable, topic: str) -> DataFrame:
        """Return the quarantined events of a topic; there are few, because quarantine is the exception."""
        return self._read(target).where(F.col("topic") == topic).select(*_KNOWN_BY, "state")

    def _read(self, target: LakeTable) -> DataFrame:
        return rows_of(self._lake, target)


def _in_log(known: DataFrame) -> set[tuple[int, int, int]]:
    """Collect (partition, offset, log timestamp in milliseconds) of quarantined events."""
    rows = known.select("partition", "offset", F.unix_millis("timestamp").alias("ms")).collect()
    return {(row.partition, row.offset, row.ms) for row in rows}


def _without_words(reason: SparkColumn) -> SparkColumn:
    """Return a reason without text that it quotes from the event."""
    return F.when(reason.startswith("unknown op "), F.lit("unknown op")).otherwise(reason)


def _rows(bad: Sequence[BadRecord]) -> pa.Table:
    now = 1000 * now_ms()
    rows = [
        (None, r.topic, r.partition, r.offset, 1000 * r.timestamp, r.key, r.value, b.reason, now, None, None)
        for b in bad
        for r in (b.record,)
    ]
    schema = pa.schema([(name, arrow_type(LakeType.parse(kind))) for name, kind in _FIELDS])
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def _resolved(rows: pa.Table, resolution: Resolution, now_ms: int) -> pa.Table:
    """Return rows of the quarantine table with a resolution and without payload."""
    count = rows.num_rows
    values = {
        "key": pa.nulls(count, pa.binary()),
        "value": pa.nulls(count, pa.binary()),
        "state": pa.array([str(resolution)] * count, pa.string()),
        "resolved_at": pa.array([1000 * now_ms] * count, arrow_type(TIMESTAMPTZ)),
    }
    return pa.table({name: values.get(name, rows.column(name)) for name, _ in _FIELDS})
