"""One batch of one table, from raw records to two commits. The only place where the order of the stages is written.

    read → decode → census → quarantine → evolve → normalize → changelog commit → collapse → apply → mirror commit

The changelog is committed before the mirror: it is the event store, and the mirror can be made again from it. A crash
between the two leaves the mirror behind; the next batch starts where the mirror is and gives the changelog only
what it lacks.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from replicator import census as counting
from replicator.apply.evolve import evolve, is_temporary
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
from replicator.apply.strategy import STRATEGY_PROPERTIES, Few, by_identity, finish, merge, split, split_few
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
from replicator.decode.envelope import EVENT_DETAILS, TAIL, Epoch, event_place, mark
from replicator.decode.epochs import Aligned
from replicator.decode.schema_book import SchemaBook
from replicator.errors import (
    MissingKey,
    MissingSchema,
    TablePaused,
    UnfitColumns,
    UnknownPast,
    UnknownWriter,
    UnsupportedChange,
)
from replicator.evolve.plan import LakeSide, Plan, SourceSide, changelog_plan, plan
from replicator.failpoints import reach
from replicator.held import FEW_BYTES, FEW_EVENTS, FEW_IN_ALL, Held, RecordSizes, control, hold
from replicator.ledger import Ledger, next_marker
from replicator.model.census import STRAY, UNFAMILIAR, Census, joined
from replicator.model.change import change_column
from replicator.model.columns import (
    RULES_KEY,
    check_unchanged,
    rules_from_json,
    rules_in_force,
    rules_to_json,
)
from replicator.model.commit import CommitMarker, OffsetRange, PartitionProgress
from replicator.model.lineage import BEGINNING, Gone, Lineage, SchemaVersion
from replicator.model.position import SourcePosition
from replicator.model.schema_change import (
    PENDING_CLEAR_KEY,
    SCHEMA_KEY,
    ChangeNote,
    ChangeType,
    MoveColumn,
    RenameColumn,
    SchemaState,
)
from replicator.model.snapshot import SnapshotRead, follow
from replicator.model.table import SOURCE_KEY, Column, TableId, TableSchema
from replicator.model.truncate import Truncate
from replicator.model.types import STRING
from replicator.normalize import from_offset, good_events, normalize
from replicator.observe import Stopwatch
from replicator.quarantine import Quarantine
from replicator.source.log import RECORDS, ChangeLog, TooLarge
from replicator.spark import local_frame

_NO_END: Final = 1 << 62
"""An offset behind all others."""
_NO_PARTITION: Final = -1


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

    Attributes:
        records: those of the ranges, where they are few and were fetched already (see `fetched`).
        until: the place of the version of the source's schema that the lake is to have afterwards; None where the
            work was not looked through for changes of the schema.
        again: they were in quarantine, and what came after them may be in the lake; see `process_again`.
    """

    table: TableId
    topic: str
    topic_id: str | None
    ranges: tuple[OffsetRange, ...]
    batch: int
    records: pa.Table | None = None
    until: int | None = None
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

    Where the source's schema changed meanwhile in a way that divides rows before from rows after, each part is
    committed by itself.

    Raises:
        SchemaError: the table cannot go on; nothing of the batch was applied, or only what lies before the change.
        TablePaused: the batch has bad events and the table is configured to pause for them.
        FencedError: another process writes this mirror.
        CommitConflict: something else was committed to the table; try again.
    """
    done = []
    for part in _parts(engine, work):
        if part.until is not None and (old := renamed_to(engine, work.table, part.until)) is not None:
            rename(engine, work.table, old)
        try:
            done.append(_process_part(engine, part, watch) if part.ranges else _evolve_only(engine, part))
        except _SchemaFound:
            # The events themselves had news.
            done.append(process(engine, replace(part, until=None), watch))
    return done[0] if len(done) == 1 else joined(done)


class _SchemaFound(Exception):  # noqa: N818 no error
    """A version of the table was found that nothing told of; the work must be looked through again."""


def has_news(engine: Engine, table: TableId) -> bool:
    """Whether the source's schema changed since the version that the lake has, as far as is known."""
    known = engine.ledger.progress(table).schema_at
    if known is None:
        return False
    line = engine.book.line(table)
    return bool(line.after(known)) or (line.gone is not None and line.gone.at > known)


