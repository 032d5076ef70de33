"""How `refresh: auto` chooses by what refreshes took."""

from replicator.pipelines.costs import Costs


def test_unknown_costs_are_no_reason_for_the_whole() -> None:
    assert Costs("f").cheaper_whole(10) is None
    assert Costs("f").after_whole(1).cheaper_whole(10**9) is None


def test_whole_is_chosen_for_many_changes_and_changes_for_few() -> None:
    costs = Costs("f").after_whole(4.0).after_changes(1_000, 1.0)
    assert costs.cheaper_whole(10) is None
    assert costs.cheaper_whole(3_900) is None
    assert costs.cheaper_whole(100_000) == (
        "100,000 images of changes would take about 100.0 s, and the whole 4.0 s"
    )


def test_one_slow_refresh_decides_nothing() -> None:
    costs = Costs("f").after_whole(4.0)
    for seconds in (1.0, 60.0, 1.0):
        costs = costs.after_changes(1_000, seconds)
    assert costs.cheaper_whole(1_000) is None


def test_changes_are_tried_again_some_time() -> None:
    costs = Costs("f").after_whole(4.0).after_changes(1_000, 5.0)
    chosen = 0
    while costs.cheaper_whole(1_000):
        costs, chosen = costs.after_whole(4.0), chosen + 1
    assert 1 <= chosen <= 10


def test_costs_of_another_definition_and_malformed_ones_are_not_used() -> None:
    text = Costs("f").after_whole(4.0).after_changes(1, 5.0).to_json()
    assert Costs.of(text, "f").whole == (4_000,)
    assert Costs.of(text, "g") == Costs("g")
    assert Costs.of('{"version":1,"fingerprint":3}', "g") == Costs("g")
