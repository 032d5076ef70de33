"""The last change of each key, computed on the driver side, compared with a plain dictionary."""

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.batch.events.net_changes import has_short_key, last_changes_of_keys
from replicator.model.table import Column, TableSchema
from replicator.model.types import DOUBLE, LONG, STRING, LakeType

keys = st.one_of(
    st.lists(st.tuples(st.integers(-3, 3)), min_size=1, max_size=40),
    st.lists(
        st.tuples(st.integers(0, 2), st.dates(dt.date(2026, 1, 1), dt.date(2026, 1, 3))),
        max_size=40,
    ),
    st.lists(st.tuples(st.sampled_from([Decimal(2**64 - 1), Decimal(1)])), max_size=40),
)


@given(keys, st.data())
def test_net_changes_keep_only_the_last_event_of_each_key(
    found: list[tuple[Any, ...]], data: st.DataObject
) -> None:
    """All events of a key are in one partition; those of several partitions come in any order."""
    numbers = {key: i % 3 for i, key in enumerate(dict.fromkeys(found))}
    events = [(numbers[key], offset, *key) for offset, key in enumerate(found)]
    columns = ["partition", "offset", *(f"k{i}" for i in range(len(found[0]) if found else 1))]
    last = {event[2:]: event[0] << 48 | event[1] for event in events}
    superseded = {event[0] << 48 | event[1] for event in events} - set(last.values())
    shuffled = data.draw(st.permutations(events))
    table = pa.table({name: pa.array([e[i] for e in shuffled]) for i, name in enumerate(columns)})
    if not events:
        table = pa.table(
            {
                "partition": pa.array([], pa.int32()),
                "offset": pa.array([], pa.int64()),
                "k0": pa.array([], pa.int64()),
            }
        )
    result = last_changes_of_keys(table)
    assert sorted(zip(*(c.to_pylist() for c in result.keys.columns), strict=True)) == sorted(last)
    assert result.superseded.column("log_key").to_pylist() == [
        place for e in shuffled if (place := e[0] << 48 | e[1]) in superseded
    ]


@pytest.mark.parametrize(
    ("types", "short"),
    [
        ((LONG,), True),
        ((LONG, LakeType("decimal", 20, 0)), True),
        ((STRING,), False),
        ((LONG, DOUBLE), False),
        ((), False),
    ],
)
def test_has_short_key_accepts_only_short_types_with_exact_equality(
    types: tuple[LakeType, ...], short: bool
) -> None:
    """Long keys would fill the memory; floating-point numbers can be equal with different bytes."""
    names = tuple(f"c{i}" for i in range(len(types)))
    schema = TableSchema(tuple(Column(n, t) for n, t in zip(names, types, strict=True)), names)
    assert has_short_key(schema) is short
