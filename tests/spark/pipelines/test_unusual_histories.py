"""Histories of tables that were read again, that got a changelog later, or whose key became another one."""

from collections import Counter
from typing import Any

import pytest

from replicator.config import Config
from replicator.model.reread import new_request
from replicator.model.table import TableId
from replicator.pipelines.checking import check_history
from replicator.pipelines.history.definition import histories_of
from replicator.runner.rounds import Rounds
from tests.oracle.events import ColumnSpec
from tests.oracle.model import DATABASE, Change, Source, SourceTable
from tests.oracle.versions import newest_rows
from tests.spark.pipelines.test_histories import (
    as_text,
    assert_appended,
    assert_times,
    assert_versions,
    in_lake,
    with_histories,
)
from tests.spark.test_reread_law import change_silently
from tests.support.lake_harness import LakeHarness
from tests.support.pipeline_lake import PipelineLake, Round
from tests.support.reread_lake import LakeReread
from tests.support.scenario import ID, Scenario

CODE = ColumnSpec("code", "bigint", False)


def read_again(lake: LakeHarness, source: Source, table: SourceTable, config: Config) -> None:
    """Read a table again, and note what it finds among the changes of the table."""
    known = _known(table)
    source._pos += 10
    place = f"mysql-bin.{source.position[0]:06d}", source.position[1]
    request = new_request(TableId(DATABASE, table.name), "a test")
    began = (*place, source._ts + 1_000)
    LakeReread(lake.mirror(config), table, request, began).read([table])
    LakeReread(lake.mirror(config), table, request, began).complete()
    mirror = lake.mirror(config)
    Rounds(mirror, follows=False).advance(mirror.context.log.offsets()[1])
    assert LakeReread(mirror, table, request, began).publish() > 0
    for key in known.keys() | table.rows.keys():
        old, new = known.get(key), table.rows.get(key)
        if old is not None and new is None:
            table.changes.append(Change("DELETE", "h", old, *place, 0))
        elif new is not None and new != old:
            table.changes.append(
                Change("INSERT" if old is None else "UPDATE_AFTER", "h", dict(new), *place, 0)
            )


def _known(table: SourceTable) -> dict[Any, dict[str, Any]]:
    """Return the rows that the changes of a table tell, by key."""
    rows: dict[Any, dict[str, Any]] = {}
    for change in table.changes:
        row = change.row or {}
        if change.kind in ("INSERT", "UPDATE_AFTER"):
            rows[table.key_of(row)] = row
        elif change.kind == "DELETE":
            del rows[table.key_of(row)]
    return rows


@pytest.mark.parametrize("history", ["scd2", "soft_delete", "append"])
def test_what_a_reread_finds_are_changes_at_its_position(lake: LakeHarness, history: str) -> None:
    source = Source(13, alters=0, truncates=False, gtids=True)
    source.start(["bigint"], 15)
    (table,) = source.tables
    config = with_histories(lake, source, history=history)
    pipelines, round_ = PipelineLake(lake, config), Round(lake, source)
    round_.write(transactions=15)
    pipelines.refreshed()
    for silent in (6, 4):
        change_silently(source, table, silent)
        read_again(lake, source, table, config)
        assert {str(r.outcome) for r in pipelines.refreshed().values()} == {"changed"}
        round_.write(transactions=10)
        assert {str(r.outcome) for r in pipelines.refreshed().values()} == {"changed"}
    rows = lake.rows(table.name, "shop_history")
    if history == "scd2":
        assert_versions(rows, table)
        assert_times(rows, table)
        assert {row["_version"]["from_op"] for row in rows} >= {"h"}
        assert check_history(pipelines.pipelines(), histories_of(config)[0]).is_equal
    elif history == "append":
        assert_appended(rows, table)
        assert check_history(pipelines.pipelines(), histories_of(config)[0]).is_equal
    else:
        names = [column.name for column in table.columns]
        found = Counter((as_text(row, names), row["deleted_at"] is not None) for row in rows)
        assert found == Counter((as_text(in_lake(r, table), names), gone) for r, gone in newest_rows(table))


def test_changelog_that_is_switched_on_later_has_all_that_the_log_has(lake: LakeHarness) -> None:
    source = Source(17, alters=0, truncates=False, gtids=True)
    source.start(["bigint"], 25)
    (table,) = source.tables
    source.run(10)
    lake.write(source.records, partitions={table.topic: 1})
    lake.catch_up(lake.config(apply={"changelog": False}))
    pipelines = PipelineLake(lake, with_histories(lake, source, history="scd2"))
    round_ = Round(lake, source, len(source.records))
    for outcome in ("built", "changed", "changed"):
        round_.write(transactions=8)
        assert {str(r.outcome) for r in pipelines.refreshed().values()} == {outcome}
    rows = lake.rows(table.name, "shop_history")
    assert_versions(rows, table)
    assert_times(rows, table)
    assert check_history(pipelines.pipelines(), histories_of(pipelines.config)[0]).is_equal