def _parts(engine: Engine, work: Work) -> list[Work]:
    """`work`, cut where the schema changed so that rows before and rows after must not be mixed; see `is_barrier`."""
    line = engine.book.line(work.table)
    known = engine.ledger.progress(work.table).schema_at
    news = line.after(known) if known is not None else line.versions[1:]
    if not news:
        return [work]
    first = 0 if known is None else line.index_at(known)
    newest = len(line.versions) - 1
    starts: dict[int, dict[int, int]] = {}
    if work.ranges:
        events = engine.book.with_sources(_records(engine, work))
        starts = _first_offsets(events, [v.at for v in line.versions])
        newest = max(starts, default=first)
        first = min(starts, default=first) if known is None else first
    newest = max(newest, first)
    ends, since = [], first
    for i in range(first + 1, newest + 1):
        if line.is_barrier(i, since):
            ends.append(i - 1)
            since = i
    parts, left = [], work
    for end in ends:
        later = [offsets for version, offsets in starts.items() if version > end]
        part, left = _cut(left, {p: min(o[p] for o in later if p in o) for o in later for p in o})
        parts.append(replace(part, until=line.versions[end].at))
    return [*parts, replace(left, until=line.versions[newest].at)]


def _first_offsets(records: DataFrame, places: Sequence[int]) -> dict[int, dict[int, int]]:
    """Version (by the `places` where versions begin) → partition → the first offset of an event of it."""
    hi = event_place(F.col("source"))
    version = F.lit(0)
    for i, at in enumerate(places[1:], start=1):
        version = F.when(hi >= at, F.lit(i)).otherwise(version)
    found: dict[int, dict[int, int]] = {}
    events = records.where(F.col("value").isNotNull() & hi.isNotNull())
    for row in (
        events.groupBy("partition", version.alias("version")).agg(F.min("offset").alias("first")).collect()
    ):
        found.setdefault(row["version"], {})[row["partition"]] = row["first"]
    return found


def _cut(work: Work, at: Mapping[int, int]) -> tuple[Work, Work]:
    """`work` before and from the offsets `at` (partition → offset); partitions that are not named come before."""
    before, after = [], []
    for r in work.ranges:
        middle = at.get(r.partition, r.end)
        before += [replace(r, end=middle)] if middle > r.start else []
        after += [replace(r, start=middle)] if middle < r.end else []
    records: list[pa.Table | None] = [None, None]
    if work.records is not None:
        early = pc.less(
            work.records.column("offset"),
            pa.array([at.get(p, _NO_END) for p in work.records.column("partition").to_pylist()], pa.int64()),
        )
        records = [work.records.filter(early), work.records.filter(pc.invert(early))]
    return (
        replace(work, ranges=tuple(before), records=records[0]),
        replace(work, ranges=tuple(after), records=records[1]),
    )


def _records(engine: Engine, work: Work) -> DataFrame:
    if work.records is None:
        return engine.log.read(engine.spark, work.ranges)
    return local_frame(engine.spark, work.records)


@dataclass(frozen=True, slots=True)
class Shape:
    """The source's schema as a part of a batch leaves it: version `target` of `line`, and how events fit it."""

    line: Lineage
    target: int
    aligned: Aligned

    @property
    def version(self) -> SchemaVersion:
        return self.line.versions[self.target]

    @property
    def schema(self) -> TableSchema:
        """The columns that the source has."""
        return self.aligned.schema

    @property
    def frame(self) -> TableSchema:
        """The columns that decoded images have."""
        return self.aligned.frame


