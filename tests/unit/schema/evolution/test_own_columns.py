"""What others changed in the columns of a lake table, by field ids."""

import json
from typing import Any

import pytest

from replicator.lake.catalog.metadata import changelog_schema, table_schema
from replicator.model.changelog import change_column
from replicator.model.table import Column, TableSchema
from replicator.model.types import INT, LONG, STRING, VECTOR, decimal
from replicator.schema.evolution.own_columns import ColumnDifferences, OwnColumns

SCHEMA = TableSchema(
    (
        Column("id", LONG, nullable=False),
        Column("name", STRING),
        Column("price", decimal(10, 2)),
        Column("v", VECTOR),
    ),
    ("id",),
)
MIRROR = table_schema(SCHEMA)
CHANGELOG = changelog_schema(SCHEMA, change_column(SCHEMA.names))
NOTE = {"id": 90, "name": "note", "required": False, "type": "string"}


def changed(schema: str = MIRROR, /, *, add: Any = None, drop: str = "", **fields: dict[str, Any]) -> str:
    """Return a schema whose fields got other attributes, without the field `drop` and with the field `add`."""
    value = json.loads(schema)
    value["fields"] = [f | fields.get(f["name"], {}) for f in value["fields"] if f["name"] != drop]
    value["fields"] += [] if add is None else [add]
    return json.dumps(value)


@pytest.mark.parametrize("schema", [MIRROR, CHANGELOG])
def test_columns_are_recorded_and_read_again(schema: str) -> None:
    own = OwnColumns.of(schema)
    assert OwnColumns.from_json(own.to_json()) == own
    assert not own.differences(schema)
    assert own.users(schema) == ()
    assert not own.has_other_key(schema)
    assert own.followed_by(schema, schema) == own


def test_unknown_version_is_refused() -> None:
    with pytest.raises(ValueError, match="version 2"):
        OwnColumns.from_json('{"version": 2}')


def test_order_comments_and_wider_types_are_no_differences() -> None:
    value = json.loads(changed(name={"doc": "mine"}, price={"type": "decimal(12, 2)"}))
    value["fields"].reverse()
    assert not OwnColumns.of(MIRROR).differences(json.dumps(value))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (changed(name={"name": "title"}), ColumnDifferences(renamed=(("name", "title"),))),
        (
            changed(name={"name": "price"}, price={"name": "name"}),
            ColumnDifferences(renamed=(("name", "price"), ("price", "name"))),
        ),
        (changed(drop="name"), ColumnDifferences(dropped=("name",))),
        (changed(drop="name", add=NOTE | {"name": "name"}), ColumnDifferences(dropped=("name",))),
        (changed(id={"type": "int"}), ColumnDifferences(retyped=(("id", "long", "int"),))),
        (changed(name={"required": True}), ColumnDifferences(required=("name",))),
        (changed(add=NOTE | {"required": True}), ColumnDifferences(required=("note",))),
        (changed(add=NOTE | {"type": "uuid"}), ColumnDifferences(unwritable=(("note", "uuid"),))),
        (changed(id={"required": False}), ColumnDifferences()),
        (changed(add=NOTE), ColumnDifferences()),
    ],
)
def test_differences(schema: str, expected: ColumnDifferences) -> None:
    assert OwnColumns.of(MIRROR).differences(schema) == expected


def test_fields_of_the_changelogs_struct_are_part_of_its_type() -> None:
    value = json.loads(CHANGELOG)
    own = OwnColumns.of(CHANGELOG)
    value["fields"][-1]["type"]["fields"][0]["doc"] = "a comment"
    assert not own.differences(json.dumps(value))
    value["fields"][-1]["type"]["fields"][0]["name"] = "what"
    assert [name for name, _, _ in own.differences(json.dumps(value)).retyped] == ["_change"]


def test_columns_of_an_earlier_version_are_known_by_their_names() -> None:
    own = OwnColumns.of(changed(CHANGELOG, add=NOTE), {"id", "name", "price", "v", "gone"})
    assert own == OwnColumns.of(CHANGELOG)


def test_columns_after_a_change_are_those_of_the_engine() -> None:
    before = changed(add=NOTE)
    converted = {"id": 91, "name": "replicator_new_price", "required": False, "type": "int"}
    with_temporary = changed(before, add=converted)
    after = changed(with_temporary, drop="price", replicator_new_price={"name": "price"})
    own = OwnColumns.of(MIRROR).followed_by(with_temporary, after)
    assert [(f.id, f.name, f.lake_type) for f in own.fields if f.name == "price"] == [(91, "price", INT)]
    assert [f.name for f in own.users(after)] == ["note"]
    assert not own.differences(after)


def test_key_that_others_changed_stays_known() -> None:
    own = OwnColumns.of(MIRROR)
    relaxed = json.loads(changed(id={"required": False})) | {"identifier-field-ids": []}
    for schema in (relaxed, json.loads(MIRROR) | {"identifier-field-ids": []}):
        before = json.dumps(schema)
        assert own.has_other_key(before)
        following = own.followed_by(before, changed(before, drop="name"))
        assert following.has_other_key(changed(before, drop="name"))
