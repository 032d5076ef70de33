"""The limits up to which the driver itself processes the events of a table, and the record sizes that matter for it."""

from typing import Final

DRIVER_MAX_EVENTS: Final = 10_000
"""Maximum number of events of one table in a batch that the driver processes."""

DRIVER_MAX_BATCH_EVENTS: Final = 40_000
"""Maximum number of events of all tables of a batch that the driver processes."""

DRIVER_MAX_BYTES: Final = 32 << 20
"""Maximum size of the values in a batch that the driver processes, in bytes."""


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
