"""Batches on a real lake: partitions, strategies, fencing, fills, quarantine, odd names."""

import json
from typing import Any
from unittest.mock import patch

import pytest

from replicator.apply.publish import Staged, publish
from replicator.apply.stage import matching_positions
from replicator.batch import Engine, Work, process
from replicator.errors import CommitConflict, FencedError
from replicator.follow import go_through
from replicator.model.census import Census
from replicator.model.commit import MARKER_KEY, CommitMarker
from replicator.model.table import lake_names
from replicator.observe import Stopwatch
from replicator.source.log import Offsets
from tests.oracle.compare import assert_changelog_equals, assert_mirror_equals
from tests.oracle.events import (
    ColumnSpec,
    Place,
    change_event,
    key_of,
    schema_change_event,
    with_key_schema,
    with_value_schema,
)
from tests.oracle.model import Record, Source, SourceTable
from tests.spark.conftest import Lab
from tests.spark.test_law import PowerCut, power_cut

ORDERS = "shop.shop.orders"
COLUMNS = (ColumnSpec("id", "bigint", False), ColumnSpec("name", "varchar"))
DEFINITION = Record(
    "shop", 0, None, schema_change_event(Place(1, 4), "orders", COLUMNS, ["id"], kind="CREATE")
)


def event(
    op: str,
    pos: int,
    *,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    partition: int = 0,
) -> Record:
    """A change of the table orders."""
    row = before if op == "d" else after
    key = None if row is None else key_of(row, ["id"])
    value = change_event(op, Place(1, pos), "orders", before=before, after=after)
    return Record(ORDERS, partition, key, value)


def created(number: int, name: str = "new") -> Record:
    return event("c", 100 + number, after={"id": number, "name": name})


