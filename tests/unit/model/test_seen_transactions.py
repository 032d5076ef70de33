"""Transactions that were seen, against a set of all of them."""

from hypothesis import given
from hypothesis import strategies as st

from replicator.model.gtid import Transaction
from replicator.model.seen_transactions import MOST_ORIGINS, WINDOW, SeenNumbers, SeenTransactions


def seen(*numbers: int) -> SeenNumbers:
    found = SeenNumbers.starting_with(numbers[:1])
    for number in numbers[1:]:
        after = found.with_new([number])
        assert after is not None
        found = after
    return found


def test_numbers_are_known_from_the_first_one_on() -> None:
    found = seen(10, 12, 11, 15)
    assert [found.has(n) for n in range(9, 17)] == [None, True, True, True, False, False, True, False]


def test_numbers_before_the_last_ones_count_as_seen() -> None:
    found = seen(10, 20, 20 + WINDOW)
    assert found.has(9) is None
    assert found.has(15) is True
    assert found.has(20) is True
    assert found.has(21) is False


def test_members_of_a_replication_group_have_blocks_of_numbers() -> None:
    """One member is at 300 while another one, with the same origin, is at 1,000,050."""
    found = SeenTransactions().with_new("g", [300, 301]).with_new("g", [1_000_051]).with_new("g", [302])
    states = {
        n: found.has(Transaction("g", n)) for n in (301, 302, 303, 1_000_050, 1_000_051, 1_000_052, 2_000_001)
    }
    assert states == {
        301: True, 302: True, 303: False, 1_000_050: None, 1_000_051: True, 1_000_052: False, 2_000_001: None
    }  # fmt: skip


def test_origins_that_were_seen_last_are_kept() -> None:
    found = SeenTransactions()
    for number in range(MOST_ORIGINS + 2):
        found = found.with_new(f"s{number}", [7])
    found = found.with_new("s2", [8])
    assert found.of(Transaction("s1", 7)) is None
    assert [origin for origin, _ in found.origins] == [*(f"s{n}" for n in range(3, MOST_ORIGINS + 2)), "s2"]


@given(st.lists(st.lists(st.integers(1, 3 * WINDOW), min_size=1, unique=True), max_size=20))
def test_membership_is_that_of_a_set(batches: list[list[int]]) -> None:
    """Numbers are never said to be unseen if they were seen; in the window, they are exact."""
    kept: SeenNumbers | None = None
    every: set[int] = set()
    for batch in batches:
        new = [n for n in batch if kept is None or kept.has(n) is False]
        if not new:
            continue
        after = SeenNumbers.starting_with(new) if kept is None else kept.with_new(new)
        if after is None:
            every, after = set(new), SeenNumbers.starting_with(new)
        kept = after
        every |= set(new)
        for number in range(kept.first, kept.last + 2):
            if number > kept.last - WINDOW:
                assert kept.has(number) is (number in every)
            else:
                assert kept.has(number) is True


@given(st.lists(st.tuples(st.sampled_from(["a", "b:tag"]), st.integers(1, 5000)), max_size=30))
def test_transactions_survive_their_json(transactions: list[tuple[str, int]]) -> None:
    found = SeenTransactions()
    for origin, number in transactions:
        found = found.with_new(origin, [number])
    again = SeenTransactions.of_values(found.values())
    assert again == found
    assert all(again.has(Transaction(origin, n.last)) for origin, n in found.origins)