def _process_part(engine: Engine, work: Work, watch: Stopwatch) -> Census:
    options = engine.config.table(str(work.table))
    with _understood(engine, work, options, watch) as (decoded, found, census):
        if census.bad:
            with watch.stage("quarantine"):
                _set_aside(engine, work, options, decoded.frame)
        if found is None and engine.ledger.progress(work.table).behind is None:
            # Nothing tells yet what the table looks like; the first good event will, and is read with these again.
            return census
        if engine.ledger.progress(work.table).awaits_snapshot(work.topic):
            if not census.changes:
                return census
            _check_beginning(work, census)
        shape = found or _unchanged(engine, work, options)
        events = decoded
        if not census.all_to_apply:
            events = replace(decoded, frame=good_events(decoded.frame, census.duplicates))
        alone = _stands_alone(engine, work, options, shape.schema)
        if options.changelog:
            with watch.stage("changelog"):
                _append_changelog(engine, work, options, shape, events, census, alone=alone)
        reach("between-commits")
        if not alone:
            with watch.stage("apply"):
                _apply_to_mirror(engine, work, options, shape, events, census)
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
    work = replace(work, until=_newest_known(engine, work.table))
    with _understood(engine, work, options, watch) as (decoded, found, census):
        rows = decoded.frame.where(F.col("bad").isNotNull()).select("partition", "offset", "bad").collect()
        if census.changes and found is not None and not found.schema.key:
            raise UnsupportedChange(
                f"{work.table} has no key, and so nothing tells whether its rows changed after these events",
                "make a new snapshot of the table, then drop the events: replicator quarantine drop",
            )
        if census.changes and found is not None:
            events = replace(decoded, frame=good_events(decoded.frame, census.duplicates))
            _append_changelog(engine, work, options, found, events, census, alone=False)
            reach("between-commits")
            _apply_to_mirror(engine, work, options, found, events, census)
            reach("after-commit")
    return {(row.partition, row.offset): row.bad for row in rows}


def _newest_known(engine: Engine, table: TableId) -> int | None:
    """The place of the newest version of the source's schema that is known; None where the lake has that already.

    Raises:
        UnsupportedChange: rows before it and rows after it must not be mixed.
    """
    line, known = engine.book.line(table), engine.ledger.progress(table).schema_at
    if known is None or not line.after(known):
        return None
    first, newest = line.index_at(known), len(line.versions) - 1
    if any(line.is_barrier(i, first) for i in range(first + 1, newest + 1)):
        raise UnsupportedChange(
            f"the schema of {table} changed since the mirror ran last",
            "let the mirror follow it first: replicator run --until-caught-up; then replay the events",
        )
    return line.versions[newest].at


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


def _evolve_only(engine: Engine, work: Work) -> Census:
    """Give the lake's tables the newest version of the schema where no event came with it."""
    options = engine.config.table(str(work.table))
    shape = _unchanged(engine, work, options)
    nothing = Census({}, (), 0, 0, (), {}, None, None)
    progress = engine.ledger.progress(work.table)
    if options.changelog and progress.changelog is not None:
        changelog = _changelog_table(engine, work.table, options, shape)
        _note_end(engine, work.table, shape.line.gone, changelog)
    if progress.mirror is None:
        return nothing
    table = _mirror_table(engine, work.table, options, shape)
    _note_end(engine, work.table, shape.line.gone, table)
    staged = finish(engine.lake, table)
    if staged is not None:
        marker = _marker(engine, work, progress.mirror, nothing)
        publish(engine.lake, table, progress.mirror, marker, staged)
        engine.recent.forget(table)
        engine.ledger.committed_mirror(work.table, marker)
    return nothing


def _note_end(engine: Engine, table: TableId, gone: Gone | None, there: LakeTable) -> None:
    """Note in a lake table that the source's is no more; its rows stay."""
    progress, changelog = engine.ledger.progress(table), engine.config.lake.changes_namespace
    state = progress.changelog_schema if there.namespace == changelog else progress.mirror_schema
    if gone is None or state is None or gone.at <= state.at:
        return
    note = ChangeNote(str(gone.position), gone.ts_ms, _now_ms(), (str(gone),))
    ended = SchemaState(gone.at, state.retired, str(gone), (*state.notes, note))
    engine.lake.set_properties(there, {SCHEMA_KEY: ended.to_json()})
    if there.namespace == changelog:
        engine.ledger.evolved_changelog(table, ended)
    else:
        engine.ledger.evolved_mirror(table, ended)


