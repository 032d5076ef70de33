"""Signals to a process: graceful stop, and reload of the configuration."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Protocol

_STANDARD_INPUT = 0


class Stoppable(Protocol):
    """Anything that can be stopped as an event is set."""

    def set(self) -> None:
        """Stop. It is called by a signal handler, so it must not wait for another thread."""
        ...


@contextlib.contextmanager
def stop_on_signals(stopping: Stoppable) -> Iterator[None]:
    """Let SIGTERM and Ctrl-C set `stopping` instead of ending the process, while the block runs.

    Does nothing outside the main thread, because Python allows only that one to handle signals.
    """
    with _handled((signal.SIGTERM, signal.SIGINT), stopping.set):
        yield


@contextlib.contextmanager
def reload_on_hangup(reload: Callable[[], None], stopping: Stoppable) -> Iterator[None]:
    """Let SIGHUP call `reload` instead of ending the process, while the block runs.

    If standard input was a terminal and that was closed, SIGHUP sets `stopping`: nobody could see the process any more.
    Does nothing outside the main thread.
    """
    has_terminal = os.isatty(_STANDARD_INPUT)

    def act() -> None:
        if has_terminal and not os.isatty(_STANDARD_INPUT):
            stopping.set()
        else:
            reload()

    with _handled((signal.SIGHUP,), act):
        yield


@contextlib.contextmanager
def _handled(numbers: Collection[signal.Signals], act: Callable[[], None]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(_number: int, _frame: FrameType | None) -> None:
        act()

    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
