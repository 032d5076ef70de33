"""The schema-change topic lost definitions that the lake follows; then the numbers of versions cannot be compared."""

import shutil
from collections.abc import Sequence
from dataclasses import replace

import pytest

from replicator.model.reread import new_request
from replicator.model.table import TableId
from replicator.sources.archive.format import Event
from replicator.sources.archive.writer import ArchiveWriter
from tests.oracle.events import ColumnSpec
from tests.oracle.model import Record, SourceTable
from tests.support.altered_snapshots import ADDED, OLD, altered, at, event, existing, image, rows, snapshot
from tests.support.archived_events import append_event
from tests.support.lake_harness import LakeHarness
from tests.support.reread_lake import LakeReread

MORE = (*ADDED, ColumnSpec("more", "int"))
FIRST_SERVER = [*snapshot(900, 50, 10, OLD, 1, 2), event("c", at(900, 60, 20, 1), OLD, 3)]
SECOND_SERVER = [
    altered(at(3, 70, 1000, 2), ADDED, "ADD COLUMN added INT NOT NULL DEFAULT 7"),
    event("c", at(3, 80, 1010, 3), ADDED, 4),
]
LATER = [
    altered(at(3, 90, 1020, 4), MORE, "ADD COLUMN more INT"),
    event("c", at(3, 100, 1030, 5), MORE, 5),
]
LAST = [event("c", at(3, 110, 1040, 6), MORE, 6)]


def write_again(lake: LakeHarness, records: Sequence[Record], *, lost: int) -> None:
    """Write an archive anew without so many of its first definitions."""
    shutil.rmtree(lake.folder / "archive")
    offsets: dict[str, int] = {}
    with ArchiveWriter(lake.folder / "archive", topic_prefix="shop", encoding="json") as writer:
        for number, r in enumerate(records):
            offset = offsets.setdefault(r.topic, 0)
            offsets[r.topic] += 1
            if r.topic != "shop" or offset >= lost:
                append_event(
                    writer, Event(r.topic, r.partition, offset, 10_400_000 + number, r.key, r.value, ())
                )


def read_again(lake: LakeHarness, columns: Sequence[ColumnSpec], numbers: Sequence[int]) -> None:
    content = {(n,): image(columns, n) | {"added": 7} if n < 4 else image(columns, n) for n in numbers}
    source = SourceTable("orders", ("id",), [*columns], content)
    request = replace(new_request(TableId("shop", "orders"), "heal"), held=True)
    reread = LakeReread(lake.mirror(), source, request, ("mysql-bin.000003", 105, 10_350_000))
    reread.read([source])
    reread.complete()
    reread.publish()


@pytest.mark.fault(
    "The schema-change topic lost the definitions from before a fail-over to a server with lower positions",
    area="Log",
    on="Iceberg; events by hand",
    outcome="the table pauses, and continues after it was read again",
)
def test_table_whose_definition_was_lost_pauses_until_it_is_read_again(lake: LakeHarness) -> None:
    """The definitions of the first server are lost, so those of the second one look older than the lake's."""
    lake.write([*FIRST_SERVER, *SECOND_SERVER])
    assert lake.catch_up().summary().paused == {}
    before = lake.rows("orders")
    known = [*FIRST_SERVER, *SECOND_SERVER, *LATER]
    write_again(lake, known, lost=2)
    paused = lake.catch_up().summary().paused
    assert "the schema-change topic has lost records" in paused["shop.orders"]
    assert lake.rows("orders") == before

    read_again(lake, MORE, [1, 2, 3, 4, 5])
    write_again(lake, [*known, *LAST], lost=2)
    assert lake.catch_up().summary().paused == {}
    old = [r | {"more": n} for n, r in enumerate(existing(ADDED, 1, 2, 3), start=1)]
    assert rows(lake, MORE) == [*old, {**image(ADDED, 4), "more": 4}, image(MORE, 5), image(MORE, 6)]
    changes = [r for r in lake.rows("orders", "shop_changes") if r["id"] == 6]
    assert [r["more"] for r in changes] == [6]


DEFAULT = (*OLD, ColumnSpec("added", "int", True, "7"))
NULLABLE = (*OLD, ColumnSpec("added", "int"))


@pytest.mark.fault(
    "The schema-change topic lost the statement that added a column",
    area="Log",
    on="Iceberg; events by hand",
    outcome="the table is read again if existing rows may have a value in the column",
)
@pytest.mark.parametrize(("columns", "is_known"), [(ADDED, False), (DEFAULT, False), (NULLABLE, True)])
def test_column_whose_statement_was_lost_is_known_to_lack_values(
    lake: LakeHarness, columns: tuple[ColumnSpec, ...], *, is_known: bool
) -> None:
    """The topic begins after the definition of the lake: it may lack the statement that added the column."""
    lake.write(FIRST_SERVER)
    assert lake.catch_up().summary().paused == {}
    later = [
        altered(at(900, 70, 30, 2), columns, "ADD COLUMN added INT …"),
        altered(at(900, 75, 35, 3), columns, "COMMENT = ''"),
        event("c", at(900, 80, 40, 4), columns, 4),
    ]
    write_again(lake, [*FIRST_SERVER, *later], lost=3)
    mirror = lake.catch_up()
    assert mirror.summary().paused == {}
    found = sorted((r["id"], r["added"]) for r in lake.rows("orders"))
    assert found == [(1, None), (2, None), (3, None), (4, 4)]
    # Such tables are read again.
    wanted = {} if is_known else {TableId("shop", "orders"): ("added",)}
    assert mirror.context.ledger.incomplete() == wanted
