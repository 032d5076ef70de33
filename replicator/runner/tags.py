"""Makes, keeps and deletes tags of all tables at one source position, between the batches of a mirror.

Commands and the schedule record requests in the lake (`model.tags`). The mirror takes one at a time:

    requested → started: the position is chosen, while no batch is running
              → complete: every table is tagged, by its batch that reaches the position (`batch.plan.tags`), or here
                if it is idle and certainly has all earlier changes
              → failed: a table is paused, or cannot be tagged at the position

The position is the end of the source's binlog at a time when no batch is running. All changes that the lake has then
are from before it, because they were in the binlog before they were in the log.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from replicator import failpoints
from replicator.batch import (
    MirrorContext,
    PendingTag,
    TableTask,
    has_all_before,
    tag_table,
)
from replicator.config import ArchiveLog
from replicator.errors import (
    CommitConflict,
    ConnectError,
    LakeError,
    LakeUnavailable,
    ReplicatorError,
)
from replicator.jvm.spark import first_line
from replicator.lake.tags import TagStore
from replicator.model.common import now_ms
from replicator.model.table import TableId
from replicator.model.tags import TagPoint, TagRecord, TagState, due_tag, expired_tags
from replicator.pipelines.results import result_tables
from replicator.recovery.service import Recovery
from replicator.runner.table_renames import TableRenames
from replicator.runner.table_states import TableStates
from replicator.sources.change_log import Offsets
from replicator.sources.source_positions import SourcePositions
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.runner")
_POLL_S: Final = 2.0
_TEND_S: Final = 0.5
_RETRY_S: Final = 10.0
_SLICE_S: Final = 2.0
"""How long tables are tagged between two batches; the others follow after the next one."""
_LONGEST_HOLD_S: Final = 600.0
"""A tag fails if a table had to wait this long for the connector, or for its re-read."""
_NOT_CONFIRMED: Final = (
    "the connector did not confirm the position, and tables with several partitions waited for it"
)
_NO_CONNECTOR: Final = (
    "log.connect_url is not set: without the connector's position it is unknown whether changes are missing"
)
_NO_SOURCE: Final = "the log is an archive, and the position of a tag is read from the source"


class TagKeeper:
    """Makes, keeps and deletes the tags of one mirror. One thread at a time may use it."""

    def __init__(
        self,
        context: MirrorContext,
        tables: TableStates,
        renames: TableRenames,
        read_ends: Callable[[], Offsets],
        source: SourcePositions | None,
        recovery: Recovery | None = None,
    ) -> None:
        """Use `read_ends` to check the log, and `source` for positions; None if they are unknown.

        The tables that `recovery` reads again wait for a pending tag.
        """
        self._recovery = recovery
        self._context = context
        self._tables = tables
        self._renames = renames
        self._read_ends = read_ends
        self._source = source
        self._store = TagStore(context.lake, context.config.lake)
        self._tags: list[TagRecord] | None = None
        self._record: TagRecord | None = None
        self._left_out: set[TableId] = set()
        self._silent: dict[TableId, list[str]] | None = None
        self._removals: dict[str, list[tuple[str, str]]] = {}
        self._released = False
        self._waits_for: str | None = None
        self._started = 0.0
        self._poll_at = self._try_at = self._prove_at = self._tend_at = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether a tag is requested that is not made yet."""
        return any(tag.is_open for tag in self._tags or ())

    @property
    def is_started(self) -> bool:
        """Whether the position of a tag is chosen that is not complete yet."""
        return self._record is not None

    def poll_now(self) -> None:
        """Read the recorded tags before the next batch, and query the connector again."""
        self._poll_at = self._try_at = self._prove_at = self._tend_at = 0.0

    def begin(self, topics: Offsets) -> None:
        """Prepare for a batch that reads `topics`. Must be called before its tasks are planned.

        Raises:
            LakeUnavailable: it is not known whether a tag is pending, so no batch may run.
        """
        self._poll()
        if self._record is None:
            self._take_next()
        if (tag := self._pending) is not None:
            tag.topics = topics

    def finish(self) -> None:
        """Continue the pending tag after a batch, or between batches if there are none; delete what must be deleted.

        Raises:
            LakeUnavailable, LogError: the catalog or the log does not answer.
        """
        tag, record = self._pending, self._record
        if tag is not None and record is not None:
            if (reason := self._obstacle(tag, record)) is not None:
                self._fail(record, reason)
            elif self._is_proven(tag, record) and self._settle_idle(tag):
                self._complete(tag, record)
        self._delete()

    def tend(self) -> bool:
        """Do the work of `begin` and `finish` if there is no batch; return whether a batch must be made.

        Tables that wait at the position of the tag can continue once all earlier changes are known to be in the log.

        Raises:
            LakeUnavailable, LogError: the catalog or the log does not answer.
        """
        if time.monotonic() < self._tend_at:
            return False
        self._poll()
        if self._record is None:
            self._take_next()
        self.finish()
        self._tend_at = time.monotonic() + (_TEND_S if self.is_busy else _POLL_S)
        return self.take_released()

    def take_released(self) -> bool:
        """Return whether tables can continue since the last call that waited at the position of a tag."""
        released, self._released = self._released, False
        return released

    # Requests.

    @property
    def _pending(self) -> PendingTag | None:
        return self._context.tagging.pending

    def _poll(self) -> None:
        """Read the recorded tags from time to time, and request what the schedule wants."""
        if self._tags is not None and time.monotonic() < self._poll_at:
            return
        try:
            self._tags = self._store.read()
        except LakeUnavailable:
            if self._tags is None:
                raise
            return
        self._poll_at = time.monotonic() + _POLL_S
        if self._record is not None and not any(t.is_open for t in self._tags if t.name == self._record.name):
            self._stop()
        config = self._context.config.tags
        due = due_tag(self._tags, config.every, now_ms())
        # Until new tables are found and read, a tag would wait for them.
        if due is not None and not (self._recovery is not None and self._recovery.is_busy):
            self._write(due)
        for tag in expired_tags(self._tags, config.keep) if config.every is not None else ():
            self._write(replace(tag, state=TagState.DELETING))

    def _write(self, tag: TagRecord) -> None:
        """Record a tag. If it is unknown whether that succeeded, the records are read before the next batch."""
        known, self._tags = self._tags or [], None
        self._store.write(tag)
        self._tags = [*(t for t in known if t.name != tag.name), tag]

    def _take_next(self) -> None:
        """Continue a tag that another process started, or choose the position of the next one."""
        tags = [tag for tag in self._tags or () if tag.is_open]
        record = min(tags, key=lambda tag: (tag.state is TagState.REQUESTED, tag.requested_ms), default=None)
        if record is None or time.monotonic() < self._try_at or self._waits_for_rereads(record):
            return
        config = self._context.config
        if self._source is None:
            self._fail(record, _NO_SOURCE if isinstance(config.log, ArchiveLog) else _NO_CONNECTOR)
        elif record.point is not None:
            self._start(record, record.point, resumed=True)
        elif (point := self._choose(record, self._source)) is not None:
            record = replace(record, state=TagState.STARTED, point=point)
            self._write(record)
            failpoints.reach("after-tag-start")
            self._start(record, point, resumed=False)

    def _waits_for_rereads(self, record: TagRecord) -> bool:
        """Whether new tables must be read before the position of a tag is chosen: it would be before their rows."""
        if self._recovery is None or record.state is not TagState.REQUESTED:
            return False
        if self._waits_for != record.name:
            self._waits_for = record.name
            self._recovery.ask_for_new_tables()
            if self._recovery.reads_new_tables:
                _LOG.info("a tag waits until new tables are read from the source", tag=record.name)
        return self._recovery.reads_new_tables

    def _choose(self, record: TagRecord, source: SourcePositions) -> TagPoint | None:
        try:
            return TagPoint.of(source.end(), now_ms())
        except ReplicatorError as error:
            self._try_at = time.monotonic() + _RETRY_S
            _LOG.warning(
                "a tag must wait for MySQL", tag=record.name, reason=error.message, in_seconds=_RETRY_S
            )
            return None

    def _start(self, record: TagRecord, point: TagPoint, *, resumed: bool) -> None:
        self._record, self._left_out, self._silent = record, set(), None
        self._started, self._prove_at = time.monotonic(), 0.0
        self._context.tagging.pending = PendingTag(
            record.name, point.position_key, point.read_ms, resumed=resumed
        )

    def _stop(self) -> None:
        self._record = self._context.tagging.pending = None

    # The pending tag.

    def _obstacle(self, tag: PendingTag, record: TagRecord) -> str | None:
        """Return why the tag cannot be made, if anything is known. Leave out paused tables if that is requested.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        if tag.problems:
            return "; ".join(tag.problems.values())
        if tag.holds and tag.proven is None and time.monotonic() > self._started + _LONGEST_HOLD_S:
            return _NOT_CONFIRMED
        if self._recovery is not None and (reason := self._reread_first(self._recovery, tag)) is not None:
            return reason
        paused = {t: reason for t, reason in self._tables.paused.items() if t not in tag.settled}
        if record.skip_paused:
            tag.settled |= paused.keys()
            self._left_out |= paused.keys()
            return None
        return next((f"{table} is paused: {reason}" for table, reason in sorted(paused.items())), None)

    def _reread_first(self, recovery: Recovery, tag: PendingTag) -> str | None:
        """Return why the tag cannot be made before tables are read again; these would wait for the tag.

        Raises:
            LakeUnavailable: the catalog does not answer.
        """
        if (reason := recovery.why_no_tag()) is not None:
            return reason
        # A new table has no request before the source is asked for it.
        topics: Offsets = {topic: {} for topic in tag.proven or {}}
        for table in map(self._tables.table_of, self._tables.mirrored(topics)):
            if table not in tag.settled | self._tables.paused.keys() and recovery.holds(table):
                return f"{table} is new, and must be read from the source first"
        return None

    def _fail(self, record: TagRecord, reason: str) -> None:
        self._stop()
        self._removals[record.name] = self._store.tables()
        self._write(record.failed(reason))
        _LOG.error("tag failed", tag=record.name, reason=reason)

    def _is_proven(self, tag: PendingTag, record: TagRecord) -> bool:
        """Whether all changes from before the position are in the log; queries the connector from time to time."""
        if tag.proven is not None:
            return True
        if self._source is None or record.point is None or time.monotonic() < self._prove_at:
            return False
        self._prove_at = time.monotonic() + _TEND_S
        try:
            confirmed = self._source.confirmed()
        except ConnectError:
            # The monitoring of the connector logs it.
            return False
        if confirmed is None or not confirmed.covers(record.point.end):
            return False
        tag.proven = self._read_ends()
        self._released = True
        return True

    def _settle_idle(self, tag: PendingTag) -> bool:
        """Tag the tables that need no batch for it, as many as a slice of time permits. Return whether all are done."""
        deadline, complete = time.monotonic() + _SLICE_S, True
        for table, topics in self._lake_tables(tag):
            if table in tag.settled:
                continue
            if table is not None and time.monotonic() < deadline and self._is_ready(table, topics, tag):
                self._settle(table, topics[0], tag)
            complete = complete and table in tag.settled
        return complete

    def _lake_tables(self, tag: PendingTag) -> Iterator[tuple[TableId | None, list[str]]]:
        """Yield the tables of the lake, each with its topics; None for a topic with unread events only."""
        ledger, found, ends = self._context.ledger, dict[TableId, list[str]](), tag.proven or {}
        for topic in sorted(self._tables.mirrored(ends)):
            first = self._tables.table_of(topic)
            names = [first, *self._renames.later_names(first)]
            table = next((name for name in names if ledger.progress(name).topics), None)
            if table is not None:
                found.setdefault(table, []).append(topic)
            elif self._renames.unread(topic, ends) and first not in tag.settled:
                yield None, [topic]
        yield from found.items()
        if self._silent is None:
            self._silent = self._without_topic(ends)
        yield from self._silent.items()

    def _without_topic(self, ends: Offsets) -> dict[TableId, list[str]]:
        """Return the tables that were read from the source and had no event since: Kafka has no topic for them."""
        lake, ledger, found = self._context.lake, self._context.ledger, dict[TableId, list[str]]()
        known = {table.name for table in ledger.tables if ledger.progress(table).topics & ends.keys()}
        for namespace, name in self._store.tables():
            if name in known or (loaded := lake.load(namespace, name)) is None:
                continue
            marker = loaded.marker()
            if marker is None or marker.mirror != ledger.mirror:
                continue
            silent: Offsets = {topic: {} for topic in sorted(marker.progress) if topic not in ends}
            for topic in self._tables.mirrored(silent):
                if ledger.progress(table := self._tables.table_of(topic)).topics:
                    found.setdefault(table, [topic])
        return found

    def _is_ready(self, table: TableId, topics: list[str], tag: PendingTag) -> bool:
        context = self._context
        if self._tables.is_idle(table):
            return False
        return all(has_all_before(context, table, topic, tag) for topic in topics)

    def _settle(self, table: TableId, topic: str, tag: PendingTag) -> None:
        task = TableTask(table, topic, self._context.log.topic_id(topic), (), 0)
        try:
            tag_table(self._context, task, tag)
        except LakeError as error:
            self._context.ledger.forget(table)
            _LOG.warning(
                "a table cannot be tagged yet", table=str(table), tag=tag.name, reason=first_line(error)
            )
        except Exception as error:  # noqa: BLE001 - the tag fails, and no other table is concerned
            tag.problems[table] = f"{table}: {first_line(error)}"

    def _complete(self, tag: PendingTag, record: TagRecord) -> None:
        failpoints.reach("before-tag-complete")
        if not any(known.is_open for known in self._store.read() if known.name == tag.name):
            # A command has deleted it meanwhile.
            self.poll_now()
            return
        done = record.completed(now_ms(), map(str, self._left_out))
        self._write(done)
        self._stop()
        _LOG.info(
            "tag complete",
            tag=done.name,
            position=str(done.point),
            tables=len(tag.settled - self._left_out),
            seconds=round(((done.completed_ms or 0) - (done.point.read_ms if done.point else 0)) / 1000, 3),
        )

    # Deletion.

    def _delete(self) -> None:
        """Remove tags of the tables, as many as a slice of time permits, and then the record of a deleted tag."""
        deadline = time.monotonic() + _SLICE_S
        deleting = {tag.name: tag for tag in self._tags or () if tag.state is TagState.DELETING}
        for name in deleting:
            if name not in self._removals:
                results = result_tables(self._context.config, changelogs=False)
                self._removals[name] = [*self._store.tables(), *results]
        for name in list(self._removals):
            try:
                left = self._store.remove(name, self._removals[name], deadline)
            except (CommitConflict, LakeUnavailable) as error:
                _LOG.warning("a tag cannot be removed yet", tag=name, reason=error.message)
                return
            self._removals[name] = left
            if left:
                return
            if (record := deleting.get(name)) is not None:
                self._store.forget(record)
                self._tags = [tag for tag in self._tags or () if tag.name != name]
            del self._removals[name]
