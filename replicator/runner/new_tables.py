"""Finds the tables that the source has and the lake lacks, if the mirror reads new tables by itself."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from replicator.batch import MirrorContext
from replicator.errors import LakeUnavailable
from replicator.jvm.spark import first_line
from replicator.model.table import TableId
from replicator.runner.table_states import gets_mirror
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.reread")
_INTERVAL_S: Final = 30.0
"""How often the source is asked for new tables."""


class NewTables:
    """The tables of the source, asked from time to time in a thread.

    Attributes:
        must_ask: whether the source must be asked before it is known that no table is new.
    """

    def __init__(self, context: MirrorContext) -> None:
        self._context = context
        self._are_read = self.must_ask = context.config.reads_new_tables
        self._asked: Future[list[TableId]] | None = None
        self._due = 0.0

    def ask_now(self) -> None:
        """Let the source be asked in the next step."""
        self.must_ask, self._due = self._are_read, 0.0

    def step(self, threads: Callable[[], ThreadPoolExecutor]) -> list[TableId]:
        """Return the tables that the source has, once after each answer; ask it again in a thread if that is due."""
        if not self._are_read:
            return []
        # SQLAlchemy takes a second to import, in which Java can start.
        from replicator.sources.mysql.tables import included_tables  # noqa: PLC0415

        present: list[TableId] = []
        if self._asked is not None and self._asked.done():
            found, self._asked = self._asked, None
            # An answer to an earlier question may lack tables that were created since.
            self.must_ask = self.must_ask and self._due == 0.0
            if (error := found.exception()) is None:
                present = found.result()
            else:
                _LOG.warning("new tables are not noticed at the moment", reason=first_line(error))
        if self._asked is None and time.monotonic() >= self._due:
            self._due = time.monotonic() + _INTERVAL_S
            self._asked = threads().submit(included_tables, self._context.config)
        return present

    def may_be(self, table: TableId) -> bool:
        """Return whether a table is new, and gets a mirror: its topic may have only its later changes."""
        return self._are_read and self.is_new(table) and gets_mirror(self._context, table)

    def is_new(self, table: TableId) -> bool:
        """Return whether the lake has nothing of a table, nor of one that was renamed to it."""
        names = {table} | self._context.schemas.earlier_names(table)
        try:
            progress = [self._context.ledger.progress(name) for name in names]
        except LakeUnavailable:
            return True
        return all(p.mirror is None and p.changelog is None for p in progress)
