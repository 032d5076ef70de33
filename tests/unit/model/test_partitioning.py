"""Partition transforms as text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.model.partitioning import PartitionField, parse_partition


@pytest.mark.parametrize(
    ("text", "field", "sql"),
    [
        ("bucket(16, id)", PartitionField("bucket", "id", 16), "bucket(16, `id`)"),
        ("truncate( 4 ,name )", PartitionField("truncate", "name", 4), "truncate(4, `name`)"),
        ("days(created_at)", PartitionField("days", "created_at"), "days(`created_at`)"),
        ("Day(created_at)", PartitionField("days", "created_at"), "days(`created_at`)"),
        ("hours(`a, b`)", PartitionField("hours", "a, b"), "hours(`a, b`)"),
        ("identity(`a``b`)", PartitionField("identity", "a`b"), "`a``b`"),
        ("country", PartitionField("identity", "country"), "`country`"),
        ("größe", PartitionField("identity", "größe"), "`größe`"),
    ],
)
def test_parse_partition_returns_a_field_with_its_sql(text: str, field: PartitionField, sql: str) -> None:
    assert parse_partition(text) == field
    assert field.sql() == sql


@pytest.mark.parametrize(
    "text",
    ["", "bucket(id)", "bucket(0, id)", "bucket(-1, id)", "days(a, b)", "week(a)", "days()", "a b", "days(a"],
)
def test_parse_partition_refuses_a_text_that_is_not_a_transform(text: str) -> None:
    with pytest.raises(ValueError, match='"'):
        parse_partition(text)


@given(
    st.one_of(
        st.builds(
            PartitionField,
            st.sampled_from(["bucket", "truncate"]),
            st.text(min_size=1),
            st.integers(1, 99_999),
        ),
        st.builds(
            PartitionField,
            st.sampled_from(["identity", "years", "months", "days", "hours"]),
            st.text(min_size=1),
        ),
    )
)
def test_parse_partition_reads_the_text_of_a_field(field: PartitionField) -> None:
    assert parse_partition(str(field)) == field
