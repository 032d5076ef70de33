"""A request for a part of a table fits into a property, and has all values of its spans."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.model.reread import KeySpan, Narrowed, Request, new_request, prefix_of
from replicator.model.table import TableId

ENDS = st.integers(-(2**63), 2**64 - 1)
SPANS = st.lists(
    st.tuples(ENDS, ENDS, st.integers(0, 10**10)).map(lambda t: KeySpan(min(t[:2]), max(t[:2]), t[2])),
    min_size=1,
    max_size=20,
)


@given(SPANS, st.lists(ENDS, max_size=5))
def test_a_part_has_all_values_of_its_spans(spans: list[KeySpan], values: list[int]) -> None:
    part = Narrowed.to("id", spans)
    assert len(part.spans) <= 5
    assert all(before.high < after.low for before, after in zip(part.spans, part.spans[1:], strict=False))
    ends = [end for span in spans for end in (span.low, span.high)]
    for value in [*ends, *values]:
        wanted = any(span.low <= value <= span.high for span in spans)
        assert not wanted or any(span.low <= value <= span.high for span in part.spans)


@given(
    st.integers(1, 20).flatmap(lambda n: st.lists(st.binary(min_size=n, max_size=n), min_size=3, max_size=3))
)
def test_a_part_of_bytes_has_all_values_of_its_spans(values: list[bytes]) -> None:
    low, value, high = sorted(values)
    width = len(value)
    part = Narrowed.to("uid", [KeySpan(prefix_of(low), prefix_of(high), 1)], width)
    ends = re.fullmatch("k BETWEEN X'([0-9A-F]+)' AND X'([0-9A-F]+)'", part.condition("k"))
    assert ends is not None
    least, greatest = (bytes.fromhex(end) for end in ends.groups())
    assert (len(least), len(greatest)) == (width, width)
    assert least <= low <= value <= high <= greatest
    if width <= 8:
        assert (least, greatest) == (low, high)
    request = new_request(TableId("shop", "t"), "verify", narrowed=part)
    assert Request.from_json(request.to_json()).narrowed == part


@pytest.mark.parametrize(
    ("spans", "width", "described", "is_everything"),
    [
        ([(1, 5), (9, 9)], None, "id BETWEEN 1 AND 5 OR id BETWEEN 9 AND 9", False),
        ([(-(2**63), 5), (9, 2**63 - 1)], None, "id <= 5 OR id >= 9", False),
        ([(7, 2**64 - 1)], None, "id >= 7", False),
        ([(-(2**63), 2**63 - 1)], None, None, True),
        ([(0, 2**64 - 1)], None, None, True),
        ([(0, 2**63 - 1)], None, "id >= 0", False),
        ([(0, 2**64 - 1)], 4, None, True),
        ([(0, 2**56)], 1, "id BETWEEN X'00' AND X'01'", False),
    ],
)
def test_a_part_is_described_without_bounds_that_no_value_is_beyond(
    spans: list[tuple[int, int]], width: int | None, described: str | None, is_everything: bool
) -> None:
    part = Narrowed.to("id", [KeySpan(low, high, 1) for low, high in spans], width)
    assert part.is_everything is is_everything
    assert described is None or part.describe() == described


@given(SPANS, st.sampled_from("pä"))
def test_a_request_fits_into_a_property(spans: list[KeySpan], letter: str) -> None:
    of_bytes = [KeySpan(max(0, span.low), max(0, span.high), span.rows) for span in spans]
    narrowed = Narrowed.to("c" * 64, of_bytes, 255)
    request = new_request(TableId("a" * 64, "b" * 64), "r" * 400, narrowed=narrowed)
    text = replace(request, problem=letter * 400, rows=10**12, estimated=10**12).to_json()
    assert len(text) <= 1000
    read = Request.from_json(text)
    assert (read.table, read.narrowed) == (request.table, request.narrowed)
