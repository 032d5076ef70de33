"""Rebuild mirrors from their changelogs: moments, targets, interruptions, and what is refused."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from replicator.errors import CheckFailed, FencedError, UnsupportedChange, UsageError
from replicator.lake.properties import CREATED_KEY
from replicator.lake.rebuilt_tables import REBUILT_KEY
from replicator.model.moments import parse_as_of
from replicator.model.reread import DONE_KEY
from replicator.operations.rebuild.rebuild import rebuild as command
from replicator.operations.rebuild.rebuild import rebuild_tables
from replicator.operations.rebuild.writer import RebuildReport, RebuildWriter
from replicator.runner.scheduler import Scheduler
from tests.oracle.events import ColumnSpec
from tests.oracle.model import Record
from tests.spark.test_keyless import DEFINITION as VISITS_DEFINITION
from tests.spark.test_keyless import A, B, C
from tests.spark.test_keyless import event as visit
from tests.spark.test_lake_properties import with_gtid
from tests.support.failpoints import PowerCut, power_cut
from tests.support.lake_harness import LakeHarness
from tests.support.lake_schemas import validate_lake, validate_properties
from tests.support.orders_table import DEFINITION, ORDERS, created, event, ids, snapshot_read
from tests.support.scenario import ID, Scenario, play, rows

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def rebuild(
    lake: LakeHarness, mirror: Scheduler, *patterns: str, as_of: str | None = None, **options: Any
) -> tuple[RebuildReport, ...]:
    moment = None if as_of is None else parse_as_of(as_of)
    return rebuild_tables(mirror.context.config, mirror.context.lake, patterns, as_of=moment, **options)


def at(pos: int) -> str:
    return f"mysql-bin.000001:{pos}"


def elsewhere(lake: LakeHarness, table: str = "orders") -> list[Any]:
    return sorted(row["id"] for row in lake.rows(table, "then"))


def test_mirror_is_rebuilt_after_rows_were_lost(lake: LakeHarness) -> None:
    """Others deleted rows of the mirror; a rebuild restores them, and the mirror continues."""
    lake.write([DEFINITION, *map(created, range(1, 5))])
    mirror = lake.catch_up()
    mirror.context.spark.sql("DELETE FROM lake.shop.orders WHERE id < 3")
    assert ids(lake) == [3, 4]
    (dry,) = rebuild(lake, mirror, dry_run=True)
    assert (dry.rows, dry.rows_before, dry.changed, ids(lake)) == (4, 2, False, [3, 4])
    (report,) = rebuild(lake, mirror, "shop.orders")
    assert report == replace(dry, changed=True)
    assert ids(lake) == [1, 2, 3, 4]
    lake.write([event("d", 300, before={"id": 1, "name": "new"}), created(209)])
    lake.catch_up()
    assert ids(lake) == [2, 3, 4, 209]
    with lake.catalog() as catalog:
        assert validate_lake(catalog, "shop") == 2


def test_dropped_mirror_is_created_again(lake: LakeHarness) -> None:
    config = lake.config(table=[{"name": "shop.orders", "partition": ["bucket(4, id)"]}])
    lake.write([DEFINITION, *map(created, range(1, 5))])
    mirror = lake.catch_up(config)
    mirror.context.lake.drop("shop", "orders")
    with pytest.raises(PowerCut), power_cut(1):
        rebuild(lake, mirror)
    (report,) = rebuild(lake, mirror)
    assert (report.rows, report.rows_before) == (4, 0)
    lake.write([event("d", 300, before={"id": 1, "name": "new"})])
    lake.catch_up(config)
    assert ids(lake) == [2, 3, 4]
    with lake.catalog() as catalog:
        table = catalog.load_table(("shop", "orders"))
        assert [str(field.transform) for field in table.spec().fields] == ["bucket[4]"]
        assert table.schema().identifier_field_names() == {"id"}


@pytest.mark.parametrize(
    ("moment", "found"),
    [
        (at(101), [1]),
        (at(102), [1, 2]),
        (at(150), [1, 2]),
        (f"{UUID}:7", [1, 2, 3, 5]),
        ("2023-11-14T22:13:20.050Z", [1, 2]),
        ("2030-01-01", [1, 2, 3, 4, 5]),
        ("2001-01-01", []),
    ],
)
def test_mirror_is_rebuilt_as_of_a_moment(lake: LakeHarness, moment: str, found: list[int]) -> None:
    """The third transaction has two events, of which the first has an earlier time."""
    records = [
        timed(created(1), 1_700_000_000_000, f"{UUID}:5"),
        timed(created(2), 1_700_000_000_000, f"{UUID}:6"),
        timed(event("c", 200, after={"id": 3, "name": "new"}), 1_700_000_000_000, f"{UUID}:7"),
        timed(
            event("c", 201, after={"id": 5, "name": "new"}),
            1_700_000_000_100,
            f"{UUID}:7",
        ),
        timed(event("c", 300, after={"id": 4, "name": "new"}), 1_700_000_000_000, f"{UUID}:8"),
    ]
    lake.write([DEFINITION, *records])
    mirror = lake.catch_up()
    (report,) = rebuild(lake, mirror, as_of=moment, to="then")
    assert elsewhere(lake) == found
    assert (report.table, report.rows, report.changed) == ("then.orders", len(found), True)


def timed(record: Record, ts_ms: int, gtid: str) -> Record:
    record = with_gtid(record, gtid)
    value = json.loads(record.value or b"{}")
    value["source"]["ts_ms"] = ts_ms
    return replace(record, value=json.dumps(value).encode())


@pytest.mark.long
def test_unknown_transaction_is_refused(lake: LakeHarness) -> None:
    lake.write([DEFINITION, created(1)])
    mirror = lake.catch_up()
    with pytest.raises(CheckFailed, match="no changelog has a change of the transaction"):
        rebuild(lake, mirror, as_of=f"{UUID}:7", to="then")


def test_table_in_another_namespace_says_what_it_was_made_of(lake: LakeHarness) -> None:
    lake.write([DEFINITION, created(1), created(2)])
    mirror = lake.catch_up()
    (report,) = rebuild(lake, mirror, as_of=at(101), to="then")
    with lake.catalog() as catalog:
        table = catalog.load_table(("then", "orders"))
        validate_properties("table", table.properties)
        found = json.loads(table.properties[REBUILT_KEY])
    assert found["source"] == "shop.orders"
    assert found["changelog"] == "shop_changes.orders"
    assert (found["as_of"], found["position"], found["complete"]) == (at(101), "*.000001:101", True)
    assert {name for name in table.properties if name.startswith("replicator.")} == {CREATED_KEY, REBUILT_KEY}
    # Repeating the command changes nothing; another moment is refused.
    assert rebuild(lake, mirror, as_of=at(101), to="then") == (replace(report, changed=False),)
    with pytest.raises(UsageError, match="exists already"):
        rebuild(lake, mirror, as_of=at(102), to="then")
    with pytest.raises(UsageError, match="namespace of the mirror itself"):
        command(mirror.context.config, to="shop_changes")


@pytest.mark.parametrize("point", [1, 2, 3])
@pytest.mark.long
def test_interrupted_rebuild_in_another_namespace_is_repeated(lake: LakeHarness, point: int) -> None:
    lake.write([DEFINITION, created(1), created(2), VISITS_DEFINITION, visit("c", 20, after=A)])
    mirror = lake.catch_up()
    with pytest.raises(PowerCut), power_cut(point):
        rebuild(lake, mirror, to="then")
    reports = rebuild(lake, mirror, to="then")
    assert [report.rows for report in reports] == [2, 1]
    assert elsewhere(lake) == [1, 2]
    assert len(lake.rows("visits", "then")) == 1


def test_writer_that_commits_meanwhile_fences_the_rebuild(
    lake: LakeHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write([DEFINITION, created(1), created(2)])
    mirror = lake.mirror()
    mirror.advance({ORDERS: {0: 1}})
    other = lake.mirror()
    # Another process applies an event while the rows are written.
    stage = RebuildWriter._replaced

    def replaced(writer: RebuildWriter, planned: Any) -> Any:
        table = stage(writer, planned)
        other.advance({ORDERS: {0: 2}})
        table.refresh()
        return table

    monkeypatch.setattr(RebuildWriter, "_replaced", replaced)
    with pytest.raises(FencedError):
        rebuild(lake, mirror)
    assert ids(lake) == [1, 2]


@pytest.mark.long
def test_mirror_continues_from_an_earlier_position(lake: LakeHarness) -> None:
    lake.write([DEFINITION, created(1), created(2)])
    lake.write([event("u", 200, before={"id": 1, "name": "new"}, after={"id": 1, "name": "x"}), created(150)])
    mirror = lake.catch_up()
    rebuild(lake, mirror, as_of=at(150))
    assert ids(lake) == [1, 2]
    assert len(lake.rows("orders", "shop_changes")) == 5
    lake.catch_up()
    assert sorted(row["name"] for row in lake.rows("orders")) == ["new", "new", "x"]
    assert len(lake.rows("orders", "shop_changes")) == 5


@pytest.mark.parametrize("op", ["h", "r"])
def test_rebuild_in_place_refuses_to_lose_rows_that_the_mirror_read_later(lake: LakeHarness, op: str) -> None:
    lake.write([DEFINITION, created(1), created(2), created(3)])
    mirror = lake.catch_up()
    # The log lacks the rows of a re-read.
    sql = mirror.context.spark.sql
    sql(f"UPDATE lake.shop_changes.orders SET _change.op = '{op}' WHERE id = 2")
    sql(f"ALTER TABLE lake.shop_changes.orders SET TBLPROPERTIES ('{DONE_KEY}' = 'a request')")
    with pytest.raises(UnsupportedChange, match="read or corrected rows after the position"):
        rebuild(lake, mirror, as_of=at(101))
    assert ids(lake) == [1, 2, 3]
    rebuild(lake, mirror, as_of=at(101), to="then")
    assert elsewhere(lake) == [1]
    rebuild(lake, mirror, as_of=at(102))
    assert ids(lake) == [1, 2]


@pytest.mark.parametrize("cut", ["once", "each"])
@pytest.mark.long
def test_key_that_changes_identifies_rows_of_its_time(lake: LakeHarness, cut: str) -> None:
    """Two rows share a code, one of them is deleted, and then the code becomes the key."""
    code = ColumnSpec("code", "varchar")
    scenario = Scenario([ID, code], with_schemas=False)
    for number, text in ((1, "x"), (2, "x"), (3, "y")):
        scenario.insert(id=number, code=text)
    scenario.change("d", before={"id": 2, "code": "x"})
    early = scenario.pos
    scenario.define("ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (code)", [ID, code], key=["code"])
    scenario.change("u", before={"id": 3, "code": "y"}, after={"id": 1, "code": "y"})
    play(lake, scenario, cut)
    mirror = lake.mirror()
    rebuild(lake, mirror, to="then")
    expected = [{"id": 1, "code": "x"}, {"id": 1, "code": "y"}]
    assert sorted(lake.rows("orders", "then"), key=lambda row: str(row["code"])) == expected
    rebuild(lake, mirror, as_of=at(early), to="before")
    assert rows(lake, namespace="before") == [{"id": 1, "code": "x"}, {"id": 3, "code": "y"}]


@pytest.mark.long
def test_rows_without_a_key_are_counted(lake: LakeHarness) -> None:
    lake.write([VISITS_DEFINITION, *[visit("r", 10, after=row) for row in (A, A, B)]])
    lake.write(
        [visit("c", 20, after=A), visit("u", 30, B, C), visit("d", 40, before=A), visit("c", 50, after=B)]
    )
    mirror = lake.catch_up()
    for moment, expected in ((None, {A: 2, B: 1, C: 1}), (at(30), {A: 3, C: 1}), (at(10), {A: 2, B: 1})):
        namespace = f"then_{(moment or 'now').rpartition(':')[2]}"
        rebuild(lake, mirror, as_of=moment, to=namespace)
        found = Counter((row["page"], row["seconds"]) for row in lake.rows("visits", namespace))
        assert found == expected
    rebuild(lake, mirror)
    assert Counter((row["page"], row["seconds"]) for row in lake.rows("visits")) == {A: 2, B: 1, C: 1}


REPEATED: Sequence[Record] = [
    snapshot_read(1, 100, "first_in_data_collection"),
    snapshot_read(2, 100, "last_in_data_collection"),
    event("c", 150, after={"id": 3, "name": "new"}),
    snapshot_read(1, 200, "first_in_data_collection", name="again"),
    snapshot_read(3, 200, name="again"),
    snapshot_read(4, 200, "last_in_data_collection", name="again"),
]


@pytest.mark.long
def test_repeated_snapshot_replaces_the_rows(lake: LakeHarness) -> None:
    lake.write([DEFINITION, *REPEATED])
    mirror = lake.catch_up()
    assert ids(lake) == [1, 3, 4]
    rebuild(lake, mirror, to="then")
    assert elsewhere(lake) == [1, 3, 4]
    rebuild(lake, mirror, as_of=at(199), to="before")
    assert sorted(row["id"] for row in lake.rows("orders", "before")) == [1, 2, 3]


@pytest.mark.long
def test_changes_of_several_servers_are_ordered_by_offset(lake: LakeHarness) -> None:
    """After a failover, positions are those of another server, and smaller."""
    later = [
        event("u", 50, before={"id": 1, "name": "new"}, after={"id": 1, "name": "later"}),
        event("d", 60, before={"id": 2, "name": "new"}),
    ]
    lake.write([DEFINITION, created(1), created(2), *map(of_second_server, later)])
    mirror = lake.catch_up()
    before = lake.rows("orders")
    rebuild(lake, mirror)
    assert lake.rows("orders") == before == [{"id": 1, "name": "later"}]
    with pytest.raises(UnsupportedChange, match="several servers"):
        rebuild(lake, mirror, as_of=at(55), to="then")


def of_second_server(record: Record) -> Record:
    value = json.loads(record.value or b"{}")
    value["source"]["server_id"], value["source"]["ts_ms"] = 2, value["source"]["ts_ms"] + 10_000
    return replace(record, value=json.dumps(value).encode())


@pytest.mark.long
def test_mirror_that_is_behind_its_changelog_gets_all_changes(lake: LakeHarness) -> None:
    lake.write([DEFINITION, created(1), created(2), created(3)])
    mirror = lake.mirror()
    mirror.advance({ORDERS: {0: 1}})
    with pytest.raises(PowerCut), power_cut(3):
        mirror.advance({ORDERS: {0: 3}})
    mirror = lake.mirror()
    if len(lake.rows("orders", "shop_changes")) == 3:
        assert ids(lake) == [1]
    rebuild(lake, mirror)
    assert ids(lake) == sorted(row["id"] for row in lake.rows("orders", "shop_changes"))
    lake.catch_up()
    assert ids(lake) == [1, 2, 3]
    assert len(lake.rows("orders", "shop_changes")) == 3
