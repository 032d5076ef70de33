"""Moments of the source that operators name."""

import pytest

from replicator.model.moments import AsOf, Bound, parse_as_of
from replicator.model.position import SourcePosition

KEY = (123 << 40) + 4567
UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("binlog.000123:4567", {"bound": Bound(KEY)}),
        (" mysql-bin.000123:4567/2 ", {"bound": Bound(KEY, 2)}),
        (f"{UUID}:77", {"gtid": f"{UUID}:77"}),
        (f"{UUID}:some_tag:77", {"gtid": f"{UUID}:some_tag:77"}),
        ("2026-07-25T10:00:00Z", {"time_ms": 1_784_973_600_000}),
        ("2026-07-25T12:00:00+02:00", {"time_ms": 1_784_973_600_000}),
        ("2026-07-25T10:00", {"time_ms": 1_784_973_600_000}),
        ("2026-07-25", {"time_ms": 1_784_937_600_000}),
    ],
)
def test_moments_are_read(text: str, found: dict[str, object]) -> None:
    assert parse_as_of(text) == AsOf(text.strip(), **found)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "yesterday", f"{UUID}:1-5", "binlog:", "binlog.x:4", "10:00", "a:1:2"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no position"):
        parse_as_of(text)


def test_bound_is_before_later_positions_and_its_own() -> None:
    bound = Bound(KEY, 2)
    at = [SourcePosition("b.000123", 4567, row) for row in (1, 2, 3)]
    assert [bound.is_before(position) for position in at] == [False, True, True]
    assert bound.is_before(SourcePosition("b.000124", 4))
    assert not bound.is_before(SourcePosition("b.000123", 4566, 9))
    assert (bound.text, Bound(KEY).text) == ("*.000123:4567/2", "*.000123:4567")
    assert Bound(KEY).is_before(at[0])


def test_bound_excludes_changes_after_the_last_row_that_counts() -> None:
    assert [Bound(KEY, 2).excludes(KEY, row) for row in (1, 2, 3)] == [False, False, True]
    assert [Bound(KEY).excludes(key, 9) for key in (KEY - 1, KEY, KEY + 1)] == [False, False, True]
