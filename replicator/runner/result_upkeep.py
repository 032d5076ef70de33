"""Maintain results of pipelines and log tables, by the thread that writes them."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from replicator.config import Config
from replicator.jvm.spark import first_line
from replicator.lake.catalog.tables import Lake
from replicator.maintenance.steps import Maintenance
from replicator.maintenance.upkeep import TableUpkeep, TimeShare, carry_out
from replicator.pipelines.query.names import TableName
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.maintenance")


@dataclass(slots=True)
class ResultUpkeep:
    """Merges the files of tables and expires their snapshots, by the settings of `[maintenance]`.

    A table is inspected when it is first written, and then after `merge_files` commits each time.
    """

    config: Config
    _tables: dict[TableName, TableUpkeep] = field(default_factory=dict)
    _time: TimeShare | None = None

    def run(self, lake: Lake, changed: Iterable[TableName]) -> None:
        """Do what is due for tables that were written, within `slice_time` and `max_share`. A failure is logged."""
        settings = self.config.maintenance
        for name in changed:
            self._tables.setdefault(name, TableUpkeep()).commits += 1
        due = [n for n, s in self._tables.items() if not s.inspected or s.commits >= settings.merge_files]
        if not due or not settings.enabled:
            return
        self._time = self._time or TimeShare(settings.max_share, settings.slice_time)
        deadline = self._time.begin()
        try:
            for name in sorted(due, key=lambda name: -self._tables[name].commits):
                if time.monotonic() < deadline:
                    self._maintain(lake, name, deadline)
        finally:
            self._time.end()

    def _maintain(self, lake: Lake, name: TableName, deadline: float) -> None:
        settings, state = self.config.maintenance, self._tables[name]
        try:
            table = lake.load(name.namespace, name.name)
            if table is None:
                del self._tables[name]
                return
            work = Maintenance(lake, table, settings, deadline, settings.slice_bytes)
            left = carry_out(work, state.merged)
        except Exception as error:  # noqa: BLE001 - no table's maintenance stops the pipelines
            state.commits, state.inspected = 0, True
            _LOG.warning("maintenance failed, it is tried again", table=str(name), reason=first_line(error))
        else:
            if left is not None:
                state.commits, state.inspected, state.merged = 0, True, left
