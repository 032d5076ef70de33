from replicator.model.quarantine import (
    LogCoordinate,
    QuarantinedEvent,
    QuarantineFilter,
    ReadRows,
    Resolution,
)


def event(offset: int, table: str | None = "shop.orders", **other: object) -> QuarantinedEvent:
    given = {
        "timestamp_ms": 5,
        "quarantined_ms": 1000 - offset,
        "reason": "not JSON",
        "key": None,
        "value": b"x",
    }
    return QuarantinedEvent(LogCoordinate("shop.shop.orders", 0, offset), table, **given | other)  # type: ignore[arg-type]


def test_quarantine_filter_selects_matching_events_oldest_first() -> None:
    first, other = event(1), event(2, "shop.items", reason="no key")
    dropped, none = event(3, resolution=Resolution.DROPPED), event(4, None)
    events = [first, other, dropped, none]
    assert QuarantineFilter().of(events) == [none, other, first], "the oldest first"
    assert QuarantineFilter(resolved=True).of(events) == [none, dropped, other, first]
    assert QuarantineFilter(tables=("shop.items",)).of(events) == [other]
    assert QuarantineFilter(reason="NO KEY").of(events) == [other]
    assert QuarantineFilter(since_ms=998).of(events) == [other, first]
    assert QuarantineFilter(places=(first.place, dropped.place)).of(events) == [first]


def test_read_rows_contain_earlier_events_and_those_of_a_former_topic() -> None:
    read = ReadRows("shop.shop.orders", {0: 10, 1: 0}, requested_ms=1000)
    until = {0: 20, 1: 5, 2: 1}

    def judged(partition: int, offset: int, quarantined_ms: int) -> tuple[bool, bool]:
        place = LogCoordinate(read.topic, partition, offset)
        return read.contain(place, quarantined_ms), read.may_lack(place, quarantined_ms, until)

    assert judged(0, 9, 5000) == (True, False)
    assert judged(0, 10, 5000) == (False, True)
    assert judged(0, 20, 5000) == (False, False), "the rows do not have later events at all"
    assert judged(1, 0, 5000) == (False, True)
    assert judged(2, 0, 5000) == (False, True), "a new partition"
    assert judged(3, 0, 5000) == (False, False)
    assert judged(0, 99, 999) == (True, False), "of a topic that was deleted since"
