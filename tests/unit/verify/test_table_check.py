"""A check finds exactly the rows that differ, whatever changed meanwhile."""

import re
import threading
import time
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.sources.mysql.throttle import ReplicaWatch, Throttle
from replicator.verify.chunks import KeyRange
from replicator.verify.compared_table import ComparedTable
from replicator.verify.interruption import Interrupted, Interruption
from replicator.verify.later_changes import LaterChanges
from replicator.verify.ordered_keys import key_of_texts
from replicator.verify.results import Kind, Verdict
from replicator.verify.table_check import Limits
from tests.support.verified_tables import (
    KEYLESS,
    NAMES,
    ORDERS,
    UUIDS,
    MemoryLake,
    MemorySource,
    rows_of,
    table_check,
)

NOTES = st.sampled_from(["", "a", "b|c", "é🦊", None])
PRICES = st.sampled_from([Decimal(0), Decimal("-0.00000001"), Decimal("123456789012.5"), None])
DOCUMENTS = st.sampled_from(['{"a": 1}', '{"a":2}', None])
ORDER = st.tuples(NOTES, PRICES, DOCUMENTS)
KEYS = st.tuples(
    st.sampled_from([-(2**63), -257, -7, 0, 1, 2, 300, 2**63 - 1]), st.sampled_from([0, 1, 256, 2**32 - 1])
)
ORDER_ROWS = st.dictionaries(KEYS, ORDER, max_size=25)
CHANGES = st.lists(st.tuples(KEYS, st.none() | ORDER, st.booleans()), max_size=12)


def check(
    table: ComparedTable, source: Any, lake: Any, later: LaterChanges | None = None, **options: Any
) -> Any:
    sides = MemorySource(table, rows_of(table, source)), MemoryLake(table, rows_of(table, lake))
    return table_check(*sides, later, **options).run()


