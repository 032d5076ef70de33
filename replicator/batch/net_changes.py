"""Good events of one table → the last net change of each key.

One partition of the log holds all events of a key, in order, so the last event of a key is the one with its greatest
offset. The winners are found in a pass over keys and offsets only; whole rows are then picked by place, which
is one number that fits a hash join.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.model.batch_stats import OP_CODES
from replicator.model.changelog import NET
from replicator.model.position import PackedPosition
from replicator.model.snapshot import SnapshotRead
from replicator.model.table import TableSchema
from replicator.model.truncate import RESET_MS, Truncate

_PARTITION_SHIFT: Final = 48
"""Bits for the offset in a place; the rest, 15 bits, number the partition."""

_SHORT: Final = frozenset({"int", "long", "decimal", "date", "timestamp", "timestamptz"})
"""Lake types of at most 16 bytes that are the same where their bytes are."""


def log_key() -> SparkColumn:
    """Partition and offset as one long."""
    return F.shiftleft(F.col("partition").cast("long"), _PARTITION_SHIFT) + F.col("offset")


def after_truncates(events: DataFrame, truncates: Sequence[Truncate]) -> DataFrame:
    """Leave out what one of `truncates` undid, and the truncates themselves; see `Truncate.undoes`."""
    events = events.where(F.col("op") != "t")
    for t in truncates:
        own = F.col("partition") == t.partition
        events = events.where(F.when(own, F.col("offset") > t.offset).otherwise(~_undone(t)))
    return events


def since_snapshot(events: DataFrame, snapshot: SnapshotRead) -> DataFrame:
    """Leave out what came before `snapshot` read the table.

    Where it sent rows, the log's order tells; what other partitions have, the source's.
    """
    since = F.col("position_key") >= PackedPosition.pack(snapshot.position).position_key
    for partition, offset in snapshot.starts.items():
        since = F.when(F.col("partition") == partition, F.col("offset") >= offset).otherwise(since)
    return events.where(since)


def _undone(t: Truncate) -> SparkColumn:
    position_key, row_key, ts_ms = (
        F.col("position_key"),
        F.col("row_key"),
        F.coalesce(F.col("ts_ms"), F.lit(0)),
    )
    before = (position_key < t.position_key) | ((position_key == t.position_key) & (row_key < t.row_key))
    same_log = (F.lit(0) == t.position.server_id) | F.col("server_id").isin(0, t.position.server_id)
    return F.when(same_log, before & (ts_ms <= t.ts_ms + RESET_MS)).otherwise(ts_ms <= t.ts_ms)


def key_names(schema: TableSchema) -> list[str]:
    """The names of the key columns inside the engine; a source's names could clash with ours."""
    return [f"k{i}" for i in range(len(schema.key))]


def keyed_events(events: DataFrame, schema: TableSchema) -> DataFrame:
    """Key (columns k0, k1, …) and `place` of each event.

    `events` are decoded, good and without truncates. No update among them changes its key: Debezium sends a delete
    and a create instead.
    """
    return events.select(*_key_places(schema.key))


def key_columns(schema: TableSchema) -> list[SparkColumn]:
    """The key of each of `events` (see `key_places`) as columns k0, k1, …"""
    return list(_key_places(schema.key)[:-1])


@lru_cache(1024)
def _key_places(key: tuple[str, ...]) -> tuple[SparkColumn, ...]:
    return (*(_key_value(column).alias(f"k{i}") for i, column in enumerate(key)), log_key().alias("place"))


def last_changes(places: DataFrame) -> DataFrame:
    """Of `key_places`: each key with the `place` of its last event and how many `events` it has. Lazy."""
    names = [name for name in places.columns if name != "place"]
    return places.groupBy(*names).agg(F.max("place").alias("place"), F.count(F.lit(1)).alias("events"))


def has_short_key(schema: TableSchema) -> bool:
    """Whether the driver can hold the keys of all events of a batch."""
    return bool(schema.key) and all(c.type.name in _SHORT and c.transform is None for c in schema.key_columns)


@dataclass(frozen=True, slots=True)
class LastChanges:
    """What the driver finds in the keys of many events.

    Attributes:
        keys: each key once (columns k0, k1, …).
        superseded: `place` of each event that a later one of the same key makes pointless.
    """

    keys: pa.Table
    superseded: pa.Table


def last_changes_of_keys(events: pa.Table) -> LastChanges:
    """As `last_changes`, of keys that the driver has (see `has_short_key`) beside their partition and offset."""
    names = [name for name in events.column_names if name.startswith("k")]
    places = _places(events)
    last = driver_last_changes(events.select(names).append_column("place", places))
    return LastChanges(
        last.select(names), pa.table({"place": _superseded(events.select(names), places, last)})
    )


def _superseded(keys: pa.Table, places: pa.ChunkedArray, last: pa.Table) -> pa.ChunkedArray:
    """Those of `places` that are not among the `last` of their keys."""
    if last.num_rows == keys.num_rows:
        return places.slice(0, 0)
    if keys.num_columns == 1:
        # Mostly few keys have several events, and few values are looked up faster.
        (key,) = keys.column_names
        last = last.filter(pc.greater(last.column("events"), 1))
        places = places.filter(pc.is_in(keys.column(key), last.column(key).combine_chunks()))
    return places.filter(pc.invert(pc.is_in(places, last.column("place").combine_chunks())))