def renamed_to(engine: Engine, table: TableId, until: int | None = None) -> TableId | None:
    """What the source's table is called now that the lake has as `table`; None where it is still called so.

    None, too, where the mirror leaves out the new name, or has a table of that name. With a place `until`, only
    renames up to there count, and only where another table has the old name since.
    """
    there, line = engine.ledger.progress(table), engine.book.line(table)
    since = BEGINNING if there.schema_at is None else there.schema_at
    names = [
        v.left_as for v in line.after(since) if v.left_as is not None and (until is None or v.at <= until)
    ]
    if until is None and line.gone is not None and line.gone.renamed_to is not None:
        names.append(line.gone.renamed_to)
    if not names or not engine.config.includes(str(names[0])):
        return None
    taken = engine.ledger.progress(names[0])
    left = (there.mirror is not None and taken.mirror is None) or (
        there.changelog is not None and taken.changelog is None
    )
    return names[0] if left and (not taken.topics or is_half_renamed(engine, table, names[0])) else None


def has_left(engine: Engine, table: TableId, new: TableId) -> bool:
    """Whether what the lake has as `table` is of the time after the source's was renamed to `new`."""
    known = engine.ledger.progress(table).schema_at
    moved = engine.book.line(new).versions[0].at
    return known is not None and known >= moved


def is_half_renamed(engine: Engine, table: TableId, new: TableId) -> bool:
    """Whether a crash left one of the two tables under the old name, and the other under the new one."""
    there, taken = engine.ledger.progress(table), engine.ledger.progress(new)
    return (there.mirror is None and taken.mirror is not None and taken.changelog is None) or (
        there.changelog is None and taken.changelog is not None and taken.mirror is None
    )


def rename(engine: Engine, table: TableId, new: TableId) -> bool:
    """Give a table's mirror and changelog the name that the source's has now; whether there was anything to rename.

    The lake must have all events of the old name.
    """
    config, found = engine.config.lake, False
    for namespace in (config.changes_namespace, config.namespace):
        if engine.lake.load(namespace, table.name) is not None:
            engine.lake.rename(namespace, table.name, new.name)
            found = True
        if (renamed := engine.lake.load(namespace, new.name)) is not None:
            engine.lake.set_properties(renamed, {SOURCE_KEY: str(new)})
    engine.ledger.forget(table)
    engine.ledger.forget(new)
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _unchanged(engine: Engine, work: Work, options: TableOptions) -> Shape:
    """The shape of a part without a change event."""
    if engine.book.line(work.table):
        return _shape(engine, work, options, [], None)
    nothing = TableSchema(())
    line = Lineage((SchemaVersion(BEGINNING, SourcePosition("", 0), 0, nothing, {}),))
    return Shape(line, 0, Aligned((), nothing, nothing, ()))


@contextmanager
def _understood(
    engine: Engine, work: Work, options: TableOptions, watch: Stopwatch
) -> Iterator[tuple[Held, Shape | None, Census]]:
    """The decoded events of the batch, materialized once and released at the end, their shape and their census."""
    behind = None if work.again else engine.ledger.progress(work.table).behind
    before = {} if behind is None else behind.progress.get(work.topic, {})
    records = _records(engine, work)
    with watch.stage("decode"):
        try:
            decoded, shape, census = _schemas_found(engine, work, options, records, before)
        except UnknownWriter:
            raise
        except MissingSchema as error:
            decoded, census = _without_schema(engine, work, records, before, error)
            shape = None
    try:
        yield decoded, shape, census
    finally:
        decoded.release()


def _schemas_found(
    engine: Engine,
    work: Work,
    options: TableOptions,
    records: DataFrame,
    before: Mapping[int, PartitionProgress],
) -> tuple[Held, Shape, Census]:
    """The records decoded with the schemas that are known, or learned from them where these do not fit."""
    book, epochs, since = engine.book, None, _since(before, work)
    book.look_at_decimals(work.table, records)
    if book.knows(work.table):
        epochs = book.epochs(work.table, since)
    if not epochs:
        epochs = _learned(engine, work, records)
    decoded, shape = _decode(engine, work, records, epochs, since, options, UNFAMILIAR)
    census = _census(decoded, work, before)
    if census.unfamiliar:
        decoded.release()
        learned = _learned(engine, work, records)
        decoded, shape = _decode(engine, work, records, learned, since, options, STRAY)
        census = _census(decoded, work, before)
    return decoded, shape, census


