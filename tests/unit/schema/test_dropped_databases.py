"""A statement that drops a database removes all its tables; Debezium writes one record for it, without tables."""

import json
from typing import Any

import pytest

from replicator.decode.schemas.histories import SchemaHistories
from replicator.model.table import TableId
from replicator.schema.ddl.tables import dropped_database, parse
from replicator.schema.history.declared import table_definitions
from tests.oracle.events import ColumnSpec, Place, schema_change_event, statement_event

COLUMNS = (ColumnSpec("id", "int", False),)


class Source:
    """The tables `shop.t`, `shop.u` and `other.t`."""

    def __init__(self) -> None:
        self.histories = SchemaHistories()
        self.pos = 0
        for table, database in (("t", "shop"), ("u", "shop"), ("t", "other")):
            self.create(table, database)

    def create(self, table: str, database: str = "shop") -> None:
        self.pos += 10
        self.apply(
            schema_change_event(Place(1, self.pos), table, COLUMNS, ["id"], kind="CREATE", database=database)
        )

    def drop_database(self, name: str = "shop", **source: Any) -> bytes:
        self.pos += 10
        record = json.loads(statement_event(Place(1, self.pos), "", f"DROP DATABASE {name}"))
        record["source"] |= source
        text = json.dumps(record).encode()
        self.apply(text)
        return text

    def apply(self, record: bytes) -> None:
        self.histories.apply(table_definitions(record))

    def recreated(self, table: str, database: str = "shop") -> list[bool]:
        return [v.recreated for v in self.histories.history(TableId(database, table)).versions]

    def is_gone(self, table: str, database: str = "shop") -> bool:
        return self.histories.history(TableId(database, table)).gone is not None


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("DROP DATABASE shop", "shop"),
        ("drop schema if exists `a``b`", "a`b"),
        ("/* a client */ DROP /*!32312 DATABASE */ `shop` -- done", "shop"),
        ("DROP DATABASE", None),
        ("DROP TABLE shop.t", None),
        ("CREATE DATABASE shop", None),
        ("CREATE PROCEDURE p() BEGIN SELECT 1; DROP DATABASE shop; END", None),
        ("", None),
    ],
)
def test_dropped_database_is_in_the_statement(ddl: str, expected: str | None) -> None:
    assert dropped_database(parse(ddl)) == expected


def test_table_that_is_created_in_a_recreated_database_has_no_earlier_rows(source: Source) -> None:
    dropped = source.drop_database("`shop`")
    source.create("t")
    source.apply(dropped)
    assert source.recreated("t") == [False, True]
    assert not source.is_gone("t")
    assert source.is_gone("u")


@pytest.mark.parametrize("mark", [{"snapshot": "true"}, {"server_id": 0}])
def test_snapshot_that_drops_a_database_keeps_the_rows(source: Source, mark: dict[str, Any]) -> None:
    source.drop_database(**mark)
    assert not source.is_gone("t")
    source.create("t")
    assert source.recreated("t") == [False]


def test_database_in_another_letter_case_may_be_the_same(source: Source) -> None:
    """On most servers it is another one, so the tables are not taken for removed, but read again."""
    source.drop_database("Shop")
    history = source.histories.history(TableId("shop", "t"))
    assert [v.unlogged for v in history.versions] == [None, "DROP DATABASE `Shop`"]
    assert history.gone is None


def test_database_in_exactly_that_letter_case_is_meant(source: Source) -> None:
    source.create("t", "Shop")
    record = source.drop_database("Shop")
    source.apply(record)
    assert source.is_gone("t", "Shop")
    assert [v.unlogged for v in source.histories.history(TableId("shop", "t")).versions] == [None]
