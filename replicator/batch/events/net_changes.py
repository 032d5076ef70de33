"""Computes net changes: good events of one table → the last change of each key.

One partition of the log has all events of a key, in order, so the last event of a key is the one with the greatest
offset. These events are found in a pass over keys and offsets only. Whole rows are then selected by their log key: the
partition and offset as one number, which fits a hash join.
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
from replicator.model.snapshot import SnapshotRead, Truncate
from replicator.model.table import TableSchema

_PARTITION_SHIFT: Final = 48
"""Bits of a log key for the offset; the other 15 bits are the partition number."""

_SHORT_TYPES: Final = frozenset({"int", "long", "decimal", "date", "timestamp", "timestamptz"})
"""Lake types of at most 16 bytes, whose values are equal if their bytes are."""


def log_key() -> SparkColumn:
    """Return the partition and offset of an event as one long."""
    return F.shiftleft(F.col("partition").cast("long"), _PARTITION_SHIFT) + F.col("offset")


def after_truncates(events: DataFrame, truncates: Sequence[Truncate]) -> DataFrame:
    """Remove the changes before `truncates` in their partitions, and the truncates themselves."""
    events = events.where(F.col("op") != "t")
    for t in truncates:
        events = events.where((F.col("partition") != t.partition) | (F.col("offset") > t.offset))
    return events


def not_replaced(events: DataFrame, snapshot: SnapshotRead) -> DataFrame:
    """Remove the changes from before `snapshot`; its own rows are kept, also those before the first good one."""
    return events.where(_is_since(snapshot) | _is_read_by(snapshot))


def _is_since(snapshot: SnapshotRead) -> SparkColumn:
    since = F.col("position_key") >= PackedPosition.pack(snapshot.position).position_key
    for partition, offset in snapshot.starts.items():
        since = F.when(F.col("partition") == partition, F.col("offset") >= offset).otherwise(since)
    return since


def _is_read_by(snapshot: SnapshotRead) -> SparkColumn:
    position_key = PackedPosition.pack(snapshot.position).position_key
    here = (F.col("position_key") == position_key) & (F.col("ts_ms") >= snapshot.ts_ms)
    return (F.col("op") == "r") & here


def key_names(schema: TableSchema) -> list[str]:
    """Return the engine's names of the key columns; the source's names could clash with other columns."""
    return [f"k{i}" for i in range(len(schema.key))]


def keyed_events(events: DataFrame, schema: TableSchema) -> DataFrame:
    """Return the key (columns k0, k1, …) and `log_key` of each event.

    `events` are decoded, good and without truncates. No update among them changes its key: Debezium sends a delete
    and a create instead.
    """
    return events.select(*_keys_and_log_key(schema.key))


def key_columns(schema: TableSchema) -> list[SparkColumn]:
    """Return the key of an event as columns k0, k1, …"""
    return list(_keys_and_log_key(schema.key)[:-1])


@lru_cache(1024)
def _keys_and_log_key(key: tuple[str, ...]) -> tuple[SparkColumn, ...]:
    return (*(_key_value(column).alias(f"k{i}") for i, column in enumerate(key)), log_key().alias("log_key"))


def last_changes(keyed: DataFrame) -> DataFrame:
    """Return each key of `keyed_events` with the `log_key` of its last event and its number of `events`. Lazy."""
    names = [name for name in keyed.columns if name != "log_key"]
    return keyed.groupBy(*names).agg(F.max("log_key").alias("log_key"), F.count(F.lit(1)).alias("events"))


def has_short_key(schema: TableSchema) -> bool:
    """Return whether keys are so short that the driver can hold those of all events of a batch."""
    return bool(schema.key) and all(
        c.type.name in _SHORT_TYPES and c.transform is None for c in schema.key_columns
    )


@dataclass(frozen=True, slots=True)
class LastChanges:
    """The last changes in a batch whose keys the driver holds.

    Attributes:
        keys: each key once (columns k0, k1, …).
        superseded: `log_key` of each event that is followed by a later one of the same key.
    """

    keys: pa.Table
    superseded: pa.Table


def last_changes_of_keys(events: pa.Table) -> LastChanges:
    """Compute `last_changes` from keys on the driver (see `has_short_key`), with their partition and offset."""
    names = [name for name in events.column_names if name.startswith("k")]
    keys, log_keys = events.select(names), _log_keys(events)
    last = driver_last_changes(keys.append_column("log_key", log_keys))
    return LastChanges(last.select(names), pa.table({"log_key": _superseded(keys, log_keys, last)}))


def _superseded(keys: pa.Table, log_keys: pa.ChunkedArray, last: pa.Table) -> pa.ChunkedArray:
    """Return those of `log_keys` that are not the `last` ones of their keys."""
    if last.num_rows == keys.num_rows:
        return log_keys.slice(0, 0)
    if keys.num_columns == 1:
        # Usually few keys have several events, and looking up few values is faster.
        (key,) = keys.column_names
        last = last.filter(pc.greater(last.column("events"), 1))
        log_keys = log_keys.filter(pc.is_in(keys.column(key), last.column(key).combine_chunks()))
    return log_keys.filter(pc.invert(pc.is_in(log_keys, last.column("log_key").combine_chunks())))


def rows_except(events: DataFrame, superseded: DataFrame | None, schema: TableSchema) -> DataFrame:
    """Return the after-images of `events`, without deletes and `superseded` events (see `LastChanges`)."""
    rows = events.where(F.col("op") != "d").select(log_key().alias("log_key"), "after")
    if superseded is not None:
        rows = rows.join(F.broadcast(superseded), "log_key", "left_anti")
    return rows.select(*_after_columns(schema.names))


@dataclass(frozen=True, slots=True)
class NetChanges:
    """The net changes of few events, on the driver.

    Attributes:
        keys: the keys that changed (columns k0, k1, …).
        rows: the new rows of those keys that were not deleted.
        row_keys: the keys of `rows`, in the same order.
    """

    keys: pa.Table
    row_keys: pa.Table
    rows: pa.Table


def driver_net_changes(events: pa.Table, schema: TableSchema) -> NetChanges:
    """Return the net changes of decoded, good events without truncates.

    Keys are compared by their bytes, so they must not be of floating point.
    """
    last = last_changes_in_order(changes_by_key(events, schema))
    kept, names = last.filter(pc.field("after").is_valid()), key_names(schema)
    return NetChanges(last.select(names), kept.select(names), new_rows(kept))


def changes_by_key(events: pa.Table, schema: TableSchema) -> pa.Table:
    """Return the key (columns k0, k1, …), `log_key` and `after` of decoded, good events without truncates."""
    deleted = pc.equal(events.column("code"), OP_CODES["d"])
    before, after = events.column("before"), events.column("after")
    keys = {
        name: pc.if_else(deleted, pc.struct_field(before, column), pc.struct_field(after, column))
        for name, column in zip(key_names(schema), schema.key, strict=True)
    }
    return pa.table(keys | {"log_key": _log_keys(events), "after": after})


def last_changes_in_order(changes: pa.Table) -> pa.Table:
    """Return those of `changes_by_key` that no later one of the same key follows, in their order.

    Keys are compared by their bytes, so they must not be of floating point.
    """
    last = driver_last_changes(changes.drop_columns("after"))
    if last.num_rows == changes.num_rows:
        return changes
    return changes.filter(pc.is_in(changes.column("log_key"), last.column("log_key").combine_chunks()))


def new_rows(changes: pa.Table) -> pa.Table:
    """Return the rows after `changes_by_key` without deletes."""
    rows = changes.column("after").combine_chunks()
    return pa.table(rows.flatten(), names=[field.name for field in rows.type])


def _log_keys(events: pa.Table) -> pa.ChunkedArray:
    partition = events.column("partition").cast(pa.int64())
    return pc.add(pc.shift_left(partition, _PARTITION_SHIFT), events.column("offset"))


def driver_last_changes(keyed: pa.Table) -> pa.Table:
    """Compute `last_changes` on the driver. Keys are compared by their bytes, so they must not be of floating point."""
    names = [name for name in keyed.column_names if name != "log_key"]
    grouped = keyed.group_by(names).aggregate([("log_key", "max"), ("log_key", "count")])
    return grouped.rename_columns([*names, "log_key", "events"]).select([*names, "log_key", "events"])


def net_rows(events: DataFrame, schema: TableSchema) -> DataFrame:
    """Return the net changes of a table without a key: each row, and by how many its number of copies changes.

    `events` are good and without truncates; their order does not matter. Rows (columns k0, k1, … in `schema`'s order)
    are copies of each other if all their values are equal. Rows whose number of copies stays the same are left out.
    """
    added = F.struct(F.lit(1).alias("n"), F.col("after").alias("row"))
    removed = F.struct(F.lit(-1).alias("n"), F.col("before").alias("row"))
    images = (
        F.when(F.col("op") == "u", F.array(removed, added))
        .when(F.col("op") == "d", F.array(removed))
        .otherwise(F.array(added))
    )
    names = [f"k{i}" for i in range(len(schema.columns))]
    row = F.col("image.row")
    values = [row.getField(column).alias(name) for column, name in zip(schema.names, names, strict=True)]
    each = events.select(F.explode(images).alias("image")).select(*values, F.col("image.n").alias("n"))
    return each.groupBy(*names).agg(F.sum("n").cast("int").alias(NET)).where(F.col(NET) != 0)


def _key_value(column: str) -> SparkColumn:
    """Return the value of a key column: a delete has it in its before-image."""
    before, after = (F.col(image).getField(column) for image in ("before", "after"))
    return F.when(F.col("op") == "d", before).otherwise(after)


def surviving_rows(events: DataFrame, keys: DataFrame, schema: TableSchema) -> DataFrame:
    """Return the after-images of the last events of `keys` (see `last_changes`), without deletes.

    Only keys with several events must be looked up; usually they are few, so that the broadcast list is short.
    """
    names = key_names(schema)
    several = keys.where(F.col("events") > 1).select(*names, F.col("log_key").alias("last"))
    rows = events.where(F.col("op") != "d").select(*_keyed_after_image(schema.key))
    survivors = rows.join(F.broadcast(several), names, "left").where(
        F.col("last").isNull() | (F.col("last") == F.col("log_key"))
    )
    return survivors.select(*_after_columns(schema.names))


@lru_cache(1024)
def _keyed_after_image(key: tuple[str, ...]) -> tuple[SparkColumn, ...]:
    after = F.col("after")
    return (log_key().alias("log_key"), after, *(after.getField(c).alias(f"k{i}") for i, c in enumerate(key)))


@lru_cache(1024)
def _after_columns(names: tuple[str, ...]) -> tuple[SparkColumn, ...]:
    return tuple(F.col("after").getField(name).alias(name) for name in names)
