"""Tables without a key that have JSON, which the log and the source write in different forms."""

import pytest

from replicator.lake.catalog.tables import Lake
from replicator.model.reread import new_request
from replicator.model.table import TableId
from tests.oracle.events import ColumnSpec, Place, change_event, schema_change_event
from tests.oracle.model import Record, SourceTable
from tests.support.lake_harness import LakeHarness
from tests.support.rebuilt_lake import assert_rebuilds_equal_mirrors
from tests.support.reread_lake import LakeReread

NOTES = "shop.shop.notes"
NOTE_COLUMNS = (ColumnSpec("id", "int"), ColumnSpec("doc", "json"))


def note(op: str, pos: int, before: str | None = None, after: str | None = None) -> Record:
    """Return a change of a table whose rows have the id 1, and a JSON document that is given as text."""
    old, new = (None if text is None else {"id": 1, "doc": text} for text in (before, after))
    place = Place(1, pos, server_id=0 if op == "r" else 1)
    return Record(NOTES, 0, None, change_event(op, place, "notes", before=old, after=new))


def notes(lake: LakeHarness) -> list[str]:
    return sorted(row["doc"] for row in lake.rows("notes"))


def test_rows_without_a_key_are_found_however_their_json_is_written(lake: LakeHarness) -> None:
    created = schema_change_event(Place(1, 4), "notes", NOTE_COLUMNS, [], kind="CREATE")
    stored = ['{"a": 1, "b": 2}', '{"a":1,"b":2}', "[1, 1.5]", '"x"']
    lake.write([Record("shop", 0, None, created), *[note("r", 10, after=text) for text in stored]])
    lake.catch_up()
    # The first row is as a snapshot writes it; the second one has the same text as the event.
    lake.write([note("d", 20, before='{"a":1,"b":2}'), note("u", 30, "[1,1.5]", "[1,2.5]")])
    assert lake.catch_up().summary().paused == {}
    assert notes(lake) == sorted(['{"a": 1, "b": 2}', "[1,2.5]", '"x"'])
    lake.write([note("d", 40, before='{"a":1,"b":2}'), note("d", 50, before="[1,2.5]")])
    assert lake.catch_up().summary().paused == {}
    assert notes(lake) == ['"x"']
    config = lake.config()
    with lake.catalog() as catalog:
        assert assert_rebuilds_equal_mirrors(catalog, Lake(lake.session(config)), config) == 1


@pytest.mark.long
def test_heal_of_a_table_without_a_key_compares_json_by_its_meaning(lake: LakeHarness) -> None:
    created = schema_change_event(Place(1, 4), "notes", NOTE_COLUMNS, [], kind="CREATE")
    logged = ['{"a":1}', '{"a":1}', '{"b":1.0E-4}']
    lake.write(
        [Record("shop", 0, None, created), *[note("c", 10 + i, after=t) for i, t in enumerate(logged)]]
    )
    lake.catch_up()

    def heal(texts: list[str]) -> int:
        rows = {(number,): {"id": 1, "doc": text} for number, text in enumerate(texts)}
        source = SourceTable("notes", (), list(NOTE_COLUMNS), dict(rows))
        request = new_request(TableId("shop", "notes"), "a test")
        reread = LakeReread(lake.mirror(), source, request, ("mysql-bin.000001", 12, 1_700_000_000_000))
        reread.read([source])
        reread.complete()
        return reread.publish()

    assert heal(['{"a": 1}', '{"a": 1}', '{"b": 0.0001}']) == 0
    assert notes(lake) == sorted(logged)
    assert heal(['{"a": 1}', '{"b": 0.0001}', '{"c": 3}']) == 2
    found = [
        (r["_change"]["kind"], r["doc"])
        for r in lake.rows("notes", "shop_changes")
        if r["_change"]["op"] == "h"
    ]
    assert sorted(found) == [("DELETE", '{"a":1}'), ("INSERT", '{"c": 3}')]
    assert notes(lake) == ['{"a":1}', '{"b":1.0E-4}', '{"c": 3}'], "equal rows keep their text"
    lake.write([note("d", 30, before='{"c":3}'), note("d", 40, before='{"b":1.0E-4}')])
    assert lake.catch_up().summary().paused == {}
    assert notes(lake) == ['{"a":1}']
