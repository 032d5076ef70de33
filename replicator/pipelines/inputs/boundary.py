"""The boundary between two transactions at which all inputs of a refresh are read."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Annotated, Any, Final

from pydantic import AfterValidator
from pyspark.sql import Column as SparkColumn
from pyspark.sql import functions as F

from replicator.jvm.position_columns import position_key
from replicator.model.binlog import ConnectorOffset
from replicator.model.gtid import GtidSet
from replicator.model.position import FILE_SHIFT, SourcePosition, binlog_number, checked_name
from replicator.model.recorded import Count, Part


_PADDED: Final = 6
"""MySQL pads the numbers of binlog files to this length."""
_FILES_LATER: Final = 10_000


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

    def is_after(self, at: SparkColumn) -> SparkColumn:
        """Return whether a change is after the boundary; `at` is the struct column of a changelog."""
        if self.file is None:
            return F.lit(False)
        number = F.coalesce(F.substring_index(at.getField("file"), ".", -1).cast("long"), F.lit(0))
        here = (binlog_number(self.file) << FILE_SHIFT) + self.pos
        by_position = position_key(number, F.coalesce(at.getField("pos"), F.lit(0))) >= F.lit(here)
        if self.gtids is None:
            return by_position
        gtid = at.getField("gtid")
        return F.when(gtid.isNotNull(), ~_is_in(GtidSet.parse(self.gtids), gtid)).otherwise(by_position)

    def may_be_after(self, at: SparkColumn) -> SparkColumn | None:
        """Return a condition that all changes after the boundary meet, by which Iceberg skips files; None for none."""
        if self.file is None or self.gtids is not None or _soon_longer(binlog_number(self.file)):
            return None
        file = at.getField("file")
        return (file > self.file) | ((file == self.file) & (at.getField("pos") >= F.lit(self.pos)))


def _soon_longer(number: int) -> bool:
    """Return whether the numbers of later binlog files may have more digits, so that their names sort before."""
    return len(str(number + _FILES_LATER)) > max(len(str(number)), _PADDED)


def _is_in(gtids: GtidSet, gtid: SparkColumn) -> SparkColumn:
    text = F.lower(gtid)
    number = F.substring_index(text, ":", -1)
    source = text.substr(F.lit(1), F.length(text) - F.length(number) - 1)
    found = [
        (source == F.lit(name)) & _any([number.cast("long").between(*interval) for interval in intervals])
        for name, intervals in gtids.intervals.items()
    ]
    return F.coalesce(_any(found), F.lit(False))


def _any(conditions: list[SparkColumn]) -> SparkColumn:
    either: Callable[[Any, Any], Any] = lambda a, b: a | b  # noqa: E731
    return reduce(either, conditions) if conditions else F.lit(False)
