"""The limits up to which the driver itself processes the events of a table, and the record sizes that matter for it."""

from dataclasses import dataclass

from replicator.config import ApplyConfig


@dataclass(frozen=True, slots=True)
class DriverLimits:
    """The limits of one batch for processing on the driver.

    Attributes:
        table_events: maximum number of events of one table.
        batch_events: maximum number of events of all tables that are fetched by one request, before the first task.
        batch_bytes: maximum size of the values that are fetched together, in bytes.
    """

    table_events: int = 10_000
    batch_events: int = 40_000
    batch_bytes: int = 32 << 20

    @classmethod
    def of(cls, apply: ApplyConfig) -> "DriverLimits":
        """Return the configured limits."""
        return cls(apply.driver_max_events, 4 * apply.driver_max_events)


class RecordSizes:
    """The average size of the newest records of each topic, in bytes."""

    def __init__(self) -> None:
        self._bytes: dict[str, float] = {}

    def note(self, topic: str, record_bytes: float) -> None:
        """Record the average size of a topic's newest records."""
        self._bytes[topic] = record_bytes

    def expected(self, topic: str, records: int) -> float:
        """Return the expected size of `records` records; 0 for a topic without a known size."""
        return records * self._bytes.get(topic, 0.0)

    def most_records(self, topic: str, size: int) -> int | None:
        """Return how many records are expected in `size` bytes, at least one; None for a topic without a known size."""
        known = self._bytes.get(topic, 0.0)
        return max(1, int(size / known)) if known else None
