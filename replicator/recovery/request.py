"""What may be asked of the recovery, and what it needs of the tables and of those that watch.

A table is read again for one of two reasons: an error whose remedy that is paused it, or somebody requests it while
the table goes on.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from replicator.errors import Remedy, ReplicatorError
from replicator.jvm.spark import first_line
from replicator.model.reread import Narrowed, Request
from replicator.model.table import TableId
from replicator.recovery.connector_repair import ConnectorRepair

OnPause = Callable[[TableId, Exception], None]
"""Called with a table that was paused, and the cause."""


def reason_to_read(cause: Exception) -> str | None:
    """Return why a table that was paused for `cause` must be read again; None if that is not the remedy."""
    rereads = isinstance(cause, ReplicatorError) and cause.remedy is Remedy.REREAD
    return first_line(cause) if rereads else None


class Tables(Protocol):
    """The tables of a mirror."""

    @property
    def paused(self) -> Mapping[TableId, str]:
        """The reason, by paused table."""

    def on_pause(self, listener: OnPause) -> None:
        """Call `listener` after each pause."""

    def pause(self, table: TableId, cause: ReplicatorError) -> None:
        """Stop processing a table.

        Raises:
            LakeUnavailable: it cannot be recorded; the table is not paused.
        """

    def resume(self, table: TableId) -> None:
        """Process a table again.

        Raises:
            LakeUnavailable: it cannot be recorded; the table stays paused.
        """

    def alone(self, table: TableId) -> AbstractContextManager[None]:
        """Let an error of the block be that of `table`, unless it concerns all tables."""

    def is_readable(self, table: TableId) -> bool:
        """Return whether the table's markers are known, and it may be written."""

    def defined_by_source(self, table: TableId) -> bool:
        """Read the definition of a table from the source; return whether it is new."""


class Requests(Protocol):
    """What a watch may ask for, in the scheduler's thread. All methods may raise LakeUnavailable."""

    @property
    def paused(self) -> Mapping[TableId, str]:
        """The reason, by paused table."""

    @property
    def is_busy(self) -> bool:
        """Whether anything is left to do."""

    @property
    def begun(self) -> int:
        """How many re-reads have begun."""

    @property
    def connector(self) -> ConnectorRepair:
        """What may be changed about the connector."""

    def requests(self) -> Sequence[Request]:
        """Return the requests that this process carries out or has carried out."""

    def pause(self, table: TableId, cause: ReplicatorError) -> None:
        """Stop processing a table. It is read again if that is the remedy of the cause."""

    def request(
        self,
        tables: Iterable[TableId],
        reason: str,
        max_rows: int | None = None,
        narrowed: Mapping[TableId, Narrowed] | None = None,
    ) -> None:
        """Read tables again while they go on, or a part of those in `narrowed`."""

    def replace(self, requests: Iterable[Request]) -> None:
        """Carry out requests instead of those that were made before; their tables get no events meanwhile."""


class Watch(Protocol):
    """Notices what the events do not show, and requests re-reads. It is called in the scheduler's thread.

    `start` and `step` may raise LakeUnavailable; nothing is forgotten then.
    """

    @property
    def is_behind(self) -> bool:
        """Whether it may still find something that has happened already."""

    def start(self) -> None:
        """Begin to watch."""

    def step(self) -> None:
        """Do what can be done between two batches."""

    def close(self) -> None:
        """Stop watching, without waiting for a thread."""
