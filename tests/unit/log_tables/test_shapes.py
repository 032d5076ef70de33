"""Shapes of events, and what differs between two of them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from replicator.log_tables.decoding import fitting
from replicator.model.shapes import (
    MOST_FIELDS,
    Shape,
    from_iceberg,
    lacking,
    merged,
    parse_shape,
    paths,
    to_iceberg,
    unknown,
)
from replicator.model.types import LONG

_kinds = st.sampled_from(["long", "string", "decimal(9, 2)", "timestamptz"])
_names = st.sampled_from(["a", "b", "c", "x.y", "ü"])
SHAPES = st.recursive(
    _kinds, lambda kind: st.dictionaries(_names, kind, min_size=1, max_size=3), max_leaves=6
)
_shapes = st.dictionaries(_names, SHAPES, max_size=4).map(parse_shape)


@given(_shapes)
def test_a_table_has_the_shape_that_it_was_made_with(shape: Any) -> None:
    assert from_iceberg(to_iceberg(shape)) == shape


@given(_shapes, _shapes)
def test_what_is_lacking_is_what_merging_adds(known: Any, found: Any) -> None:
    missing = lacking(known, found)
    assert merged(known, missing) == merged(known, found)
    assert set(unknown(known, missing)) == set(unknown(known, found))
    assert not lacking(merged(known, found), found)
    assert all(dict(paths(merged(known, found)))[path] == kind for path, kind in paths(known))


def test_names_that_no_column_can_have_are_left_out() -> None:
    known = parse_shape({"id": "long", "device": {"os": "string"}})
    found: Shape = {
        "ID": LONG,
        "": LONG,
        "_pos": LONG,
        "kafka_offset": LONG,
        "ok": LONG,
        "device": {"OS": LONG, "v": LONG},
    }
    assert fitting(found, known, {"kafka_offset"}) == {"ok": LONG, "device": {"v": LONG}}


def test_a_table_has_a_limited_number_of_columns() -> None:
    found = {f"c{number}": LONG for number in range(2 * MOST_FIELDS)}
    assert len(fitting(found, {}, set())) == MOST_FIELDS
