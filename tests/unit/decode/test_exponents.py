"""Decimals in JSON with an exponent, and texts that resemble them."""

import json
import time
from decimal import Decimal

import pytest

from replicator.model.table import Column, TableSchema
from replicator.model.types import DOUBLE, LONG, STRING, decimal
from tests.oracle.events import Place, change_event
from tests.support.decoding import decoded

SOON_S = 60

PRICED = TableSchema(
    (
        Column("id", LONG),
        Column("a/ü", decimal(30, 10)),
        Column("money", decimal(12, 2)),
        Column("text", STRING),
        Column("real", DOUBLE),
    ),
    ("id",),
)


def priced(**fields: str) -> bytes:
    """Return an event with `fields`: the field name as written → the value as JSON text."""
    row = ",".join(f'"{name}":{token}' for name, token in ({"id": "1"} | fields).items())
    return change_event("c", Place(1, 5), "t", after={"x": 0}).replace(b'{"x":0}', b"{%s}" % row.encode())


@pytest.mark.parametrize("spelt", ["a/ü", "a\\/ü", "\\u0061/ü", "a\\u002f\\u00fc", "money", "\\u006doney"])
def test_event_is_bad_when_the_exponent_of_a_decimal_is_too_large(spelt: str) -> None:
    numbers = ("1e30000000", "-1.5E+30000000", "1e2147483647", "1" * 900, "1" * 5000)
    texts = (
        *numbers,
        "1e3,0000000",
        "1,e30000000",
        "\\u0031e30000000",
        "1\\u0065300000000",
        "\u0661e30000000",
    )
    tokens = [*numbers, *(f'"{text}"' for text in texts), f" {numbers[0]}", "\t\n" + f'"{numbers[0]}"']
    begun = time.monotonic()
    found = decoded(PRICED, *(priced(**{spelt: token}) for token in tokens))
    assert [row.bad for row in found] == ["not JSON of the table's schema"] * len(tokens)
    assert time.monotonic() - begun < SOON_S


def test_valid_exponents_and_texts_that_resemble_exponents_are_decoded() -> None:
    numbers = (
        *("0E-10", "1E-10", "1.5e3", "12345678901234567890.1234567890", "1234567890123456789.123456789E1"),
        *('"12.50"', '"1E-3"', "null", "7", " \t12345678901234567890.1234567890"),
    )
    texts = ("5e12345", '"a/ü":1e99999', '":1e30000000', '"a/ü":"1e30000000"', "a\\", "\\u0061/ü")
    cases = [priced(**{"a/ü": number}) for number in numbers]
    cases += [priced(money="2.50", text=json.dumps(text, ensure_ascii=False)) for text in texts]
    cases += [priced(money="9999999999.99", real="1.7976931348623157E308")]
    rows = decoded(PRICED, *cases)
    assert [row.bad for row in rows] == [None] * len(cases)
    assert [row.after["a/ü"] for row in rows[: len(numbers)]] == [
        None if number == "null" else Decimal(number.strip('" \t')) for number in numbers
    ]
    assert [row.after["text"] for row in rows[len(numbers) : -1]] == list(texts)
    assert [row.after["money"] for row in rows[len(numbers) :]] == [
        *([Decimal("2.50")] * len(texts)),
        Decimal("9999999999.99"),
    ]
