"""The boundary between two transactions at which all inputs of a refresh are read."""

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import AfterValidator, Field

from replicator.model.binlog import BinlogEnd, ConnectorOffset
from replicator.model.gtid import GtidSet, Transaction
from replicator.model.position import SourcePosition, checked_name
from replicator.model.recorded import Count, Part


def _checked_set(text: str) -> str:
    GtidSet.parse(text)
    return text


@dataclass(frozen=True, slots=True)
class Boundary(Part):
    """A boundary: each change of the source is before it or after it, and no transaction is divided.

    Attributes:
        file, pos: the position in the binlog at which the first later transaction begins. Without a file, the boundary
            is after all that the log has: a log that does not grow has an end.
        gtids: the transactions before it; None if the source has no GTIDs. They decide about changes that have one, so
            that changes of another server, whose binlog has other positions, are on the right side.
        closed: whether rows that were read at this very position are before it: it was the end of the source's binlog,
            so no event has this position. It is not recorded.
    """

    WHAT = "a boundary"
    file: Annotated[str, AfterValidator(checked_name)] | None = None
    pos: Count = 0
    gtids: Annotated[str, AfterValidator(_checked_set)] | None = None
    closed: Annotated[bool, Field(exclude=True)] = field(default=False, compare=False)

    @classmethod
    def of(cls, offset: ConnectorOffset, end: BinlogEnd | None = None) -> "Boundary":
        """Return the newest boundary before which all changes are in the log.

        What a connector has confirmed is where a transaction begins. If it covers `end`, an end of the source's binlog,
        that is a boundary too. A source that does not change has no other one: rows that were read from it are from
        its end, and the connector may have confirmed less, the beginning of the file, until the next transaction.
        """
        if end is not None and offset.covers(end):
            return cls(end.file, end.pos, None if end.gtids is None else str(end.gtids), closed=True)
        return cls(offset.file, offset.pos, None if offset.gtids is None else str(offset.gtids))

    @property
    def is_end(self) -> bool:
        """Whether it is after all that the log has."""
        return self.file is None

    def covers(self, other: "Boundary") -> bool:
        """Return whether all changes from before another boundary are before this one, too."""
        if self.file is None or other.file is None:
            return self.file is None
        own, others = (None if b.gtids is None else GtidSet.parse(b.gtids) for b in (self, other))
        return ConnectorOffset(self.file, self.pos, own).covers(BinlogEnd(other.file, other.pos, others))

    def is_before(self, position: SourcePosition) -> bool:
        """Return whether a table at this position, its newest change or where it was read, has later changes."""
        here = self.position
        return here is not None and (position > here or (position == here and not self.closed))

    def is_passed_by(self, gtid: str | None) -> bool:
        """Return whether a transaction is certainly after this boundary. Without GTIDs, that is not known.

        A position does not tell: that of a quiet table may be of another server, or of binlogs that were reset.
        """
        transaction = Transaction.parse(gtid)
        if self.gtids is None or transaction is None:
            return False
        known = GtidSet.parse(self.gtids)
        # A transaction of another server may have been lost in a fail-over.
        return transaction.origin.lower() in known.intervals and transaction not in known

    @property
    def position(self) -> SourcePosition | None:
        """The position; None at the end of the log."""
        return None if self.file is None else SourcePosition(self.file, self.pos)

    def __str__(self) -> str:
        return "the end of the log" if self.file is None else f"{self.file}:{self.pos}"
