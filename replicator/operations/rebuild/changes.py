"""Read the changes of one source table from its changelog, in an order that is certain."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from replicator.batch.steps.reset import TableReset
from replicator.errors import UnsupportedChange
from replicator.jvm.position_columns import position_key, row_key
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.files.spark_tables import rows_of
from replicator.model.changelog import NOT_APPLIED
from replicator.model.commit_marker import CommitMarker
from replicator.model.common import quoted
from replicator.model.moments import Bound
from replicator.model.position import FILE_SHIFT, LAST_MS, PackedPosition, SourcePosition
from replicator.model.snapshot import SnapshotRead, Truncate
from replicator.model.types import spark_sql_name
from replicator.schema.evolution.own_columns import change_field

_META: Final = ("kind", "op", "server_id", "gtid", "partition", "offset")
_NO_PARTITION: Final = -1
_RESET_MS: Final = 3_600_000
"""If a binlog file begins this much (ms) before the end of an earlier one, the binlog was reset in between."""
_BLOCK_SHIFT: Final = 20
"""Offsets of a partition are compared in blocks of about a million, each in one task."""
AT: Final = "at"
"""Column with the struct of a change: `_META`, and commit, position_key, row_key, row, file and ts_ms."""
VALUES: Final = "v"
"""Column with the struct of the source's columns, whose names could clash with others."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of one source table up to some moment.

    Attributes:
        frame: the columns `VALUES` and `AT`.
        by_position: whether changes are ordered by their positions; otherwise by the commits that added them, and in
            each by their offsets.
        reset: what removed all rows; its newest part counts.
    """

    frame: DataFrame
    by_position: bool
    reset: TableReset = field(default_factory=TableReset)

    def order(self) -> SparkColumn:
        """Return a column by which the changes of one row are ordered."""
        offset = F.col(AT).getField("offset")
        if self.by_position:
            return F.struct(F.col(AT).getField("position_key").alias("a"), offset.alias("b"))
        # Rows of earlier versions have no number, and are before those that have one. One key is in one partition.
        commit = F.coalesce(F.col(AT).getField("commit"), F.lit(NOT_APPLIED).cast("long"))
        return F.struct(commit.alias("a"), offset.alias("b"))

    def since_reset(self) -> DataFrame:
        """Return the changes that no TRUNCATE, snapshot or recreation of the table undid."""
        if not self.by_position:
            return self.reset.survivors(self.frame.select("*", f"{AT}.*")).select(*self.frame.columns)
        at, undone = F.col(AT), [_key_of(t.position) for t in self.reset.truncates]
        rows = self.frame.where(at.getField("op") != "t")
        last = max(
            [(key, t.offset) for key, t in zip(undone, self.reset.truncates, strict=True)], default=None
        )
        since = max([_key_of(s.position) for s in self.reset.snapshots], default=None)
        if last is not None:
            later = at.getField("position_key") > last[0]
            same = (at.getField("position_key") == last[0]) & (at.getField("offset") > last[1])
            rows = rows.where(later | same)
        return rows if since is None else rows.where(at.getField("position_key") >= since)


def read_changes(lake: Lake, changelog: LakeTable) -> DataFrame:
    """Return the rows of the changelog's current snapshot, as the columns `VALUES` and `AT`.

    Raises:
        UnsupportedChange: the table is no changelog.
    """
    if (found := change_field(changelog.schema_json())) is None:
        raise UnsupportedChange(f"{changelog.namespace}.{changelog.name} is no changelog of this engine")
    name, known = found
    at = F.col(quoted(name))
    number = F.substring_index(at.getField("file"), ".", -1).cast("long")
    kind = F.when(at.getField("op").isin("d", "t"), F.lit(0)).otherwise(F.lit(1))
    change = F.struct(
        *[at.getField(name).alias(name) for name in _META],
        (at.getField("commit") if "commit" in known else F.lit(None).cast("long")).alias("commit"),
        at.getField("row").alias("row"),
        at.getField("file").alias("file"),
        position_key(F.coalesce(number, F.lit(0)), at.getField("pos")).alias("position_key"),
        row_key(at.getField("row"), kind).alias("row_key"),
        F.unix_millis(at.getField("source_ts")).alias("ts_ms"),
    )
    values = [
        F.col(quoted(name)).cast(spark_sql_name(lake_type)).alias(name)
        for name, lake_type in changelog.engine_columns().items()
    ]
    return rows_of(lake, changelog).select(F.struct(*values).alias(VALUES), change.alias(AT))


def order_changes(
    rows: DataFrame, marker: CommitMarker, bound: Bound | None, pending: SnapshotRead | None
) -> Changes:
    """Return the changes up to `bound` (all without it), in their order, and what reset the table.

    Positions order the changes of one binlog. If there are several servers, or if the binlog was reset, offsets do,
    which requires that all events are of one topic.

    Args:
        rows: see `read_changes`.
        marker: the changelog's marker.
        pending: a snapshot whose rows do not replace earlier ones yet.

    Raises:
        UnsupportedChange: the order is not certain.
    """
    by_position = _positions_are_comparable(rows) and (
        len(marker.progress) > 1 or not _positions_go_back(rows)
    )
    if not by_position:
        if bound is not None:
            raise UnsupportedChange(
                "the changelog has changes of several servers, or from before the binlog was reset, so a position "
                "has no certain place in it",
                "rebuild the mirror without --as-of; or use a tag that was made at the time (replicator tag)",
            )
        _check_offsets(rows, marker)
    kept = rows if bound is None else rows.where(is_before(bound))
    resets = _resets(kept, pending)
    several = len({partition for partitions in marker.progress.values() for partition in partitions}) > 1
    if several and not by_position and (resets.truncates or len(resets.snapshots) > 1):
        raise UnsupportedChange(
            "the changelog has changes of several servers in several partitions, and a TRUNCATE or repeated snapshot, "
            "so it is not certain which changes are from before",
            "read the table again: replicator heal DATABASE.TABLE",
        )
    return Changes(kept, by_position, resets)


def is_before(bound: Bound) -> SparkColumn:
    """Return whether a change lies before a bound."""
    key, row = F.col(AT).getField("position_key"), F.col(AT).getField("row")
    if bound.row is None:
        return key <= bound.position_key
    return (key < bound.position_key) | ((key == bound.position_key) & (row <= bound.row))


def without_rows_before(changes: Changes, at: int) -> Changes:
    """Return the changes of a table that was recreated at a binlog key: earlier rows are gone."""
    cleared = Truncate(_NO_PARTITION, -1, PackedPosition(at, 0).unpack(), LAST_MS)
    return replace(changes, reset=replace(changes.reset, truncates=[*changes.reset.truncates, cleared]))


def _positions_are_comparable(rows: DataFrame) -> bool:
    """Return whether all changes have one server id, and its files ascend in time: the binlog was not reset."""
    at = F.col(AT)
    files = (
        rows.where(at.getField("op") != "r")
        .groupBy(F.shiftright(at.getField("position_key"), FILE_SHIFT).alias("file"))
        .agg(
            F.min(at.getField("ts_ms")).alias("first"),
            F.max(at.getField("ts_ms")).alias("last"),
            F.collect_set(at.getField("server_id")).alias("servers"),
        )
        .collect()
    )
    servers = {server for row in files for server in row.servers if server}
    latest = None
    for row in sorted(files, key=lambda found: found.file):
        if row.first is None:
            continue
        if latest is not None and row.first + _RESET_MS < latest:
            return False
        latest = max(row.last, latest or row.last)
    return len(servers) <= 1


def _positions_go_back(rows: DataFrame) -> bool:
    """Return whether positions go back in the order of offsets: then they are of two binlogs.

    Replicas keep the id of the server that executed a change, so the binlogs of two servers may have the same one. If
    an offset occurs twice, the topic was recreated, and offsets tell no order.
    """
    at = F.col(AT)
    key = F.when(at.getField("op") != "r", at.getField("position_key"))
    offset = at.getField("offset")
    events = rows.where(at.getField("kind") != "UPDATE_BEFORE").select(
        at.getField("partition").alias("partition"),
        F.shiftright(offset, _BLOCK_SHIFT).alias("block"),
        offset.alias("offset"),
        key.alias("key"),
    )
    order = Window.partitionBy("partition", "block").orderBy("offset")
    earlier = order.rowsBetween(Window.unboundedPreceding, -1)
    changed = F.when(F.col("key").isNotNull(), F.col("offset"))
    blocks = (
        events.withColumn("twice", F.lag("offset").over(order) == F.col("offset"))
        .withColumn("back", F.last("key", ignorenulls=True).over(earlier) > F.col("key"))
        .groupBy("partition", "block")
        .agg(
            F.max("twice").alias("twice"),
            F.max("back").alias("back"),
            F.min_by("key", changed).alias("first"),
            F.max_by("key", changed).alias("last"),
        )
        .orderBy("partition", "block")
        .collect()
    )
    with_changes = [block for block in blocks if block.first is not None]
    between = any(a.partition == b.partition and a.last > b.first for a, b in pairwise(with_changes))
    return (between or any(block.back for block in blocks)) and not any(block.twice for block in blocks)


def _check_offsets(rows: DataFrame, marker: CommitMarker) -> None:
    """Raise UnsupportedChange if offsets do not order the changes: events of several topics, or of a recreated one."""
    at = F.col(AT)
    events = rows.where(at.getField("kind") != "UPDATE_BEFORE")
    twice = events.groupBy(at.getField("partition"), at.getField("offset")).count().where("count > 1")
    if len(marker.progress) > 1 or not twice.isEmpty():
        raise UnsupportedChange(
            "the changelog has changes of several servers and of several topics, so their order is not certain",
            "take a new snapshot of the table",
        )


def _resets(rows: DataFrame, pending: SnapshotRead | None) -> TableReset:
    """Return the newest TRUNCATE of each partition, and the snapshots that replaced earlier rows."""
    at = F.col(AT)
    read = (at.getField("op") == "r") & (F.coalesce(at.getField("server_id"), F.lit(0)) == 0)
    group = [at.getField(name).alias(name) for name in ("op", "partition", "position_key")]
    group.append(F.when(at.getField("op") == "r", at.getField("ts_ms")).alias("read_ms"))
    found = (
        rows.where((at.getField("op") == "t") | read)
        .groupBy(*group)
        .agg(
            F.min(at.getField("offset")).alias("first"),
            F.max(at.getField("offset")).alias("last"),
            *[F.max(at.getField(name)).alias(name) for name in ("ts_ms", "server_id", "file", "gtid")],
        )
        .collect()
    )
    truncates = [
        Truncate(r.partition, r.last, _position(r.position_key, r.file, r.server_id, r.gtid), r.ts_ms or 0)
        for r in found
        if r.op == "t"
    ]
    snapshots: dict[int, SnapshotRead] = {}
    _check_snapshots([row for row in found if row.op == "r"])
    for r in (row for row in found if row.op == "r"):
        one = SnapshotRead(_position(r.position_key, r.file, 0), r.ts_ms or 0, {r.partition: r.first})
        known = snapshots.get(r.position_key)
        snapshots[r.position_key] = one if known is None else known.continued_by(one)
    replacing = [s for s in snapshots.values() if pending is None or not s.is_of(pending)]
    return TableReset(truncates, sorted(replacing, key=lambda s: (s.ts_ms, s.position)))


def _check_snapshots(reads: Sequence[Row]) -> None:
    """Raise UnsupportedChange if rows at one position may be of two snapshots: the changelog lacks their marks."""
    last: dict[tuple[int, int], int] = {}
    for row in sorted(reads, key=lambda r: (r.read_ms or 0, r.first)):
        place = row.partition, row.position_key
        if place in last and row.first > last[place]:
            raise UnsupportedChange(
                "the changelog has rows that the connector read at one position and at several times, so it is not "
                "certain which of them a later snapshot replaced",
                "take a new snapshot of the table",
            )
        last[place] = max(row.last, last.get(place, row.last))


def _position(key: int, file: str | None, server_id: int | None, gtid: str | None = None) -> SourcePosition:
    return PackedPosition(key, 0).unpack(file, server_id or 0, gtid)


def _key_of(position: SourcePosition) -> int:
    return PackedPosition.pack(position).position_key