def _learned(engine: Engine, work: Work, records: DataFrame) -> list[Epoch]:
    """The schemas that `records` carry. Raises _SchemaFound where they tell of a version that was not known."""
    book = engine.book
    known = len(book.line(work.table).versions)
    epochs = book.learn(work.table, records, patient=engine.log.grows)
    found = len(book.line(work.table).versions)
    if found > max(known, 1) or (found > known and engine.ledger.progress(work.table).schema_at is not None):
        raise _SchemaFound
    return epochs


def _census(decoded: Held, work: Work, before: Mapping[int, PartitionProgress]) -> Census:
    def details(partition: int, first: int, last: int) -> pa.Table:
        inside = (F.col("partition") == partition) & F.col("offset").between(first, last)
        return decoded.frame.where(inside).select(*EVENT_DETAILS, mark().alias("mark")).toArrow()

    return counting.take(control(decoded), work.ranges, before, details)


def _without_schema(
    engine: Engine,
    work: Work,
    records: DataFrame,
    before: Mapping[int, PartitionProgress],
    error: MissingSchema,
) -> tuple[Held, Census]:
    """Records of which none has a schema, for quarantine. Raises `error` where one is a change event all the same."""
    anything = TableSchema((Column("anything", STRING),))
    frame = engine.book.decode(
        records, [Epoch(anything)], anything, work.ranges, for_changelog=True, stray=STRAY
    )
    decoded = hold(frame, few=work.records is not None)
    census = _census(decoded, work, before)
    if census.changes or census.duplicates:
        decoded.release()
        raise error
    return decoded, census


def _since(before: Mapping[int, PartitionProgress], work: Work) -> SourcePosition | None:
    """A position that all events of the batch lie behind; None where they may be of any time."""
    highs = [p.high_water if (p := before.get(r.partition)) else None for r in work.ranges]
    positions = [high.position for high in highs if high is not None]
    return min(positions) if len(positions) == len(highs) else None


def _decode(
    engine: Engine,
    work: Work,
    records: DataFrame,
    epochs: Sequence[Epoch],
    since: SourcePosition | None,
    options: TableOptions,
    stray: str,
) -> tuple[Held, Shape]:
    """The decoded frame, kept in memory once it was computed."""
    shape = _shape(engine, work, options, epochs, since)
    few = work.records is not None
    decoded = engine.book.decode(
        records,
        shape.aligned.epochs,
        shape.frame,
        work.ranges,
        for_changelog=options.changelog or not shape.schema.key,
        stray=stray,
        tail=FEW_EVENTS if few else TAIL,
    )
    return hold(decoded, few=few), shape


def _shape(
    engine: Engine, work: Work, options: TableOptions, epochs: Sequence[Epoch], since: SourcePosition | None
) -> Shape:
    line = engine.book.line(work.table)
    known = engine.ledger.progress(work.table).schema_at
    at = known if work.until is None else work.until
    target = 0 if at is None else line.index_at(at)
    aligned = engine.book.aligned(work.table, line, epochs, since, target)
    if options.key:
        aligned = aligned.with_key(options.key)
    _check_key(aligned.schema, options, work)
    if rules := engine.rules.of(str(work.table)):
        aligned = aligned.ruled(rules, str(work.table))
    return Shape(line, target, aligned)


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
        bad = decoded.where(F.col("bad").isNotNull()).select("partition", "offset", "timestamp").collect()
        waiting = set(map(tuple, bad)) - engine.quarantine.dropped(work.topic)
        if waiting:
            raise TablePaused(
                f"{len(waiting)} events of {work.topic} could not be decoded; they are in quarantine",
                "see their reasons with: replicator quarantine list; mend the cause, or drop them there, "
                "and start the mirror again",
            )


