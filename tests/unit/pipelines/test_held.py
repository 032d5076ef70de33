"""How many rows the driver holds depends on their size."""

import pytest

from replicator.pipelines.held import MOST_ROWS, _most


@pytest.mark.parametrize(
    ("row_bytes", "rows"), [(0.0, MOST_ROWS), (30.0, MOST_ROWS), (2_000.0, 10_000), (1e6, 20), (1e9, 0)]
)
def test_driver_holds_fewer_rows_if_they_are_large(row_bytes: float, rows: int) -> None:
    assert _most(row_bytes) == rows
