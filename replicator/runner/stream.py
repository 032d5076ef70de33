"""Follow Kafka with a Spark stream, until the mirror must stop or has caught up."""

import json
import re
import shutil
import time
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from replicator.batch import MirrorContext
from replicator.config import KafkaLog
from replicator.errors import CommitConflict, LakeUnavailable, LogUnavailable
from replicator.jvm.spark import check_java, first_line
from replicator.runner.rounds import Rounds
from replicator.runner.scheduler import Scheduler
from replicator.sources.change_log import Offsets
from replicator.sources.kafka.topic_patterns import topic_pattern
from replicator.telemetry import get_logger
from replicator.watch.connector_watch import SourceGoal

_LOG: Final = get_logger("replicator.runner.stream")
_OPTIONS: Final = {
    "kafka.isolation.level": "read_committed",
    "failOnDataLoss": "true",
    # With the defaults, an unavailable broker is noticed only after three minutes.
    "kafka.default.api.timeout.ms": "20000",
    "kafka.request.timeout.ms": "15000",
}
"""The stream only tells which offsets there are: the records are read by the driver, or by Spark's workers."""

_POLL_S: Final = 0.2
_FIRST_RETRY_S: Final = 1.0
_LONGEST_RETRY_S: Final = 5.0
_STABLE_S: Final = 60.0
"""After a stream has run this long, the next failure counts as the first of a new outage."""
_TAG_WAIT_S: Final = 120.0
_GOAL_WAIT_S: Final = 10.0
"""How long to wait for the connector before the events that arrived meanwhile are applied."""


def follow(
    stream: "KafkaStream", goal: SourceGoal | None = None, *, first_retry_s: float = _FIRST_RETRY_S
) -> None:
    """Run the stream until the mirror must stop or has caught up; restart it after an outage of log or lake.

    The first restart comes after `first_retry_s` seconds, each further one after twice as many, up to a limit.
    With a `goal`, a stream `until_caught_up` is repeated until the lake has all events up to the goal.

    Raises:
        NotCaughtUp: the goal cannot be reached.
        LakeUnavailable, CommitConflict: the lake failed while the stream was running `until_caught_up`.
    """
    scheduler, wait = stream.scheduler, first_retry_s
    while not scheduler.stopping.is_set():
        started = time.monotonic()
        # If the goal is reached only after the stream has read the topics' ends, its last events may be missing.
        reached = goal is None or goal.reached
        try:
            ends = stream.run()
        except (LogUnavailable, LakeUnavailable, CommitConflict, PySparkException) as error:
            check_java(stream.context.spark)
            scheduler.forget_markers()
            if stream.until_caught_up and not isinstance(error, LogUnavailable):
                raise
            if time.monotonic() - started > _STABLE_S:
                wait = first_retry_s
            _LOG.warning("the stream stopped, restarting it", reason=first_line(error), in_seconds=wait)
            scheduler.stopping.wait(wait)
            wait = min(2 * wait, _LONGEST_RETRY_S)
        else:
            if scheduler.failing:
                scheduler.await_retry()
            elif scheduler.recovery is not None and scheduler.recovery.is_busy:
                scheduler.await_recovery()
            elif (
                (reached or goal is None or _has_all_of_goal(stream, goal, ends))
                and not _awaits_tags(scheduler)
                and not scheduler.take_continuing()
            ):
                return


def _awaits_tags(scheduler: Scheduler) -> bool:
    """Wait for requested tags. Return whether a further stream is needed for them."""
    deadline = time.monotonic() + _TAG_WAIT_S
    while scheduler.tags.is_busy and not scheduler.stopping.wait(_POLL_S):
        scheduler.step_recovery()
        if scheduler.tags.tend() or (scheduler.recovery is not None and scheduler.recovery.is_busy):
            return True
        if time.monotonic() > deadline:
            _LOG.warning(
                "the next run must make the requested tags: the connector has not confirmed their position"
            )
            break
    return False


def _has_all_of_goal(stream: "KafkaStream", goal: SourceGoal, ends: Offsets) -> bool:
    """Wait some seconds for the goal. Return whether it is reached, and no event or statement came behind `ends`.

    Raises:
        NotCaughtUp: the goal cannot be reached.
    """
    goal.wait(stream.scheduler.stopping, stream.scheduler.summary().events, _GOAL_WAIT_S)
    if not goal.reached or stream.context.log.offsets()[1] != ends:
        return False
    return not stream.scheduler.statements.has_new()


