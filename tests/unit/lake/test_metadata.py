"""SQL statements and Iceberg JSON: names with any characters, types, partitions."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from replicator.errors import UnfitColumns
from replicator.lake.catalog.metadata import changelog_schema, folder_name, partition_spec, table_schema
from replicator.lake.strategies.changes import fill_statement
from replicator.lake.strategies.merge import merge_statement
from replicator.model.partitioning import parse_partition
from replicator.model.table import Column, TableSchema
from replicator.model.types import DOUBLE, INT, LONG, STRING, TIMESTAMPTZ, decimal

SCHEMA = TableSchema(
    (
        Column("id", LONG),
        Column("a`b. c", STRING),
        Column("price", decimal(12, 2)),
        Column("at", TIMESTAMPTZ),
    ),
    ("a`b. c", "id"),
)


def test_merge_statement_updates_inserts_and_deletes_by_key() -> None:
    text = merge_statement("`lake`.`ns`.`t`", "net`1", ["id", "a`b"], ["a`b", "id"])
    assert text == (
        "MERGE INTO `lake`.`ns`.`t` t USING `net``1` s ON t.`a``b` = s.k0 AND t.`id` = s.k1 "
        "WHEN MATCHED AND s.row IS NULL THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET t.`id` = s.row.`id`, t.`a``b` = s.row.`a``b` "
        "WHEN NOT MATCHED AND s.row IS NOT NULL THEN INSERT (`id`, `a``b`) VALUES (s.row.`id`, s.row.`a``b`)"
    )


def test_fill_statement_binds_values() -> None:
    assert fill_statement("t", [("a`b", "string"), ("n", "decimal(3, 1)")]) == (
        "UPDATE t SET `a``b` = CAST(:v0 AS string), `n` = CAST(:v1 AS decimal(3, 1))"
    )


def test_table_schema_requires_the_key_columns() -> None:
    found = json.loads(table_schema(SCHEMA))
    assert found["identifier-field-ids"] == [2, 1]
    assert [(f["id"], f["name"], f["required"], f["type"]) for f in found["fields"]] == [
        (1, "id", True, "long"),
        (2, "a`b. c", True, "string"),
        (3, "price", False, "decimal(12,2)"),
        (4, "at", False, "timestamptz"),
    ]


def test_table_schema_has_no_identifier_fields_when_the_key_is_floating_point() -> None:
    found = json.loads(table_schema(TableSchema((Column("x", DOUBLE),), ("x",))))
    assert found["identifier-field-ids"] == []


def test_changelog_schema_adds_the_change_column_and_requires_no_field() -> None:
    found = json.loads(changelog_schema(SCHEMA, "_change"))
    assert not any(f["required"] for f in found["fields"])
    struct = found["fields"][-1]
    assert struct["name"] == "_change"
    assert [f["name"] for f in struct["type"]["fields"]][:2] == ["kind", "op"]

    def ids(fields: list[dict[str, Any]]) -> Iterator[int]:
        for field in fields:
            yield field["id"]
            if isinstance(field["type"], dict):
                yield from ids(field["type"]["fields"])

    found_ids = list(ids(found["fields"]))
    assert len(set(found_ids)) == len(found_ids)


@pytest.mark.parametrize(
    ("text", "name", "transform", "source"),
    [
        ("bucket(16, id)", "id_bucket", "bucket[16]", 1),
        ("truncate(4, `a``b. c`)", "a`b. c_truncate", "truncate[4]", 2),
        ("days(at)", "at_day", "day", 4),
        ("hours(at)", "at_hour", "hour", 4),
        ("months(at)", "at_month", "month", 4),
        ("years(at)", "at_year", "year", 4),
        ("id", "id", "identity", 1),
    ],
)
def test_partition_spec_has_the_configured_transform(
    text: str, name: str, transform: str, source: int
) -> None:
    found = json.loads(partition_spec(SCHEMA, [parse_partition(text)]))
    assert found == {
        "spec-id": 0,
        "fields": [{"name": name, "transform": transform, "source-id": source, "field-id": 1000}],
    }


@pytest.mark.parametrize("text", ["days(id)", "hours(price)", "months(`a``b. c`)", "truncate(3, at)"])
def test_partition_spec_refuses_a_transform_that_does_not_accept_the_type(text: str) -> None:
    with pytest.raises(UnfitColumns, match="does not accept"):
        partition_spec(SCHEMA, [parse_partition(text)])


def test_partition_spec_finds_columns_by_their_source_names() -> None:
    """A reserved name differs in the lake; a field whose name is a column's gets an underscore."""
    names = ("_pos", "_pos_", "_pos___bucket", "id", "id_bucket")
    schema = TableSchema(tuple(Column(name, INT) for name in names), ("id",)).without_reserved()
    fields = [
        parse_partition(text) for text in ("bucket(4, `_pos`)", "bucket(4, id)", "bucket(8, id)", "`_pos`")
    ]
    found = json.loads(partition_spec(schema, fields))["fields"]
    assert [(f["name"], f["source-id"]) for f in found] == [
        ("_pos___bucket_", 1),
        ("id_bucket_", 4),
        ("id_bucket__", 4),
        ("_pos__", 1),
    ]


@pytest.mark.parametrize("name", ["orders", "Orders_2", "a.b-c", "_x"])
def test_folder_name_is_none_when_the_name_is_plain(name: str) -> None:
    assert folder_name(name) is None


@pytest.mark.parametrize(
    "name", ["a b", "a/b", "..", ".", "größe", "日本語", "a?b", "a#b", "-a", "", "x" + chr(10)]
)
def test_folder_name_is_portable_and_unique_when_the_name_is_not_plain(name: str) -> None:
    folder = folder_name(name)
    assert folder is not None
    assert re.fullmatch(r"[A-Za-z0-9_-]+", folder)
    assert folder != folder_name(name + "_")
