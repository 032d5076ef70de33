"""When `follow` starts a stream again, and when it ends."""

import json
import subprocess
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.errors import PySparkException

from replicator.decode.json.format import JsonFormat
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.errors import LakeUnavailable, LogUnavailable, NotCaughtUp
from replicator.runner.rounds import Rounds
from replicator.runner.scheduler import Scheduler
from replicator.runner.shares import Round
from replicator.runner.stream import KafkaStream, _Batches, _wait, follow, starting_offsets
from replicator.sources.change_log import Offsets
from tests.support.config import minimal_config
from tests.support.scheduler_harness import ENDS, SchedulerHarness, spark_error


@dataclass(frozen=True, slots=True)
class ScriptedStream(KafkaStream):
    """A stream whose runs are calls of `once`."""

    once: Callable[[], Offsets]

    def run(self) -> Offsets:
        return self.once()


class Streams:
    """Streams that end one after the other with the errors in `ends`, or without one. `java` is their Java process."""

    def __init__(self, *ends: Exception | None, java: "subprocess.Popen[bytes] | None" = None) -> None:
        self.ends = list(ends)
        self.mirror: Any = Mock(
            stopping=threading.Event(), failing=False, recovery=None, tags=Mock(is_busy=False)
        )
        self.mirror.take_continuing.return_value = False
        self.context: Any = Mock()
        self.context.spark.sparkContext._gateway.proc = java

    def _once(self) -> Offsets:
        end = self.ends.pop(0)
        if end is not None:
            raise end
        return {}

    def follow(self, *, until_caught_up: bool = False) -> None:
        stream = ScriptedStream(self.context, Mock(), self.mirror, until_caught_up, self._once)
        follow(stream, first_retry_s=0.0)


def test_follow_continues_after_outages() -> None:
    ends = (LogUnavailable("x"), LakeUnavailable("x"), PySparkException(""), PySparkException("a\nb"), None)
    streams = Streams(*ends)
    streams.follow()
    assert streams.ends == []
    # It is unknown which commits succeeded during an outage.
    assert streams.mirror.forget_markers.call_count == 4


def test_follow_waits_only_for_the_log_when_run_until_caught_up() -> None:
    streams = Streams(LogUnavailable("x"), LakeUnavailable("x"), None)
    with pytest.raises(LakeUnavailable):
        streams.follow(until_caught_up=True)
    assert streams.ends == [None]


def test_follow_continues_tables_that_waited_for_a_tag_or_a_re_read_before_the_end() -> None:
    streams = Streams(None, None, None)
    streams.mirror.take_continuing.side_effect = [True, True, False]
    streams.follow(until_caught_up=True)
    assert streams.ends == []


def test_follow_retries_failed_tables_before_the_end() -> None:
    streams = Streams(None, None, None)
    waits: list[int] = []

    def await_retry() -> None:
        waits.append(len(streams.ends))
        streams.mirror.failing = len(waits) < 2

    streams.mirror.failing, streams.mirror.await_retry = True, await_retry
    streams.follow(until_caught_up=True)
    assert (waits, streams.ends) == ([2, 1], [])


def test_stream_starts_at_the_end_of_excluded_topics(tmp_path: Path) -> None:
    """Spark refuses to start if a topic that its pattern matches has no starting offset."""
    first = {"p.shop.orders": {0: 2, 1: 0}, "p.shop.log_2024": {0: 5}, "p.crm.people": {0: 0}}
    ends = {"p.shop.orders": {0: 9, 1: 4}, "p.shop.log_2024": {0: 8}, "p.crm.people": {0: 1}}
    config = minimal_config(tmp_path, source={"tables": ["shop.orders"]})
    context: Any = Mock(config=config, schemas=SchemaTracker(JsonFormat()))
    context.log.topic_prefix = "p"
    context.log.offsets.return_value = ({}, {})
    context.ledger.next_offsets.return_value = {"p.shop.orders": {0: 7}}
    scheduler = Scheduler(context)
    starts = starting_offsets(scheduler, r"^p\.(?:shop\..*)$", first, ends)
    assert json.loads(starts) == {"p.shop.orders": {"0": 7, "1": 0}, "p.shop.log_2024": {"0": 8}}
    assert starting_offsets(scheduler, "^q", first, ends) == "earliest"


class Unstartable(KafkaStream):
    """A stream that Spark cannot start."""

    def _start(self, *_: Any) -> Any:
        self.scheduler.started()  # type: ignore[attr-defined]  # a mock
        raise LogUnavailable("x")


