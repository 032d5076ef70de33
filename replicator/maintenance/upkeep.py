"""Maintain the tables of a mirror, with its batches and between them, within limits of time and size."""

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from replicator.config import Config
from replicator.jvm.spark import first_line
from replicator.lake.catalog.tables import Lake
from replicator.lake.ledger import Ledger
from replicator.maintenance.plan import BEHIND, MergedFiles, TableFacts, due_steps
from replicator.maintenance.reports import StepReport, log_steps
from replicator.maintenance.small_merge import SmallMerge
from replicator.maintenance.steps import Maintenance, table_facts
from replicator.model.common import now_ms
from replicator.model.roles import LakeRole
from replicator.model.table import TableId
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.maintenance")

LakeTableId = tuple[TableId, LakeRole]
"""A lake table: its source table, and its role."""


@dataclass(slots=True)
class TableUpkeep:
    """What this process knows about the maintenance of one lake table.

    Attributes:
        commits: number of commits since the maintenance of the table was last completed, or failed.
        inspected: whether this process has completed it, or failed, at least once.
        slice: number of the slice in which the table was last maintained.
        merged: the files that the last merge left.
    """

    commits: int = 0
    inspected: bool = False
    slice: int = 0
    merged: MergedFiles = field(default_factory=MergedFiles)


@dataclass(frozen=True, slots=True)
class Visit:
    """What maintaining a table led to.

    Attributes:
        merged: the files that the last merges left.
        complete: False if a limit stopped it.
    """

    merged: MergedFiles
    complete: bool = True


