"""The boundary between two transactions at which all inputs of a refresh are read."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from replicator.model.binlog import ConnectorOffset
from replicator.model.gtid import GtidSet
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
    """

    WHAT = "a boundary"
    file: Annotated[str, AfterValidator(checked_name)] | None = None
    pos: Count = 0
    gtids: Annotated[str, AfterValidator(_checked_set)] | None = None

    @classmethod
    def of(cls, offset: ConnectorOffset) -> "Boundary":
        """Return the boundary that a connector has confirmed: it is where a transaction begins."""
        return cls(offset.file, offset.pos, None if offset.gtids is None else str(offset.gtids))

    @property
    def is_end(self) -> bool:
        """Whether it is after all that the log has."""
        return self.file is None

    @property
    def position(self) -> SourcePosition | None:
        """The position; None at the end of the log."""
        return None if self.file is None else SourcePosition(self.file, self.pos)

    def __str__(self) -> str:
        return "the end of the log" if self.file is None else f"{self.file}:{self.pos}"
