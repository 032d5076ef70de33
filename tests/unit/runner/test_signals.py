"""Graceful stop by signals."""

import os
import signal
import threading

import pytest

from replicator.runner.signals import stop_on_signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stop_on_signals_sets_the_event_and_restores_the_handlers(number: signal.Signals) -> None:
    before, stopping = signal.getsignal(number), threading.Event()
    with stop_on_signals(stopping):
        os.kill(os.getpid(), number)
        assert stopping.wait(5)
    assert signal.getsignal(number) is before


def test_stop_on_signals_changes_no_handler_in_another_thread() -> None:
    found: list[object] = []

    def work() -> None:
        with stop_on_signals(threading.Event()):
            found.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [before]
