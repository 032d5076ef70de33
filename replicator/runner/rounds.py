"""Bring the tables of a mirror to the end of the log in rounds, in which no table waits for another one's backlog."""

import threading
import time

from replicator.runner.scheduler import Scheduler
from replicator.runner.shares import Pace, Round
from replicator.sources.change_log import Offsets


class Rounds:
    """Advances the tables of a mirror in rounds.

    In a round, each table is read to the end of the log, or as far as its share of `apply.max_events` allows. While
    some table has a backlog, the end of the log is queried again, so that the others get their new events in time.

    Safe for several threads: one of them works at a time.
    """

    def __init__(self, scheduler: Scheduler, *, follows: bool) -> None:
        """With `follows`, read events too that arrive while a backlog is applied."""
        self._scheduler = scheduler
        self._follows = follows
        self._apply = scheduler.context.config.apply
        self._pace = Pace(self._apply.trigger)
        self._goal: Offsets = {}
        self._ended = False
        self._lock = threading.Lock()

    def advance(self, goal: Offsets) -> None:
        """Bring every table up to `goal`, except tables that cannot be processed.

        After an error it does nothing any more: another stream may have started since, with rounds of its own.

        Raises:
            LogError, LakeError: what all tables need is unavailable.
        """
        with self._lock:
            self._goal = goal
            self._advance()

    def idle(self) -> None:
        """Process the tables that can continue, and continue tags and re-reads. Do nothing while another thread works.

        Their events are known already, so without other events no batch would be made for them. From time to time, look
        for statements after which no event came.

        Raises:
            LogError, LakeError: what all tables need is unavailable.
        """
        if self._lock.acquire(blocking=False):
            try:
                if self._ended:
                    return
                if (self._any_continues() and self._goal) or self._scheduler.statements.has_more():
                    self._goal = self._goal or self._scheduler.context.log.readable_ends()
                    self._advance()
                if (checks := self._scheduler.checks) is not None:
                    checks.step(self._scheduler.tables.paused)
            finally:
                self._lock.release()

    def _any_continues(self) -> bool:
        """Continue tags and re-reads; return whether a table can continue that waited for one, or for its retry."""
        released = self._scheduler.tags.tend()
        self._scheduler.step_recovery()
        resumed = self._scheduler.tables.take_resumed()
        return released or resumed or self._scheduler.retry_due()

    def _advance(self) -> None:
        if self._ended:
            return
        try:
            self._read_rounds()
        except BaseException:
            self._ended = True
            raise

    def _read_rounds(self) -> None:
        scheduler, queried = self._scheduler, time.monotonic()
        while not scheduler.stopping.is_set():
            part, before = scheduler.plan_round(self._goal, self._pace), scheduler.events
            began = time.monotonic()
            if scheduler.checks is not None:
                scheduler.checks.note_backlog(has_backlog=part.left > 0)
            scheduler.advance(part.ends, backlog=part.left, following=part.following)
            if part.complete or scheduler.events == before:
                return
            self._learn(part, time.monotonic() - began)
            if self._follows and time.monotonic() >= queried + self._apply.trigger:
                queried = time.monotonic()
                # A topic that was recreated meanwhile must not be read from the old topic's offset.
                scheduler.check_log()
                self._goal = scheduler.context.log.readable_ends()

    def _learn(self, part: Round, round_seconds: float) -> None:
        """Adapt the pace to the time that the slices of a round took."""
        scheduler = self._scheduler
        spent = [scheduler.seconds.get(scheduler.tables.table_of(topic), 0.0) for topic in part.sliced]
        if spent:
            seconds = max(*spent, sum(spent) / self._apply.parallel_tables)
            self._pace = self._pace.after(sum(part.sliced.values()), seconds, round_seconds)
