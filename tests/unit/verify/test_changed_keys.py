"""A check of the keys that changed finds exactly the differences among them."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

from replicator.model.table import TableId
from replicator.model.verified import VerifiedTable
from replicator.verify.changed_keys import (
    AllRows,
    Since,
    changed_keys,
    parse_since,
    since_last,
)
from replicator.verify.compared_table import ComparedTable
from tests.support.verified_tables import ORDERS, MemoryLake, MemorySource, rows_of, table_check
from tests.unit.verify.test_lake_side import SOURCE, TABLE, catalog, changelog_of

__all__ = ["catalog"]

KEYS = st.tuples(st.sampled_from([-(2**63), -7, 0, 1, 2**63 - 1]), st.sampled_from([0, 1, 2**32 - 1]))
ROWS = st.dictionaries(KEYS, st.sampled_from(["a", "b", None]), max_size=12)


def check(table: ComparedTable, source: Any, lake: Any, keys: pa.Table) -> Any:
    sides = MemorySource(table, rows_of(table, source)), MemoryLake(table, rows_of(table, lake))
    return table_check(*sides, changed=keys).run()


@given(ROWS, ROWS, st.sets(KEYS, max_size=8))
def test_only_keys_that_changed_are_compared(
    source: dict[Any, Any], lake: dict[Any, Any], changed: set[Any]
) -> None:
    ours, theirs = ([(*key, note, None, None) for key, note in side.items()] for side in (source, lake))
    keys = rows_of(ORDERS, [(*key, None, None, None) for key in changed]).select(["id", "line"])
    found = check(ORDERS, ours, theirs, keys)
    wanted = {key for key in changed if source.get(key, "no") != lake.get(key, "no")}
    assert {(int(d.key["id"]), int(d.key["line"])) for d in found.rows} == wanted
    assert (found.by, found.source_rows) == ("keys", len(changed & source.keys()))


CHANGES: tuple[tuple[int, str | None, str, str, int, str | None], ...] = (
    (1, "a", "INSERT", "c", 50, "5"),
    (2, "b", "INSERT", "c", 60, "6"),
    (1, "a", "UPDATE_BEFORE", "u", 70, "7"),
    (3, "a", "UPDATE_AFTER", "u", 70, "7"),
    (3, "a", "DELETE", "d", 80, "8"),
    (4, "c", "INSERT", "c", 90, None),
)


@pytest.mark.parametrize(
    ("since", "wanted"),
    [
        ("b.000001:70", {1, 3, 4}),
        ("b.000001:71", {3, 4}),
        ("b.000002:4", set()),
        ("a.000000:4", {1, 2, 3, 4}),
        (f"{SOURCE}:1-6", {1, 3, 4}),
        (f"{SOURCE}:1-8", {4}),
    ],
)
def test_keys_since_a_position(catalog: SqlCatalog, since: str, wanted: set[int]) -> None:
    found = changed_keys(TABLE, changelog_of(catalog, *CHANGES), parse_since(since))
    assert isinstance(found, pa.Table)
    assert (set(found.column("id").to_pylist()), found.num_rows) == (wanted, len(wanted))


def test_a_truncation_makes_the_keys_unknown(catalog: SqlCatalog) -> None:
    changelog = changelog_of(catalog, *CHANGES, (1, None, "TRUNCATE", "t", 100, "9"))
    found = changed_keys(TABLE, changelog, parse_since("b.000001:80"))
    assert isinstance(found, AllRows)
    assert "TRUNCATE" in found.reason
    assert isinstance(changed_keys(TABLE, changelog, parse_since("b.000001:101")), pa.Table)


def test_too_many_keys_and_tables_without_key_or_changelog_have_a_reason(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    changelog, since = changelog_of(catalog, *CHANGES), parse_since("a.000000:4")
    monkeypatch.setattr("replicator.verify.changed_keys._MOST_KEYS", 3)
    assert changed_keys(TABLE, changelog, since) == AllRows("more than 3 keys changed")
    assert changed_keys(TABLE, None, since) == AllRows("it has no changelog")
    assert changed_keys(replace(TABLE, key=()), changelog, since) == AllRows("it has no key")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"verdict": "different"}, "the last check found it different"),
        ({"verdict": "undecided"}, "the last check did not find it equal"),
        ({"sampled": True}, "the last check compared only a part of its rows"),
        ({"offsets": {}}, "it is not recorded where in its topic the last check was"),
        ({"topic_id": "other"}, "its topic was recreated after the last check"),
    ],
)
def test_a_last_check_that_does_not_count_has_a_reason(change: dict[str, Any], reason: str) -> None:
    last = VerifiedTable(TableId("shop", "t"), "equal", "b.1:4", 5, 10, 0, offsets={0: 13}, topic_id="id")
    assert since_last(last, "id") == Since({0: 13})
    assert since_last(replace(last, **change), "id") == AllRows(reason)
    assert since_last(None, "id") == AllRows("the table was not checked before")
