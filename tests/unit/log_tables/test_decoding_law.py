"""The law of decoding: what a plain reading in Python gives, however the events are cut into pieces."""

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from replicator.config.log_tables import RECORD_COLUMNS
from replicator.log_tables.decoding import LogDecoding
from replicator.model.shapes import parse_shape
from replicator.sources.change_log import RECORDS

SHAPE = parse_shape(
    {
        "n": "long",
        "i": "int",
        "x": "double",
        "d": "decimal(8, 2)",
        "ok": "boolean",
        "name": "string",
        "day": "date",
        "at": "timestamptz",
        "local": "timestamp",
        "device": {"os": "string", "build": {"number": "int"}},
    }
)
RECORD = dict(RECORD_COLUMNS[part] for part in ("partition", "offset", "timestamp", "key"))

_texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=8)
_numbers = st.one_of(
    st.integers(-(1 << 65), 1 << 65),
    st.integers(-100, 100),
    st.floats(allow_nan=False, allow_infinity=False),
    st.decimals(-999_999, 999_999, places=2).map(float),
)
_moments = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1))  # noqa: DTZ001 - those of Hypothesis have none
_times = st.one_of(
    _moments.map(lambda t: t.isoformat()),
    _moments.map(lambda t: t.isoformat(" ", "seconds") + "Z"),
    _moments.map(lambda t: t.isoformat("T", "milliseconds") + "+02:00"),
    _moments.map(lambda t: t.isoformat("T", "microseconds") + "123Z"),
    st.integers(-(10**12), 10**13),
    st.dates(date(1900, 1, 1), date(2200, 1, 1)).map(str),
)
_leaves = st.one_of(st.none(), st.booleans(), _numbers, _texts, _times, _numbers.map(str))
_values = st.recursive(
    _leaves,
    lambda v: st.one_of(st.lists(v, max_size=2), st.dictionaries(_texts, v, max_size=2)),
    max_leaves=4,
)
_devices = st.fixed_dictionaries(
    {},
    optional={
        "os": _values,
        "build": st.one_of(_values, st.fixed_dictionaries({}, optional={"number": _values})),
    },
)
_fitting = {
    "n": st.integers(-(1 << 63), (1 << 63) - 1),
    "i": st.integers(-(1 << 31), (1 << 31) - 1),
    "x": st.floats(allow_nan=False, allow_infinity=False),
    "d": st.integers(-(10**8) + 1, 10**8 - 1).map(lambda n: str(Decimal(n).scaleb(-2))),
    "ok": st.booleans(),
    "name": _texts,
    "day": st.dates(date(1900, 1, 1)).map(str),
    "at": _times,
    "local": _times,
    "device": st.one_of(st.none(), _devices),
}
_good = st.fixed_dictionaries({}, optional=_fitting)
_any = st.fixed_dictionaries({}, optional=dict.fromkeys(SHAPE, _values))
_events = st.one_of(
    _good.map(json.dumps),
    _good.map(lambda e: json.dumps(e, ensure_ascii=False)),
    _any.map(json.dumps),
    _values.map(json.dumps),
    _texts,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.one_of(st.none(), _events), max_size=8), st.integers(1, 8))
def test_rows_are_what_python_reads(events: list[str | None], piece: int) -> None:
    records = pa.table(
        [
            pa.array([0] * len(events), pa.int32()),
            pa.array(range(len(events)), pa.int64()),
            pa.array([1_700_000_000_000 + i for i in range(len(events))], pa.int64()),
            pa.array([b"k"] * len(events), pa.binary()),
            pa.array([None if e is None else e.encode() for e in events], pa.binary()),
        ],
        schema=RECORDS,
    )
    decoding = LogDecoding("json", "discard", SHAPE, RECORD)
    rows: list[dict[str, Any]] = []
    bad: set[int] = set()
    for start in range(0, len(events), piece):
        found = decoding.decode(records.slice(start, piece))
        rows += found.rows.to_pylist()
        bad |= set(found.bad.column("offset").to_pylist())
    expected = {i: row for i, event in enumerate(events) if (row := read(event)) is not None}
    assert bad == set(range(len(events))) - set(expected)
    assert [row["kafka_offset"] for row in rows] == sorted(expected)
    for row in rows:
        wanted = expected[row["kafka_offset"]]
        assert {name: row[name] for name in SHAPE} == wanted
        assert row["kafka_key"] == b"k"


class NoValueError(Exception):
    """An event has a value that its column cannot hold."""


def read(event: str | None) -> dict[str, Any] | None:
    """Return the row of an event; None if it is bad."""
    if event is None:
        return dict.fromkeys(SHAPE)
    try:
        value = json.loads(event)
        return record(value, SHAPE) if isinstance(value, dict) else None
    except (json.JSONDecodeError, NoValueError):
        return None


def record(value: dict[str, Any], shape: Any) -> dict[str, Any]:
    return {name: leaf(value.get(name), kind) for name, kind in shape.items()}


def leaf(value: Any, kind: Any) -> Any:
    if value is None:
        return None
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            raise NoValueError
        return record(value, kind)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if kind.name == "string":
        return same_text(value, text)
    try:
        return typed(text, kind)
    except (ValueError, ArithmeticError) as error:
        raise NoValueError from error


def same_text(value: Any, text: str) -> Any:
    """Return what equals a text. The numbers in a JSON text may be written in another way."""
    return text if isinstance(value, str | bool) else JsonText(value)


class JsonText:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and json.loads(other) == self.value

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"JsonText({self.value!r})"


def typed(text: str, kind: Any) -> Any:
    match kind.name:
        case "int" | "long":
            limit = 1 << (31 if kind.name == "int" else 63)
            if not text.removeprefix("-").isdigit() or not text.isascii() or not -limit <= int(text) < limit:
                raise ValueError
            return int(text)
        case "double":
            if text != text.strip() or "_" in text or text.lower().strip("+-") in ("nan", "inf", "infinity"):
                raise ValueError
            return float(text)
        case "decimal":
            found = Decimal(text)
            if text != text.strip() or "_" in text or not found.is_finite():
                raise ValueError
            if found != round(found, 2) or abs(found) >= 10**6:
                raise ValueError
            return round(found, 2)
        case "boolean":
            return (
                {"true": True, "false": False}[text] if text in ("true", "false") else typed("", SHAPE["n"])
            )
        case "date":
            return date.fromisoformat(text)
        case _:
            return moment(text, zoned=kind.name == "timestamptz")


def moment(text: str, *, zoned: bool) -> datetime:
    if text.removeprefix("-").isdigit() and text.isascii():
        found = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=int(text))
    else:
        if len(text) < 10 or text[4:5] != "-" or text[7:8] != "-" or "W" in text:
            raise ValueError
        found = datetime.fromisoformat(text)
    if found.tzinfo is not None:
        found = found.astimezone(UTC)
    return found.replace(tzinfo=UTC if zoned else None)
