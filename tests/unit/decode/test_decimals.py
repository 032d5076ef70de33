"""How events write decimals, told from a few of them."""

import json
from typing import Any

import pytest

from replicator.decode.decimals import form_of
from replicator.model.table import Column
from replicator.model.types import Wire, decimal

COLUMNS = [Column("a", decimal(12, 2)), Column("b", decimal(20, 0))]


def events(*values: Any, with_schema: bool) -> list[bytes]:
    found = [{"before": None, "after": {"a": value, "b": None, "other": "text"}} for value in values]
    return [json.dumps({"schema": {}, "payload": e} if with_schema else e).encode() for e in found]


@pytest.mark.parametrize(
    ("values", "with_schema", "form"),
    [
        ([], False, None),
        ([None], False, None),
        ([None], True, None),
        ([None, 12.5], False, Wire.PLAIN),
        ([0], True, Wire.PLAIN),
        (["AfQ="], True, Wire.BASE64_DECIMAL),
        (["AfQ="], False, Wire.BASE64_DECIMAL),
        # Base64 of three bytes, and a number.
        (["1234"], True, Wire.BASE64_DECIMAL),
        (["1234"], False, Wire.PLAIN),
        (["1234", "AfQ="], False, Wire.BASE64_DECIMAL),
        (["12.34"], False, Wire.PLAIN),
        (["-123"], False, Wire.PLAIN),
        (["123"], False, Wire.PLAIN),
        (["12.34", "AfQ="], False, Wire.PLAIN),
        ([7, "AfQ="], True, Wire.EITHER_DECIMAL),
        ([7, "AfQ="], False, Wire.EITHER_DECIMAL),
        ([7, "1234"], True, Wire.EITHER_DECIMAL),
        ([7, "7.00"], False, Wire.PLAIN),
    ],
)
def test_forms(values: list[Any], with_schema: bool, form: Wire | None) -> None:
    assert form_of(events(*values, with_schema=with_schema), COLUMNS, with_schema=with_schema) is form


def test_what_is_no_event_tells_nothing() -> None:
    assert form_of([b"garbage{", b"[1]", b"7", b'{"after":7}', b"\xff"], COLUMNS, with_schema=False) is None
    assert form_of([b'{"payload":null}', b"{}"], COLUMNS, with_schema=True) is None


def test_the_image_before_and_the_source_s_name_of_a_column_count() -> None:
    column = Column("_file_", decimal(12, 2), renamed_from="_file")
    event = json.dumps({"before": {"_file": "AfQ="}, "after": None}).encode()
    assert form_of([event], [column], with_schema=False) is Wire.BASE64_DECIMAL