def flat(rows: Mapping[tuple[Any, ...], tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(*key, *row) for key, row in rows.items()]


@given(ORDER_ROWS, ORDER_ROWS)
def test_differences_are_found_exactly(source: dict[Any, Any], lake: dict[Any, Any]) -> None:
    found = check(ORDERS, flat(source), flat(lake))
    wanted = {
        key: Kind.MISSING if key not in lake else Kind.UNEXPECTED if key not in source else Kind.DIFFERENT
        for key in source.keys() | lake.keys()
        if source.get(key) != lake.get(key)
    }
    assert {(int(d.key["id"]), int(d.key["line"])): d.kind for d in found.rows} == wanted
    assert found.verdict is (Verdict.DIFFERENT if wanted else Verdict.EQUAL)
    assert (found.source_rows, found.lake_rows) == (len(source), len(lake))
    for difference in found.rows:
        if difference.kind is Kind.DIFFERENT:
            key = (int(difference.key["id"]), int(difference.key["line"]))
            names = zip(("note", "price", "document"), source[key], lake[key], strict=True)
            assert difference.columns == tuple(name for name, one, other in names if one != other)


@given(ORDER_ROWS, CHANGES, st.integers(0, 3))
def test_later_changes_are_no_differences(rows: dict[Any, Any], changes: list[Any], sure_after: int) -> None:
    """The transaction saw some of the first changes; the mirror has all of them."""
    state, images, after, deletes, unsure = dict(rows), [], [], [], []
    seen: dict[Any, Any] = dict(rows)
    for number, (key, row, was_seen) in enumerate(changes):
        before = state.pop(key, None)
        if before is None and row is None:
            continue
        may_be_seen = number < sure_after
        if before is not None:
            images.append((*key, *before))
            after.append(False)
            deletes.append(row is None)
            unsure.append(may_be_seen)
        if row is not None:
            images.append((*key, *row))
            after.append(True)
            deletes.append(False)
            unsure.append(may_be_seen)
            state[key] = row
        if may_be_seen and was_seen:
            seen.pop(key, None)
            if row is not None:
                seen[key] = row
    later = LaterChanges(
        ORDERS, rows_of(ORDERS, images), *(np.array(flags, bool) for flags in (after, deletes, unsure))
    )
    found = check(ORDERS, flat(seen), flat(state), later)
    assert (found.verdict, list(found.rows)) == (Verdict.EQUAL, [])


def test_a_wrong_row_that_changed_later_is_found() -> None:
    key, row = (1, 1), ("a", None, None)
    later = LaterChanges(
        ORDERS,
        rows_of(ORDERS, [(*key, *row), (*key, "b", None, None)]),
        np.array([False, True]),
        np.array([False, False]),
        np.array([False, False]),
    )
    found = check(ORDERS, [(*key, *row)], [(*key, "wrong", None, None)], later)
    (difference,) = found.rows
    assert (difference.kind, difference.columns, difference.later) == (Kind.DIFFERENT, ("note",), True)


def test_json_is_compared_by_meaning() -> None:
    ours, theirs = [(1, 1, "x", None, '{"a":[1,2.0]}')], [(1, 1, "x", None, '{"a": [1.0, 2]}')]
    assert check(ORDERS, theirs, ours).verdict is Verdict.EQUAL


TEXT_ROWS = st.dictionaries(st.text(max_size=3), st.tuples(st.none() | st.sampled_from([0.1, -0.0, 1e300])))


@given(TEXT_ROWS, TEXT_ROWS)
def test_tables_with_a_key_of_texts_are_compared_in_buckets(
    source: dict[str, Any], lake: dict[str, Any]
) -> None:
    found = check(NAMES, [(k, *v) for k, v in source.items()], [(k, *v) for k, v in lake.items()])
    wrong = [k for k in source.keys() | lake.keys() if source.get(k) != lake.get(k)]
    assert len(found.rows) == len(wrong)
    assert found.by == "buckets"


KEYLESS_ROWS = st.lists(
    st.tuples(st.none() | st.integers(0, 2), st.sampled_from(["a", "é", None])), max_size=9
)


@given(KEYLESS_ROWS, KEYLESS_ROWS, KEYLESS_ROWS)
def test_rows_without_a_key_are_counted(rows: list[Any], missing: list[Any], later_rows: list[Any]) -> None:
    later = LaterChanges(
        KEYLESS,
        rows_of(KEYLESS, later_rows),
        np.ones(len(later_rows), bool),
        np.zeros(len(later_rows), bool),
        np.zeros(len(later_rows), bool),
    )
    found = check(KEYLESS, rows + missing, later_rows + rows, later)
    assert found.counts.get(Kind.MISSING, 0) == len(missing)
    assert set(found.counts) <= {Kind.MISSING}


def test_rows_without_a_key_that_changed_as_the_check_began_decide_nothing() -> None:
    later = LaterChanges(
        KEYLESS, rows_of(KEYLESS, [(1, "a")]), np.array([True]), np.array([False]), np.array([True])
    )
    assert check(KEYLESS, [(1, "a")], [(1, "a")], later).verdict is Verdict.UNDECIDED
    assert check(KEYLESS, [], [(1, "a")], later).verdict is Verdict.EQUAL


def test_only_rows_of_ranges_that_differ_are_fetched() -> None:
    rows = [(number, 0, "x", None, None) for number in range(5_000)]
    lake = [*rows[:2_000], (2_000, 0, "y", None, None), *rows[2_001:]]
    source = MemorySource(ORDERS, rows_of(ORDERS, rows), rows_of_chunk=500)
    found = table_check(source, MemoryLake(ORDERS, rows_of(ORDERS, lake))).run()
    assert [d.key for d in found.rows] == [{"id": "2000", "line": "0"}]
    assert found.fetched == source.asked == 500
    assert [number for number, chunk in enumerate(found.chunks) if not chunk.equal] == [4]


def test_no_more_differences_are_looked_for_than_allowed() -> None:
    found = check(ORDERS, [(n, 0, None, None, None) for n in range(30)], [], limits=Limits(differences=10))
    assert (len(found.rows), found.complete, found.verdict) == (10, False, Verdict.DIFFERENT)


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_checks_some_chunks(seed: int) -> None:
    rows = [(number, 0, "x", None, None) for number in range(70)]
    found = check(ORDERS, rows, rows, limits=Limits(sample=0.3, seed=seed))
    assert (found.source_rows, found.lake_rows, found.verdict) == (21, 21, Verdict.EQUAL)


@pytest.mark.parametrize("table", [ORDERS, NAMES])
def test_the_throttle_is_asked_before_the_source_is(table: ComparedTable) -> None:
    rows: list[Any] = [(n, 0, "x", None, None) for n in range(70)] if table is ORDERS else [("a", 1.0)]
    asked: list[None] = []
    found = check(table, rows, rows, throttle=lambda _: asked.append(None))
    assert len(asked) == (1 + len(found.chunks) if table is ORDERS else 1)


def test_a_repair_needs_only_the_ranges_that_differ() -> None:
    source: list[Any] = [(n, 0, "x", None, None) for n in range(70)]
    found = check(ORDERS, source, [row for row in source if row[0] not in (30, 69)]).narrowed
    assert (found.column, [(span.low <= 30 <= span.high) for span in found.spans]) == ("id", [True, False])
    assert found.spans[-1].high == 2**63 - 1
    assert not any(span.low <= 50 <= span.high for span in found.spans)
    source = [(bytes([n, 1]), 0, "x") for n in range(70)]
    found = check(UUIDS, source, [row for row in source if row[0][0] != 30]).narrowed
    (ends,) = re.findall("uid BETWEEN X'([0-9A-F]{4})' AND X'([0-9A-F]{4})'", found.condition("uid"))
    low, high = (bytes.fromhex(end)[0] for end in ends)
    assert low <= 30 <= high
    assert high - low < 10
    assert check(NAMES, [("a", 1.0)], []).narrowed is None
    equal: list[Any] = [(1, 0, "x", None, None)]
    assert check(ORDERS, equal, equal).narrowed is None


def test_a_check_that_is_slowed_down_ends_at_once_if_it_must() -> None:
    rows: list[Any] = [(n, 0, "x", None, None) for n in range(70)]
    interruption = Interruption()
    throttle = Throttle(1, ReplicaWatch([], 0.0, ORDERS.source.table, print))
    threading.Timer(0.2, interruption.set).start()
    began = time.monotonic()
    with pytest.raises(Interrupted):
        check(ORDERS, rows, rows, throttle=partial(interruption.wait, throttle))
    assert time.monotonic() - began < 5


@given(ORDER_ROWS, ORDER_ROWS, st.integers(1, 20))
def test_checks_of_parts_find_together_what_one_check_finds(
    source: dict[Any, Any], lake: dict[Any, Any], rows: int
) -> None:
    found, upto, parts = [], (), 0
    while parts == 0 or upto:
        within = KeyRange(key_of_texts(upto, ORDERS.ranges), None)
        part = check(ORDERS, flat(source), flat(lake), limits=Limits(rows=rows), within=within)
        found += part.rows
        upto, parts = part.upto, parts + 1
    assert {tuple(d.key.values()) for d in found} == {
        tuple(d.key.values()) for d in check(ORDERS, flat(source), flat(lake)).rows
    }
    assert parts <= 1 + len(source)
