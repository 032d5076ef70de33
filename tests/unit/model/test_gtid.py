"""Sets of transactions."""

from replicator.model.gtid import GtidSet

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "4e11fa47-71ca-11e1-9e33-c80aa9429562"


def test_set_below_a_number_has_the_lower_ones_of_that_source() -> None:
    found = GtidSet.parse(f"{A}:1-5:8-10,{A}:tag:9,{B}:7-9")
    assert str(found.below(A, 9)) == f"{A}:1-5:8,{A}:tag:9,{B}:7-9"
    assert str(found.below(A, 7)) == f"{A}:1-5,{A}:tag:9,{B}:7-9"
    assert str(found.below(B, 7)) == f"{A}:1-5:8-10,{A}:tag:9"
    assert str(found.below("other", 7)) == str(found)


def test_next_number_follows_the_highest_one() -> None:
    assert GtidSet.parse(f"{A}:1-5:8-10").next_number(A) == 11
    assert GtidSet.parse("").next_number(A) == 1
