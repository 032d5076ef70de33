"""Build the log of one table: its definitions and row changes, in one order."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

from replicator.schema.evolution.changes import SCHEMA_KEY, SchemaState
from tests.oracle.events import (
    ColumnSpec,
    Place,
    change_event,
    key_of,
    schema_change_event,
    statement_event,
    with_key_schema,
    with_value_schema,
)
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import ORDERS

ID = ColumnSpec("id", "bigint", False)
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - DATETIME is a wall clock
ways = pytest.mark.parametrize(
    ("cut", "with_schemas"),
    [("once", False), ("once", True), ("half", False), pytest.param("each", True, marks=pytest.mark.long)],
)
"""Run a test with the log in one batch, in two, or in one for each event; with JSON with and without schemas."""


@dataclass
class Scenario:
    """Collect the log of a table `orders` while it changes."""

    columns: Sequence[ColumnSpec]
    with_schemas: bool
    key: Sequence[str] = ("id",)
    records: list[Record] = field(default_factory=list)
    pos: int = 100

    def __post_init__(self) -> None:
        self.define("CREATE TABLE orders (...)", self.columns, kind="CREATE")

    def define(
        self, ddl: str, columns: Sequence[ColumnSpec], key: Sequence[str] | None = None, kind: str = "ALTER"
    ) -> None:
        self.columns, self.key, self.pos = columns, self.key if key is None else key, self.pos + 100
        value = schema_change_event(Place(1, self.pos), "orders", columns, self.key, kind=kind, ddl=ddl)
        self.records.append(Record("shop", 0, None, value))

    def execute(self, ddl: str) -> None:
        """Execute a statement for which the connector writes no definition."""
        self.pos += 100
        self.records.append(Record("shop", 0, None, statement_event(Place(1, self.pos), "orders", ddl)))

    def change(
        self, op: str, *, before: dict[str, Any] | None = None, after: dict[str, Any] | None = None
    ) -> None:
        self.pos += 100
        row = before if op == "d" else after
        key = None if row is None or not self.key else key_of(row, self.key)
        value = change_event(op, Place(1, self.pos), "orders", before=before, after=after)
        if self.with_schemas:
            value = with_value_schema(value, self.columns, ORDERS)
            key = None if key is None else with_key_schema(key, self.columns, self.key, ORDERS)
        self.records.append(Record(ORDERS, 0, key, value))

    def insert(self, **row: Any) -> None:
        self.change("c", after=row)


def play(lake: LakeHarness, scenario: Scenario, cut: str, config: Any = None) -> None:
    """Apply all records in one batch, each in a separate batch, or the first half and then the rest."""
    lake.write(scenario.records)
    mirror = lake.mirror(config)
    _, ends = mirror.context.log.offsets()
    end = ends[ORDERS][0]
    for stop in {"once": [end], "each": range(1, end + 1), "half": [end // 2, end]}[cut]:
        if cut != "once":
            mirror = lake.mirror(config)
        mirror.advance({ORDERS: {0: stop}})
        assert mirror.summary().paused == {}


def rows(lake: LakeHarness, table: str = "orders", namespace: str = "shop") -> list[dict[str, Any]]:
    return sorted(lake.rows(table, namespace), key=lambda r: str(r["id"]))


def state(lake: LakeHarness, namespace: str = "shop") -> SchemaState:
    with lake.catalog() as catalog:
        return SchemaState.from_json(catalog.load_table((namespace, "orders")).properties[SCHEMA_KEY])


def changelog(lake: LakeHarness) -> list[dict[str, Any]]:
    found = sorted(
        lake.rows("orders", "shop_changes"),
        key=lambda r: (r["_change"]["offset"], r["_change"]["kind"] != "UPDATE_BEFORE"),
    )
    return [{k: v for k, v in row.items() if k != "_change"} for row in found]


def other_table(
    name: str,
    kind: str,
    pos: int,
    *,
    old: str | None = None,
    ddl: str | None = None,
    columns: Sequence[ColumnSpec] = (),
) -> Record:
    value = schema_change_event(Place(1, pos), name, columns, ["id"], kind=kind, ddl=ddl, old_name=old)
    return Record("shop", 0, None, value)


def row_of(table: str, pos: int, **row: Any) -> Record:
    value = change_event("c", Place(1, pos), table, after=row)
    return Record(f"shop.shop.{table}", 0, key_of(row, ["id"]), value)
