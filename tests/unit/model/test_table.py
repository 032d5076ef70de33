"""Schemas of source tables."""

from replicator.model.table import Column, TableSchema, lake_names
from replicator.model.types import INT, LONG


def test_lake_names_add_an_underscore_to_reserved_names() -> None:
    assert lake_names(["id", "_file", "_pos", "_pos_"]) == {
        "id": "id",
        "_file": "_file_",
        "_pos": "_pos__",
        "_pos_": "_pos_",
    }


def test_without_reserved_adds_an_underscore_to_reserved_columns() -> None:
    columns = (Column("_file", LONG), Column("_pos", INT), Column("_pos_", INT), Column("pos", INT))
    found = TableSchema(columns, ("_file", "pos")).without_reserved()
    assert found.names == ("_file_", "_pos__", "_pos_", "pos")
    assert [c.written for c in found.columns] == ["_file", "_pos", "_pos_", "pos"]
    assert found.key == ("_file_", "pos")
    assert found.without_reserved() is found
