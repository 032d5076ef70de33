"""One batch of one table, from raw records to two commits. The only place where the order of the stages is written.

    read → decode → census → quarantine → evolve → normalize → changelog commit → collapse → apply → mirror commit

The changelog is committed before the mirror: it is the event store, and the mirror can be made again from it. A crash
between the two leaves the mirror behind; the next batch starts where the mirror is and gives the changelog only
what it lacks.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from replicator import census as counting
from replicator.apply.lake import Lake, LakeTable
from replicator.apply.publish import Staged, publish
from replicator.apply.recent import RecentPlaces
from replicator.apply.spare import recorded_changes, spared_rows
from replicator.apply.spec import (
    ENGINE_PROPERTIES,
    changelog_schema,
    folder_name,
    partition_spec,
    table_schema,
)
from replicator.apply.stage import aligned, stage_data
from replicator.apply.strategy import STRATEGY_PROPERTIES, Few, by_identity, merge, split, split_few
from replicator.collapse import (
    after_truncates,
    few_last_changes,
    few_net_changes,
    key_columns,
    key_names,
    key_places,
    last_changes,
    net_rows,
    since_snapshot,
    surviving_rows,
)
from replicator.config import ColumnRuleBook, Config, TableOptions
from replicator.decode.envelope import EVENT_DETAILS, TAIL, Epoch, decode, mark
from replicator.decode.schema_book import SchemaBook
from replicator.errors import MissingKey, MissingSchema, TablePaused, UnknownPast, UnsupportedChange
from replicator.evolve.plan import merged, plan
from replicator.failpoints import reach
from replicator.held import FEW_BYTES, FEW_EVENTS, FEW_IN_ALL, Held, RecordSizes, control, hold
from replicator.ledger import Ledger, next_marker
from replicator.model.census import STRAY, UNFAMILIAR, Census
from replicator.model.change import change_column
from replicator.model.columns import RULES_KEY, check_unchanged, rules_from_json, rules_to_json
from replicator.model.commit import CommitMarker, OffsetRange, PartitionProgress
from replicator.model.position import SourcePosition
from replicator.model.snapshot import SnapshotRead, follow
from replicator.model.table import SOURCE_KEY, Column, TableId, TableSchema
from replicator.model.truncate import Truncate
from replicator.model.types import STRING
from replicator.normalize import from_offset, good_events, normalize
from replicator.observe import Stopwatch
from replicator.quarantine import Quarantine
from replicator.source.log import RECORDS, ChangeLog, TooLarge
from replicator.spark import local_frame


@dataclass(frozen=True, slots=True)
class Engine:
    """What a batch works with; one for the life of a mirror process."""

    spark: SparkSession
    config: Config
    log: ChangeLog
    lake: Lake
    ledger: Ledger
    book: SchemaBook
    quarantine: Quarantine
    recent: RecentPlaces
    sizes: RecordSizes
    rules: ColumnRuleBook


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


@dataclass(frozen=True, slots=True)
class Work:
    """What one table has to take in: `ranges` of its topic, as part of batch number `batch`.

    `records` are those of the ranges, where they are few and were fetched already (see `fetched`). `again`: they
    were in quarantine, and what came after them may be in the lake; see `process_again`.
    """

    table: TableId
    topic: str
    topic_id: str | None
    ranges: tuple[OffsetRange, ...]
    batch: int
    records: pa.Table | None = None
    again: bool = False

    @property
    def count(self) -> int:
        """Records to read, gaps in the offsets included."""
        return sum(r.count for r in self.ranges)


def fetched(engine: Engine, works: Sequence[Work]) -> list[Work]:
    """`works`; the small ones with their records, which are fetched together: one question to the log, not one each."""
    small = _small(works, engine.sizes)
    found = _fetch(engine.log, engine.sizes, small)
    nothing = RECORDS.empty_table()
    return [replace(w, records=found.get(w.topic, nothing)) if w in small else w for w in works]


def _small(works: Sequence[Work], sizes: RecordSizes) -> list[Work]:
    """The works that the driver takes, by number of events and by what their records were so far."""
    small: list[Work] = []
    events_left, bytes_left = FEW_IN_ALL, float(FEW_BYTES)
    for work in sorted(works, key=lambda w: w.count):
        if work.count > min(FEW_EVENTS, events_left):
            break
        size = sizes.expected(work.topic, work.count)
        if size > bytes_left:
            continue
        small.append(work)
        events_left -= work.count
        bytes_left -= size
    return small


def _fetch(log: ChangeLog, sizes: RecordSizes, small: list[Work]) -> Mapping[str, pa.Table]:
    """Topic → records of the works in `small`, which loses those whose records turn out to be too large."""
    while small:
        found = log.fetch([r for work in small for r in work.ranges], FEW_BYTES)
        if not isinstance(found, TooLarge):
            for topic, records in found.items():
                sizes.note(topic, records.column("value").nbytes / len(records))
            return found
        # What was read is lost, but only once: this topic's next records are expected to be of that size.
        sizes.note(found.topic, found.record_bytes)
        small[:] = [work for work in small if work.topic != found.topic]
    return {}


def process(engine: Engine, work: Work, watch: Stopwatch) -> Census:
    """Bring one table up to the end of `work.ranges`, exactly once.

    Raises:
        SchemaError: the table cannot go on; nothing of the batch was applied.
        TablePaused: the batch has bad events and the table is configured to pause for them.
        FencedError: another process writes this mirror.
        CommitConflict: something else was committed to the table; try again.
    """
    options = engine.config.table(str(work.table))
    with _understood(engine, work, options, watch) as (decoded, schema, census):
        if census.bad:
            with watch.stage("quarantine"):
                _set_aside(engine, work, options, decoded.frame)
        if not schema.columns and engine.ledger.progress(work.table).behind is None:
            # Nothing tells yet what the tables look like; the first good event will, and is read with these again.
            return census
        if engine.ledger.progress(work.table).awaits_snapshot(work.topic):
            if not census.changes:
                return census
            _check_beginning(work, census)
        events = decoded
        if not census.all_to_apply:
            events = replace(decoded, frame=good_events(decoded.frame, census.duplicates))
        alone = _stands_alone(engine, work, options, schema)
        if options.changelog:
            with watch.stage("changelog"):
                _append_changelog(engine, work, schema, events, census, alone=alone)
        reach("between-commits")
        if not alone:
            with watch.stage("apply"):
                _apply_to_mirror(engine, work, options, schema, events, census)
        reach("after-commit")
        engine.quarantine.settle(work.table, work.ranges, decoded.frame)
    return census


def process_again(engine: Engine, work: Work, watch: Stopwatch) -> dict[tuple[int, int], str]:
    """Take in events that were in quarantine, `work.records`, which their table has passed. It may be repeated.

    The changelog gets those that it has not. The mirror gets those after which nothing happened to their keys.
    Returns partition and offset of the events that still cannot be applied → the reason.

    Raises:
        SchemaError: the table cannot take them; nothing of them was applied.
        FencedError, CommitConflict: as in `process`.
    """
    options = engine.config.table(str(work.table))
    if not options.changelog:
        raise UnsupportedChange(
            f"{work.table} has no changelog, and so nothing tells whether its rows changed after these events",
            "make a new snapshot of the table, then drop the events: replicator quarantine drop",
        )
    with _understood(engine, work, options, watch) as (decoded, schema, census):
        rows = decoded.frame.where(F.col("bad").isNotNull()).select("partition", "offset", "bad").collect()
        if census.changes and not schema.key:
            raise UnsupportedChange(
                f"{work.table} has no key, and so nothing tells whether its rows changed after these events",
                "make a new snapshot of the table, then drop the events: replicator quarantine drop",
            )
        if census.changes:
            events = replace(decoded, frame=good_events(decoded.frame, census.duplicates))
            _append_changelog(engine, work, schema, events, census, alone=False)
            reach("between-commits")
            _apply_to_mirror(engine, work, options, schema, events, census)
            reach("after-commit")
    return {(row.partition, row.offset): row.bad for row in rows}


def _check_beginning(work: Work, census: Census) -> None:
    """Raises UnknownPast where a topic that was made anew does not begin with a snapshot."""
    if not census.begins_with_snapshot:
        raise UnknownPast(
            f"{work.topic} was deleted and made anew, and does not begin with a snapshot: what happened to "
            f"{work.table} in between is not in the log",
            "drop the table in the lake, and let the connector take a new snapshot; then start the mirror again",
        )


def _stands_alone(engine: Engine, work: Work, options: TableOptions, schema: TableSchema) -> bool:
    """Whether the table gets a changelog and no mirror, as it is configured to where there is no key.

    Raises:
        UnknownPast: it has a key now, and a changelog of which the log has the beginning no longer at hand.
    """
    progress = engine.ledger.progress(work.table)
    if not schema.columns:
        return progress.mirror is None
    alone = not schema.key and options.keyless == "changelog"
    if progress.stands_alone and not alone:
        raise UnknownPast(
            f"{work.table} has a key now; so far it has a changelog and no mirror",
            f'set keyless = "identity" under [[table]] name = "{work.table}" and start the mirror again: '
            "it is then made from the beginning of the log",
        )
    return alone


@contextmanager
def _understood(
    engine: Engine, work: Work, options: TableOptions, watch: Stopwatch
) -> Iterator[tuple[Held, TableSchema, Census]]:
    """The decoded events of the batch, materialized once and released at the end, their schema and their census."""
    behind = None if work.again else engine.ledger.progress(work.table).behind
    before = {} if behind is None else behind.progress.get(work.topic, {})
    if work.records is None:
        records = engine.log.read(engine.spark, work.ranges)
    else:
        records = local_frame(engine.spark, work.records)
    with watch.stage("decode"):
        try:
            decoded, schema, census = _schemas_found(engine, work, options, records, before)
        except MissingSchema as error:
            decoded, schema, census = _without_schema(work, records, before, error)
    try:
        yield decoded, schema, census
    finally:
        decoded.release()


def _schemas_found(
    engine: Engine,
    work: Work,
    options: TableOptions,
    records: DataFrame,
    before: Mapping[int, PartitionProgress],
) -> tuple[Held, TableSchema, Census]:
    """The records decoded with the schemas that are known, or learned from them where these do not fit."""
    book, epochs = engine.book, None
    book.look_at_decimals(work.table, records)
    if book.knows(work.table):
        epochs = book.epochs(work.table, _since(before, work))
    decoded, schema = _decode(
        engine, work, records, epochs or book.learn(work.table, records), options, UNFAMILIAR
    )
    census = _census(decoded, work, before)
    if census.unfamiliar:
        decoded.release()
        decoded, schema = _decode(engine, work, records, book.learn(work.table, records), options, STRAY)
        census = _census(decoded, work, before)
    return decoded, schema, census


def _census(decoded: Held, work: Work, before: Mapping[int, PartitionProgress]) -> Census:
    def details(partition: int, first: int, last: int) -> pa.Table:
        inside = (F.col("partition") == partition) & F.col("offset").between(first, last)
        return decoded.frame.where(inside).select(*EVENT_DETAILS, mark().alias("mark")).toArrow()

    return counting.take(control(decoded), work.ranges, before, details)


def _without_schema(
    work: Work,
    records: DataFrame,
    before: Mapping[int, PartitionProgress],
    error: MissingSchema,
) -> tuple[Held, TableSchema, Census]:
    """Records of which none has a schema, for quarantine. Raises `error` where one is a change event all the same."""
    anything = TableSchema((Column("anything", STRING),))
    frame = decode(records, [Epoch(anything)], anything, work.ranges, for_changelog=True, stray=STRAY)
    decoded = hold(frame, few=work.records is not None)
    census = _census(decoded, work, before)
    if census.changes or census.duplicates:
        decoded.release()
        raise error
    return decoded, TableSchema(()), census


def _since(before: Mapping[int, PartitionProgress], work: Work) -> SourcePosition | None:
    """A position that all events of the batch lie behind; None where they may be of any time."""
    highs = [p.high_water if (p := before.get(r.partition)) else None for r in work.ranges]
    positions = [high.position for high in highs if high is not None]
    return min(positions) if len(positions) == len(highs) else None


def _decode(
    engine: Engine, work: Work, records: DataFrame, epochs: list[Epoch], options: TableOptions, stray: str
) -> tuple[Held, TableSchema]:
    """The decoded frame, kept in memory once it was computed."""
    if options.key:
        epochs = [replace(e, schema=e.schema.with_key(options.key)) for e in epochs]
    schema = engine.book.with_filled(work.table, merged([e.schema for e in epochs]))
    _check_key(schema, options, work)
    if rules := engine.rules.of(str(work.table)):
        epochs = [replace(e, schema=rules.read(e.schema)) for e in epochs]
        schema = rules.shielded(schema, str(work.table))
    whole = options.changelog or not schema.key
    few = work.records is not None
    tail = FEW_EVENTS if few else TAIL
    decoded = decode(records, epochs, schema, work.ranges, for_changelog=whole, stray=stray, tail=tail)
    return hold(decoded, few=few), schema


def _check_key(schema: TableSchema, options: TableOptions, work: Work) -> None:
    if not schema.key and options.keyless == "pause":
        raise MissingKey(
            f"{options.name} has no primary key, so its rows cannot be told apart",
            f'name a unique key: key = ["…"] under [[table]] name = "{options.name}"; or set keyless there',
        )
    if not schema.key and options.keyless == "identity" and any(r.partition for r in work.ranges):
        raise MissingKey(
            f"{options.name} has no key, and its topic several partitions: "
            "which of its events came first cannot be told",
            "give it a topic of one partition, name a unique key (key), or mirror only its changes: "
            'keyless = "changelog"',
        )
    for name in schema.key:
        if schema.column(name) is None:
            raise MissingKey(
                f"{options.name} has no column {name}, which is configured as its key",
                f"its columns: {', '.join(schema.names)}",
            )


def _set_aside(engine: Engine, work: Work, options: TableOptions, decoded: DataFrame) -> None:
    redacted = bool(engine.rules.of(str(work.table)))
    engine.quarantine.add(work.table, work.topic, decoded, work.batch, redacted=redacted)
    if options.on_bad_event == "pause":
        bad = decoded.where(F.col("bad").isNotNull()).select("partition", "offset").collect()
        waiting = {(row.partition, row.offset) for row in bad} - engine.quarantine.dropped(work.topic)
        if waiting:
            raise TablePaused(
                f"{len(waiting)} events of {work.topic} could not be decoded; they are in quarantine",
                "see their reasons with: replicator quarantine list; mend the cause, or drop them there, "
                "and start the mirror again",
            )


def _append_changelog(
    engine: Engine, work: Work, schema: TableSchema, events: Held, census: Census, *, alone: bool
) -> None:
    base = engine.ledger.progress(work.table).changelog
    table = _changelog_table(engine, work.table, schema)
    if work.again:
        fresh = _unrecorded(engine, work, table, schema, events.frame)
    else:
        fresh = from_offset(events.frame, _already_in(base, work))
    files = []
    if census.changes:
        rows = normalize(fresh, schema)
        files = stage_data(
            engine.lake, table, aligned(rows, table.columns(), struct=change_column(schema.names))
        )
    reach("after-changelog-files")
    marker = replace(_marker(engine, work, base, census), alone=alone)
    publish(engine.lake, table, base, marker, Staged(files))
    engine.ledger.committed_changelog(work.table, marker)


def _apply_to_mirror(
    engine: Engine, work: Work, options: TableOptions, schema: TableSchema, events: Held, census: Census
) -> None:
    base = engine.ledger.progress(work.table).mirror
    table = _mirror_table(engine, work.table, options, schema)
    if work.again:
        events = replace(events, frame=_not_superseded(engine, work, schema, base, events.frame))
    already = _already_in(base, work)
    truncates = [t for t in census.truncates if t.offset >= already.get(t.partition, 0)]
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
    marker = replace(_marker(engine, work, base, census), snapshot=snapshot)
    if at_once:
        truncates += [s.begins() for s in replacing]
        replacing = []
    emptied = Emptied(truncates, replacing)
    undoing = replace(emptied, truncates=[*([] if earlier is None else [earlier]), *truncates])
    if not census.changes:
        publish(engine.lake, table, base, marker, Staged())
    elif not undoing and not work.again and _plannable(events, options, schema, table):
        recent = engine.recent.of(table, schema.key)
        staged, changed = split_few(engine.lake, table, recent, _few(engine, events, already, schema, census))
        head = publish(engine.lake, table, base, marker, staged)
        engine.recent.committed(table, recent, changed or {}, head if changed else None)
    else:
        fresh = replace(events, frame=undoing.spares(from_offset(events.frame, already)))
        stage = _staged if schema.key else _staged_by_identity
        publish(engine.lake, table, base, marker, stage(engine, work, schema, table, base, fresh, emptied))
    engine.ledger.committed_mirror(work.table, marker)


def _marker(engine: Engine, work: Work, base: CommitMarker | None, census: Census) -> CommitMarker:
    return next_marker(engine.config.mirror.name, work.batch, work.topic, work.topic_id, base, census)


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
    keys = _last_changes(engine, events.frame, schema, few=events.few)
    try:
        strategy = split if engine.config.table(str(work.table)).strategy == "split" else merge
        rows = surviving_rows(events.frame, keys.frame, schema)
        clear = bool(emptied)
        if clear and base is not None and not table.is_empty:
            rows = _with_spared(engine, work, table, schema, base, emptied, rows, keys.frame)
        return strategy(engine.lake, table, schema.key, keys.frame, rows, clear=clear, few=events.few)
    finally:
        keys.release()


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


def _unrecorded(
    engine: Engine, work: Work, changelog: LakeTable, schema: TableSchema, events: DataFrame
) -> DataFrame:
    """The events that the changelog has not; a replay that was broken off may have left them there."""
    ends = {r.partition: r.end for r in work.ranges}
    there = recorded_changes(engine.lake, changelog, change_column(schema.names), (), ends)
    return events.join(
        F.broadcast(there.select("partition", "offset", "hi")), ["partition", "offset", "hi"], "left_anti"
    )


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


def _already_in(marker: CommitMarker | None, work: Work) -> dict[int, int]:
    """Partition → offset up to which a table has this batch's events; only where it has any of them."""
    if marker is None or work.again:
        return {}
    known = {r.partition: marker.next_offset(work.topic, r.partition) for r in work.ranges}
    return {r.partition: n for r in work.ranges if (n := known[r.partition]) is not None and n > r.start}