@dataclass(frozen=True, slots=True)
class KafkaStream:
    """A Spark stream of the topics in `log`, which gives the scheduler the end offsets of its batches.

    Spark only notices new events and times the batches. From the ledger, `Rounds` decides what each table reads.

    Attributes:
        until_caught_up: apply what the log has and end, without a stream.
    """

    context: MirrorContext
    log: KafkaLog
    scheduler: Scheduler
    until_caught_up: bool

    def run(self) -> Offsets:
        """Apply what the log has, then run the stream once, until it ends. Return where the topics ended before.

        Raises:
            LogUnavailable: Kafka does not answer.
            ReplicatorError, PySparkException: the error that ended a batch.
        """
        self.scheduler.check_log()
        rounds = Rounds(self.scheduler, follows=not self.until_caught_up)
        # What the log has already does not wait for the stream, which takes Spark seconds to start.
        rounds.advance(self.context.log.readable_ends())
        first, ends = self.scheduler.check_log()
        if self.scheduler.stopping.is_set():
            return ends
        if self.until_caught_up:
            # This applies what came meanwhile, and follows statements after which no event came.
            rounds.advance(self.context.log.readable_ends())
            return ends
        # The ledger determines where to start, so each stream gets its own checkpoint, which is deleted afterwards.
        checkpoint = self.context.config.mirror.state_dir / f"checkpoint-{uuid.uuid4().hex}"
        batches = _Batches(rounds, checkpoint)
        try:
            query = self._start(batches, checkpoint, first, ends)
            _wait(self.scheduler, query, batches)
        finally:
            shutil.rmtree(checkpoint, ignore_errors=True)
        return ends

    def _start(self, batches: "_Batches", checkpoint: Path, first: Offsets, ends: Offsets) -> StreamingQuery:
        source, apply = self.context.config.source, self.context.config.apply
        pattern = topic_pattern(self.log.topic_prefix, source.tables, source.left_out)
        reader = self.context.spark.readStream.format("kafka")
        reader = reader.options(**self.log.spark_options() | _OPTIONS)
        reader = reader.option("subscribePattern", pattern)
        reader = reader.option("startingOffsets", starting_offsets(self.scheduler, pattern, first, ends))
        writer = reader.load().writeStream
        writer = writer.foreachBatch(batches.apply).option("checkpointLocation", str(checkpoint))
        return writer.trigger(processingTime=f"{int(apply.trigger * 1000)} milliseconds").start()


class _Batches:
    """Passes the batches of a stream to the scheduler, in rounds.

    Attributes:
        failure: the error of the batch that ended the stream; Spark itself passes on only its text.
    """

    def __init__(self, rounds: Rounds, checkpoint: Path) -> None:
        self.rounds = rounds
        self._checkpoint = checkpoint
        self.failure: BaseException | None = None

    def apply(self, _frame: DataFrame, batch_id: int) -> None:
        """Apply one batch. Spark calls it from a thread of its own."""
        try:
            self.rounds.advance(_batch_end(self._checkpoint, batch_id))
        except BaseException as error:
            self.failure = error
            raise


def starting_offsets(scheduler: Scheduler, pattern: str, first: Offsets, ends: Offsets) -> str:
    """Return Spark's option `startingOffsets`.

    Spark requires an offset for each topic that `pattern` matches, even if its table is not mirrored.
    """
    matched = {topic: partitions for topic, partitions in first.items() if re.match(pattern, topic)}
    starts = scheduler.starting_offsets(matched, ends)
    return json.dumps(starts) if starts else "earliest"


def _batch_end(checkpoint: Path, batch_id: int) -> dict[str, dict[int, int]]:
    """Return the end offsets of a batch from Spark's offset log: a version, metadata, and a line for each source."""
    text = (checkpoint / "offsets" / str(batch_id)).read_text(encoding="utf-8")
    offsets: dict[str, dict[str, int]] = json.loads(text.splitlines()[2])
    return {topic: {int(p): end for p, end in partitions.items()} for topic, partitions in offsets.items()}


def _wait(scheduler: Scheduler, query: StreamingQuery, batches: _Batches) -> None:
    """Wait for the end of the stream. Stop it between two batches if the mirror must stop. Retry the failed tables.

    Without new events Spark makes no batch, so the retries are made here.

    Raises:
        LogUnavailable: the stream failed outside of a batch.
        BaseException: the error that ended a batch or a retry.
    """
    while not _has_ended(query, batches):
        if scheduler.stopping.is_set() and not query.status["isTriggerActive"]:
            query.stop()
            return
        try:
            batches.rounds.idle()
        except BaseException:
            query.stop()
            raise


def _has_ended(query: StreamingQuery, batches: _Batches) -> bool:
    """Wait a moment, and return whether the stream has ended. Raises as `_wait`."""
    try:
        return bool(query.awaitTermination(_POLL_S))  # type: ignore[arg-type]  # fractions are accepted
    except PySparkException as error:
        query.stop()
        if batches.failure is None:
            raise LogUnavailable(f"Kafka cannot be read: {first_line(error)}") from error
        raise batches.failure from error
