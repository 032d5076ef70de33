"""Rounds at their intervals, right after batches of the mirror."""

import threading
import time

import pytest

from replicator.runner.batch_ends import BatchEnds
from replicator.runner.cadence import Cadence


def test_slack_is_a_quarter_of_a_short_interval_and_a_second_of_a_long_one() -> None:
    cadence, found = Cadence(), list[float]()
    for every in (2, 60, None):
        cadence.follow(every)
        found.append(cadence.slack)
    assert found == [0.5, 1.0, 0.0]


def test_new_names_are_due_at_once_and_wait_for_no_batch() -> None:
    cadence = Cadence(0.5)
    assert cadence.due(["a"], 10) == ["a"]
    assert cadence.patience(["a"], 10) == 0
    assert cadence.pause(["a"], 10) == 0


def test_round_may_begin_earlier_and_later_by_the_slack() -> None:
    cadence = Cadence(0.5)
    cadence.began({"a": 2, "b": 30}, 10)
    assert cadence.pause(["a", "b"], 10) == pytest.approx(1.5)
    assert cadence.due(["a", "b"], 11.4) == []
    assert cadence.due(["a", "b"], 11.5) == ["a"]
    assert cadence.patience(["a"], 11.5) == pytest.approx(1.0)
    assert cadence.patience(["a"], 13) < 0


def test_rounds_that_begin_early_do_not_become_more_frequent() -> None:
    cadence = Cadence(0.5)
    cadence.began({"a": 2}, 10)
    for number in range(1, 100):
        early = 10 + 2 * number - 0.5
        assert cadence.due(["a"], early) == ["a"]
        assert cadence.due(["a"], early - 0.01) == []
        cadence.began({"a": 2}, early)


def test_late_round_moves_the_following_ones() -> None:
    cadence = Cadence(0.5)
    cadence.began({"a": 2}, 10)
    cadence.began({"a": 2}, 15)
    assert cadence.pause(["a"], 15) == pytest.approx(1.5)


def test_rounds_of_an_idle_mirror_keep_their_interval() -> None:
    cadence = Cadence(0.5)
    cadence.began({"a": 2}, 10)
    for number in range(1, 100):
        late = 10 + 2 * number + 0.5
        assert cadence.due(["a"], late - 1.0) == ["a"]
        assert cadence.patience(["a"], late) == pytest.approx(0)
        cadence.began({"a": 2}, late, idle=True)


def test_batch_that_just_ended_is_followed_but_not_twice() -> None:
    cadence = Cadence(0.5)
    cadence.began({"a": 2}, 10)
    assert cadence.fresh_since(11.5) == 11
    cadence.began({"a": 2}, 11.4)
    assert cadence.fresh_since(11.5) == 11.4


def test_waiting_thread_notices_the_end_of_a_batch_but_not_of_an_old_one() -> None:
    batches, stopping = BatchEnds(), threading.Event()
    batches.note()
    began = time.monotonic()
    batches.await_one(began - 60, 60, stopping)
    batches.await_one(began + 60, 0.2, stopping)
    assert 0.2 <= time.monotonic() - began < 60
    woken = threading.Event()

    def wait() -> None:
        batches.await_one(time.monotonic(), 60, stopping)
        woken.set()

    waiting = threading.Thread(target=wait)
    waiting.start()
    while not woken.wait(0.01):
        batches.note()
    waiting.join(60)


def test_waiting_ends_if_the_mirror_stops_and_without_patience() -> None:
    stopping = threading.Event()
    BatchEnds().await_one(0, -1, stopping)
    stopping.set()
    BatchEnds().await_one(0, 3600, stopping)
