"""How many partitions a process has seen, and since when."""

from replicator.batch.state.partition_counts import LEARNS_S, PartitionCounts, number_of

TOPIC = "shop.shop.orders"


def test_number_counts_the_partitions_up_to_the_last_one() -> None:
    assert (number_of({}), number_of({0: 5}), number_of({2: 0, 1: 7})) == (0, 1, 3)


def test_each_number_counts_from_when_it_was_seen_first() -> None:
    clock = [100.0]
    counts = PartitionCounts(lambda: clock[0])
    assert counts.first(TOPIC) is None
    counts.note(TOPIC, 1)
    clock[0] += LEARNS_S - 1
    assert counts.seconds_left(TOPIC, 2) == LEARNS_S
    assert counts.seconds_left(TOPIC, 1) == 1
    clock[0] += LEARNS_S - 1
    # A broker that lags may show the former number once more.
    counts.note(TOPIC, 1)
    counts.note(TOPIC, 2)
    assert counts.seconds_left(TOPIC, 2) == 1
    assert counts.seconds_left(TOPIC, 3) == LEARNS_S
    assert counts.first(TOPIC) == 1
    counts.forget(TOPIC)
    assert counts.first(TOPIC) is None
