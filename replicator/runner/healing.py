"""Decide which tables are read again from the source without a command: those whose rows the log cannot tell.

Pure: `Rereads` makes the requests.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from replicator.config import HealConfig
from replicator.errors import (
    EventsLost,
    EventsWrong,
    MirrorRolledBack,
    MissingRows,
    PartitionsAdded,
    SnapshotLacksTable,
    TransactionInterrupted,
    TransactionsNotNumbered,
    UnknownPast,
    UnknownSurvivors,
    UnknownValues,
    UnloggedChange,
)
from replicator.jvm.spark import first_line
from replicator.model.reread import Request
from replicator.model.table import TableId

HEALED: Final = (
    EventsLost,
    EventsWrong,
    MirrorRolledBack,
    MissingRows,
    TransactionInterrupted,
    TransactionsNotNumbered,
    PartitionsAdded,
    SnapshotLacksTable,
    UnknownPast,
    UnknownSurvivors,
    UnknownValues,
    UnloggedChange,
)
"""The errors whose cause is gone once the table was read again."""


class Healing:
    """What a mirror knows of the tables that it should read again."""

    def __init__(self, config: HealConfig, *, possible: bool) -> None:
        """Use `config`; nothing is read again unless that is `possible`."""
        self._config = config
        self._active = possible and config.mode == "auto"
        self._paused: dict[TableId, str] = {}

    @property
    def max_rows(self) -> int | None:
        """The number of rows above which a table is not read without a command."""
        return self._config.max_rows

    def note(self, table: TableId, cause: Exception) -> None:
        """Note that a table was paused."""
        if isinstance(cause, HEALED):
            self._paused[table] = first_line(cause)
        else:
            self._paused.pop(table, None)

    def due(
        self,
        paused: Collection[TableId],
        incomplete: Mapping[TableId, Collection[str]],
        newest: Callable[[TableId], Request | None],
        now_ms: int,
    ) -> dict[TableId, str]:
        """Return the tables to read again now, each with the reason.

        `incomplete` are tables with columns whose older values no event has; `newest` returns a table's newest
        request.
        """
        if not self._active:
            return {}
        wanted = {table: reason for table, reason in self._paused.items() if table in paused}
        wanted |= {
            table: f"no event has the older values of the new column {', '.join(columns)}"
            for table, columns in incomplete.items()
            if table not in paused
        }
        return {t: reason for t, reason in wanted.items() if self._may_request(newest(t), now_ms)}

    def _may_request(self, request: Request | None, now_ms: int) -> bool:
        if request is None:
            return True
        return request.ended_ms is not None and now_ms >= request.ended_ms + self._config.min_interval * 1000