def versions(lake: LakeHarness, *names: str) -> Counter[tuple[Any, ...]]:
    """Return the values of versions with the position where each begins and ends."""
    return Counter(
        (*(row[name] for name in names), row["_version"]["from_pos"], row["_version"]["to_pos"])
        for row in lake.rows("orders", "shop_history")
    )


def test_history_begins_where_other_columns_become_the_key(lake: LakeHarness) -> None:
    scenario = Scenario([ID, CODE], with_schemas=False)
    config = lake.config(table=[{"name": "shop.orders", "history": "scd2"}])
    pipelines = PipelineLake(lake, config)

    def follow() -> tuple[str, str | None]:
        """Follow the log; return what that did to the history, and why."""
        lake.write(scenario.records)
        scenario.records.clear()
        lake.catch_up(config)
        (found,) = pipelines.refreshed().values()
        return str(found.outcome), found.reason

    scenario.insert(id=1, code=10)
    scenario.insert(id=2, code=20)
    scenario.change("u", before={"id": 2, "code": 20}, after={"id": 2, "code": 21})
    scenario.insert(id=3, code=30)
    follow()
    assert versions(lake, "id", "code").total() == 4
    scenario.define("ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (code)", [ID, CODE], ["code"])
    first = scenario.pos + 100
    scenario.change("u", before={"id": 2, "code": 21}, after={"id": 3, "code": 21})
    second = scenario.pos + 100
    assert follow() == ("built", "its columns changed")
    begun: dict[tuple[int | None, ...], int] = {
        (1, 10, None, None): 1,
        (3, 30, None, None): 1,
        (2, 21, None, first): 1,
    }
    assert versions(lake, "id", "code") == {**begun, (3, 21, first, None): 1}
    scenario.change("d", before={"id": 3, "code": 30})
    scenario.insert(id=3, code=40)
    assert follow() == ("changed", None)
    begun |= {(3, 30, None, second): 1}
    del begun[3, 30, None, None]
    assert versions(lake, "id", "code") == {**begun, (3, 21, first, None): 1, (3, 40, second + 100, None): 1}
    assert check_history(pipelines.pipelines(), histories_of(config)[0]).is_equal


def test_versions_stay_if_a_column_of_the_key_is_renamed(lake: LakeHarness) -> None:
    scenario = Scenario([ID, CODE], with_schemas=False)
    config = lake.config(table=[{"name": "shop.orders", "history": "scd2"}])
    pipelines = PipelineLake(lake, config)
    number = ColumnSpec("number", "bigint", False)
    scenario.insert(id=1, code=10)
    first = scenario.pos
    scenario.change("u", before={"id": 1, "code": 10}, after={"id": 1, "code": 11})
    second = scenario.pos
    lake.write(scenario.records)
    lake.catch_up(config)
    pipelines.refreshed()
    scenario.records.clear()
    scenario.define("ALTER TABLE orders CHANGE id number BIGINT NOT NULL", [number, CODE], ["number"])
    scenario.change("u", before={"number": 1, "code": 11}, after={"number": 1, "code": 12})
    lake.write(scenario.records)
    lake.catch_up(config)
    pipelines.refreshed()
    assert versions(lake, "number", "code") == {
        (1, 10, first, second): 1,
        (1, 11, second, scenario.pos): 1,
        (1, 12, scenario.pos, None): 1,
    }
    assert check_history(pipelines.pipelines(), histories_of(config)[0]).is_equal


def test_deleted_at_does_not_depend_on_refreshes_if_the_clock_goes_back(lake: LakeHarness) -> None:
    source = Source(3, alters=0, gtids=True)
    source.start(["bigint"], 15)
    pipelines = PipelineLake(lake, with_histories(lake, source, history="soft_delete"))
    round_ = Round(lake, source)
    for _ in range(3):
        round_.write(transactions=25)
        pipelines.refreshed()
        source._ts -= 3_600_000
    (table,) = source.tables
    rows = lake.rows(table.name, "shop_history")
    assert len({row["deleted_at"] for row in rows}) > 2
    assert check_history(pipelines.pipelines(), histories_of(pipelines.config)[0]).is_equal