def _append_changelog(
    engine: Engine,
    work: Work,
    options: TableOptions,
    shape: Shape,
    events: Held,
    census: Census,
    *,
    alone: bool,
) -> None:
    base = engine.ledger.progress(work.table).changelog
    if _is_beyond(engine.ledger.progress(work.table).changelog_schema, shape):
        return
    schema, table = shape.frame, _changelog_table(engine, work.table, options, shape)
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
    engine: Engine, work: Work, options: TableOptions, shape: Shape, events: Held, census: Census
) -> None:
    base = engine.ledger.progress(work.table).mirror
    if _is_beyond(engine.ledger.progress(work.table).mirror_schema, shape):
        return
    # Rows without a key are told apart by the columns that the source has now.
    schema = shape.frame if shape.frame.key else shape.schema
    table = _mirror_table(engine, work.table, options, shape)
    if work.again:
        events = replace(events, frame=_not_superseded(engine, work, schema, base, events.frame))
    already = _already_in(base, work)
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
    marker = replace(_marker(engine, work, base, census), snapshot=snapshot)
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


def _is_beyond(state: SchemaState | None, shape: Shape) -> bool:
    """Whether a table has a newer schema than these events: then it has the events too.

    After a crash the changelog may be a part of a batch ahead.
    """
    return bool(shape.schema.columns) and state is not None and state.at > shape.version.at


def _mirror_table(engine: Engine, table: TableId, options: TableOptions, shape: Shape) -> LakeTable:
    """The mirror table, created or evolved so that it holds rows of `shape`."""
    lake, schema, version = engine.lake, shape.schema, shape.version
    own = dict(STRATEGY_PROPERTIES[options.strategy]) | dict(options.properties)
    present = lake.load(engine.config.lake.namespace, table.name)
    own |= _rules_property(present, schema, table)
    if present is None:
        spec = partition_spec(schema, options.partition) if options.partition else None
        state = SchemaState(version.at)
        properties = {**ENGINE_PROPERTIES, SOURCE_KEY: str(table), **own, SCHEMA_KEY: state.to_json()}
        namespace = engine.config.lake.namespace
        location = _location(engine, namespace, table)
        created = lake.create(namespace, table.name, table_schema(schema), spec, properties, location)
        engine.ledger.evolved_mirror(table, state)
        return created
    lake.set_properties(present, own)
    if not schema.columns:
        return present
    known = engine.ledger.progress(table).mirror_schema or SchemaState(version.at)
    if known.at == version.at and _fits(present, schema):
        return present
    _refuse_exchange(engine, table, known, shape)
    there = _lake_side(present, known, shape)
    here = _source_side(there, known, shape)
    found = plan(there, here, options.schema_changes)
    _refuse_mixed_rules(present, schema, found)
    if found.changes or known.at < version.at:
        state = _next_state(known, shape, found)
        properties = {SCHEMA_KEY: state.to_json()}
        if here.anew:
            again = Truncate(_NO_PARTITION, -1, version.position, version.ts_ms)
            properties[PENDING_CLEAR_KEY] = json.dumps(again.to_json())
        evolve(lake, present, found.changes, properties, key=schema.key, fill=True)
        engine.recent.forget(present)
        engine.ledger.evolved_mirror(table, state)
    return present


def _refuse_exchange(engine: Engine, table: TableId, known: SchemaState, shape: Shape) -> None:
    """Raises UnsupportedChange where the table's name was given to another one that is mirrored too.

    A copy that a tool made and put in the table's place has the same rows; another table has its own.
    """
    for version in shape.line.versions[1:]:
        if version.at <= known.at:
            continue
        other = version.took_over_from
        if (
            version.at <= shape.version.at
            and other not in (None, table)
            and engine.config.includes(str(other))
        ):
            raise UnsupportedChange(
                f"{other} was renamed to {table}, while the lake has other rows under that name",
                f"drop {table.name} in the lake, mirror and changelog, and bootstrap it again",
            )


