"""What is known of decoded records besides their rows. Spark's workers add it up."""

from dataclasses import dataclass, field

from pyspark import AccumulatorParam, SparkContext
from pyspark.accumulators import Accumulator

from replicator.log_tables.decoding import Decoded, newest_ms
from replicator.model.shapes import Shape, merged


@dataclass(frozen=True, slots=True)
class Notes:
    """What is known of decoded records besides their rows.

    Attributes:
        rows, bad: number of good and of bad events.
        newest_ms: the newest time of a good event.
        unknown: the fields that are no columns.
        writers: the ids of writer schemas that must be looked up first.
    """

    rows: int = 0
    bad: int = 0
    newest_ms: int | None = None
    unknown: Shape = field(default_factory=dict)
    writers: frozenset[int] = frozenset()

    def __add__(self, other: "Notes") -> "Notes":
        times = [ms for ms in (self.newest_ms, other.newest_ms) if ms is not None]
        unknown, writers = merged(self.unknown, other.unknown), self.writers | other.writers
        return Notes(self.rows + other.rows, self.bad + other.bad, max(times, default=None), unknown, writers)


def notes_of(found: Decoded, event_time: str | None) -> Notes:
    """Return what is known of decoded records, whose times are in the column `event_time`."""
    newest = newest_ms(found.rows, event_time)
    return Notes(found.rows.num_rows, found.bad.num_rows, newest, found.unknown, found.writers)


def noted_in(context: SparkContext) -> "Accumulator[Notes]":
    """Return an accumulator for workers. A task that is repeated is counted twice: the numbers are only for the log."""
    return context.accumulator(Notes(), _NotesParam())


class _NotesParam(AccumulatorParam[Notes]):
    def zero(self, value: Notes) -> Notes:  # noqa: ARG002
        return Notes()

    def addInPlace(self, value1: Notes, value2: Notes) -> Notes:  # noqa: N802 - PySpark's name
        return value1 + value2