@pytest.mark.parametrize("stops", [False, True])
def test_what_the_log_has_is_applied_before_the_stream_starts(tmp_path: Path, *, stops: bool) -> None:
    context: Any = Mock(config=minimal_config(tmp_path))
    context.log.readable_ends.return_value = ENDS
    scheduler: Any = Mock(context=context, stopping=threading.Event(), checks=None)
    scheduler.check_log.return_value = ({}, ENDS)
    if stops:
        scheduler.advance.side_effect = lambda *_, **__: scheduler.stopping.set()
    stream = Unstartable(context, Mock(), scheduler, until_caught_up=False)
    with nullcontext() if stops else pytest.raises(LogUnavailable):
        stream.run()
    calls = [name for name, *_ in scheduler.method_calls if name in ("advance", "started")]
    assert calls == (["advance"] if stops else ["advance", "started"])


LATER = {topic: {partition: end + 1 for partition, end in ends.items()} for topic, ends in ENDS.items()}


def test_what_the_log_has_is_applied_without_a_stream_when_run_until_caught_up(tmp_path: Path) -> None:
    context: Any = Mock(config=minimal_config(tmp_path))
    context.log.readable_ends.side_effect = [ENDS, LATER]
    scheduler: Any = Mock(context=context, stopping=threading.Event(), checks=None, events=0)
    scheduler.check_log.return_value = ({}, LATER)
    scheduler.plan_round.side_effect = lambda goal, _pace: Round(goal, {}, 0, {})
    assert Unstartable(context, Mock(), scheduler, until_caught_up=True).run() == LATER
    assert [call.args for call in scheduler.advance.mock_calls] == [(ENDS,), (LATER,)]


class Goal:
    """A goal that is reached after some waits."""

    def __init__(self, *, waits: int, error: Exception | None = None) -> None:
        self.left, self.error = waits, error

    @property
    def reached(self) -> bool:
        return self.left <= 0

    def wait(self, *_: Any) -> None:
        if self.error is not None:
            raise self.error
        self.left -= 1


def follow_to(goal: Goal, ends: list[dict[str, dict[int, int]]], *, statements: int = 0) -> int:
    """Follow topics with these end offsets at each request, and return the number of streams.

    The first `statements` looks at the end find a statement.
    """
    mirror: Any = Mock(stopping=threading.Event(), failing=False, recovery=None, tags=Mock(is_busy=False))
    mirror.take_continuing.return_value = False
    found = iter([True] * statements)
    mirror.statements.has_new.side_effect = lambda: next(found, False)
    context: Any = Mock()
    looks = iter(ends)
    context.log.offsets.side_effect = lambda: ({}, next(looks))
    streams = []

    def once() -> Offsets:
        streams.append(1)
        ends: Offsets = context.log.offsets()[1]
        return ends

    stream = ScriptedStream(context, Mock(), mirror, until_caught_up=True, once=once)
    follow(stream, goal)  # type: ignore[arg-type]
    return len(streams)


OLD, NEW = {"t": {0: 5}}, {"t": {0: 6}}


def test_follow_waits_for_the_goal_and_applies_events_that_arrive_meanwhile() -> None:
    assert follow_to(Goal(waits=1), [OLD, NEW, NEW]) == 2
    assert follow_to(Goal(waits=3), [OLD, NEW, NEW, NEW]) == 3


def test_follow_applies_statements_that_arrive_before_the_goal_without_an_event() -> None:
    assert follow_to(Goal(waits=1), [OLD, OLD, OLD], statements=1) == 2


def test_follow_fails_when_the_goal_cannot_be_reached() -> None:
    with pytest.raises(NotCaughtUp):
        follow_to(Goal(waits=1, error=NotCaughtUp("no")), [OLD])


class Query:
    """A stream that ends after some polls. `stopped` is whether it was stopped before."""

    def __init__(self, polls: int) -> None:
        self.left, self.stopped = polls, False
        self.status = {"isTriggerActive": False}

    def awaitTermination(self, _seconds: float) -> bool:  # noqa: N802 - Spark's name
        self.left -= 1
        return self.left < 0

    def stop(self) -> None:
        self.stopped = True


def wait_with_failed_table(tmp_path: Path, query: Query) -> SchedulerHarness:
    """Wait for a stream whose first batch had a table that failed; a retry is due at once."""
    harness = SchedulerHarness(tmp_path)
    rounds = Rounds(harness.mirror, follows=True)
    harness.broken["shop.orders"] = spark_error()
    rounds.advance(ENDS)
    assert harness.mirror.retry_due()
    harness.broken = {} if query.left else {"shop.orders": LogUnavailable("no broker")}
    query.left = 3
    _wait(harness.mirror, query, _Batches(rounds, tmp_path))  # type: ignore[arg-type]
    return harness


def test_a_failed_table_is_retried_without_a_restart_of_the_stream(tmp_path: Path) -> None:
    query = Query(3)
    harness = wait_with_failed_table(tmp_path, query)
    assert harness.done == ["shop.users", "shop.orders"]
    assert not harness.mirror.failing
    assert not query.stopped


def test_the_stream_stops_when_a_retry_finds_an_outage(tmp_path: Path) -> None:
    query = Query(0)
    with pytest.raises(LogUnavailable):
        wait_with_failed_table(tmp_path, query)
    assert query.stopped