def _changelog_table(engine: Engine, table: TableId, options: TableOptions, shape: Shape) -> LakeTable:
    """The changelog table, created or evolved so that it holds rows of `shape`."""
    lake, namespace, version = engine.lake, engine.config.lake.changes_namespace, shape.version
    present = lake.load(namespace, table.name)
    rules = _rules_property(present, shape.frame, table)
    if present is None:
        text = changelog_schema(shape.frame, change_column(shape.frame.names))
        state = SchemaState(version.at, shape.aligned.retired)
        properties = {**ENGINE_PROPERTIES, SOURCE_KEY: str(table), **rules, SCHEMA_KEY: state.to_json()}
        location = _location(engine, namespace, table)
        created = lake.create(namespace, table.name, text, None, properties, location)
        engine.ledger.evolved_changelog(table, state)
        return created
    lake.set_properties(present, rules)
    if not shape.schema.columns:
        return present
    known = engine.ledger.progress(table).changelog_schema or SchemaState(version.at)
    if known.at == version.at and _fits(present, shape.frame):
        return present
    there = _lake_side(present, known, shape)
    here = _source_side(there, known, shape)
    extra = [c for c in shape.frame.columns if c.name in shape.aligned.retired]
    found = changelog_plan(there, here, extra, options.schema_changes)
    _refuse_mixed_rules(present, shape.schema, found)
    if found.changes or known.at < version.at:
        state = _next_state(known, shape, found)
        evolve(lake, present, found.changes, {SCHEMA_KEY: state.to_json()})
        engine.ledger.evolved_changelog(table, state)
    return present


def _fits(table: LakeTable, schema: TableSchema) -> bool:
    """Whether a lake table can take rows of `schema` as it is: so it is in nearly every batch."""
    columns = table.columns()
    return all(c.name in columns and columns[c.name].holds(c.type) for c in schema.columns)


def _lake_side(table: LakeTable, known: SchemaState, shape: Shape) -> LakeSide:
    columns = {n: t for n, t in table.columns().items() if not is_temporary(n)}
    line = shape.line
    if line.versions[0].at > known.at:
        return LakeSide(columns, frozenset(known.retired))
    version = line.versions[line.index_at(known.at)]
    return LakeSide(columns, frozenset(known.retired), version.schema.key, version.natives)


def _source_side(there: LakeSide, known: SchemaState, shape: Shape) -> SourceSide:
    line, old = shape.line, -1
    if line.versions[0].at <= known.at:
        old = line.index_at(known.at)
    anew = old >= 0 and any(v.anew for v in line.versions[old + 1 : shape.target + 1])
    carried = line.carry_lake(known.at, shape.target, there.live)
    # What is masked or hashed is text that no change of type concerns.
    shielded = {c.name for c in shape.schema.columns if c.shield is not None}
    natives = {n: t for n, t in shape.version.natives.items() if n not in shielded}
    return SourceSide(shape.schema, carried, natives, anew)


def _next_state(known: SchemaState, shape: Shape, found: Plan) -> SchemaState:
    version = shape.version
    at = max(known.at, version.at)
    converted = {c.name for c in found.changes if isinstance(c, ChangeType)}
    made = [c for c in found.changes if not (isinstance(c, MoveColumn) and c.name in converted)]
    lines = [str(c) for c in made] + [f"ignored: {c}" for c in found.ignored if known.at < version.at]
    if not lines:
        return SchemaState(at, found.retired, notes=known.notes)
    note = ChangeNote(str(version.position), version.ts_ms, _now_ms(), tuple(lines), version.told)
    return SchemaState(at, found.retired, notes=(*known.notes, note))


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


def _refuse_mixed_rules(table: LakeTable, schema: TableSchema, found: Plan) -> None:
    """Raises UnfitColumns where a column gets a name that another rule is for: old and new values would be mixed."""
    recorded, wanted = rules_from_json(table.property(RULES_KEY)), rules_in_force(schema)
    for change in found.changes:
        if isinstance(change, RenameColumn) and recorded.get(change.name) != wanted.get(change.new):
            raise UnfitColumns(
                f"column {change.name} is called {change.new} now, and the column rules for the two names differ",
                "give both names the same rule; or drop the table and its changelog in the lake and start again",
            )
