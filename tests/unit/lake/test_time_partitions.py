"""Rows are divided by hours and days as Iceberg divides them: rounded down, also before the epoch."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.lake.files.time_partitions import TimePartitions

DAY = timedelta(days=1)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
KINDS = {"instant": pa.timestamp("us", "UTC"), "local": pa.timestamp("us"), "day": pa.date32()}
_micros = st.integers(-3 * 86_400_000_000, 3 * 86_400_000_000)


def partitions(column: str, transform: str) -> TimePartitions:
    found = TimePartitions.of(pa.field(column, KINDS[column]), transform)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("column", "transform"),
    [("instant", "hour"), ("instant", "day"), ("local", "hour"), ("local", "day"), ("day", "day")],
)
@given(micros=st.lists(st.none() | _micros, max_size=30))
def test_rows_are_divided_by_time_in_their_order(
    column: str, transform: str, micros: list[int | None]
) -> None:
    unit = DAY if transform == "day" else timedelta(hours=1)
    times = [None if m is None else EPOCH + timedelta(microseconds=m) for m in micros]
    expected: dict[Any, list[int]] = {}
    for n, time in enumerate(times):
        expected.setdefault(None if time is None else (time - EPOCH) // unit, []).append(n)
    values = [None if t is None else t.date() if column == "day" else t for t in times]
    if column == "local":
        values = [None if t is None else t.replace(tzinfo=None) for t in times]
    rows = pa.table({column: pa.array(values, KINDS[column]), "n": pa.array(range(len(times)), pa.int64())})
    found = partitions(column, transform).split(rows)
    assert sorted(part.column("n").to_pylist() for _, part in found) == sorted(expected.values())
    assert {number for number, part in found if part.column(column)[0].is_valid} == set(expected) - {None}


def test_the_time_of_a_row_passes_through_a_number() -> None:
    times = {
        "instant": datetime(2026, 11, 29, 10, 0, 0, 1, tzinfo=UTC),
        "local": datetime(1969, 12, 31, 23),  # noqa: DTZ001 - a column without a time zone
        "day": date(1969, 12, 30),
    }
    rows = pa.table({name: pa.array([times[name], None], KINDS[name]) for name in times})
    for name in times:
        by_day = partitions(name, "day")
        moments = [by_day.moment(rows), by_day.moment(rows.slice(1))]
        assert moments[1] is None
        assert by_day.values(moments, rows.schema).equals(rows.select([name]))


@pytest.mark.parametrize(
    ("kind", "transform"),
    [
        (pa.date32(), "hour"),
        (pa.int64(), "day"),
        (pa.timestamp("ns"), "day"),
        (pa.timestamp("us"), "month"),
        (pa.timestamp("us"), "identity"),
    ],
)
def test_other_partitions_are_none_by_time(kind: pa.DataType, transform: str) -> None:
    assert TimePartitions.of(pa.field("at", kind), transform) is None
