"""Compute the marker of a rebuilt mirror, with which the mirror process continues exactly."""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import functions as F

from replicator.errors import UnsupportedChange
from replicator.model.commit_marker import CommitMarker, HighWater, PartitionProgress
from replicator.model.common import now_ms
from replicator.model.moments import Bound
from replicator.model.position import PackedPosition, SourcePosition
from replicator.model.snapshot import SnapshotRead
from replicator.operations.rebuild.changes import AT, Changes, is_before


def pending_snapshot(mirror: CommitMarker | None) -> SnapshotRead | None:
    """Return the snapshot of a mirror whose rows do not replace the earlier ones yet; None if there is none."""
    snapshot = None if mirror is None else mirror.snapshot
    return snapshot if snapshot is not None and snapshot.replaces_rows else None


def head_marker(changelog: CommitMarker, mirror: CommitMarker | None, changes: Changes) -> CommitMarker:
    """Return the marker of a mirror with all changes of a changelog.

    Raises:
        UnsupportedChange: the mirror has changes that the changelog lacks.
    """
    _check_reach(changelog, mirror)
    read = _last_snapshot(changes)
    known = None if mirror is None else mirror.snapshot
    if known is not None and (read is None or read.is_of(known) or _is_later(known, read)):
        read = known
    return replace(changelog, sequence=_sequence(mirror), committed_ms=now_ms(), snapshot=read, alone=False)


def marker_as_of(
    changelog: CommitMarker, mirror: CommitMarker | None, changes: Changes, rows: Changes, bound: Bound
) -> CommitMarker:
    """Return the marker of a mirror with the changes of a changelog up to `bound`.

    The mirror process reads the later events again, and the changelog has them already.

    Args:
        changes: all changes of the changelog.
        rows: those up to `bound`.

    Raises:
        UnsupportedChange: the changelog has events of several topics, whose offsets do not continue each other.
    """
    _check_reach(changelog, mirror)
    if len(changelog.progress) != 1:
        raise UnsupportedChange(
            "the changelog has events of several topics, so the mirror could not continue from an earlier position",
            "rebuild it in another namespace: --to NAMESPACE",
        )
    ((topic, partitions),) = changelog.progress.items()
    later = _first_offsets(changes, bound)
    reached = _high_water(rows)
    progress = {
        number: PartitionProgress(later.get(number, known.next_offset), reached.get(number))
        for number, known in partitions.items()
    }
    highs = list(reached.values())
    snapshots = rows.reset.snapshots
    positions = [high.position for high in highs] + [s.position for s in snapshots]
    return replace(
        changelog,
        sequence=_sequence(mirror),
        progress={topic: progress},
        position=max(positions, default=None),
        watermark_ms=max([h.ts_ms for h in highs] + [s.ts_ms for s in snapshots], default=None),
        committed_ms=now_ms(),
        truncate=max(rows.reset.truncates, key=lambda t: (t.position_key, t.offset), default=None),
        snapshot=_last_snapshot(rows),
        alone=False,
    )


def _last_snapshot(changes: Changes) -> SnapshotRead | None:
    snapshots = changes.reset.snapshots
    return snapshots[-1] if snapshots else None


def _is_later(one: SnapshotRead, other: SnapshotRead) -> bool:
    return (one.ts_ms, one.position) > (other.ts_ms, other.position)


def _check_reach(changelog: CommitMarker, mirror: CommitMarker | None) -> None:
    for topic, partitions in ({} if mirror is None else mirror.progress).items():
        for number, reached in partitions.items():
            if (changelog.next_offset(topic, number) or 0) < reached.next_offset:
                raise UnsupportedChange(
                    "the mirror has changes that the changelog lacks",
                    "let the mirror continue: replicator run",
                )


def _sequence(mirror: CommitMarker | None) -> int:
    return 1 if mirror is None else mirror.sequence + 1


def _first_offsets(changes: Changes, bound: Bound) -> dict[int, int]:
    """Return partition → the offset of the first event after a bound, for partitions with one."""
    at = F.col(AT)
    found = (
        changes.frame.where(~is_before(bound))
        .groupBy(at.getField("partition").alias("partition"))
        .agg(F.min(at.getField("offset")).alias("first"))
        .collect()
    )
    return {row.partition: row.first for row in found}


def _high_water(rows: Changes) -> dict[int, HighWater]:
    """Return partition → the furthest position that its events have reached, without rows of snapshots."""
    at = F.col(AT)
    events = rows.frame.where(~at.getField("kind").isin("UPDATE_BEFORE") & (at.getField("op") != "r"))
    flat = events.select(f"{AT}.*")
    furthest = F.struct("position_key", "offset")
    last = F.max_by(F.struct("position_key", "row_key", "file", "server_id", "gtid", "offset"), furthest)
    found = flat.groupBy("partition").agg(last.alias("last"), F.max("ts_ms").alias("ts_ms"))
    shared = found.select("partition", F.col("last.position_key").alias("position_key"))
    counts = (
        flat.join(F.broadcast(shared), ["partition", "position_key"])
        .groupBy("partition")
        .agg(
            F.count(F.lit(1)).alias("events"),
            F.countDistinct("row_key").alias("distinct"),
            F.max_by("row_key", "offset").alias("newest"),
            F.max("row_key").alias("greatest"),
        )
    )
    return {
        row.partition: HighWater(
            PackedPosition(row["last"].position_key, row["last"].row_key).unpack(
                row["last"].file, row["last"].server_id or 0, row["last"].gtid
            ),
            row["last"].row_key & 1,
            row.ts_ms,
            rows_ascending=row.events == row.distinct and row.newest == row.greatest,
            snapshot=_snapshot_after(rows.reset.snapshots, row.partition, row["last"].offset),
        )
        for row in found.join(counts, "partition").collect()
    }


def _snapshot_after(snapshots: Sequence[SnapshotRead], partition: int, offset: int) -> SourcePosition | None:
    """Return the position of the last snapshot with rows after an offset; None if there is none."""
    later = [s.position for s in snapshots if s.starts.get(partition, -1) > offset]
    return later[-1] if later else None
