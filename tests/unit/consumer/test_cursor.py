"""The cursor as text."""

import pytest

from replicator.consumer.cursor import Cursor, Point, Within, advanced
from replicator.errors import UsageError

FULL = Cursor(
    "shop.orders",
    "0a-1b",
    Point(None, 0, 3, {"p.shop.orders": {0: 7, 1: 9}}, {"p.shop.orders": "abc"}),
    Within(4711, 5),
    Point(9_007_199_254_740_993, 12, 4, {"p.shop.orders": {0: 70}}),
    Within(12, 0),
    3,
    77,
)
TEXT = (
    '{"version":1,"table":"shop.orders","changelog":"0a-1b",'
    '"at":{"snapshot_id":null,"sequence_number":0,"commit":3,"offsets":{"p.shop.orders":{"0":7,"1":9}},'
    '"topic_ids":{"p.shop.orders":"abc"}},"within":{"snapshot_id":"4711","rows":5},'
    '"scan":{"snapshot_id":"9007199254740993","sequence_number":12,"commit":4,"offsets":{"p.shop.orders":{"0":70}},'
    '"topic_ids":{}},"image":{"snapshot_id":"12","rows":0},"schema_id":3,"steps_at":77}'
)


def test_text_of_a_cursor_is_unchanged() -> None:
    """Consumers store it: a later version must read it."""
    assert FULL.to_json() == TEXT


@pytest.mark.parametrize("text", ["", "x", "[]", "{}", '{"version": 1}', "null"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="not a cursor"):
        Cursor.from_json(text)


def test_cursor_of_a_later_version_is_refused() -> None:
    with pytest.raises(UsageError, match="version 2"):
        Cursor.from_json(TEXT.replace('"version":1', '"version":2'))


def test_offsets_advance_only_if_the_topic_is_certain() -> None:
    one = {"t": {0: 5, 1: 5}}
    assert advanced({"t": {0: 2, 1: 4}}, {0: 4, 1: 3}, one) == {"t": {0: 4, 1: 4}}
    assert advanced({}, {0: 4}, one) == {"t": {0: 4}}
    assert advanced({"t": {0: 2}}, {0: 4}, {"t": {0: 5}, "u": {0: 5}}) == {"t": {0: 2}}
