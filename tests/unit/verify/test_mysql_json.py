"""JSON as MySQL shows it."""

import pytest

from replicator.verify.mysql_json import mysql_json, same_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"bb":1,"a":2,"é":[]}', '{"a": 2, "bb": 1, "é": []}'),
        ("[1,-1,1.5,true,false,null]", "[1, -1, 1.5, true, false, null]"),
        ('"\\u0000\\u001f\\/\\u007f"', '"\\u0000\\u001f/\x7f"'),
        ("1e15", "1e15"),
        ("1e14", "100000000000000.0"),
        ("1234567890123456.7", "1234567890123456.8"),
        ("1234567890123456.0", "1.234567890123456e15"),
        ("-999999999999999.9", "-999999999999999.9"),
        ("1.0", "1.0"),
        ("-0.0", "-0.0"),
        ("1.0E300", "1e300"),
        ("0.00001", "0.00001"),
        ("1.25e-16", "1.25e-16"),
        ("1.25e-15", "0.00000000000000125"),
        ("18446744073709551615", "18446744073709551615"),
        ("18446744073709551616", "1.8446744073709552e19"),
        ("no json", "no json"),
    ],
)
def test_texts(text: str, shown: str) -> None:
    assert mysql_json(text) == shown


def test_meaning_ignores_spaces_order_and_the_kind_of_a_number() -> None:
    assert same_json('{"a":1,"b":[2.0]}', '{"b": [2], "a": 1.0}')
    assert not same_json("1", "true")
    assert not same_json("[1]", '["1"]')
    assert not same_json('{"a":1}', '{"a":2}')
    assert not same_json("x", "y")
