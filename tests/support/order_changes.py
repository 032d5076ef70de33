"""Random changes of the table `orders`, and the comparison of its mirror and changelog with them."""

import json
import random
from collections.abc import Iterator
from itertools import accumulate, chain
from typing import Any

from pyiceberg.table import Table
from pyiceberg.table.snapshots import Summary

from replicator.config import Config
from replicator.lake.catalog.tables import Lake, LakeTable
from replicator.lake.reading.table_metadata import TableMetadata
from replicator.lake.rows.counts import row_count
from replicator.runner.scheduler import Scheduler
from tests.oracle.model import Record
from tests.support.lake_harness import LakeHarness
from tests.support.orders_table import DEFINITION, ORDERS, event


def changes(seed: int, *, keys: int = 40, batches: int = 18, size: int = 6) -> list[list[Record]]:
    """Return batches of random changes of `orders`."""
    chance, pos = random.Random(seed), 100
    rows: dict[int, dict[str, Any]] = {}

    def change() -> Record:
        nonlocal pos
        pos += 1
        number = chance.randint(1, keys)
        before, after = rows.get(number), {"id": number, "name": f"v{pos}"}
        if before is not None and chance.random() < 0.3:
            del rows[number]
            return event("d", pos, before=before)
        rows[number] = after
        return event("c" if before is None else "u", pos, before=before, after=after)

    return [[change() for _ in range(size)] for _ in range(batches)]


def images(batches: list[list[Record]]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for record in batch:
            assert record.value is not None
            yield json.loads(record.value)


def state_after(batches: list[list[Record]]) -> dict[int, str]:
    """Return id → name after the changes of all batches."""
    rows: dict[int, str] = {}
    for value in images(batches):
        if value["op"] == "d":
            del rows[value["before"]["id"]]
        else:
            rows[value["after"]["id"]] = value["after"]["name"]
    return rows


def write(lake: LakeHarness, batches: list[list[Record]]) -> None:
    lake.write([DEFINITION, *chain.from_iterable(batches)])


def ends(batches: list[list[Record]]) -> list[int]:
    """Return the end offset of each batch."""
    return list(accumulate(map(len, batches)))


def advance(mirror: Scheduler, batches: list[list[Record]], first: int, last: int) -> None:
    """Apply the batches from `first` to before `last`, each with a commit of its own."""
    for end in ends(batches)[first:last]:
        mirror.advance({ORDERS: {0: end}})
    assert mirror.summary().paused == {}


def apply(lake: LakeHarness, settings: Config, batches: list[list[Record]]) -> None:
    """Apply each batch with a commit of its own."""
    write(lake, batches)
    advance(lake.mirror(settings), batches, 0, len(batches))


def assert_exact(lake: LakeHarness, batches: list[list[Record]]) -> None:
    rows = lake.rows("orders")
    assert {row["id"]: row["name"] for row in rows} == state_after(batches)
    assert len(rows) == len(state_after(batches))
    assert row_count(TableMetadata.of(table(lake))) == len(rows)
    found = lake.rows("orders", "shop_changes")
    assert len(found) == sum(2 if value["op"] == "u" else 1 for value in images(batches))
    assert len({(row["_change"]["offset"], row["_change"]["kind"]) for row in found}) == len(found)


def table(lake: LakeHarness, namespace: str = "shop") -> Table:
    with lake.catalog() as catalog:
        return catalog.load_table((namespace, "orders"))


def total(found: Table, name: str) -> int:
    return int(_summary(found).additional_properties[f"total-{name}"])


def operation(lake: LakeHarness) -> str:
    """Return what the newest commit of the mirror did."""
    return _summary(table(lake)).operation.value


def _summary(found: Table) -> Summary:
    snapshot = found.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    return snapshot.summary


def located(lake: Lake, table: LakeTable) -> set[tuple[str, int]]:
    """Return file and position of all rows of a table."""
    rows = lake.spark.read.table(table.sql_name).select("_file", "_pos")
    return {(row[0], row[1]) for row in rows.collect()}
