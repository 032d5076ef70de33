"""Graceful stop and reload by signals."""

import os
import signal
import threading

import pytest

from replicator.runner.signals import reload_on_hangup, stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_on_signals_sets_the_event_and_restores_the_handlers(number: signal.Signals) -> None:
    before, stopping = signal.getsignal(number), threading.Event()
    with stop_on_signals(stopping):
        os.kill(os.getpid(), number)
        assert stopping.wait(5)
    assert signal.getsignal(number) is before


def test_hangup_reloads_and_stops_nothing() -> None:
    before, stopping, reloads = signal.getsignal(signal.SIGHUP), threading.Event(), []
    with reload_on_hangup(lambda: reloads.append(1), stopping):
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
    assert (reloads, stopping.is_set()) == ([1, 1], False)
    assert signal.getsignal(signal.SIGHUP) is before


def test_hangup_stops_a_process_whose_terminal_was_closed() -> None:
    ours, theirs = os.openpty()
    standard_input = os.dup(0)
    stopping, reloads = threading.Event(), []
    try:
        os.dup2(theirs, 0)
        with reload_on_hangup(lambda: reloads.append(1), stopping):
            os.kill(os.getpid(), signal.SIGHUP)
            assert (reloads, stopping.is_set()) == ([1], False)
            os.close(ours)
            os.kill(os.getpid(), signal.SIGHUP)
        assert (reloads, stopping.is_set()) == ([1], True)
    finally:
        os.dup2(standard_input, 0)
        os.close(standard_input)
        os.close(theirs)