class TimeShare:
    """Limits maintenance to a part of the time, so that batches which follow each other without a pause keep the rest.

    Time that is not used is kept, up to `most` seconds. The last step may take longer; later slices are shorter then.
    """

    def __init__(self, share: float, most: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with `most` seconds."""
        self._earned_per_second = share / (1 - share) if share < 1 else math.inf
        self._most = most
        self._clock = clock
        self._left = most
        self._ended = clock()

    def begin(self) -> float:
        """Begin to use the time, and return the deadline, by the clock; it has passed if nothing is left."""
        now = self._clock()
        if (elapsed := now - self._ended) > 0:
            self._left = min(self._most, self._left + elapsed * self._earned_per_second)
        self._ended = now
        return now + self._left

    def end(self) -> None:
        """End what `begin` began."""
        now = self._clock()
        self._left -= now - self._ended
        self._ended = now


class Upkeep:
    """Decides when each table of a mirror is maintained, by the process that writes them.

    Nothing else writes a table meanwhile: its small files are merged at the end of its part of a batch, by the same
    thread, and all other work is done while no batch is running. So no commit of the mirror can conflict with
    maintenance, and no batch has to be planned again because of it.
    """

    def __init__(self, config: Config, maintain: "TableMaintainer") -> None:
        self._config = config
        self._maintain = maintain
        self._tables: dict[LakeTableId, TableUpkeep] = {}
        self._slices = 0
        self._time = TimeShare(config.maintenance.max_share, config.maintenance.slice_time)

    def committed(self, tables: Iterable[TableId]) -> None:
        """Record that a batch committed to the lake tables of these source tables."""
        for source in tables:
            if not self._config.table(str(source)).maintenance.enabled:
                continue
            for role in LakeRole:
                self._tables.setdefault((source, role), TableUpkeep()).commits += 1

    def merge_small(self, source: TableId) -> None:
        """Merge the small files that commits left of a source table's lake tables. A failure is logged.

        Threads may call it at the same time for different tables. It takes a fraction of a second.
        """
        if not self._config.table(str(source)).maintenance.enabled:
            return
        for role in LakeRole:
            try:
                self._maintain.merge_small((source, role))
            except Exception as error:  # noqa: BLE001 - no table's maintenance stops the mirror
                _warn((source, role), error)

    def run_slice(self, lag_seconds: float | None, *, has_backlog: bool = False) -> None:
        """Maintain the tables that may need it, within `maintenance.slice_time` and `maintenance.max_share`.

        Tables that are not reached come first in the next slice. A failure is logged; it stops no batch. A mirror that
        is behind, or `has_backlog`, maintains fewer tables.
        """
        self._slices += 1
        behind = has_backlog or (lag_seconds is not None and lag_seconds > self._config.maintenance.max_lag)
        deadline = self._time.begin()
        try:
            self._maintain_some(self._waiting(BEHIND if behind else 1), deadline)
        finally:
            self._time.end()

    def _maintain_some(self, tables: Sequence[LakeTableId], deadline: float) -> None:
        for table in tables:
            if time.monotonic() > deadline:
                return
            state = self._tables[table]
            state.slice = self._slices
            try:
                visit = self._maintain(table, state.merged, deadline)
            except Exception as error:  # noqa: BLE001 - no table's maintenance stops the mirror
                state.commits, state.inspected = 0, True
                _warn(table, error)
            else:
                state.merged = visit.merged
                if visit.complete:
                    state.commits, state.inspected = 0, True

    def _waiting(self, factor: int) -> Sequence[LakeTableId]:
        """Return the tables to inspect: those first that were maintained longest ago, then those with most commits."""
        found = []
        for table, state in self._tables.items():
            most = factor * self._config.table(str(table[0])).maintenance.merge_files
            first_look = factor == 1 and not state.inspected and state.commits > 0
            if first_look or state.commits >= most:
                found.append((state.slice, -state.commits, table))
        return [table for *_, table in sorted(found)]


@dataclass(frozen=True, slots=True)
class TableMaintainer:
    """Carries out the maintenance of single lake tables."""

    config: Config
    lake: Lake
    ledger: Ledger
    small_merge: SmallMerge

    def merge_small(self, lake_table: LakeTableId) -> None:
        """Merge the small files that this process wrote to a table, if they are many or have many deleted rows.

        Raises:
            CommitConflict: another process committed to the table meanwhile; nothing was changed.
            LakeUnavailable: the catalog or the storage failed.
        """
        source, role = lake_table
        namespace, settings = self.ledger.namespace(role), self.config.table(str(source)).maintenance
        if not self.small_merge.is_due(namespace, source.name, settings):
            return
        if (table := self.lake.load(namespace, source.name)) is None:
            return
        try:
            self.small_merge.run(table, settings)
        except Exception:
            # Otherwise it would be tried after each commit.
            self.small_merge.small_files.forget(table)
            raise

    def __call__(self, lake_table: LakeTableId, merged: MergedFiles, deadline: float) -> Visit:
        """Do what is due for a table, until the deadline (of `time.monotonic`).

        Raises:
            CommitConflict: another process committed to the table; earlier rewrites of this call remain.
            LakeUnavailable: the catalog or the storage failed.
        """
        source, role = lake_table
        if self.ledger.progress(source).marker(role) is None:
            return Visit(merged)
        table = self.lake.load(self.ledger.namespace(role), source.name)
        if table is None:
            return Visit(merged)
        settings = self.config.table(str(source)).maintenance
        work = Maintenance(self.lake, table, settings, deadline, self.config.maintenance.slice_bytes)
        return carry_out(work, merged, partial(self.small_merge.waiting, table))


def carry_out(work: Maintenance, merged: MergedFiles, waiting: Callable[[], MergedFiles]) -> Visit:
    """Carry out the due steps of a table until the deadline, and log what they did.

    Args:
        work: the steps.
        merged: the files that the last merges left.
        waiting: returns the newer small files, which are merged in another way.

    Raises:
        CommitConflict, LakeUnavailable: as `Maintenance.run`.
    """
    started, table = time.monotonic(), work.table
    facts, small = table_facts(table), waiting()
    due = due_steps(facts, merged.plus(small), work.settings, now_ms())
    if not due:
        # Others may have merged files.
        return Visit(merged.after(_without(facts, small), frozenset()))
    reports: list[StepReport] = []
    for step in due:
        # A step that takes long to find nothing must not keep the others from their turn.
        if time.monotonic() > work.deadline and any(report.rewritten for report in reports):
            break
        reports.append(work.run(step))
    if any(report.rewritten for report in reports):
        log_steps(f"{table.namespace}.{table.name}", reports, time.monotonic() - started)
    done = frozenset(report.step for report in reports if report.complete)
    left = _without(table_facts(table), waiting())
    return Visit(merged.after(left, done), complete=len(done) == len(due))


def _without(facts: TableFacts, waiting: MergedFiles) -> MergedFiles:
    """Return the numbers of a table's files without those that wait for a small merge."""
    return MergedFiles(facts.data_files - waiting.data_files, facts.delete_files - waiting.delete_files)


def _warn(table: LakeTableId, error: Exception) -> None:
    source, role = table
    _LOG.warning(
        "maintenance failed, it is tried again after further commits",
        table=str(source),
        role=str(role),
        reason=first_line(error),
    )
