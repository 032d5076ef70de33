"""The lake as the ledger: what each table contains is read from its own commit markers.

There is no other record of progress: a checkpoint folder may be lost, and a mirror may be started on another machine.
A commit writes its marker to the table's properties, so expiring snapshots keeps it.
"""

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, assert_never

from replicator.config import Config
from replicator.errors import LakeUnavailable, SchemaError
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.others import foreign, rolled_back
from replicator.lake.properties import PAUSED_KEY, RETRYING_KEY
from replicator.model.batch_stats import BatchStats
from replicator.model.commit_marker import CommitMarker, OffsetRange
from replicator.model.common import now_ms
from replicator.model.recorded import fitted_json, reading, record_in
from replicator.model.roles import LakeRole
from replicator.model.table import TableId
from replicator.schema.evolution.changes import SchemaState
from replicator.schema.history.order import binlog_key
from replicator.schema.history.versions import BEGINNING
from replicator.sources.change_log import Offsets

_LOADERS: Final = 8
_PROPERTY_TEXT: Final = 400


@dataclass(frozen=True, slots=True)
class Progress:
    """The markers of one source table's two lake tables; None for a table without a commit.

    Attributes:
        changelog_wanted: whether the table is configured to have a changelog.
        may_stand_alone: whether the table is configured to have a changelog only, if it has no key.
        mirror_schema, changelog_schema: the version of the source's schema that each lake table has.
        unfilled: columns of the mirror that are null in older rows, because no event has their values.
        problem: why one of the two lake tables must not be written: it is not the mirror's, or was rolled back.
        has_pending_rows: whether rows of the mirror must still be filled or deleted, as its schema version requires.
    """

    mirror: CommitMarker | None
    changelog: CommitMarker | None
    changelog_wanted: bool
    may_stand_alone: bool = False
    mirror_schema: SchemaState | None = None
    changelog_schema: SchemaState | None = None
    unfilled: tuple[str, ...] = ()
    problem: SchemaError | None = None
    has_pending_rows: bool = False

    @property
    def schema_at(self) -> int | None:
        """The binlog key of the older schema version of the two tables; None if a table does not exist yet."""
        states = [] if self.stands_alone else [self.mirror_schema]
        states += [self.changelog_schema] if self.changelog_wanted else []
        return min((s.at for s in states if s is not None), default=None) if None not in states else None

    @property
    def newest_schema_at(self) -> int | None:
        """The binlog key of the newer schema version of the two tables; None if both do not exist yet."""
        return max((s.at for s in (self.mirror_schema, self.changelog_schema) if s is not None), default=None)

    @property
    def resume_marker(self) -> CommitMarker | None:
        """The marker of the table that contains less; reading resumes there. None: from the beginning."""
        if not self.changelog_wanted:
            return self.mirror
        if self.stands_alone:
            return self.changelog
        if self.mirror is None or self.changelog is None:
            return None
        return min(self.mirror, self.changelog, key=_reach)

    @property
    def stands_alone(self) -> bool:
        """Whether the table has a changelog only, as configured."""
        alone = self.changelog is not None and self.changelog.alone
        return self.may_stand_alone and self.mirror is None and alone

    def marker(self, role: LakeRole) -> CommitMarker | None:
        """Return the newest marker of one of the two tables."""
        match role:
            case LakeRole.MIRROR:
                return self.mirror
            case LakeRole.CHANGELOG:
                return self.changelog
            case _:
                assert_never(role)

    def schema(self, role: LakeRole) -> SchemaState | None:
        """Return the schema version of one of the two tables."""
        match role:
            case LakeRole.MIRROR:
                return self.mirror_schema
            case LakeRole.CHANGELOG:
                return self.changelog_schema
            case _:
                assert_never(role)

    def awaits_snapshot(self, topic: str) -> bool:
        """Return whether `topic` was recreated and the lake contains no event of the new topic."""
        return any(m is not None and m.awaits_snapshot(topic) for m in (self.mirror, self.changelog))

    def known_partitions(self, topic: str) -> int | None:
        """Return how many partitions `topic` had when the two tables were written; None if that is not recorded."""
        markers = [m for m in (self.mirror, self.changelog) if m is not None]
        return min((m.partition_counts[topic] for m in markers if topic in m.partition_counts), default=None)

    @property
    def topics(self) -> frozenset[str]:
        """The topics whose events the two tables contain."""
        return frozenset(
            topic
            for marker in (self.mirror, self.changelog)
            if marker is not None
            for topic in marker.progress
        )


