"""JSON events that are bad or suspicious: too deep, too many digits, images that are no objects."""

from decimal import Decimal

import pytest

from replicator.model.table import Column, TableSchema
from replicator.model.types import BINARY, INT, LONG, VECTOR, Encoding, decimal
from tests.oracle.events import Place, change_event
from tests.support.decoding import ID, decoded

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "column", [Column("c", VECTOR), Column("c", BINARY, Encoding.GEOMETRY), Column("c", INT)]
)
@pytest.mark.parametrize("token", [DEEP, "[" + "1" * 5000 + "]"])
def test_event_is_bad_when_python_cannot_parse_a_value(column: Column, token: str) -> None:
    event = change_event("c", Place(1, 5), "t", after={"id": 1, "c": "?"})
    (row,) = decoded(TableSchema((ID, column), ("id",)), event.replace(b'"?"', token.encode()))
    assert row.bad == "not JSON of the table's schema"


def test_image_that_is_no_object_is_bad_without_a_key_whatever_else_the_event_has() -> None:
    keyless = TableSchema((Column("a", LONG),))
    empty = change_event("c", Place(1, 5), "t", after={})
    text = empty.replace(b'"after": {}', b'"after": "row"').replace(b'"after":{}', b'"after":"row"')
    assert text != empty
    rows = [empty, text, empty[:-1] + f',"x":{DEEP}}}'.encode()]
    assert [row.bad for row in decoded(keyless, *rows)] == [None, "not JSON of the table's schema", None]


def test_number_that_may_have_lost_digits_is_bad() -> None:
    """The name of its field is written with an escape, so that it was not found before the event was parsed."""
    schema = TableSchema((ID, Column("é", decimal(38, 10), Encoding.EITHER_DECIMAL)), ("id",))
    event = change_event("c", Place(1, 5), "t", after={"id": 1, "é": "?"})
    raw, escaped = ("é".encode(), b"\\u00e9")
    assert escaped in event or raw in event
    exact = b"12345678901234567890.1234567891"
    events = [
        event.replace(escaped, name).replace(raw, name).replace(b'"?"', exact) for name in (raw, escaped)
    ]
    found = decoded(schema, *events)
    assert [row.bad for row in found] == [None, "not JSON of the table's schema"]
    assert found[0].after["é"] == Decimal(exact.decode())
