"""Values of log tables that everyday events have, at the limits of their types."""

from decimal import Decimal

import pyarrow as pa
import pytest

from replicator.log_tables.lines import parse_csv
from replicator.log_tables.texts import converted
from replicator.model.types import STRING, decimal


@pytest.mark.parametrize(
    ("text", "precision", "scale", "value"),
    [
        ("12345678901.5", 38, 18, "12345678901.5"),
        ("-" + "9" * 38, 38, 0, "-" + "9" * 38),
        ("9" * 20 + "." + "9" * 18, 38, 18, "9" * 20 + "." + "9" * 18),
        ("1" + "0" * 20, 38, 18, None),
        ("0.0000000000000000001", 38, 18, None),
        ("0", 4, 4, "0"),
        ("0.25", 4, 4, "0.25"),
        ("1", 4, 4, None),
        ("1e9999", 38, 0, None),
        ("1e-9999", 38, 0, None),
        ("99.995", 4, 2, None),
    ],
)
def test_decimals_have_as_many_digits_as_their_type(
    text: str, precision: int, scale: int, value: str | None
) -> None:
    found = converted(pa.array([text]), decimal(precision, scale))
    assert found.to_pylist() == [None if value is None else Decimal(value)]


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0b", "\x0c", "\x1c"])
def test_only_ends_of_lines_end_a_row_of_csv(mark: str) -> None:
    found = parse_csv(pa.array([f"a{mark}b,c\r\n".encode()]), {"x": STRING, "y": STRING}, ",")
    assert found.broken.to_pylist() == [False]
    assert [[str(value) for value in found.fields[name]] for name in ("x", "y")] == [[f"a{mark}b"], ["c"]]
