"""What a re-read waits for before it reads the first rows of a table."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from replicator.batch.state.partition_counts import PartitionCounts
from replicator.batch.state.prepared_transactions import PreparedTransactions
from replicator.model.binlog import BinlogEnd
from replicator.model.table import TableId
from replicator.sources.mysql.throttle import OnWait, StopSignal
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.reread")
_POLL_S: Final = 0.2
_SHOWN_AFTER: Final = 10
"""Number of polls after which the reason is shown: usually the watch is a moment behind."""


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """Lets a re-read wait until the connector writes all changes to the partitions that the topic has now.

    The events after the beginning of a re-read are applied in the order of the log. If the connector still wrote with
    the earlier number of partitions, changes of one row could be in two partitions among them.

    Attributes:
        counts: what the process has seen.
        known: number of partitions with which the lake was written; None if that is unknown.
        on_wait: called with the reason when waiting begins, and with None when it ends.
    """

    counts: PartitionCounts
    table: TableId
    topic: str
    known: int | None
    on_wait: OnWait

    def has(self, count: int) -> bool:
        """Return whether a topic that has `count` partitions now has new ones."""
        return self.known is not None and count > self.known

    def seconds_left(self, count: int) -> float:
        """Return the seconds until the connector certainly writes with `count` partitions."""
        return self.counts.seconds_left(self.topic, count) if self.has(count) else 0.0

    def wait(self, read_count: Callable[[], int], stopping: StopSignal) -> bool:
        """Wait until the connector writes with as many partitions as `read_count` returns, or `stopping` is set.

        Return whether it is set.
        """
        waits = False
        while not stopping.is_set() and (left := self.seconds_left(count := read_count())) > 0:
            if not waits:
                reason = f"the connector may still write with fewer than {count} partitions"
                _LOG.info("reading waits for the connector", table=str(self.table), reason=reason)
                self.on_wait(reason)
                waits = True
            stopping.wait(left)
        if waits:
            self.on_wait(None)
        return stopping.is_set()


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """Lets a re-read wait for the outcome of prepared XA transactions that have changed its table.

    The log has their events since they were prepared, and readers do not see their rows before they are committed. A
    re-read that begins in between would get neither.

    Attributes:
        on_wait: called with the reason when waiting takes long, and with None when it ends.
    """

    transactions: PreparedTransactions
    table: TableId
    on_wait: OnWait

    def wait(self, read_end: Callable[[], BinlogEnd], stopping: StopSignal) -> bool:
        """Wait until no prepared transaction before the binlog's end has changed the table, or `stopping` is set.

        `read_end` returns the end. Return whether it had to wait for an outcome.
        """
        waited, polls = False, 0
        end = read_end()
        while not stopping.is_set() and (reason := self.transactions.why_wait(self.table, end)):
            polls += 1
            if polls == _SHOWN_AFTER:
                _LOG.info("reading waits for the source", table=str(self.table), reason=reason)
                self.on_wait(reason)
            waited = waited or self.transactions.is_open(self.table)
            stopping.wait(_POLL_S)
        if polls >= _SHOWN_AFTER:
            self.on_wait(None)
        return waited