def _mirror_table(engine: Engine, table: TableId, options: TableOptions, schema: TableSchema) -> LakeTable:
    """The mirror table, created or evolved so that it holds rows of `schema`."""
    lake = engine.lake
    own = dict(STRATEGY_PROPERTIES[options.strategy]) | dict(options.properties)
    present = lake.load(engine.config.lake.namespace, table.name)
    own |= _rules_property(present, schema, table)
    if present is None:
        spec = partition_spec(schema, options.partition) if options.partition else None
        properties = {**ENGINE_PROPERTIES, SOURCE_KEY: str(table), **own}
        namespace = engine.config.lake.namespace
        location = _location(engine, namespace, table)
        return lake.create(namespace, table.name, table_schema(schema), spec, properties, location)
    lake.set_properties(present, own)
    if changes := plan(present.columns(), schema):
        lake.alter(present, changes, fill=True)
    return present


def _changelog_table(engine: Engine, table: TableId, schema: TableSchema) -> LakeTable:
    """The changelog table, created or evolved so that it holds rows of `schema`."""
    lake, namespace = engine.lake, engine.config.lake.changes_namespace
    present = lake.load(namespace, table.name)
    rules = _rules_property(present, schema, table)
    if present is None:
        text = changelog_schema(schema, change_column(schema.names))
        properties = {**ENGINE_PROPERTIES, SOURCE_KEY: str(table), **rules}
        return lake.create(namespace, table.name, text, None, properties, _location(engine, namespace, table))
    lake.set_properties(present, rules)
    if changes := plan(present.columns(), schema):
        lake.alter(present, changes, fill=False)
    return present


def _location(engine: Engine, namespace: str, table: TableId) -> str | None:
    """Where a table's files go whose name is not fit for a path; None: where the catalog puts them."""
    lake, folder = engine.config.lake, folder_name(table.name)
    if folder is None or lake.catalog != "jdbc" or lake.warehouse is None:
        return None
    return f"{lake.warehouse.rstrip('/')}/{namespace}/{folder}"


def _rules_property(present: LakeTable | None, schema: TableSchema, table: TableId) -> dict[str, str]:
    """The property that records the column rules, for a table that has or is to have any.

    Raises:
        UnfitColumns: the table was written under other rules.
    """
    recorded = {} if present is None else rules_from_json(present.property(RULES_KEY))
    columns = () if present is None else present.columns()
    rules = check_unchanged(recorded, columns, schema, str(table))
    return {RULES_KEY: rules_to_json(rules)} if rules else {}
