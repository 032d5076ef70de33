"""The re-read of one table, from its request to its publication.

Reading runs in a thread of its own. Everything else runs between the batches, on the scheduler's thread: it uses
what the batches use.
"""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, wait
from dataclasses import replace
from typing import Any, Final

from replicator.batch import MirrorContext, TableTask, apply_task
from replicator.errors import (
    ColumnsDiffer,
    ReplicatorError,
    RowsChanged,
    SourceChanged,
    UnknownValues,
    UnloggedChange,
    UnorderedTruncate,
    UnsupportedChange,
)
from replicator.jvm.spark import first_line
from replicator.lake.ledger import Progress, chunks, ranges_to_read
from replicator.model.commit_marker import CommitMarker, OffsetRange
from replicator.model.common import counted, now_ms
from replicator.model.reread import Phase, Request, StagingState
from replicator.recovery.publish import Publication
from replicator.recovery.reader.staging import Staging
from replicator.schema.history.versions import SchemaVersion
from replicator.telemetry import Stopwatch, get_logger

_LOG: Final = get_logger("replicator.reread")
_MOST_SPOILT: Final = 3
"""How often a table is read if events that arrive meanwhile cannot be decoded."""

Record = Callable[[Request], None]
"""Records a request in the lake."""


class TableReread:
    """Carries out one request."""

    def __init__(
        self, context: MirrorContext, staging: Staging, request: Request, topic: str, record: Record
    ) -> None:
        """Use `topic` as the table's topic, whether or not it exists."""
        self._context = context
        self._staging = staging
        self.request = request
        self._topic = topic
        self._record = record
        self._reading: Future[bool] | None = None
        self._cancelled = threading.Event()
        self._rows = (request.rows, request.estimated)
        self._waits: str | None = None
        self._spoilt = 0
        self._may_be_published = True
        self._known_to_be_read = False

    def start(self, pool: Executor, stopping: threading.Event) -> bool:
        """Begin or continue to read, in a thread of `pool`. Return False if the table's definition is not known yet.

        Raises:
            LakeUnavailable: the catalog failed.
            SchemaError: the table cannot be mirrored as configured.
        """
        # It imports SQLAlchemy, which takes a second, and most mirrors do not need it.
        from replicator.recovery.reader.table_reader import TableReader  # noqa: PLC0415
        from replicator.recovery.reader.waits import NewPartitions, PreparedRows  # noqa: PLC0415
        from replicator.sources.mysql.throttle import StopSignal, Throttle  # noqa: PLC0415

        table = self.request.table
        if not self._context.schemas.history(table).versions:
            self._update(problem="its definition is not in the log yet")
            return False
        schema = self._staging.schema(self.task(()))
        if not schema.mirror.key:
            self._check_keyless()
        staging = self._staging.load(table)
        if staging is None or self._staging.state(staging, self.request) is None:
            staging = self._staging.create(table, schema)
        self._enter(Phase.READING)
        counts = self._context.partition_counts
        known = self._progress().known_partitions(self._topic) or counts.first(self._topic)
        config = self._context.config
        reader = TableReader(
            config,
            self._staging,
            self.request,
            self._topic,
            schema.source,
            schema.mirror.key,
            self._on_rows,
            self._on_wait,
            Throttle.of(config, table, self._on_wait, rows_per_second=config.bootstrap.max_rows_per_second),
            NewPartitions(counts, table, self._topic, known, self._on_wait),
            PreparedRows(self._context.prepared, table, self._on_wait),
            StopSignal(stopping, self._cancelled),
        )
        self._reading, self._known_to_be_read = pool.submit(reader.run), False
        return True

    def cancel(self) -> None:
        """Stop reading, and wait for the thread, unless all threads are busy and it has not begun."""
        self._cancelled.set()
        if self._reading is not None and not self._reading.cancel():
            wait([self._reading])

    def _check_keyless(self) -> None:
        """Check that a table without a key can be read again.

        Raises:
            UnsupportedChange: it has no mirror.
        """
        table = self.request.table
        if self._context.config.table(str(table)).keyless != "identity":
            raise UnsupportedChange(
                f"{table} has no key, and is configured to have no mirror",
                f'name a unique key: key = ["…"] under [[table]] name = "{table}"',
            )

    @property
    def is_reading(self) -> bool:
        """Whether the thread is still reading."""
        return self._reading is not None and not self._reading.done()

    @property
    def is_read(self) -> bool:
        """Whether all rows were read, and it is known up to where the log must be applied to them."""
        done = self._reading is not None and self._reading.done()
        return (
            done
            and self._reading is not None
            and self._reading.exception() is None
            and self._reading.result()
        )

    def was_read_before(self) -> bool:
        """Return whether all rows were read when this was called last."""
        known, self._known_to_be_read = self._known_to_be_read, self.is_read
        return known

    def read_failure(self) -> BaseException | None:
        """Return why reading failed, once; None if it did not."""
        if self._reading is None or not self._reading.done():
            return None
        error = self._reading.exception()
        if error is None:
            return None
        self._reading = None
        if isinstance(error, (ColumnsDiffer, RowsChanged)):
            # The rows that were read so far have the former columns, or may be of several moments.
            self._staging.drop(self.request.table)
        return error

    def show_progress(self) -> None:
        """Record the number of rows read so far, and what reading waits for, if that changed."""
        (rows, estimated), waits = self._rows, self._waits
        if self.is_reading:
            self._update(rows=rows, estimated=max(estimated, rows), problem=waits)

    def catch_up(self, first: Mapping[int, int], most_events: int, watch: Stopwatch) -> bool:
        """Apply at most `most_events` events to the staging table. Return whether it can be published.

        `first` is partition → first offset of the log.

        Raises:
            ColumnsDiffer, RowsChanged: the table must be read from the beginning.
            ReplicatorError, PySparkException: as `apply_task`.
        """
        state = self._state()
        if state is None or state.until is None:
            return False
        if self.request.phase is not Phase.CATCHING_UP:
            self._check_definition()
        self._check_statements()
        self._enter(Phase.CATCHING_UP)
        goal = self._goal(state)
        marker = self._marker()
        ranges = ranges_to_read(self._topic, marker, first, goal)
        for chunk in chunks(ranges, most_events)[:1]:
            self._apply(self.task(chunk), watch)
        return not ranges_to_read(self._topic, self._marker(), first, goal) and self._is_aligned(goal)

    def _check_definition(self) -> None:
        """Check that the staging table was made with the definition that the source had when reading began.

        Now the log has all definitions from before that.

        Raises:
            ColumnsDiffer: a later definition was in force; the table must be read from the beginning.
        """
        table, progress = self.request.table, self._staging.context.ledger.progress(self.request.table)
        marker = progress.mirror
        began = None if marker is None else marker.position
        if progress.mirror_schema is None or marker is None or began is None or not began.file:
            return
        later = self._context.schemas.history(table).after(progress.mirror_schema.at)
        if any(version.start.is_before(began, marker.watermark_ms or 0) for version in later):
            self._start_again()
            raise ColumnsDiffer(f"the log had an earlier definition of {table} when reading began")

    def _check_statements(self) -> None:
        """Check that no statement changed rows without events, or gave the name to another table, since reading began.

        The rows may have been read before or after it. If the table is read again, it is after it.

        Raises:
            RowsChanged: there is such a statement.
            UnsupportedChange: the table cannot be read again after it.
        """
        table = self.request.table
        read = self._staging.context.ledger.progress(table).mirror_schema
        if read is None:
            return
        history = self._context.schemas.history(table)
        causes = [cause for v in history.after(read.at) if (cause := _change_of_rows(v)) is not None]
        if history.gone is not None and history.gone.renamed_to is not None and history.gone.at > read.at:
            # What was read belongs to the new name.
            causes.append(f"its renaming to {history.gone.renamed_to}")
        if causes:
            self._start_again()
            raise RowsChanged(f"rows of {table} changed while it was read, by {causes[0]}")

    def _start_again(self) -> None:
        self._staging.drop(self.request.table)
        self._reading = None

    def _apply(self, task: TableTask, watch: Stopwatch) -> None:
        try:
            apply_task(self._staging.context, task, watch)
        except (SourceChanged, UnknownValues, UnloggedChange, UnorderedTruncate) as error:
            self._start_again()
            raise RowsChanged(f"{self.request.table} changed while it was read: {error.message}") from error

    def publish(self) -> None:
        """Make the staging table the content of the mirror.

        Raises:
            RowsChanged: some events could not be applied to the rows; the table must be read from the beginning.
            SchemaError: the mirror cannot take it.
            LakeError: as `TableWriter.commit`.
        """
        state = self._state()
        if state is None:
            return
        self._check_statements()
        self._follow_last_definitions()
        done = self._publication(state)
        self._check_complete(done)
        changed = done.publish()
        self.request = replace(self.request, rows=state.rows)
        self.end(Phase.DONE, changed=changed)

    def _follow_last_definitions(self) -> None:
        """Give the staging table the newest columns, also if no event came after the statement that added them."""
        table, progress = self.request.table, self._staging.context.ledger.progress(self.request.table)
        known = progress.mirror_schema
        if progress.has_pending_rows or (known and self._context.schemas.history(table).after(known.at)):
            self._apply(self.task(()), Stopwatch())

    def _check_complete(self, done: Publication) -> None:
        """Check that no event was quarantined that arrived while the table was read.

        The rows may have been read before or after its change. If the table is read again, it is after it.

        Raises:
            RowsChanged: there is such an event.
            UnsupportedChange: there was one each time.
        """
        marker, table = self._marker(), self.request.table
        known = {} if marker is None else marker.progress.get(self._topic, {})
        until = {partition: progress.next_offset for partition, progress in known.items()}
        count = self._context.quarantine.count_unread(table, done.read_rows, until)
        if not count:
            return
        self._start_again()
        self._spoilt += 1
        told = f"{counted(count, 'event')} of {table} that arrived while it was read could not be decoded"
        if self._spoilt < _MOST_SPOILT:
            raise RowsChanged(told)
        raise UnsupportedChange(
            f"{told}, {_MOST_SPOILT} times in a row",
            f"see why: replicator quarantine list; remove the cause; then run: replicator heal {table}",
        )

    def is_published(self) -> bool:
        """Return whether a new mirror was published, by an earlier process or before a failure, and not completed."""
        if self._may_be_published:
            mirror = self._context.lake.load(self._context.config.lake.namespace, self.request.table.name)
            self._may_be_published = (
                mirror is not None and self._staging.state(mirror, self.request) is not None
            )
        return self._may_be_published

    def finish_published(self) -> None:
        """Complete what `is_published` found.

        Raises:
            LakeError: as `TableWriter.commit`.
        """
        mirror = self._context.lake.load(self._context.config.lake.namespace, self.request.table.name)
        state = self._staging.state(mirror, self.request) or StagingState(self.request.id, "", None)
        self._publication(state).complete_rename()
        self.request = replace(self.request, rows=state.rows)
        self.end(Phase.DONE)

    def _publication(self, state: StagingState) -> Publication:
        schema = self._staging.schema(self.task(()))
        return Publication(self._context, self._staging, self.request, state, schema, self._topic)

    def end(self, phase: Phase, *, changed: int | None = None, problem: str | None = None) -> None:
        """Record that the request has ended, and drop the staging table.

        Raises:
            LakeUnavailable: the catalog failed.
        """
        self._staging.drop(self.request.table)
        self._update(phase=phase, changed=changed, problem=problem, ended_ms=now_ms())

    def fail(self, error: Exception) -> None:
        """Record that the request failed for good."""
        hint = error.hint if isinstance(error, ReplicatorError) else None
        _LOG.error("re-read failed", table=str(self.request.table), reason=first_line(error), next=hint)
        self.end(Phase.FAILED, problem="; ".join(filter(None, (first_line(error), hint))))

    def note(self, error: Exception) -> None:
        """Record why the re-read does not continue at the moment."""
        self._may_be_published = True
        _LOG.warning("re-read is tried again", table=str(self.request.table), reason=first_line(error))
        self._update(problem=first_line(error))

    def _enter(self, phase: Phase) -> None:
        if phase != self.request.phase:
            self._update(phase=phase, problem=None)

    def _update(self, **values: Any) -> None:
        """Record the request with other values, unless it has them."""
        changed = replace(self.request, **values)
        if changed != self.request:
            self.request = changed
            self._record(changed)

    def _goal(self, state: StagingState) -> Mapping[int, int]:
        """Return the offsets that the staging table must reach: those of the mirror, if it is further."""
        until = dict(state.until or {})
        if self.request.held:
            return until
        marker = self._progress().mirror
        for partition, known in (marker.progress.get(self._topic, {}) if marker else {}).items():
            until[partition] = max(until.get(partition, 0), known.next_offset)
        return until

    def _is_aligned(self, goal: Mapping[int, int]) -> bool:
        """Return whether mirror and changelog end where the staging table ends; a paused or new table need not."""
        progress = self._progress()
        if self.request.held or progress.mirror is None:
            return True
        markers = [progress.mirror, *([progress.changelog] if progress.changelog_wanted else [])]
        return all(
            marker is not None
            and all(marker.next_offset(self._topic, p) == offset for p, offset in goal.items())
            for marker in markers
        )

    def _progress(self) -> Progress:
        return self._context.ledger.progress(self.request.table)

    def _marker(self) -> CommitMarker | None:
        return self._staging.context.ledger.progress(self.request.table).mirror

    def _state(self) -> StagingState | None:
        return self._staging.state(self._staging.load(self.request.table), self.request)

    def task(self, ranges: tuple[OffsetRange, ...]) -> TableTask:
        """Return the task that applies some events of the table."""
        return TableTask(self.request.table, self._topic, self._context.log.topic_id(self._topic), ranges, 0)

    def _on_rows(self, rows: int, estimated: int) -> None:
        self._rows = (rows, estimated)

    def _on_wait(self, reason: str | None) -> None:
        self._waits = reason


def _change_of_rows(version: SchemaVersion) -> str | None:
    """Return what a version did to the rows of the table of its name without events; None if it did nothing."""
    if version.unlogged is not None:
        return version.unlogged
    if version.recreated:
        return "DROP TABLE and CREATE TABLE"
    return None if version.replaced is None else f"the renaming of {version.replaced} to it"