def half(ends: Offsets) -> dict[str, dict[int, int]]:
    return {t: {p: end // 2 for p, end in ps.items()} for t, ps in ends.items()}


def assert_equal(lab: Lab, tables: list[SourceTable]) -> None:
    with lab.catalog() as catalog:
        for table in tables:
            assert_mirror_equals(catalog, "shop", table)
            assert_changelog_equals(catalog, "shop", table)


@pytest.mark.parametrize("strategy", ["split", "merge", "copy-on-write"])
@pytest.mark.parametrize("partition", [("bucket(3, id)", "truncate(2, `a name`)"), ("days(seen)",)])
@pytest.mark.parametrize("few", [0, 10_000])
def test_partitioned_tables(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, strategy: str, partition: tuple[str, ...], few: int
) -> None:
    monkeypatch.setattr("replicator.batch.FEW_EVENTS", few)
    source = Source(11, truncates=False)
    source.start(["bigint"], rows=15)
    source.run(40)
    lab.write(source.delivered(1))
    (table,) = source.tables
    config = lab.config(
        table=[{"name": f"shop.{table.name}", "partition": list(partition), "strategy": strategy}]
    )
    mirror = lab.mirror(config)
    _, ends = mirror.engine.log.offsets()
    mirror.advance(half(ends))
    mirror.advance(ends)
    assert_equal(lab, source.tables)
    with lab.catalog() as catalog:
        found = catalog.load_table(("shop", table.name))
        assert len(found.spec().fields) == len(partition)
        deletes = int(found.metadata.snapshots[-1].summary.additional_properties["total-delete-files"])
    assert (deletes > 0) is (strategy != "copy-on-write")


@pytest.mark.parametrize("strategy", ["split", "merge", "copy-on-write"])
def test_names_that_mean_something_elsewhere(lab: Lab, strategy: str) -> None:
    """Reserved by Iceberg, used by the engine, or hard to quote."""
    names = [
        *("_file", "_pos", "_spec_id", "_partition", "_deleted", "file_path", "pos", "_change"),
        *("offset", "partition", "op", "bad", "before", "after", "place", "k0", "row"),
        *("a.b", "a`b", 'a"b', "a b", "größe"),
    ]
    columns = [ColumnSpec("k1", "bigint", False), *(ColumnSpec(n, "int") for n in names)]
    rows = [{"k1": i} | {n: i * 100 + j for j, n in enumerate(names)} for i in range(4)]
    changed = rows[1] | dict.fromkeys(names, 7)
    events = [
        *(("c", {"after": row}) for row in rows),
        ("u", {"before": rows[1], "after": changed}),
        ("d", {"before": rows[2]}),
    ]
    lab.write(
        [Record("shop", 0, None, schema_change_event(Place(1, 4), "orders", columns, ["k1"], kind="CREATE"))]
    )
    lab.write(
        Record(ORDERS, 0, None, change_event(op, Place(1, 10 + i), "orders", **images))
        for i, (op, images) in enumerate(events)
    )
    mirror = lab.mirror(lab.config(apply={"strategy": strategy}))
    mirror.advance({ORDERS: {0: 4}})
    mirror.advance({ORDERS: {0: 6}})
    assert mirror.summary().paused == {}
    in_lake = lake_names(rows[0])
    wanted = [{in_lake[name]: value for name, value in row.items()} for row in (rows[0], changed, rows[3])]
    assert in_lake["_file"] == "_file_"
    assert sorted(lab.rows("orders"), key=lambda r: r["k1"]) == wanted
    assert len(lab.rows("orders", "shop_changes")) == 7


def test_a_second_mirror_is_fenced_off(lab: Lab) -> None:
    lab.write([DEFINITION, *map(created, range(6))])
    first, second = lab.mirror(), lab.mirror()
    first.advance({ORDERS: {0: 3}})
    with pytest.raises(FencedError, match="another process writes"):
        second.advance({ORDERS: {0: 5}})
    first.advance({ORDERS: {0: 6}})
    assert sorted(r["id"] for r in lab.rows("orders")) == list(range(6))
    assert len(lab.rows("orders", "shop_changes")) == 6


def test_fencing_and_conflicts_of_one_commit(lab: Lab) -> None:
    lab.write([DEFINITION, created(1)])
    mirror = lab.catch_up()
    lake = mirror.engine.lake
    table, stale = lake.load("shop", "orders"), lake.load("shop", "orders")
    assert table is not None
    assert stale is not None
    base = table.marker()
    assert base is not None
    following = CommitMarker("shop", base.sequence + 1, 9, base.progress)
    with pytest.raises(FencedError):
        publish(lake, table, None, following, Staged())
    lake.set_properties(table, {"somebody": "else"})
    with pytest.raises(CommitConflict):
        publish(lake, stale, base, following, Staged())
    publish(lake, table, base, following, Staged())
    now = lake.load("shop", "orders")
    assert now is not None
    assert now.marker() == following
    # The very same commit again, as after an answer that was lost: it is known to have happened.
    with pytest.raises(FencedError):
        publish(lake, now, base, following, Staged())


def test_a_commit_from_elsewhere_in_between_is_planned_around(lab: Lab) -> None:
    """Maintenance from outside commits while a batch is at work."""
    lab.write([DEFINITION, created(1), created(2)])
    mirror = lab.mirror()
    mirror.advance({ORDERS: {0: 1}})
    disturbed: list[str] = []

    def reach(point: str) -> None:
        if point == "before-commit" and not disturbed:
            disturbed.append(point)
            for namespace in ("shop", "shop_changes"):
                table = mirror.engine.lake.load(namespace, "orders")
                assert table is not None
                mirror.engine.lake.set_properties(table, {"somebody": "else"})

    with patch("replicator.apply.publish.reach", reach):
        mirror.advance({ORDERS: {0: 2}})
    assert disturbed
    assert sorted(r["id"] for r in lab.rows("orders")) == [1, 2]
    assert len(lab.rows("orders", "shop_changes")) == 2


def test_compaction_from_elsewhere_keeps_the_ledger(lab: Lab) -> None:
    lab.write(
        [DEFINITION, created(1), created(2), event("d", 150, before={"id": 1, "name": "new"}), created(60)]
    )
    mirror = lab.mirror()
    for end in (1, 2, 3):
        mirror.advance({ORDERS: {0: end}})
    mirror.engine.spark.sql(
        "CALL lake.system.rewrite_data_files(table => 'shop.orders', options => map('rewrite-all', 'true'))"
    ).collect()
    again = lab.mirror()
    again.advance({ORDERS: {0: 4}})
    assert sorted(r["id"] for r in lab.rows("orders")) == [2, 60]
    assert len(lab.rows("orders", "shop_changes")) == 4


def test_rows_that_others_moved_are_found_again(lab: Lab) -> None:
    """A process remembers where it put its rows; a compaction in between puts them elsewhere."""
    updates = [
        event("u", 200 + n, before={"id": n, "name": "new"}, after={"id": n, "name": "2"}) for n in (1, 2)
    ]
    gone = [event("d", 300 + n, before={"id": n, "name": "2"}) for n in (1, 2)]
    again = event("c", 400, after={"id": 1, "name": "again"})
    lab.write([DEFINITION, created(1), created(2), *updates, *gone, again])
    mirror = lab.mirror()
    for end in range(1, 8):
        mirror.advance({ORDERS: {0: end}})
        assert len({r["id"] for r in lab.rows("orders")}) == len(lab.rows("orders"))
        if end in (2, 5):
            mirror.engine.spark.sql(
                "CALL lake.system.rewrite_data_files(table => 'shop.orders', options => map('rewrite-all', 'true'))"
            ).collect()
    assert lab.rows("orders") == [{"id": 1, "name": "again"}]


def test_small_batches_search_only_the_base(lab: Lab) -> None:
    """However many small files there are, only what was there before them is searched, and for unknown keys only."""
    searched: list[int] = []

    def search(lake: Any, table: Any, snapshot_id: int, names: Any, keys: Any) -> Any:
        searched.append(keys.count())
        return matching_positions(lake, table, snapshot_id, names, keys)

    updates = [
        event("u", pos, before={"id": 1, "name": "new"}, after={"id": 1, "name": "2"}) for pos in (150, 170)
    ]
    lab.write([DEFINITION, created(1), created(2), updates[0], created(60), updates[1]])
    lab.mirror().advance({ORDERS: {0: 2}})
    mirror = lab.mirror()
    with patch("replicator.apply.strategy.matching_positions", search):
        for end in (3, 4, 5):
            mirror.advance({ORDERS: {0: end}})
    assert searched == [1, 1], "key 1 in the base, the new key 60, and then key 1 is known"
    assert sorted(r["id"] for r in lab.rows("orders")) == [1, 2, 60]


def test_a_batch_without_changes_commits_its_marker_alone(lab: Lab) -> None:
    gone = event("d", 300, before={"id": 1, "name": "new"})
    lab.write([DEFINITION, created(1), gone, Record(ORDERS, 0, gone.key, None), created(1), gone])
    mirror = lab.mirror()
    mirror.advance({ORDERS: {0: 2}})
    with lab.catalog() as catalog:
        before = catalog.load_table(("shop", "orders"))
    mirror.advance({ORDERS: {0: 5}})
    with lab.catalog() as catalog:
        after = catalog.load_table(("shop", "orders"))
    assert after.metadata.current_snapshot_id == before.metadata.current_snapshot_id
    progress = json.loads(after.properties[MARKER_KEY])["topics"][ORDERS]["0"]
    assert progress["next"] == 5
    assert lab.rows("orders") == []


@pytest.mark.parametrize("strategy", ["split", "merge"])
@pytest.mark.parametrize("crash", [0, 4, 5])
def test_added_columns_are_filled_once_whatever_happens(lab: Lab, strategy: str, crash: int) -> None:
    newer = [*COLUMNS, ColumnSpec("state", "varchar", False, "it's new"), ColumnSpec("note", "int")]
    altered = schema_change_event(Place(1, 500), "orders", newer, ["id"], kind="ALTER")
    lab.write([DEFINITION, created(1), created(2)])
    lab.catch_up(lab.config(apply={"strategy": strategy}))
    row = {"id": 2, "name": "new", "state": "it's new", "note": None}
    lab.write([Record("shop", 0, None, altered), event("u", 600, before=row, after=row | {"note": 5})])
    if crash:
        with pytest.raises(PowerCut), power_cut(crash):
            lab.catch_up(lab.config(apply={"strategy": strategy}))
    lab.catch_up(lab.config(apply={"strategy": strategy}))
    assert sorted(lab.rows("orders"), key=lambda r: r["id"]) == [
        {"id": 1, "name": "new", "state": "it's new", "note": None},
        row | {"note": 5},
    ]
    assert len(lab.rows("orders", "shop_changes")) == 4


GARBAGE = [Record(ORDERS, 0, b"k", b"garbage{"), Record(ORDERS, 0, None, b'{"schema":{},"payload":{}}')]


def test_quarantine_holds_each_bad_event_once(lab: Lab) -> None:
    lab.write([DEFINITION, created(1), *GARBAGE, created(2)])
    for crash in (2, 3, 5):
        with pytest.raises(PowerCut), power_cut(crash):
            lab.catch_up()
    mirror = lab.catch_up()
    assert mirror.summary().paused == {}
    assert sorted(r["id"] for r in lab.rows("orders")) == [1, 2]
    found = sorted(lab.rows("quarantine", "shop_ops"), key=lambda r: r["offset"])
    assert [(r["table"], r["topic"], r["partition"], r["offset"], r["key"], r["value"]) for r in found] == [
        ("shop.orders", ORDERS, 0, 1, b"k", b"garbage{"),
        ("shop.orders", ORDERS, 0, 2, None, GARBAGE[1].value),
    ]
    assert all(r["reason"] for r in found)


def test_bad_schema_changes_go_to_quarantine_once_and_stop_nothing(lab: Lab) -> None:
    bad = [
        Record("shop", 0, b"k", b"garbage{"),
        Record("shop", 0, None, b"\xff"),
        Record("shop", 0, None, b'{"a":1}'),
    ]
    lab.write([bad[0], DEFINITION, Record("shop", 0, None, None), *bad[1:], created(1)])
    for crash in (1, 2):
        with pytest.raises(PowerCut), power_cut(crash):
            lab.catch_up()
    mirror = lab.catch_up()
    assert mirror.summary().paused == {}
    assert lab.rows("orders") == [{"id": 1, "name": "new"}]
    for _ in range(2):
        found = sorted(lab.rows("quarantine", "shop_ops"), key=lambda r: r["offset"])
        assert [(r["table"], r["topic"], r["offset"], r["key"], r["value"]) for r in found] == [
            (None, "shop", offset, record.key, record.value)
            for offset, record in zip((0, 3, 4), bad, strict=True)
        ]
        assert all("not a schema-change event" in r["reason"] and r["timestamp"] for r in found)
        lab.write([created(2)])
        lab.catch_up()
    lab.write([bad[0]])
    with patch("replicator.mirror._LOG") as log:
        assert lab.catch_up().summary().quarantined == 1
    ((event,), fields) = log.warning.call_args
    assert "schema change" in event
    assert (fields["topic"], fields["partition"], fields["offset"]) == ("shop", 0, 5)
    assert len(lab.rows("quarantine", "shop_ops")) == 4


def test_a_table_may_pause_for_bad_events_and_go_on_later(lab: Lab) -> None:
    others = (ColumnSpec("id", "bigint", False),)
    lab.write(
        [
            DEFINITION,
            Record(
                "shop", 0, None, schema_change_event(Place(1, 4), "others", others, ["id"], kind="CREATE")
            ),
        ]
    )
    lab.write([created(1), *GARBAGE, created(2)])
    lab.write(
        [Record("shop.shop.others", 0, None, change_event("c", Place(1, 9), "others", after={"id": 5}))]
    )
    pausing = lab.config(table=[{"name": "shop.orders", "on_bad_event": "pause"}])
    for _ in range(2):
        mirror = lab.catch_up(pausing)
        assert list(mirror.summary().paused) == ["shop.orders"]
    assert lab.rows("others") == [{"id": 5}]
    mirror = lab.catch_up()
    assert mirror.summary().paused == {}
    assert sorted(r["id"] for r in lab.rows("orders")) == [1, 2]
    assert len(lab.rows("quarantine", "shop_ops")) == 2


def test_tables_that_cannot_be_mirrored_pause_alone(lab: Lab) -> None:
    nokey = schema_change_event(Place(1, 4), "nokey", COLUMNS, [], kind="CREATE")
    lab.write([DEFINITION, Record("shop", 0, None, nokey), created(1)])
    row = {"id": 1, "name": "x"}
    for name in ("nokey", "unknown"):
        value = change_event("c", Place(1, 9), name, after=row)
        lab.write([Record(f"shop.shop.{name}", 0, None, value)])
    summary = lab.catch_up().summary()
    assert set(summary.paused) == {"shop.nokey", "shop.unknown"}
    assert "no primary key" in summary.paused["shop.nokey"]
    assert lab.rows("orders") == [row | {"name": "new"}]
    with_key = lab.config(table=[{"name": "shop.nokey", "key": ["id"]}])
    assert set(lab.catch_up(with_key).summary().paused) == {"shop.unknown"}
    assert lab.rows("nokey") == [row]


@pytest.mark.parametrize("kind", ["spark", "java"])
def test_a_table_whose_work_fails_pauses_alone(lab: Lab, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    def failing(engine: Engine, work: Work, watch: Stopwatch) -> Census:
        if work.table.name != "orders":
            return process(engine, work, watch)
        if kind == "spark":
            engine.spark.sql("SELECT raise_error('this is odd')").collect()
        engine.spark._jvm.java.util.ArrayDeque().pop()
        raise AssertionError

    monkeypatch.setattr("replicator.mirror.process", failing)
    monkeypatch.setattr("replicator.mirror.RETRY_S", (0.0, 0.0))
    others = schema_change_event(Place(1, 4), "others", COLUMNS, ["id"], kind="CREATE")
    row = {"id": 5, "name": "x"}
    lab.write([DEFINITION, Record("shop", 0, None, others), created(1)])
    lab.write([Record("shop.shop.others", 0, None, change_event("c", Place(1, 9), "others", after=row))])
    mirror = lab.mirror()
    go_through(mirror, None)
    (reason,) = mirror.summary().paused.values()
    assert ("this is odd" if kind == "spark" else "java.util.NoSuchElementException") in reason
    assert lab.rows("others") == [row]
    monkeypatch.undo()
    assert lab.catch_up().summary().paused == {}
    assert [r["id"] for r in lab.rows("orders")] == [1]


def test_a_type_that_cannot_be_widened_pauses_the_table(lab: Lab) -> None:
    lab.write([DEFINITION, created(1)])
    lab.catch_up()
    changed = [ColumnSpec("id", "bigint", False), ColumnSpec("name", "int")]
    altered = schema_change_event(Place(1, 500), "orders", changed, ["id"], kind="ALTER")
    lab.write([Record("shop", 0, None, altered), event("c", 600, after={"id": 2, "name": 5})])
    (reason,) = lab.catch_up().summary().paused.values()
    assert "name is string in the lake and now int in the source" in reason
    assert [r["id"] for r in lab.rows("orders")] == [1]


def test_a_table_without_changelog(lab: Lab) -> None:
    source = Source(5)
    source.start(["bigint"], rows=5)
    source.run(40)
    lab.write(source.delivered(2))
    mirror = lab.mirror(lab.config(apply={"changelog": False}))
    _, ends = mirror.engine.log.offsets()
    mirror.advance(half(ends))
    mirror.advance(ends)
    with lab.catalog() as catalog:
        assert_mirror_equals(catalog, "shop", source.tables[0])
        assert not catalog.table_exists(("shop_changes", source.tables[0].name))


def test_the_report_counts_every_piece_of_a_batch(lab: Lab) -> None:
    lab.write([DEFINITION, *map(created, range(9))])
    mirror = lab.mirror(lab.config(apply={"max_events": 4}))
    report = mirror.advance({ORDERS: {0: 9}})
    assert report is not None
    assert (report.events, dict(report.rows)) == (9, {"INSERT": 9})


SCATTERED = [
    event("c", 101, after={"id": 1, "name": "a"}),
    event("c", 102, after={"id": 2, "name": "b"}, partition=1),
    event("t", 200),
    event("c", 301, after={"id": 3, "name": "c"}, partition=1),
    event("c", 302, after={"id": 4, "name": "d"}, partition=1),
    event("d", 303, before={"id": 4, "name": "d"}, partition=1),
    event("c", 304, after={"id": 5, "name": "e"}),
]
"""A table of two partitions that is emptied; the truncate stands on one of them only."""


@pytest.mark.parametrize("strategy", ["split", "merge", "copy-on-write"])
@pytest.mark.parametrize("cut", [{0: 2}, {1: 2}, {0: 1, 1: 2}, {0: 1, 1: 3}, {0: 3, 1: 1}, {0: 3}])
def test_a_truncate_on_one_of_several_partitions(lab: Lab, strategy: str, cut: dict[int, int]) -> None:
    """Older events may come after it, and later ones before it."""
    lab.write([DEFINITION, *SCATTERED])
    mirror = lab.mirror(lab.config(apply={"strategy": strategy}))
    mirror.advance({ORDERS: cut})
    mirror.advance({ORDERS: {0: 3, 1: 4}})
    assert mirror.summary().paused == {}
    assert sorted(r["id"] for r in lab.rows("orders")) == [3, 5]
    assert len(lab.rows("orders", "shop_changes")) == 7


def test_rows_that_a_truncate_spares_keep_their_fills(lab: Lab) -> None:
    newer = [*COLUMNS, ColumnSpec("state", "varchar", False, "new")]
    altered = schema_change_event(Place(1, 400), "orders", newer, ["id"], kind="ALTER")
    lab.write([DEFINITION, *SCATTERED[:2], SCATTERED[3]])
    lab.catch_up()
    lab.write([Record("shop", 0, None, altered), SCATTERED[2], SCATTERED[6]])
    lab.catch_up()
    assert sorted(lab.rows("orders"), key=lambda r: r["id"]) == [
        {"id": 3, "name": "c", "state": "new"},
        {"id": 5, "name": "e", "state": "new"},
    ]


def test_without_a_changelog_a_truncate_that_came_too_late_pauses_the_table(lab: Lab) -> None:
    lab.write([DEFINITION, *SCATTERED])
    config = lab.config(apply={"changelog": False})
    mirror = lab.mirror(config)
    mirror.advance({ORDERS: {0: 1, 1: 2}})
    mirror.advance({ORDERS: {0: 3, 1: 4}})
    (reason,) = mirror.summary().paused.values()
    assert "TRUNCATE" in reason
    assert sorted(r["id"] for r in lab.rows("orders")) == [1, 2, 3]


def test_without_a_changelog_events_from_before_a_truncate_stay_out(lab: Lab) -> None:
    lab.write([DEFINITION, *SCATTERED])
    mirror = lab.mirror(lab.config(apply={"changelog": False}))
    mirror.advance({ORDERS: {0: 2}})
    mirror.advance({ORDERS: {0: 3, 1: 1}})
    mirror.advance({ORDERS: {0: 3, 1: 4}})
    assert mirror.summary().paused == {}
    assert sorted(r["id"] for r in lab.rows("orders")) == [3, 5]


def test_a_changelog_that_is_switched_on_later_does_not_empty_the_mirror(lab: Lab) -> None:
    """The log is then read again from its beginning, with truncates that the mirror has long since."""
    lab.write([DEFINITION, *SCATTERED])
    lab.catch_up(lab.config(apply={"changelog": False}))
    lab.catch_up()
    assert sorted(r["id"] for r in lab.rows("orders")) == [3, 5]
    assert len(lab.rows("orders", "shop_changes")) == 7


PRICED = (ColumnSpec("id", "bigint", False), ColumnSpec("price", "decimal"))


def priced(number: int, price: Any, *, with_schema: bool) -> Record:
    value = change_event("c", Place(1, 100 + number), "orders", after={"id": number, "price": price})
    key = key_of({"id": number}, ["id"])
    if with_schema:
        value = with_value_schema(value, PRICED, ORDERS)
        key = with_key_schema(key, PRICED, ["id"], ORDERS)
    return Record(ORDERS, 0, key, value)


@pytest.mark.parametrize("with_schema", [True, False])
@pytest.mark.parametrize(
    ("prices", "wanted"),
    [
        # 5.00 in base64, and one that is a number as well.
        (["AfQ=", "1234", None, "AfQ="], ["5.00", "-26588.24", None, "5.00"]),
        ([None, None, "AfQ=", "1234"], [None, None, "5.00", "-26588.24"]),
        ([None, None, 12.5, None], [None, None, "12.50", None]),
        # The connector was set otherwise in between.
        ([1.5, None, "AfQ=", 2.5], ["1.50", None, "5.00", "2.50"]),
        (["AfQ=", "AfQ=", 2.5, "1234"], ["5.00", "5.00", "2.50", "-26588.24"]),
    ],
)
def test_decimals_are_read_as_they_are_written(
    lab: Lab, with_schema: bool, prices: list[Any], wanted: list[str | None]
) -> None:
    definition = schema_change_event(Place(1, 4), "orders", PRICED, ["id"], kind="CREATE")
    lab.write([Record("shop", 0, None, definition)])
    lab.write([priced(i, price, with_schema=with_schema) for i, price in enumerate(prices)])
    mirror = lab.mirror()
    mirror.advance({ORDERS: {0: 2}})
    mirror.advance({ORDERS: {0: 4}})
    summary = mirror.summary()
    assert (summary.paused, summary.quarantined) == ({}, 0)
    rows = sorted(lab.rows("orders"), key=lambda r: r["id"])
    assert [None if r["price"] is None else str(r["price"]) for r in rows] == wanted


def test_decimals_as_text(lab: Lab) -> None:
    definition = schema_change_event(Place(1, 4), "orders", PRICED, ["id"], kind="CREATE")
    lab.write([Record("shop", 0, None, definition)])
    lab.write([priced(i, price, with_schema=False) for i, price in enumerate(["-12.30", None, "1234"])])
    lab.catch_up()
    rows = sorted(lab.rows("orders"), key=lambda r: r["id"])
    assert [None if r["price"] is None else str(r["price"]) for r in rows] == ["-12.30", None, "1234.00"]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_table_that_begins_with_garbage_goes_on_with_the_first_good_event(
    lab: Lab, restarted: bool
) -> None:
    """Nothing defines the table but the events themselves."""
    lab.write([*GARBAGE, priced(1, 2.5, with_schema=True), Record(ORDERS, 0, b"k", None)])
    mirror = lab.mirror()
    mirror.advance({ORDERS: {0: 2}})
    assert mirror.summary().paused == {}
    assert len(lab.rows("quarantine", "shop_ops")) == 2
    if restarted:
        mirror = lab.mirror()
    mirror.advance({ORDERS: {0: 4}})
    assert mirror.summary().paused == {}
    assert [r["id"] for r in lab.rows("orders")] == [1]
    assert len(lab.rows("orders", "shop_changes")) == 1
    found = lab.rows("quarantine", "shop_ops")
    assert sorted(r["offset"] for r in found) == [0, 1]
    assert all(r["reason"] for r in found)


def test_garbage_alone_after_a_restart_is_passed_over(lab: Lab) -> None:
    lab.write([priced(1, 2.5, with_schema=True)])
    lab.catch_up()
    lab.write([*GARBAGE, Record(ORDERS, 0, b"k", None)])
    mirror = lab.catch_up()
    assert mirror.summary().paused == {}
    assert len(lab.rows("quarantine", "shop_ops")) == 2
    with lab.catalog() as catalog:
        for namespace in ("shop", "shop_changes"):
            properties = catalog.load_table((namespace, "orders")).properties
            assert json.loads(properties[MARKER_KEY])["topics"][ORDERS]["0"]["next"] == 4
    pausing = lab.config(apply={"on_bad_event": "pause"})
    lab.write(GARBAGE)
    (reason,) = lab.catch_up(pausing).summary().paused.values()
    assert "could not be decoded" in reason
