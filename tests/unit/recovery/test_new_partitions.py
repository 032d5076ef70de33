"""How long a re-read waits after partitions were added."""

import threading

import pytest

from replicator.batch.state.partition_counts import LEARNS_S, PartitionCounts
from replicator.model.table import TableId
from replicator.recovery.reader.new_partitions import NewPartitions
from replicator.sources.mysql.stop_signal import StopSignal

TOPIC = "shop.shop.orders"


class Waiting:
    """A re-read of a table that the lake has of `known` partitions, with a clock that waiting advances."""

    def __init__(self, known: int | None) -> None:
        self.now = 0.0
        self.reasons: list[str | None] = []
        counts = PartitionCounts(lambda: self.now)
        table = TableId("shop", "orders")
        self.added = NewPartitions(counts, table, TOPIC, known, self.reasons.append)

    def is_set(self) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False


@pytest.mark.parametrize("known", [None, 2, 3])
def test_reading_does_not_wait_if_no_partition_is_known_to_be_new(known: int | None) -> None:
    waiting = Waiting(known)
    assert not waiting.added.has(2)
    assert waiting.added.wait(lambda: 2, waiting) is False  # type: ignore[arg-type]  # only the clock differs
    assert (waiting.now, waiting.reasons) == (0.0, [])


def test_reading_waits_until_the_connector_knows_the_newest_partitions() -> None:
    waiting = Waiting(1)
    seen = iter([2, 3, 3])
    waiting.added.wait(lambda: next(seen), waiting)  # type: ignore[arg-type]  # only the clock differs
    # The third partition was seen when the wait for the second one was over.
    assert waiting.now == 2 * LEARNS_S
    assert waiting.reasons == ["the connector may still write with fewer than 2 partitions", None]
    assert waiting.added.has(3)
    assert waiting.added.seconds_left(3) == 0


def test_waiting_ends_when_the_mirror_stops() -> None:
    stopping = StopSignal(threading.Event(), threading.Event())
    waiting = Waiting(1)
    stopping.cancelled.set()
    assert waiting.added.wait(lambda: 2, stopping) is True
