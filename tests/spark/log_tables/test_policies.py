"""What happens with fields that are no columns."""

from collections.abc import Callable

import pytest

from replicator.log_tables.service import NotAppended
from tests.spark.log_tables.conftest import LogLake

Logs = Callable[..., LogLake]
ROAD = pytest.mark.parametrize("driver_max_events", [10_000, 0])


@ROAD
def test_columns_are_learnt_and_added(logs: Logs, driver_max_events: int) -> None:
    clicks = logs(
        {"driver_max_events": driver_max_events}, columns={"price": "decimal(10,2)"}, schema="evolve"
    )
    clicks.send('{"id": 1, "price": "1.50", "tags": ["a"], "device": {"os": "linux"}, "nothing": null}')
    clicks.appended()
    clicks.send('{"id": 2, "ok": true, "device": {"os": "mac", "build": {"n": 1}}, "nothing": 1.5}')
    [result] = clicks.appended()
    assert set(result.columns) == {"device.build", "ok", "nothing"}
    clicks.send('{"id": 3, "ID": 4}', '{"id": "text"}', '{"id": 5, "_pos": 1}')
    clicks.appended()
    assert clicks.values("id", "ok", "tags", "nothing") == [(1, None, '["a"]', None), (2, True, None, 1.5)]
    assert clicks.values("device") == [{"os": "linux", "build": None}, {"os": "mac", "build": {"n": 1}}]
    assert clicks.reasons() == {
        (0, 2): "ID is no column of the table",
        (0, 3): "id is no long",
        (0, 4): "_pos is no column of the table",
    }
    assert clicks.places() == clicks.sent()


@ROAD
def test_an_unknown_field_pauses_a_frozen_table(logs: Logs, driver_max_events: int) -> None:
    clicks = logs({"driver_max_events": driver_max_events}, columns={"id": "long"}, schema="freeze")
    clicks.send('{"id": 1}')
    clicks.appended()
    clicks.send('{"id": 2, "more": 1}')
    [paused] = clicks.catch_up()
    assert isinstance(paused, NotAppended)
    assert paused.reason == "events of clicks have fields that logs.clicks has no columns for: more"
    assert clicks.values("id") == [1]
    clicks.settings["columns"]["more"] = "int"
    clicks.appended()
    assert clicks.values("id", "more") == [(1, None), (2, 1)]


def test_a_paused_table_stops_no_other_and_is_tried_after_a_restart(logs: Logs) -> None:
    clicks = logs(columns={"id": "long"}, schema="freeze")
    clicks.send('{"more": 1}')
    tables = clicks.open()
    assert [type(result) for result in tables.catch_up()] == [NotAppended]
    assert tables.catch_up() == []
    assert [type(result) for result in clicks.open().catch_up()] == [NotAppended]


@ROAD
def test_events_with_unknown_fields_are_set_apart(logs: Logs, driver_max_events: int) -> None:
    clicks = logs({"driver_max_events": driver_max_events}, columns={"id": "long"}, schema="quarantine")
    clicks.send('{"id": 1}', '{"id": 2, "more": 1}', '{"id": 3, "more": null}')
    clicks.appended()
    assert clicks.values("id") == [1, 3]
    assert clicks.reasons() == {(0, 1): "more is no column of the table"}


def test_nested_records_as_text(logs: Logs) -> None:
    clicks = logs(nested="text")
    clicks.send('{"id": 1, "device": {"os": "linux"}}')
    clicks.appended()
    assert clicks.values("device") == ['{"os":"linux"}']


def test_lines_of_text_and_csv(logs: Logs) -> None:
    lines = logs(format="text")
    lines.send("a line", b"\xff", "")
    lines.appended()
    assert lines.values("line") == ["a line", ""]
    assert lines.reasons() == {(0, 1): "not text in UTF-8"}


def test_csv(logs: Logs) -> None:
    rows = logs(format="csv", delimiter=";", columns={"id": "long", "name": "string", "day": "date"})
    rows.send('1;"a;b";2026-11-29', "2;;", "3;x", "x;y;2026-11-30", '4;"a\nb";2026-11-30')
    rows.appended()
    assert rows.values("id", "name") == [(1, "a;b"), (2, None), (4, "a\nb")]
    assert rows.reasons() == {(0, 2): "not a row of CSV with 3 fields", (0, 3): "id is no long"}
