"""How a mirror follows its log: Kafka by a Spark stream until it is told to stop, an archive up to its end."""

import json
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from replicator.config import KafkaLog
from replicator.errors import CommitConflict, LakeUnavailable, LogUnavailable
from replicator.jvm.spark import check_java, first_line
from replicator.lake.ledger import chunks, ranges_to_read
from replicator.model.commit_marker import OffsetRange
from replicator.runner import Scheduler
from replicator.runner.connector_watch import SourceGoal
from replicator.sources.change_log import Offsets
from replicator.sources.kafka import FETCH_OPTIONS
from replicator.sources.topic_patterns import topic_pattern
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.runner.stream")
_POLL_S: Final = 0.2
_FIRST_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 5.0
_STABLE_S: Final = 60.0
"""A stream that ran so long was well, and the next outage is a new one."""
_GOAL_WAIT_S: Final = 10.0
"""How long to wait for the connector before the events that came meanwhile are taken in."""


def go_through(mirror: Scheduler, on_progress: Callable[[int, int], None] | None) -> None:
    """Take in what the log holds now, piece by piece; `on_progress` hears (events done, events in all)."""
    first, ends = mirror.context.log.offsets()
    mirror.check_log(first, ends)
    pieces = _pieces(mirror, first, ends, mirror.context.config.apply.max_events)
    total = sum(r.count for r in pieces[-1]) if pieces else 0
    if on_progress is not None:
        mirror.on_events = _adding_up(on_progress, total)
    for goal in _goals(pieces, ends):
        if mirror.stopping.is_set():
            break
        mirror.advance(goal)
    while mirror.failing and not mirror.stopping.is_set():
        mirror.await_retry()
        mirror.advance(ends)


def _goals(pieces: Sequence[tuple[OffsetRange, ...]], ends: Offsets) -> Iterator[Offsets]:
    """How far each batch is to go; the last one to the end of all topics, of which some may lack no event.

    A table of such a topic may have been renamed, or have another definition.
    """
    for piece in pieces[:-1]:
        goal: dict[str, dict[int, int]] = {}
        for r in piece:
            goal.setdefault(r.topic, {})[r.partition] = r.end
        yield goal
    yield ends


def _adding_up(on_progress: Callable[[int, int], None], total: int) -> Callable[[int], None]:
    """Counts finished events, from whichever thread they come."""
    done, lock = 0, threading.Lock()

    def add(events: int) -> None:
        nonlocal done
        with lock:
            done += events
            on_progress(done, total)

    return add


def _pieces(
    mirror: Scheduler, first: Offsets, ends: Offsets, max_events: int
) -> list[tuple[OffsetRange, ...]]:
    """What the archive has and the lake lacks, as growing goals: each reaches further by at most `max_events`."""
    missing: list[OffsetRange] = []
    for topic, partitions in sorted(mirror.tables.wanted(ends).items()):
        if not mirror.context.ledger.knows(table := mirror.tables.of(topic)):
            continue
        resume_marker = mirror.context.ledger.progress(table).resume_marker
        missing += ranges_to_read(topic, resume_marker, first.get(topic, {}), partitions)
    cuts = chunks(tuple(missing), max_events)
    starts = {(r.topic, r.partition): r.start for r in missing}
    return [
        tuple(OffsetRange(r.topic, r.partition, starts[r.topic, r.partition], r.end) for r in cut)
        for cut in cuts
        if cut
    ]


def follow(
    mirror: Scheduler, log: KafkaLog, *, until_caught_up: bool, goal: SourceGoal | None = None
) -> None:
    """Run the stream until it is told to stop or has caught up; start it again if the broker does not answer.

    With a `goal`, a run `until_caught_up` goes on until the lake has all events up to it.

    Raises:
        NotCaughtUp: the goal is out of reach.
    """
    wait = _FIRST_RETRY_S
    while not mirror.stopping.is_set():
        started = time.monotonic()
        # Where the topics end must be asked after the goal was reached: before, its last events may be missing.
        reached = goal is None or goal.reached
        try:
            ends = _stream_once(mirror, log, until_caught_up=until_caught_up)
        except (LogUnavailable, LakeUnavailable, CommitConflict, PySparkException) as error:
            check_java(mirror.context.spark)
            if until_caught_up and not isinstance(error, LogUnavailable):
                raise
            if time.monotonic() - started > _STABLE_S:
                wait = _FIRST_RETRY_S
            _LOG.warning("the stream stopped, starting it again", reason=first_line(error), in_seconds=wait)
            mirror.stopping.wait(wait)
            wait = min(2 * wait, _LONGEST_RETRY_S)
        else:
            if mirror.failing:
                mirror.await_retry()
            elif reached or goal is None or _has_all_of_goal(mirror, goal, ends):
                return


