"""Numbers of things in messages."""

import pytest

from replicator.model.common import counted


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 events"), (1, "1 event"), (2, "2 events"), (2000, "2,000 events")]
)
def test_counted_has_the_noun_in_the_right_number(count: int, text: str) -> None:
    assert counted(count, "event") == text


def test_counted_takes_another_form_for_several() -> None:
    assert [counted(n, "row is", "rows are") for n in (1, 3)] == ["1 row is", "3 rows are"]
