"""The mirror's part of a batch: the last net change of each key, applied in one visible step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from replicator.apply.lake import LakeTable
from replicator.apply.publish import Staged, publish
from replicator.apply.spare import recorded_changes, spared_rows
from replicator.apply.stage import aligned
from replicator.apply.strategy import Few, by_identity, merge, split, split_few
from replicator.batch.lake_tables import is_beyond, mirror_table
from replicator.batch.understand import Shape
from replicator.batch.work import Engine, Work, already_in, marker_of
from replicator.collapse import (
    after_truncates,
    driver_last_changes,
    few_last_changes,
    few_net_changes,
    key_columns,
    key_names,
    key_places,
    last_changes,
    net_rows,
    rows_besides,
    since_snapshot,
    surviving_rows,
)
from replicator.config import TableOptions
from replicator.errors import (
    UnknownPast,
    UnsupportedChange,
)
from replicator.held import Held, hold
from replicator.model.census import Census
from replicator.model.change import change_column
from replicator.model.commit import CommitMarker
from replicator.model.snapshot import SnapshotRead, follow
from replicator.model.table import TableSchema
from replicator.model.truncate import Truncate
from replicator.normalize import from_offset
from replicator.spark import local_frame


@dataclass(frozen=True, slots=True)
class Emptied:
    """What removes from a table what was there before: truncates, and snapshots that replace it."""

    truncates: Sequence[Truncate] = ()
    snapshots: Sequence[SnapshotRead] = ()

    def __bool__(self) -> bool:
        return bool(self.truncates or self.snapshots)

    def spares(self, changes: DataFrame) -> DataFrame:
        """Of `changes` (decoded events, or the changelog's) those that came after all of it."""
        changes = after_truncates(changes, self.truncates)
        for snapshot in self.snapshots:
            changes = since_snapshot(changes, snapshot)
        return changes


def apply_to_mirror(
    engine: Engine, work: Work, options: TableOptions, shape: Shape, events: Held, census: Census
) -> None:
    """Bring the mirror up to the end of `work` by one commit; what it has already is left out.

    Raises:
        SchemaError: the table cannot go on; nothing was applied.
        FencedError, CommitConflict: as in `publish`.
    """
    base = engine.ledger.progress(work.table).mirror
    if is_beyond(engine.ledger.progress(work.table).mirror_schema, shape):
        return
    # Rows without a key are told apart by the columns that the source has now.
    schema = shape.frame if shape.frame.key else shape.schema
    table = mirror_table(engine, work.table, options, shape)
    if work.again:
        events = events.filtered(_not_superseded(engine, work, schema, base, events.frame))
    already = already_in(base, work)
    truncates = [t for t in census.truncates if t.offset >= already.get(t.partition, 0)]
    if (again := table.pending_clear()) is not None:
        truncates = [again, *truncates]
    earlier = None
    if base is not None:
        partitions = [r.partition for r in work.ranges]
        earlier = (
            base.known_truncate(work.topic)
            if work.again
            else base.unfinished_truncate(work.topic, partitions)
        )
    at_once = not schema.key or not options.changelog
    snapshot, replacing = None if base is None else base.snapshot, list[SnapshotRead]()
    if not work.again:
        snapshot, replacing = _snapshots(work, base, schema, census, already, at_once=at_once)
    marker = replace(marker_of(engine, work, base, census), snapshot=snapshot)
    if at_once:
        truncates += [s.begins() for s in replacing]
        replacing = []
    emptied = Emptied(truncates, replacing)
    undoing = replace(emptied, truncates=[*([] if earlier is None else [earlier]), *truncates])
    if not census.changes and not truncates:
        publish(engine.lake, table, base, marker, Staged())
    elif not undoing and not work.again and _plannable(events, options, schema, table):
        recent = engine.recent.of(table, schema.key)
        staged, changed = split_few(engine.lake, table, recent, _few(engine, events, already, schema, census))
        head = publish(engine.lake, table, base, marker, staged)
        engine.recent.committed(table, recent, changed or {}, head if changed else None)
    else:
        fresh = events
        if undoing or already:
            fresh = events.filtered(undoing.spares(from_offset(events.frame, already)))
        stage = _staged if schema.key else _staged_by_identity
        publish(engine.lake, table, base, marker, stage(engine, work, schema, table, base, fresh, emptied))
    engine.ledger.committed_mirror(work.table, marker)


def _snapshots(
    work: Work,
    base: CommitMarker | None,
    schema: TableSchema,
    census: Census,
    already: Mapping[int, int],
    *,
    at_once: bool,
) -> tuple[SnapshotRead | None, list[SnapshotRead]]:
    """See `model.snapshot.follow`.

    Raises:
        UnknownPast: rows were read once more by an ad-hoc snapshot, and the table has no key.
    """
    known = None if base is None else base.snapshot
    read = [
        s
        for s in census.snapshots
        # What began before the place that the table has reached is known, or was replaced since.
        if s.is_of(known) or all(offset >= already.get(p, 0) for p, offset in s.starts.items())
    ]
    ad_hoc = census.chunk_reads or any(not s.is_initial for s in read)
    if ad_hoc and base is not None and not schema.key:
        raise UnknownPast(
            f"an ad-hoc snapshot read rows of {work.table} that may be there already; the table has no key, "
            "so they cannot be told apart",
            "drop the table in the lake, and let the connector take a new snapshot into a new topic; "
            'or mirror only its changes: keyless = "changelog"',
        )
    # Markers of older engines do not say which snapshot their rows are of.
    filled = base is not None and (base.position is not None or base.awaits_snapshot(work.topic))
    return follow(known, read, filled=filled, furthest=census.position, at_once=at_once)


def _plannable(events: Held, options: TableOptions, schema: TableSchema, table: LakeTable) -> bool:
    """Whether the driver can do all but the writing itself, where nothing is truncated."""
    return (
        events.few
        and options.strategy == "split"
        and bool(schema.key)
        and not table.pending_fills()
        and not _floating_key(schema)
    )


def _few(engine: Engine, events: Held, already: dict[int, int], schema: TableSchema, census: Census) -> Few:
    rows = events.rows
    if rows is None or already or not census.all_to_apply:
        rows = from_offset(events.frame, already).toArrow()
    net = few_net_changes(rows, schema)
    after = cast("StructType", events.frame.schema["after"].dataType)
    return Few(net.keys, net.row_keys, local_frame(engine.spark, net.rows, after))


def _floating_key(schema: TableSchema) -> bool:
    return any(c.type.name in ("float", "double") for c in schema.key_columns)


def _staged_by_identity(
    engine: Engine,
    work: Work,  # noqa: ARG001 the signature is that of _staged
    schema: TableSchema,
    table: LakeTable,
    base: CommitMarker | None,  # noqa: ARG001
    events: Held,
    emptied: Emptied,
) -> Staged:
    net = hold(net_rows(events.frame, schema), few=events.few)
    try:
        return by_identity(engine.lake, table, schema.names, net.frame, clear=bool(emptied))
    finally:
        net.release()


def _staged(
    engine: Engine,
    work: Work,
    schema: TableSchema,
    table: LakeTable,
    base: CommitMarker | None,
    events: Held,
    emptied: Emptied,
) -> Staged:
    strategy = split if engine.config.table(str(work.table)).strategy == "split" else merge
    if events.keys is not None and not emptied:
        last = driver_last_changes(events.keys)
        rows = rows_besides(events.frame, _frame(engine, last.superseded), schema)
        # In an empty table nothing is looked up.
        wanted = local_frame(engine.spark, last.keys.slice(0, 0) if table.is_empty else last.keys)
        return strategy(engine.lake, table, schema.key, wanted, rows, clear=False, few=False)
    keys = _last_changes(engine, events.frame, schema, few=events.few)
    try:
        rows = surviving_rows(events.frame, keys.frame, schema)
        clear = bool(emptied)
        if clear and base is not None and not table.is_empty:
            rows = _with_spared(engine, work, table, schema, base, emptied, rows, keys.frame)
        return strategy(engine.lake, table, schema.key, keys.frame, rows, clear=clear, few=events.few)
    finally:
        keys.release()


def _frame(engine: Engine, rows: pa.Table) -> DataFrame | None:
    return local_frame(engine.spark, rows) if rows.num_rows else None


def _with_spared(
    engine: Engine,
    work: Work,
    table: LakeTable,
    schema: TableSchema,
    base: CommitMarker,
    emptied: Emptied,
    rows: DataFrame,
    keys: DataFrame,
) -> DataFrame:
    """`rows` and those of `table` that are spared, because they changed after it was `emptied`.

    A truncate's later changes may have arrived before it, from another partition; what a snapshot sends arrives before
    its end. A mirror's rows do not say when they changed, so the changelog has to.

    Raises:
        UnsupportedChange: there may be such rows, and there is no changelog.
    """
    late = any(base.may_reach_beyond(work.topic, t) for t in emptied.truncates)
    if not work.again and not emptied.snapshots and not late:
        return rows
    changelog = None
    if engine.config.table(str(work.table)).changelog:
        changelog = engine.lake.load(engine.config.lake.changes_namespace, work.table.name)
    if changelog is None:
        raise UnsupportedChange(
            f"a TRUNCATE of {work.table} arrived behind later changes from other partitions of its topic, "
            "and without a changelog nothing tells which rows it spares",
            "drop the table in the lake and start again; a changelog, or a topic of one partition, prevents this",
        )
    offsets = {n: p.next_offset for n, p in base.progress.get(work.topic, {}).items()}
    recorded = recorded_changes(engine.lake, changelog, change_column(schema.names), schema.key, offsets)
    keep = emptied.spares(recorded)
    columns = table.columns()
    spared = spared_rows(engine.lake, table, schema.key, keep, keys)
    return aligned(rows, columns).unionByName(aligned(spared, columns))


def _not_superseded(
    engine: Engine, work: Work, schema: TableSchema, base: CommitMarker | None, events: DataFrame
) -> DataFrame:
    """The events after which the changelog has no change of the same key: only they tell how a row is now."""
    changelog = engine.lake.load(engine.config.lake.changes_namespace, work.table.name)
    if changelog is None or base is None:
        return events
    names = key_names(schema)
    ends = {n: p.next_offset for n, p in base.progress.get(work.topic, {}).items()}
    later = recorded_changes(engine.lake, changelog, change_column(schema.names), schema.key, ends)
    keyed = events.where(F.col("op") != "t").select(
        *key_columns(schema), "partition", F.col("offset").alias("own")
    )
    superseded = (
        later.join(F.broadcast(keyed), [*names, "partition"])
        .where(F.col("offset") > F.col("own"))
        .select("partition", F.col("own").alias("offset"))
        .distinct()
    )
    return events.join(F.broadcast(superseded), ["partition", "offset"], "left_anti")


def _last_changes(engine: Engine, events: DataFrame, schema: TableSchema, *, few: bool) -> Held:
    places = key_places(events, schema)
    if not few or _floating_key(schema):
        return hold(last_changes(places), few=False)
    last = few_last_changes(places.toArrow())
    return Held(local_frame(engine.spark, last), last)
