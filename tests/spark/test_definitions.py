"""Events without a schema, of a table that the log has no definition of."""

import pytest

from replicator.config import SourceConfig
from replicator.errors import SourceUnavailable
from replicator.model.table import Column, TableId, TableSchema
from replicator.model.types import LONG, STRING
from tests.spark.batches import DEFINITION, created
from tests.spark.conftest import Lab

SOURCE = {"source": {"url": "mysql://reader@db.example/shop", "tables": ["shop.*"]}}


def test_the_source_tells_what_the_log_does_not(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def definition(source: SourceConfig, table: TableId) -> TableSchema:
        asked.append((str(source.server().host), table))
        return TableSchema((Column("id", LONG), Column("name", STRING)), ("id",))

    monkeypatch.setattr("replicator.definitions.source_definition", definition)
    lab.write([created(1, "Ada"), created(2, "Olga")])
    lab.catch_up(lab.config(**SOURCE))
    assert asked == [("db.example", TableId("shop", "orders"))]
    assert sorted((r["id"], r["name"]) for r in lab.rows("orders")) == [(1, "Ada"), (2, "Olga")]


def test_without_an_answer_the_table_pauses(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(source: SourceConfig, table: TableId) -> TableSchema:
        raise SourceUnavailable("cannot be reached")

    monkeypatch.setattr("replicator.definitions.source_definition", refuse)
    lab.write([created(1)])
    mirror = lab.catch_up(lab.config(**SOURCE))
    assert "no definition" in mirror.summary().paused["shop.orders"]


def test_the_log_comes_first(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(source: SourceConfig, table: TableId) -> TableSchema:
        raise AssertionError("nobody has to be asked")

    monkeypatch.setattr("replicator.definitions.source_definition", never)
    lab.write([DEFINITION, created(1)])
    lab.catch_up(lab.config(**SOURCE))
    assert [r["id"] for r in lab.rows("orders")] == [1]