def rows_except(events: DataFrame, superseded: DataFrame | None, schema: TableSchema) -> DataFrame:
    """The after-images of `events`, deletes and `superseded` ones (see `LastChanges`) left out."""
    rows = events.where(F.col("op") != "d").select(log_key().alias("place"), "after")
    if superseded is not None:
        rows = rows.join(F.broadcast(superseded), "place", "left_anti")
    return rows.select(*_after_columns(schema.names))


@dataclass(frozen=True, slots=True)
class NetChanges:
    """What a few events come to: `keys` (columns k0, k1, …) that changed, and their `rows` where they are not gone.

    `row_keys` are the keys of `rows`, in the same order.
    """

    keys: pa.Table
    row_keys: pa.Table
    rows: pa.Table


def driver_net_changes(events: pa.Table, schema: TableSchema) -> NetChanges:
    """The net changes of decoded, good events without truncates that the driver has.

    Keys are compared by their bytes, so not for floating point.
    """
    names = key_names(schema)
    deleted = pc.equal(events.column("code"), OP_CODES["d"])
    keys = {
        name: pc.if_else(
            deleted,
            pc.struct_field(events.column("before"), column),
            pc.struct_field(events.column("after"), column),
        )
        for name, column in zip(names, schema.key, strict=True)
    }
    places = _places(events)
    last = driver_last_changes(pa.table(keys | {"place": places}))
    kept = pc.and_(pc.is_in(places, last.column("place").combine_chunks()), pc.invert(deleted))
    rows = events.column("after").filter(kept).combine_chunks()
    fields = [rows.type.field(i).name for i in range(rows.type.num_fields)]
    return NetChanges(last.select(names), pa.table(keys).filter(kept), pa.table(rows.flatten(), names=fields))


def _places(events: pa.Table) -> pa.ChunkedArray:
    partition = events.column("partition").cast(pa.int64())
    return pc.add(pc.shift_left(partition, _PARTITION_SHIFT), events.column("offset"))


def driver_last_changes(places: pa.Table) -> pa.Table:
    """`last_changes` of events that the driver has. Keys are compared by their bytes, so not for floating point."""
    names = [name for name in places.column_names if name != "place"]
    grouped = places.group_by(names).aggregate([("place", "max"), ("place", "count")])
    return grouped.rename_columns([*names, "place", "events"]).select([*names, "place", "events"])


def net_rows(events: DataFrame, schema: TableSchema) -> DataFrame:
    """What good events without truncates come to in a table without a key: each row with how many more of it there are.

    Rows (columns k0, k1, … in `schema`'s order) are the same where all their values are; order does not matter. Rows
    of which there are as many as before are left out.
    """
    came = F.struct(F.lit(1).alias("n"), F.col("after").alias("row"))
    went = F.struct(F.lit(-1).alias("n"), F.col("before").alias("row"))
    images = (
        F.when(F.col("op") == "u", F.array(went, came))
        .when(F.col("op") == "d", F.array(went))
        .otherwise(F.array(came))
    )
    names = [f"k{i}" for i in range(len(schema.columns))]
    row = F.col("image.row")
    values = [row.getField(column).alias(name) for column, name in zip(schema.names, names, strict=True)]
    each = events.select(F.explode(images).alias("image")).select(*values, F.col("image.n").alias("n"))
    return each.groupBy(*names).agg(F.sum("n").cast("int").alias(NET)).where(F.col(NET) != 0)


def _key_value(column: str) -> SparkColumn:
    before, after = (F.col(image).getField(column) for image in ("before", "after"))
    return F.when(F.col("op") == "d", before).otherwise(after)


def surviving_rows(events: DataFrame, keys: DataFrame, schema: TableSchema) -> DataFrame:
    """The after-images of the events that `keys` (see `last_changes`) names as last, deletes left out.

    Only keys with several events need a look-up; mostly they are few, and the list that is broadcast is short.
    """
    names = key_names(schema)
    several = keys.where(F.col("events") > 1).select(*names, F.col("place").alias("last"))
    rows = events.where(F.col("op") != "d").select(*_row_places(schema.key))
    survivors = rows.join(F.broadcast(several), names, "left").where(
        F.col("last").isNull() | (F.col("last") == F.col("place"))
    )
    return survivors.select(*_after_columns(schema.names))


@lru_cache(1024)
def _row_places(key: tuple[str, ...]) -> tuple[SparkColumn, ...]:
    after = F.col("after")
    return (log_key().alias("place"), after, *(after.getField(c).alias(f"k{i}") for i, c in enumerate(key)))


@lru_cache(1024)
def _after_columns(names: tuple[str, ...]) -> tuple[SparkColumn, ...]:
    return tuple(F.col("after").getField(name).alias(name) for name in names)
