"""Where events go that cannot be decoded or applied: one Iceberg table with the raw record and the reason."""

import json
import threading
import time
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.apply.lake import Lake, LakeTable
from replicator.apply.publish import Staged, publish
from replicator.apply.spec import ENGINE_PROPERTIES
from replicator.apply.stage import stage_data
from replicator.model.commit import CommitMarker
from replicator.model.record import BadRecord
from replicator.model.table import TableId
from replicator.spark import local_frame

QUARANTINE: Final = "quarantine"

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
)
_ARROW: Final = {
    "string": pa.string(),
    "int": pa.int32(),
    "long": pa.int64(),
    "binary": pa.binary(),
    "timestamptz": pa.timestamp("ms", tz="UTC"),
}
_SCHEMA: Final = json.dumps(
    {
        "type": "struct",
        "schema-id": 0,
        "fields": [
            {"id": i, "name": name, "required": False, "type": kind}
            for i, (name, kind) in enumerate(_FIELDS, start=1)
        ],
    }
)


class Quarantine:
    """The mirror's quarantine table. All tables share it, so one thread writes at a time."""

    def __init__(self, lake: Lake, namespace: str, mirror: str) -> None:
        self._lake = lake
        self._namespace = namespace
        self._mirror = mirror
        self._lock = threading.Lock()

    def add(self, table: TableId, topic: str, decoded: DataFrame, batch: int) -> None:
        """Append the bad events of a decoded frame; those that are there already are left out."""
        rows = decoded.where(F.col("bad").isNotNull()).select(
            F.lit(str(table)).alias("table"),
            F.lit(topic).alias("topic"),
            "partition",
            "offset",
            F.timestamp_millis("timestamp").alias("timestamp"),
            F.col("raw_key").alias("key"),
            F.col("raw_value").alias("value"),
            F.col("bad").alias("reason"),
            F.current_timestamp().alias("quarantined_at"),
        )
        with self._lock:
            target = self._table()
            if not target.is_empty:
                rows = rows.join(
                    F.broadcast(self._places(target, topic)), ["partition", "offset"], "left_anti"
                )
            self._append(target, rows, batch)

    def add_records(self, bad: Sequence[BadRecord], batch: int) -> list[BadRecord]:
        """Append records of no table, all of one topic. Returns those that were not there yet."""
        with self._lock:
            target = self._table()
            known: set[tuple[int, int]] = set()
            if not target.is_empty:
                places = self._places(target, bad[0].record.topic).collect()
                known = {(place.partition, place.offset) for place in places}
            fresh = [b for b in bad if (b.record.partition, b.record.offset) not in known]
            if fresh:
                self._append(target, local_frame(self._lake.spark, _rows(fresh)), batch)
            return fresh

    def _table(self) -> LakeTable:
        present = self._lake.load(self._namespace, QUARANTINE)
        return present or self._lake.create(
            self._namespace, QUARANTINE, _SCHEMA, None, dict(ENGINE_PROPERTIES)
        )

    def _append(self, target: LakeTable, rows: DataFrame, batch: int) -> None:
        files = stage_data(self._lake, target, rows.select(*[name for name, _ in _FIELDS]))
        base = target.marker()
        marker = CommitMarker(
            mirror=self._mirror,
            sequence=1 if base is None else base.sequence + 1,
            batch=batch,
            committed_ms=time.time_ns() // 1_000_000,
        )
        publish(self._lake, target, base, marker, Staged(files))

    def _places(self, target: LakeTable, topic: str) -> DataFrame:
        """Where the events of a topic that are in quarantine stand; few, as quarantine is the exception."""
        there = self._lake.spark.read.format("iceberg").load(target.sql_name)
        return there.where(F.col("topic") == topic).select("partition", "offset")


def _rows(bad: Sequence[BadRecord]) -> pa.Table:
    now = time.time_ns() // 1_000_000
    rows = [
        (None, r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, b.reason, now)
        for b in bad
        for r in (b.record,)
    ]
    schema = pa.schema([(name, _ARROW[kind]) for name, kind in _FIELDS])
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)
