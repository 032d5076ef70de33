"""Names in lakes, archives and crash tests, which must not change with names of modules, classes or attributes.

The texts here are those that earlier versions wrote. If a test fails, existing lakes or archives can no longer be read:
change the code, not the text.
"""

import ast
import gc
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import replicator
from replicator import failpoints
from replicator.config import LakeConfig
from replicator.lake.catalog.metadata import changelog_schema
from replicator.lake.properties import PIPELINE_CHECKS, QUARANTINE
from replicator.lake.quarantine import _SCHEMA
from replicator.lake.strategies import changes as strategy
from replicator.model.changelog import RowKind, change_column
from replicator.model.quarantine import Resolution
from replicator.model.table import Column, TableId, TableSchema, lake_names
from replicator.model.transforms import Blank, FixedText, KeepLast, KeyedHash
from replicator.model.types import LONG, STRING
from replicator.pipelines.history.definition import Kind, OwnNames
from replicator.schema.evolution.own_columns import is_temporary
from tests.support.golden import FOLDER

PACKAGE = Path(replicator.__file__).parent


@cache
def trees() -> tuple[ast.AST, ...]:
    # A finalizer that parses too, as those of Hypothesis may, makes Python 3.11.7 fail (cpython issue 106905).
    gc.disable()
    try:
        return tuple(ast.parse(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py"))
    finally:
        gc.enable()


def golden(kind: str) -> set[str]:
    """Return the names of a kind that earlier versions wrote; one may be added."""
    return set((FOLDER / "names" / f"{kind}.txt").read_text(encoding="utf-8").split())


def calls(tree: ast.AST, function: str) -> Iterator[str]:
    """Yield the first argument of each call of `function` if it is a literal."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _name(node.func) == function:
            yield from (str(a.value) for a in node.args[:1] if isinstance(a, ast.Constant))


def _name(function: ast.expr) -> str | None:
    """Return the name of a function that is called by its name or as an attribute."""
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else None


def test_property_names_are_unchanged() -> None:
    found: set[str] = set()
    for tree in trees():
        texts = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        names = {text for text in texts if re.fullmatch(r"replicator\.[a-z][a-z.-]*", text)}
        found |= names - set(calls(tree, "get_logger"))
    others = {"replicator.toml", "replicator.archive.v1", "replicator.operations.check.librdkafka"}
    others |= {"replicator.runner.pipelines"}
    assert found - others == golden("properties")


def test_failpoint_names_are_unchanged() -> None:
    assert {point for tree in trees() for point in calls(tree, "reach")} == golden("failpoints")
    assert 'environ.get("REPLICATOR_CRASH_AT", "")' in Path(failpoints.__file__).read_text(encoding="utf-8")


def test_names_of_temporary_branches_and_columns_are_unchanged() -> None:
    assert strategy.BRANCH == "replicator_staging"
    assert is_temporary("replicator_new_price")


def test_names_of_namespaces_and_tables_are_unchanged() -> None:
    lake = LakeConfig(catalog="jdbc", uri="jdbc:sqlite:lake/catalog.db", warehouse="lake", namespace="shop")
    assert (lake.changes_namespace, lake.ops_namespace, QUARANTINE) == (
        "shop_changes",
        "shop_ops",
        "quarantine",
    )
    assert (lake.pipelines_namespace, PIPELINE_CHECKS) == ("shop_pipelines", "pipeline_checks")
    assert lake.history_namespace == "shop_history"
    assert [str(kind) for kind in Kind] == ["scd2", "soft_delete", "append"]
    assert OwnNames.beside(["id"]) == OwnNames(
        "valid_from", "valid_to", "is_current", "_version", "deleted_at", "changed_at", "is_deleted"
    )
    assert str(TableId("shop", "orders")) == "shop.orders"
    assert lake_names(["id", "_file", "_file_"]) == {"id": "id", "_file": "_file__", "_file_": "_file_"}


def test_quarantine_columns_are_unchanged() -> None:
    assert _SCHEMA == (
        '{"type": "struct", "schema-id": 0, "fields": ['
        '{"id": 1, "name": "table", "required": false, "type": "string"}, '
        '{"id": 2, "name": "topic", "required": false, "type": "string"}, '
        '{"id": 3, "name": "partition", "required": false, "type": "int"}, '
        '{"id": 4, "name": "offset", "required": false, "type": "long"}, '
        '{"id": 5, "name": "timestamp", "required": false, "type": "timestamptz"}, '
        '{"id": 6, "name": "key", "required": false, "type": "binary"}, '
        '{"id": 7, "name": "value", "required": false, "type": "binary"}, '
        '{"id": 8, "name": "reason", "required": false, "type": "string"}, '
        '{"id": 9, "name": "quarantined_at", "required": false, "type": "timestamptz"}, '
        '{"id": 10, "name": "state", "required": false, "type": "string"}, '
        '{"id": 11, "name": "resolved_at", "required": false, "type": "timestamptz"}]}'
    )
    assert [str(resolution) for resolution in Resolution] == ["replayed", "dropped", "reread"]


def test_changelog_columns_are_unchanged() -> None:
    schema = TableSchema((Column("id", LONG, nullable=False), Column("name", STRING)), ("id",))
    assert changelog_schema(schema, change_column(schema.names)) == (
        '{"type": "struct", "schema-id": 0, "fields": ['
        '{"id": 1, "name": "id", "required": false, "type": "long"}, '
        '{"id": 2, "name": "name", "required": false, "type": "string"}, '
        '{"id": 3, "name": "_change", "required": false, "type": {"type": "struct", "fields": ['
        '{"id": 4, "name": "kind", "required": false, "type": "string"}, '
        '{"id": 5, "name": "op", "required": false, "type": "string"}, '
        '{"id": 6, "name": "source_ts", "required": false, "type": "timestamptz"}, '
        '{"id": 7, "name": "file", "required": false, "type": "string"}, '
        '{"id": 8, "name": "pos", "required": false, "type": "long"}, '
        '{"id": 9, "name": "row", "required": false, "type": "int"}, '
        '{"id": 10, "name": "server_id", "required": false, "type": "long"}, '
        '{"id": 11, "name": "gtid", "required": false, "type": "string"}, '
        '{"id": 12, "name": "partition", "required": false, "type": "int"}, '
        '{"id": 13, "name": "offset", "required": false, "type": "long"}, '
        '{"id": 14, "name": "commit", "required": false, "type": "long"}]}}]}'
    )
    assert change_column(["_Change"]) == "__change"
    assert [str(kind) for kind in RowKind] == [
        "INSERT",
        "UPDATE_BEFORE",
        "UPDATE_AFTER",
        "DELETE",
        "TRUNCATE",
    ]


def test_column_rule_texts_are_unchanged() -> None:
    """A lake whose recorded rules differ from the configured ones is refused."""
    rules = (KeyedHash(b"not-a-secret-0123456789"), FixedText("***"), KeepLast(2), Blank())
    assert [str(rule) for rule in rules] == ["hash 6e5d4f28", "text ***", "keep_last 2", "null"]
