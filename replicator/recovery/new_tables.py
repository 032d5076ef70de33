"""Finds the tables that the source has and the lake lacks, if the mirror reads new tables by itself."""

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from replicator.batch import MirrorContext, renamed_to
from replicator.errors import LakeUnavailable
from replicator.jvm.spark import first_line
from replicator.model.table import TableId
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
        self._asked: Future[tuple[list[TableId], bool]] | None = None
        self._ignores_case = False
        self._due = 0.0

    def ask_now(self) -> None:
        """Let the source be asked in the next step."""
        self.must_ask, self._due = self._are_read, 0.0

    def step(self, threads: Callable[[], ThreadPoolExecutor]) -> list[TableId]:
        """Return the tables that the source has, once after each answer; ask it again in a thread if that is due."""
        if not self._are_read:
            return []
        present: list[TableId] = []
        if self._asked is not None and self._asked.done():
            found, self._asked = self._asked, None
            # An answer to an earlier question may lack tables that were created since.
            self.must_ask = self.must_ask and self._due == 0.0
            if (error := found.exception()) is None:
                present, self._ignores_case = found.result()
            else:
                _LOG.warning("new tables are not noticed at the moment", reason=first_line(error))
        if self._asked is None and time.monotonic() >= self._due:
            self._due = time.monotonic() + _INTERVAL_S
            self._asked = threads().submit(present_tables, self._context)
        return present

    def is_respelt(self, table: TableId) -> bool:
        """Return whether the log calls a table of the source by a name in another letter case."""
        return self._ignores_case and self._context.schemas.spelling_of(table) != table

    def may_be(self, table: TableId) -> bool:
        """Return whether a table is new, and gets a mirror: its topic may have only its later changes."""
        return self._are_read and self.is_new(table) and _gets_mirror(self._context, table)

    def is_new(self, table: TableId) -> bool:
        """Return whether the lake has nothing of a table, nor a table that will be renamed to it."""
        names = self._context.schemas.earlier_names(table) | {table}
        try:
            progress = self._context.ledger.progress(table)
            is_here = progress.mirror is not None or progress.changelog is not None
            return not is_here and not any(renamed_to(self._context, name) in names for name in names)
        except LakeUnavailable:
            return True


def present_tables(context: MirrorContext) -> tuple[list[TableId], bool]:
    """Return the tables that the source has and the mirror includes, and whether the source ignores letter case.

    If it does, tables have the names of their topics: events have the spelling of the statement that created a table.

    Raises:
        SourceError: the source cannot be queried.
    """
    # SQLAlchemy takes a second to import, in which Java can start.
    from replicator.sources.mysql.tables import ignores_case, included_tables  # noqa: PLC0415

    tables, folds = included_tables(context.config), ignores_case(context.config)
    return [context.schemas.spelling_of(table) for table in tables] if folds else tables, folds


def _gets_mirror(context: MirrorContext, table: TableId) -> bool:
    """Return whether a table gets a mirror, as far as its definition is known; without a key it may get none."""
    options, versions = context.config.table(str(table)), context.schemas.history(table).versions
    return options.keyless == "identity" or not versions or bool(versions[-1].schema.key or options.key)
