"""What DuckDB gives has the columns and types of the table of a result, or Spark computes it."""

import pyarrow as pa
import pytest

from replicator.pipelines.held import MOST_ROWS
from replicator.pipelines.refresh.driver import computed

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "at": pa.array([0, 1], pa.timestamp("us", "UTC"))})


def test_columns_are_spelt_as_the_table_does() -> None:
    schema = pa.schema([("ID", pa.int32()), ("At", pa.timestamp("us", "UTC"))])

    found = computed(
        [("one", "SELECT * FROM rows"), ("two", 'SELECT "at", "id" FROM one')], {"rows": ROWS}, schema
    )

    assert found is not None
    assert found == ROWS.select(["id", "at"]).rename_columns(["ID", "At"]).cast(schema)


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("SELECT id + 9223372036854775807 AS id FROM rows", pa.int64()),
        ("SELECT id * 1000000000000 AS id FROM rows", pa.int32()),
        ("SELECT id = 1 AS id FROM rows", pa.decimal128(10, 2)),
        (f"SELECT range AS id FROM range({MOST_ROWS + 1})", pa.int64()),
        ("SELECT list(range) AS id FROM range(1000000000)", pa.int64()),
    ],
    ids=["overflow", "type", "unknown conversion", "many rows", "memory"],
)
def test_what_duckdb_cannot_give_is_left_to_spark(query: str, kind: pa.DataType) -> None:
    assert computed([("net", query)], {"rows": ROWS}, pa.schema([("id", kind)])) is None