def _reach(marker: CommitMarker) -> int:
    return sum(p.next_offset for partitions in marker.progress.values() for p in partitions.values())


def ranges_to_read(
    topic: str, resume_marker: CommitMarker | None, first: Mapping[int, int], ends: Mapping[int, int]
) -> tuple[OffsetRange, ...]:
    """Return the offsets of `topic` that a table lacks, up to `ends` (exclusive), for partitions that have any."""
    ranges = []
    for partition, end in sorted(ends.items()):
        known = None if resume_marker is None else resume_marker.next_offset(topic, partition)
        start = first.get(partition, 0) if known is None else known
        if start < end:
            ranges.append(OffsetRange(topic, partition, start, end))
    return tuple(ranges)


def chunks(ranges: tuple[OffsetRange, ...], max_events: int) -> list[tuple[OffsetRange, ...]]:
    """Cut ranges into pieces of about `max_events` offsets; each piece has an equal share of every partition.

    No piece is empty. A table that was paused or is new to the mirror may lack more events than fit one batch.
    """
    total = sum(r.count for r in ranges)
    pieces = max(1, -(-total // max_events))
    cut = []
    for i in range(pieces):
        piece = tuple(
            OffsetRange(
                r.topic, r.partition, r.start + r.count * i // pieces, r.start + r.count * (i + 1) // pieces
            )
            for r in ranges
        )
        if found := tuple(r for r in piece if r.count):
            cut.append(found)
    return cut


def next_marker(
    mirror: str,
    batch: int,
    topic: str,
    topic_id: str | None,
    base: CommitMarker | None,
    stats: BatchStats,
    partitions: int | None = None,
) -> CommitMarker:
    """Return the marker of a commit that adds a batch with `stats` to a table whose newest marker is `base`.

    `partitions` is the number of the topic's partitions, if known. It does not replace a number that `base` has.
    """
    known = CommitMarker(mirror, 0, batch) if base is None else base
    merged = {name: dict(found) for name, found in known.progress.items()}
    own = merged.setdefault(topic, {})
    moved = False
    for partition, progress in stats.progress.items():
        # A table that is ahead remains ahead: after a crash, the changelog may contain more than the mirror.
        if partition not in own or own[partition].next_offset < progress.next_offset:
            own[partition], moved = progress, True
    ids, counts = known.topic_ids, known.partition_counts
    watermarks = [w for w in (known.watermark_ms, stats.watermark_ms) if w is not None]
    return CommitMarker(
        mirror=mirror,
        sequence=known.sequence + 1,
        batch=batch,
        progress=merged,
        position=stats.position if moved and stats.position is not None else known.position,
        watermark_ms=max(watermarks, default=None),
        committed_ms=now_ms(),
        truncate=stats.truncates[-1] if stats.truncates else known.truncate,
        topic_ids=ids if topic_id is None else {**ids, topic: topic_id},
        partition_counts=counts if partitions is None else {topic: partitions, **counts},
    )


class Ledger:
    """Stores the markers of all tables as this process last read or committed them.

    Several threads may use it, each for other tables.
    """

    def __init__(self, lake: Lake, config: Config) -> None:
        self._lake = lake
        self._config = config
        self._progress: dict[TableId, Progress] = {}
        # The tables that have, or had, events of a topic: a search of all tables for each topic takes seconds.
        self._tables_of: dict[str, set[TableId]] = {}

    @property
    def mirror(self) -> str:
        """The name of the mirror."""
        return self._config.mirror.name

    def load(self, tables: Iterable[TableId]) -> dict[TableId, LakeUnavailable]:
        """Read the markers of `tables` from the lake in parallel; return table → error for those that fail."""
        failures: dict[TableId, LakeUnavailable] = {}

        def read(table: TableId) -> None:
            try:
                self._store(table, self._read(table))
            except LakeUnavailable as error:
                self._progress.pop(table, None)
                failures[table] = error

        with ThreadPoolExecutor(_LOADERS) as pool:
            list(pool.map(read, list(tables)))
        return failures

    def knows(self, table: TableId) -> bool:
        """Return whether the markers of a table were read."""
        return table in self._progress

    @property
    def tables(self) -> frozenset[TableId]:
        """The source tables whose markers are known, whether or not they are in the lake."""
        return frozenset(self._progress)

    @property
    def is_empty(self) -> bool:
        """Whether no table's markers were read yet."""
        return not self._progress

    def is_another_topic(self, table: TableId, topic: str, topic_id: str | None) -> bool:
        """Return whether the lake contains events of an earlier topic with the same name."""
        if topic_id is None:
            return False
        progress = self.progress(table)
        markers = [m for m in (progress.mirror, progress.changelog) if m is not None]
        return any(m.topic_ids.get(topic, topic_id) != topic_id for m in markers)

    def progress(self, table: TableId) -> Progress:
        """Return a table's markers; read them first if necessary."""
        if table not in self._progress:
            self._store(table, self._read(table))
        return self._progress[table]

    def _store(self, table: TableId, progress: Progress) -> None:
        self._progress[table] = progress
        for topic in progress.topics:
            self._tables_of.setdefault(topic, set()).add(table)

    def resume_marker_for(self, table: TableId, topic: str) -> CommitMarker | None:
        """Return the marker from which reading of `topic` resumes for a table.

        If the lake has nothing of the table, but another table has events of its topic, the table was renamed.
        """
        resume_marker = self.progress(table).resume_marker
        if resume_marker is not None or table not in self._progress:
            return resume_marker
        # Copied, because another thread may add a table.
        others = tuple(self._tables_of.get(topic, ()))
        found = (self._progress.get(t) for t in others if t != table)
        markers = (p.resume_marker for p in found if p is not None)
        return next((m for m in markers if m is not None and topic in m.progress), None)

    def incomplete(self) -> dict[TableId, tuple[str, ...]]:
        """Return the tables whose mirrors are null in columns of older rows, with these columns."""
        # Copied, because another thread may add a table.
        return {table: found.unfilled for table, found in tuple(self._progress.items()) if found.unfilled}

    def forget(self, table: TableId) -> None:
        """Discard a table's markers; the next use reads them again."""
        self._progress.pop(table, None)

    def forget_all(self) -> None:
        """Discard the markers of all tables."""
        self._progress.clear()

    def probe(self, besides: Collection[TableId]) -> bool:
        """Read one table of the lake again, and write a file beside its data: of a table other than those in `besides`.

        Return False if there is no other one.

        Raises:
            LakeUnavailable: the storage cannot be read or written.
        """
        found = (t for t, p in self._progress.items() if t not in besides and p.mirror is not None)
        if (table := next(found, None)) is None:
            return False
        self._read(table)
        if (loaded := self._lake.load(self._config.lake.namespace, table.name)) is not None:
            self._lake.check_writable(loaded)
        return True

    def namespace(self, role: LakeRole) -> str:
        """Return the namespace of the lake tables of a role."""
        return self._config.lake.namespace_of(role)

    def committed(
        self, table: TableId, role: LakeRole, marker: CommitMarker, *, fills_done: bool = False
    ) -> None:
        """Record a commit of this process; `fills_done` as in `Staged`.

        A table that was not read yet is read when it is needed.
        """
        known = self._progress.get(table)
        if known is None:
            return
        match role:
            case LakeRole.MIRROR:
                pending = known.has_pending_rows and not fills_done
                self._store(table, replace(known, mirror=marker, has_pending_rows=pending))
            case LakeRole.CHANGELOG:
                self._store(table, replace(known, changelog=marker))
            case _:
                assert_never(role)

    def evolved(
        self,
        table: TableId,
        role: LakeRole,
        state: SchemaState,
        unfilled: tuple[str, ...] = (),
        *,
        has_pending_rows: bool = False,
    ) -> None:
        """Record the schema version that this process gave to a lake table; the other values as in `Progress`."""
        known = self._progress[table]
        match role:
            case LakeRole.MIRROR:
                self._progress[table] = replace(
                    known, mirror_schema=state, unfilled=unfilled, has_pending_rows=has_pending_rows
                )
            case LakeRole.CHANGELOG:
                self._progress[table] = replace(known, changelog_schema=state)
            case _:
                assert_never(role)

    def next_offsets(self, topics: Offsets, table_of: Mapping[str, TableId]) -> dict[str, dict[int, int]]:
        """Return topic → partition → the first offset that the lake lacks, for partitions with events in the lake."""
        found: dict[str, dict[int, int]] = {}
        for topic, partitions in topics.items():
            if not self.knows(table_of[topic]):
                continue
            resume_marker = self.progress(table_of[topic]).resume_marker
            for partition in partitions:
                offset = None if resume_marker is None else resume_marker.next_offset(topic, partition)
                if offset is not None:
                    found.setdefault(topic, {})[partition] = offset
        return found

    def pause(self, table: TableId, reason: str, hint: str | None, *, stays: bool = False) -> None:
        """Record in the lake that a table is paused, for `status` and the next start; see `resume_all` for `stays`."""
        record: dict[str, Any] = {"reason": reason, "hint": hint, "since_ms": now_ms()}
        if stays:
            record |= {"stays": True, "database": table.database, "name": table.name}
        self._note(PAUSED_KEY + str(table), record)

    def note_heal(self, table: TableId, at_ms: int) -> None:
        """Record in the lake, for `status`, when the mirror reads a paused table again by itself."""
        key = PAUSED_KEY + str(table)
        if (text := self._lake.namespace_properties(self._config.lake.ops_namespace).get(key)) is not None:
            self._note(key, record_in(text) | {"heal_ms": at_ms})

    def note_failure(self, table: TableId, reason: str, hint: str | None, retry_in: float) -> None:
        """Record in the lake, for `status`, that a table failed and is retried in `retry_in` seconds."""
        retry_ms = now_ms() + round(retry_in * 1000)
        self._note(RETRYING_KEY + str(table), {"reason": reason, "hint": hint, "retry_ms": retry_ms})

    def forget_failure(self, table: TableId) -> None:
        """Remove what `note_failure` recorded."""
        self._note(RETRYING_KEY + str(table), None)

    def resume(self, table: TableId) -> None:
        """Remove what `pause` recorded."""
        self._note(PAUSED_KEY + str(table), None)

    def resume_all(self) -> list[str]:
        """Remove every pause and failure, and return the tables that were paused.

        By starting the mirror, the operator says that the causes were removed. A pause that stays is left: its cause
        could not be noticed again.
        """
        paused = []
        for key, value in self._lake.namespace_properties(self._config.lake.ops_namespace).items():
            if key.startswith(PAUSED_KEY) and record_in(value).get("stays"):
                continue
            if key.startswith((PAUSED_KEY, RETRYING_KEY)):
                self._note(key, None)
            if key.startswith(PAUSED_KEY):
                paused.append(key.removeprefix(PAUSED_KEY))
        return paused

    def lasting_pauses(self) -> dict[TableId, tuple[str, str | None]]:
        """Return the tables whose pause stays until they are read again, with its reason and the next step."""
        properties = self._lake.namespace_properties(self._config.lake.ops_namespace)
        with reading("the record of a pause"):
            records = [record_in(value) for key, value in properties.items() if key.startswith(PAUSED_KEY)]
            return {
                TableId(record["database"], record["name"]): (record["reason"], record["hint"])
                for record in records
                if record.get("stays")
            }

    def _note(self, key: str, record: Mapping[str, Any] | None) -> None:
        """Set a property of the namespace `_ops` to the record of a pause or failure; None removes it."""
        text = None
        if record is not None:
            text = fitted_json(record, ("reason", "hint"), most=_PROPERTY_TEXT, ending="…")
        self._lake.set_namespace_property(self._config.lake.ops_namespace, key, text)

    def _read(self, table: TableId) -> Progress:
        lake, options = self._config.lake, self._config.table(str(table))
        mirror = self._lake.load(lake.namespace, table.name)
        changelog = self._lake.load(lake.changes_namespace, table.name) if options.changelog else None
        markers = [None if t is None else t.marker() for t in (mirror, changelog)]
        states = [
            None if t is None else t.schema_state() or _state_by_marker(marker)
            for t, marker in zip((mirror, changelog), markers, strict=True)
        ]
        unfilled = () if mirror is None else mirror.unfilled()
        pending = mirror is not None and mirror.has_pending_rows()
        alone = options.keyless == "changelog"
        problem = self._problem(mirror, is_mirror=True) or self._problem(changelog, is_mirror=False)
        return Progress(
            markers[0], markers[1], options.changelog, alone, states[0], states[1], unfilled, problem, pending
        )

    def _problem(self, table: LakeTable | None, *, is_mirror: bool) -> SchemaError | None:
        if table is None:
            return None
        return foreign(table, self.mirror) or rolled_back(self._lake, table, is_mirror=is_mirror)


def _state_by_marker(marker: CommitMarker | None) -> SchemaState:
    """Return the schema version of a table without a recorded one: that of its newest change.

    Earlier versions of the engine did not record it.
    """
    position = None if marker is None else marker.position
    return SchemaState(BEGINNING if position is None or not position.file else binlog_key(position))
