"""The earliest event of a batch: it lets no event pass that is from before a schema version."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from replicator.model.gtid import BLOCK
from replicator.model.position import PackedPosition
from replicator.schema.history.order import CLOCK_MS, VersionStart
from tests.support.decoded_events import DecodedEvent, changes, run

_TIMES: Final = st.sampled_from(
    [0, *(10_000_000 + delta for delta in (0, CLOCK_MS, CLOCK_MS + 1, -CLOCK_MS - 1, 3_600_001))]
)
_GTIDS: Final = st.one_of(
    st.none(), st.builds("{}:{}".format, st.sampled_from("ab"), st.sampled_from([1, 2, 3, BLOCK + 1]))
)
_EVENTS: Final = st.builds(
    DecodedEvent,
    st.just("r"),
    st.integers(1, 2),
    st.integers(100, 102),
    ts_ms=_TIMES,
    server_id=st.just(1),
    gtid=_GTIDS,
)
_STARTS: Final = st.builds(
    VersionStart, st.builds(lambda e: e.position_key, _EVENTS), _GTIDS, st.sampled_from([0, 10_000_000])
)


def is_past(start: VersionStart, event: DecodedEvent) -> bool:
    return start.is_before(PackedPosition(event.position_key, 0).unpack(gtid=event.gtid), event.ts_ms)


@given(events=st.lists(_EVENTS, max_size=4), start=_STARTS, tail=st.integers(1, 16))
def test_all_events_are_past_what_the_earliest_is_past(
    events: list[DecodedEvent], start: VersionStart, tail: int
) -> None:
    # Rows of snapshots are never taken for repeated ones.
    found = run(events, tail=tail).earliest
    if found is not None and start.is_before(found.position, found.ts_ms):
        assert all(is_past(start, event) for event in events)


def test_earliest_event_of_a_large_batch_has_its_gtid() -> None:
    events = [DecodedEvent("c", 3, 10 * i, gtid=f"a:{i}") for i in range(5, 60)]
    found = run(events).earliest
    assert found is not None
    assert found.position.gtid == "a:5"


def test_events_that_were_delivered_before_do_not_count() -> None:
    first = run(changes(10, 20))
    found = run([*changes(10, 20), *changes(30)], dict(first.progress)).earliest
    assert found is not None
    assert found.position.pos == 30
