"""Detection of the encoding of decimals from a few events."""

import json
from typing import Any

import pytest

from replicator.decode.json.decimals import decimal_encoding_of, with_encoding
from replicator.model.table import Column, TableSchema
from replicator.model.types import STRING, Encoding, decimal

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
        ([None, 12.5], False, Encoding.NUMBER),
        ([0], True, Encoding.NUMBER),
        (["AfQ="], True, Encoding.BASE64_DECIMAL),
        (["AfQ="], False, Encoding.BASE64_DECIMAL),
        # Valid both as base64 of three bytes and as a number.
        (["1234"], True, Encoding.BASE64_DECIMAL),
        (["1234"], False, Encoding.PLAIN),
        (["1234", "AfQ="], False, Encoding.BASE64_DECIMAL),
        (["12.34"], False, Encoding.PLAIN),
        (["-123"], False, Encoding.PLAIN),
        (["123"], False, Encoding.PLAIN),
        (["12.34", "AfQ="], False, Encoding.PLAIN),
        ([7, "AfQ="], True, Encoding.EITHER_DECIMAL),
        ([7, "AfQ="], False, Encoding.EITHER_DECIMAL),
        ([7, "1234"], True, Encoding.EITHER_DECIMAL),
        ([7, "7.00"], False, Encoding.PLAIN),
    ],
)
def test_decimal_encoding_of_recognizes_the_encoding_of_values(
    values: list[Any], with_schema: bool, form: Encoding | None
) -> None:
    assert (
        decimal_encoding_of(events(*values, with_schema=with_schema), COLUMNS, with_schema=with_schema)
        is form
    )


def test_with_encoding_is_plain_when_a_decimal_exceeds_the_precision_of_a_double() -> None:
    types = (decimal(15, 2), decimal(16, 2), STRING)
    schema = TableSchema(tuple(Column(f"c{i}", t, Encoding.UNSEEN_DECIMAL) for i, t in enumerate(types)))
    encodings = [c.encoding for c in with_encoding(schema, Encoding.NUMBER).columns]
    assert encodings == [Encoding.NUMBER, Encoding.PLAIN, Encoding.PLAIN]


def test_decimal_encoding_is_unknown_when_no_value_is_an_event() -> None:
    assert (
        decimal_encoding_of([b"garbage{", b"[1]", b"7", b'{"after":7}', b"\xff"], COLUMNS, with_schema=False)
        is None
    )
    assert decimal_encoding_of([b'{"payload":null}', b"{}"], COLUMNS, with_schema=True) is None


def test_decimal_encoding_considers_the_before_image_and_the_source_name() -> None:
    column = Column("_file_", decimal(12, 2), renamed_from="_file")
    event = json.dumps({"before": {"_file": "AfQ="}, "after": None}).encode()
    assert decimal_encoding_of([event], [column], with_schema=False) is Encoding.BASE64_DECIMAL
