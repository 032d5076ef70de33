"""A request for a part of a table fits into a property, and has all values of its spans."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from replicator.model.reread import KeySpan, Narrowed, Request, new_request
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


@given(SPANS)
def test_a_request_fits_into_a_property(spans: list[KeySpan]) -> None:
    request = new_request(TableId("a" * 64, "b" * 64), "r" * 400, narrowed=Narrowed.to("c" * 64, spans))
    text = replace(request, problem="p" * 400, rows=10**12, estimated=10**12).to_json()
    assert len(text) <= 1000
    read = Request.from_json(text)
    assert (read.table, read.narrowed) == (request.table, request.narrowed)
