"""Types of the lake."""

import pytest

from replicator.model.types import LakeType, spark_sql_name


@pytest.mark.parametrize(
    ("lake_type", "name"),
    [
        ("boolean", "boolean"),
        ("int", "int"),
        ("long", "bigint"),
        ("string", "string"),
        ("timestamp", "timestamp_ntz"),
        ("timestamptz", "timestamp"),
        ("decimal(12, 2)", "decimal(12, 2)"),
        ("list<float>", "array<float>"),
    ],
)
def test_spark_sql_name_returns_the_spark_type_of_a_lake_type(lake_type: str, name: str) -> None:
    assert spark_sql_name(LakeType.parse(lake_type)) == name