def _has_all_of_goal(mirror: Scheduler, goal: SourceGoal, ends: Offsets) -> bool:
    """Wait until the goal is reached, or for some seconds. Whether the topics then end where the lake does, at `ends`.

    Raises:
        NotCaughtUp: the goal is out of reach.
    """
    goal.wait(mirror.stopping, mirror.summary().events, _GOAL_WAIT_S)
    return goal.reached and mirror.context.log.offsets()[1] == ends


def _stream_once(mirror: Scheduler, log: KafkaLog, *, until_caught_up: bool) -> Offsets:
    """Run the stream until it ends. Returns where the topics ended when it began."""
    first, ends = mirror.context.log.offsets()
    mirror.check_log(first, ends)
    mirror.failure = None
    # The ledger knows where to start, so each stream gets a checkpoint of its own, to be thrown away.
    checkpoint = mirror.context.config.mirror.state_dir / f"checkpoint-{uuid.uuid4().hex}"
    try:
        query = _start_stream(mirror, log, checkpoint, first, ends, until_caught_up=until_caught_up)
        _wait(mirror, query)
    finally:
        shutil.rmtree(checkpoint, ignore_errors=True)
    return ends


def _start_stream(
    mirror: Scheduler,
    log: KafkaLog,
    checkpoint: Path,
    first: Offsets,
    ends: Offsets,
    *,
    until_caught_up: bool,
) -> StreamingQuery:
    context, apply = mirror.context, mirror.context.config.apply
    source = context.config.source
    reader = context.spark.readStream.format("kafka").options(**log.spark_options() | FETCH_OPTIONS)
    pattern = topic_pattern(log.topic_prefix, source.tables, source.left_out)
    reader = reader.option("subscribePattern", pattern)
    reader = reader.option("maxOffsetsPerTrigger", apply.max_events)
    reader = reader.option("startingOffsets", _starting_offsets(mirror, pattern, first, ends))

    def on_batch(_frame: DataFrame, batch_id: int) -> None:
        # Spark plans and times the batches; what is read is decided table by table, from the ledger.
        try:
            mirror.advance(_batch_end(checkpoint, batch_id))
        except BaseException as error:
            mirror.failure = error
            raise

    writer = reader.load().writeStream
    writer = writer.foreachBatch(on_batch).option("checkpointLocation", str(checkpoint))
    if until_caught_up:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{int(apply.trigger * 1000)} milliseconds").start()


def _starting_offsets(mirror: Scheduler, pattern: str, first: Offsets, ends: Offsets) -> str:
    """Where the stream starts: only a plan, so that a table that cannot go on must not keep the stream from it.

    Spark wants to know it of each topic that `pattern` matches, those of tables that are left out among them.
    """
    wanted = mirror.tables.wanted(first)
    known = mirror.context.ledger.next_offsets(wanted, {t: mirror.tables.of(t) for t in wanted})
    starts: dict[str, dict[str, int]] = {}
    for topic, partitions in first.items():
        if re.match(pattern, topic):
            begins = partitions if topic in wanted else ends[topic]
            starts[topic] = {
                str(p): min(known.get(topic, {}).get(p, begin), ends[topic][p]) for p, begin in begins.items()
            }
    return json.dumps(starts) if starts else "earliest"


def _batch_end(checkpoint: Path, batch_id: int) -> dict[str, dict[int, int]]:
    """Where batch `batch_id` ends, from Spark's own offset log: a version, metadata, and a line for each source."""
    text = (checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8")
    offsets: dict[str, dict[str, int]] = json.loads(text.splitlines()[2])
    return {topic: {int(p): end for p, end in partitions.items()} for topic, partitions in offsets.items()}


def _wait(mirror: Scheduler, query: StreamingQuery) -> None:
    """Wait for the stream's end. A stop lets the batch at work finish first; an error is raised as what it was.

    A table whose next try is due ends it too: without new events Spark makes no batch, a new stream begins with one.
    """
    try:
        while not query.awaitTermination(_POLL_S):  # type: ignore[arg-type]  # fractions are taken
            if (mirror.stopping.is_set() or mirror.retry_due()) and not query.status["isTriggerActive"]:
                query.stop()
                return
    except PySparkException as error:
        query.stop()
        failure = mirror.failure
        if failure is None:
            raise LogUnavailable(f"Kafka cannot be read: {first_line(error)}") from error
        raise failure from error
