"""How the events of a round are divided among tables."""

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from replicator.batch import first_part
from replicator.model.commit_marker import OffsetRange
from replicator.runner.shares import Missing, Pace, fair_shares, plan_round

COUNTS = st.dictionaries(st.text("abcdef", min_size=1, max_size=2), st.integers(1, 10_000), max_size=12)


@given(missing=COUNTS, budget=st.integers(0, 20_000))
def test_shares_fit_the_budget_and_leave_none_of_it_unused(missing: dict[str, int], budget: int) -> None:
    shares = fair_shares(missing, budget, 0)
    total = sum(shares.values())
    assert total <= budget
    # The rest of a division among the tables that lack more.
    assert total > min(budget, sum(missing.values())) - max(len(missing), 1)


@given(missing=COUNTS, budget=st.integers(0, 20_000), least=st.integers(0, 50))
def test_a_table_gets_all_that_it_lacks_or_as_much_as_any_other(
    missing: dict[str, int], budget: int, least: int
) -> None:
    shares = fair_shares(missing, budget, least)
    assert shares.keys() == missing.keys()
    largest = max(shares.values(), default=0)
    for table, share in shares.items():
        assert share == missing[table] or share == largest or share < missing[table] == 0
        assert share >= min(missing[table], least)


def ranges(*spans: tuple[int, int]) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange("t", partition, *span) for partition, span in enumerate(spans))


SPANS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(1, 500)).map(lambda s: (s[0], s[0] + s[1])), min_size=1
)


@given(spans=SPANS, share=st.integers(1, 2_000))
def test_each_partition_with_events_is_part_of_a_slice(spans: list[tuple[int, int]], share: int) -> None:
    whole = ranges(*spans)
    ends = first_part(whole, share)
    taken = sum(ends[r.partition] - r.start for r in whole)
    assert all(r.start < ends[r.partition] <= r.end for r in whole)
    assert min(share, sum(r.count for r in whole)) <= taken < share + len(whole)


@given(
    spans=st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), SPANS, min_size=1),
    waiting=st.sets(st.sampled_from(["a", "b", "c", "d"])),
    max_events=st.integers(1, 800),
    least=st.integers(0, 300),
    paced=st.integers(1, 300),
)
def test_rounds_read_everything_in_order_and_end(
    spans: dict[str, list[tuple[int, int]]], waiting: set[str], max_events: int, least: int, paced: int
) -> None:
    goal = {t: {p: end for p, (_, end) in enumerate(s)} for t, s in spans.items()}
    left: Mapping[str, tuple[OffsetRange, ...]] = {t: ranges(*s) for t, s in spans.items()}
    for _ in range(sum(r.count for rs in left.values() for r in rs) + 1):
        missing = {t: Missing(rs, waits=t in waiting) for t, rs in left.items() if rs}
        found = plan_round(goal, missing, max_events=max_events, least=least, paced=paced)
        assert found.complete is (found.ends == goal)
        for topic, m in missing.items():
            assert all(r.start < found.ends[topic][r.partition] <= r.end for r in m.ranges)
        if found.complete:
            return
        left = {
            t: tuple(
                OffsetRange(t, r.partition, end, r.end)
                for r in rs
                if (end := found.ends[t][r.partition]) < r.end
            )
            for t, rs in left.items()
        }
    raise AssertionError


def planned(counts: Mapping[str, int], waiting: set[str] = frozenset(), paced: int = 100) -> dict[str, int]:  # type: ignore[assignment]
    """Return topic → number of events of a round with at most 1,000 events; a slice has at least 50."""
    missing = {t: Missing((OffsetRange(t, 0, 0, n),), waits=t in waiting) for t, n in counts.items()}
    goal = {t: {0: n} for t, n in counts.items()}
    ends = plan_round(goal, missing, max_events=1_000, least=50, paced=paced).ends
    return {topic: partitions[0] for topic, partitions in ends.items()}


def test_a_backlog_beside_other_tables_is_read_at_its_pace() -> None:
    assert planned({"big": 5_000, "a": 30, "b": 200}) == {"big": 50, "a": 30, "b": 50}
    assert planned({"big": 5_000, "a": 30, "b": 20}) == {"big": 100, "a": 30, "b": 20}


def following(spans: Mapping[str, int], paced: int = 100) -> dict[str, int]:
    """Return topic → the number of events of a round of 1,000 that may be begun before the next one."""
    missing = {t: Missing((OffsetRange(t, 0, 5, 5 + n),)) for t, n in spans.items()}
    goal = {t: {0: 5 + n} for t, n in spans.items()}
    found = plan_round(goal, missing, max_events=1_000, least=50, paced=paced)
    for topic, (r,) in found.following.items():
        assert r.start == found.ends[topic][0]
    return {topic: r.count for topic, (r,) in found.following.items()}


def test_what_follows_a_round_of_backlogs_may_begin() -> None:
    assert following({"big": 1_000}) == {}
    assert following({"big": 1_700}) == {"big": 700}
    assert following({"big": 5_000, "large": 5_000}) == {"big": 500, "large": 500}


def test_nothing_is_begun_while_other_tables_have_events() -> None:
    assert following({"big": 5_000, "a": 30}) == {}


@given(spans=SPANS, later=st.integers(0, 500), events=st.integers(1, 400))
def test_what_was_begun_is_in_the_next_round_whatever_arrives_meanwhile(
    spans: list[tuple[int, int]], later: int, events: int
) -> None:
    first = plan_round(
        {"t": {p: end for p, (_, end) in enumerate(spans)}},
        {"t": Missing(ranges(*spans))},
        max_events=events,
        least=1,
        paced=1,
    )
    if not (begun := first.following.get("t")):
        return
    goal = {"t": {p: end + later * (p + 1) for p, (_, end) in enumerate(spans)}}
    left = ranges(*((first.ends["t"][p], end) for p, end in goal["t"].items()))
    missing = {"t": Missing(tuple(r for r in left if r.count))}
    found = plan_round(goal, missing, max_events=events, least=1, paced=1, begun={"t": begun})
    if {r.partition for r in begun} == {r.partition for r in missing["t"].ranges} and missing["t"].count > 1:
        assert all(found.ends["t"][r.partition] >= r.end for r in begun)
    assert all(found.ends["t"][r.partition] > r.start for r in missing["t"].ranges)


def test_what_was_begun_elsewhere_is_no_share() -> None:
    missing = {"t": Missing((OffsetRange("t", 0, 10, 5_000),))}
    for start, end in ((0, 200), (10, 6_000), (10, 10)):
        begun = {"t": (OffsetRange("t", 0, start, end),)}
        found = plan_round({"t": {0: 5_000}}, missing, max_events=1_000, least=50, paced=100, begun=begun)
        assert found.ends == {"t": {0: 1_010}}


def test_pace_follows_the_time_that_slices_take() -> None:
    pace = Pace(trigger=10.0, events=1_000)
    assert pace.after(1_000, seconds=20.0, round_seconds=21.0).events == 525
    assert pace.after(1_000, seconds=8.0, round_seconds=9.0).events == 1_250
    # It grows twofold at most, as a small slice says little.
    assert pace.after(1_000, seconds=0.1, round_seconds=9.0).events == 2_000
    # A long round of other tables gives a backlog more time.
    assert pace.after(1_000, seconds=20.0, round_seconds=60.0).events == 1_500
    assert Pace(0.0).after(1_000, seconds=4.0, round_seconds=4.0).events == 500
