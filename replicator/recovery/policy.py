"""Decide which tables are read again from the source without a command: those whose rows the log cannot tell.

Pure: `Recovery` makes the requests.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from replicator.config import HealConfig
from replicator.model.reread import Phase, Request
from replicator.model.table import TableId
from replicator.recovery.request import reason_to_read


@dataclass(frozen=True, slots=True)
class HealPlan:
    """Which tables are read again without a command.

    Attributes:
        due: those to read again now → the reason.
        later: paused tables to read again later → when (ms since the epoch), as far as not noted before.
    """

    due: Mapping[TableId, str]
    later: Mapping[TableId, int]


class Healing:
    """What a mirror knows of the tables that it should read again."""

    def __init__(self, config: HealConfig, *, possible: bool) -> None:
        """Use `config`; nothing is read again unless that is `possible`."""
        self._config = config
        self._active = possible and config.mode == "auto"
        self._paused: dict[TableId, str] = {}
        self._told: dict[TableId, int] = {}
        self._ended_ms: dict[tuple[TableId, str], int] = {}

    def note(self, table: TableId, cause: Exception) -> None:
        """Note that a table was paused."""
        self._told.pop(table, None)
        self._paused.pop(table, None)
        if (reason := reason_to_read(cause)) is not None:
            self._paused[table] = reason

    def note_told(self, table: TableId, at_ms: int) -> None:
        """Note that it was recorded when a table is read again."""
        self._told[table] = at_ms

    def plan(
        self,
        paused: Collection[TableId],
        incomplete: Mapping[TableId, Collection[str]],
        newest: Callable[[TableId], Request | None],
        now_ms: int,
    ) -> HealPlan:
        """Return the tables to read again now, and those to read again later.

        `incomplete` are tables with columns whose older values no event has; `newest` returns a table's newest
        request.
        """
        if not self._active:
            return HealPlan({}, {})
        wanted = {table: reason for table, reason in self._paused.items() if table in paused}
        wanted |= {
            table: f"no event has the older values of the new column {', '.join(columns)}"
            for table, columns in incomplete.items()
            if table not in paused
        }
        starts = {t: at for t, why in wanted.items() if (at := self._earliest(t, why, newest(t))) is not None}
        later = {t: at for t, at in starts.items() if at > now_ms and t in paused and self._told.get(t) != at}
        return HealPlan({t: wanted[t] for t, at in starts.items() if at <= now_ms}, later)

    def _earliest(self, table: TableId, reason: str, newest: Request | None) -> int | None:
        """Return when a table may be read again; None while a request of it has not ended."""
        if newest is not None:
            if newest.ended_ms is None:
                return None
            # The first copy of a table is not a repetition.
            if newest.phase is not Phase.DONE or newest.changed is not None:
                self._ended_ms[table, _kind(newest.reason)] = newest.ended_ms
        ended_ms = self._ended_ms.get((table, _kind(reason)))
        return 0 if ended_ms is None else ended_ms + round(self._config.min_interval * 1000)


def _kind(reason: str) -> str:
    """Return what the reasons of one cause have in common: offsets, positions and names of partitions have digits."""
    return re.sub("[0-9]+", "#", reason)
