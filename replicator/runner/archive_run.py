"""Apply an archive up to its end."""

import threading
from collections.abc import Callable, Iterator, Sequence

from replicator.model.commit_marker import OffsetRange
from replicator.runner.scheduler import Scheduler
from replicator.sources.change_log import Offsets

OnProgress = Callable[[int, int], None]
"""Called with (events done, events in total)."""


def apply_archive(scheduler: Scheduler, on_progress: OnProgress | None = None) -> None:
    """Apply everything that the log has now, in chunks, and retry the tables that fail.

    `on_progress` may be called from several threads, one at a time.
    """
    first, ends = scheduler.check_log()
    chunks = scheduler.unread_chunks(first, ends)
    on_events = None if on_progress is None else _event_counter(on_progress, chunks)
    for goal in chunk_goals(chunks, ends):
        if scheduler.stopping.is_set():
            break
        scheduler.advance(goal, on_events)
    while scheduler.failing and not scheduler.stopping.is_set():
        scheduler.await_retry()
        scheduler.advance(ends, on_events)


def chunk_goals(chunks: Sequence[Sequence[OffsetRange]], ends: Offsets) -> Iterator[Offsets]:
    """Yield the end offsets of each batch: those of a chunk, and at last `ends`.

    `ends` includes the topics without unread events: the table of such a topic may have been renamed, or redefined.
    """
    for chunk in chunks[:-1]:
        goal: dict[str, dict[int, int]] = {}
        for r in chunk:
            goal.setdefault(r.topic, {})[r.partition] = r.end
        yield goal
    yield ends


def _event_counter(on_progress: OnProgress, chunks: Sequence[Sequence[OffsetRange]]) -> Callable[[int], None]:
    """Return a function that adds finished events, from any thread, and reports them."""
    total = sum(r.count for chunk in chunks for r in chunk)
    done, lock = 0, threading.Lock()

    def add(events: int) -> None:
        nonlocal done
        with lock:
            done += events
            on_progress(done, total)

    return add
