"""Let a re-read wait for the outcome of prepared XA transactions that have changed its table.

The log has their events since they were prepared, and readers do not see their rows before they are committed. A
re-read that begins in between would get neither.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from replicator.batch.state.prepared_transactions import PreparedTransactions
from replicator.model.binlog import BinlogEnd
from replicator.model.table import TableId
from replicator.sources.mysql.stop_signal import StopSignal
from replicator.sources.mysql.throttle import OnWait
from replicator.telemetry import get_logger

_LOG: Final = get_logger("replicator.reread")
_POLL_S: Final = 0.2
_SHOWN_AFTER: Final = 10
"""Number of polls after which the reason is shown: usually the watch is a moment behind."""


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """Decides when the first rows of a table may be read.

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
