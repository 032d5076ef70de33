"""Maintain results of pipelines and log tables, by the thread that writes them."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from replicator.config import Config
from replicator.jvm.spark import first_line
from replicator.lake.catalog.tables import Lake
from replicator.maintenance.plan import MergedFiles
from replicator.maintenance.small_merge import SmallMerge
from replicator.maintenance.steps import Maintenance
from replicator.maintenance.upkeep import carry_out
from replicator.pipelines.query.names import TableName
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.maintenance")


@dataclass(slots=True)
class ResultUpkeep:
    """Merges the files of tables and expires their snapshots, by the settings of `[maintenance]`.

    Attributes:
        merged: table → the files that the last merge left.
        commits: table → how many commits were made since its maintenance was last complete.
    """

    config: Config
    merged: dict[TableName, MergedFiles] = field(default_factory=dict)
    commits: dict[TableName, int] = field(default_factory=dict)

    def run(self, lake: Lake, changed: Iterable[TableName], small: SmallMerge | None = None) -> None:
        """Do what is due for tables that were written, within `maintenance.slice_time`. A failure is logged.

        `small` merges the small files that the process wrote, whatever time it takes. Tables of which much is left come
        last, so that they do not keep the others from their turn.
        """
        settings = self.config.maintenance
        deadline = time.monotonic() + settings.slice_time
        for name in sorted(changed, key=lambda name: self.commits.get(name, 0)) if settings.enabled else ():
            self.commits[name] = self.commits.get(name, settings.merge_files) + 1
            if self.commits[name] < settings.merge_files:
                continue
            try:
                table = lake.load(name.namespace, name.name)
                if table is None:
                    continue
                if small is not None:
                    small.run(table, settings)
                if time.monotonic() > deadline:
                    continue
                waiting = MergedFiles if small is None else partial(small.waiting, table)
                work = Maintenance(lake, table, settings, deadline, settings.slice_bytes)
                visit = carry_out(work, self.merged.get(name, MergedFiles()), waiting)
            except Exception as error:  # noqa: BLE001 - no table's maintenance stops the pipelines
                _LOG.warning(
                    "maintenance failed, it is tried again", table=str(name), reason=first_line(error)
                )
            else:
                self.merged[name] = visit.merged
                if visit.complete:
                    self.commits[name] = 0
