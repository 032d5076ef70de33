"""Names of source tables and their topics, and types of columns."""

import pytest

from replicator.model.table import TableId, lake_names, topic_name
from replicator.model.types import LakeType, spark_sql_name


def test_topic_name_has_underscores_for_characters_that_kafka_does_not_allow() -> None:
    assert topic_name(TableId("my shop", "größe$1")) == "my_shop.gr__e_1"


def test_lake_names_add_an_underscore_to_reserved_names() -> None:
    assert lake_names(["id", "_file", "_pos", "_pos_"]) == {
        "id": "id",
        "_file": "_file_",
        "_pos": "_pos__",
        "_pos_": "_pos_",
    }


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
