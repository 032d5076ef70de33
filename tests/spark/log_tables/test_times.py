"""Partitions by the time of events, the watermark, and retention."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from replicator.log_tables.service import NotAppended
from replicator.maintenance.plan import Step
from replicator.maintenance.table_reader import Target
from replicator.operations.drop import drop, plan_drop
from replicator.operations.maintain import maintain_tables
from tests.spark.log_tables.conftest import LogLake

Logs = Callable[..., LogLake]
ROAD = pytest.mark.parametrize("driver_max_events", [10_000, 0])
NOW = datetime(2026, 11, 29, 10, 30, tzinfo=UTC)


def at(moment: datetime | None) -> str:
    return f'{{"at": {"null" if moment is None else chr(34) + moment.isoformat() + chr(34)}}}'


def partitions(logs: LogLake) -> Counter[Any]:
    """Return partition → number of its rows."""
    found = Counter[Any]()
    with logs.lake.catalog() as catalog:
        for row in catalog.load_table(("logs", "clicks")).inspect.files().to_pylist():
            found[next(iter(row["partition"].values()))] += row["record_count"]
    return found


@ROAD
@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
def test_old_partitions_are_deleted_as_a_whole(logs: Logs, driver_max_events: int, kind: str) -> None:
    today = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0)
    clicks = logs(
        {"driver_max_events": driver_max_events},
        columns={"at": kind},
        event_time="at",
        partition="day",
        retention="2 days",
    )
    days = [today, today - timedelta(days=2), today - timedelta(days=3), today - timedelta(days=9)]
    clicks.send(*(at(day) if kind != "date" else f'{{"at": "{day.date()}"}}' for day in days), at(None))
    tables = clicks.open()
    tables.catch_up()
    assert len(partitions(clicks)) == 5
    clicks.send('{"at": null}')
    tables.catch_up()
    newest = today if kind != "date" else today.replace(hour=0)
    assert clicks.property("replicator.watermark-ms") == str(int(newest.timestamp() * 1000))
    assert tables.expire() == {"logs.clicks": 2}
    assert tables.expire() == {}
    assert sorted(partitions(clicks).values()) == [1, 1, 2]
    clicks.send('{"at": null}')
    assert [result.rows for result in clicks.appended()] == [1]


def test_late_events_are_in_their_own_partition(logs: Logs) -> None:
    clicks = logs(event_time="at", partition="hour")
    clicks.send(at(NOW), at(NOW + timedelta(minutes=29)))
    clicks.appended()
    clicks.send(at(NOW - timedelta(hours=5)), at(NOW + timedelta(minutes=30)))
    clicks.appended()
    assert sorted(partitions(clicks).values()) == [1, 1, 2]
    assert clicks.property("replicator.watermark-ms") == str(
        int((NOW + timedelta(minutes=30)).timestamp() * 1000)
    )


def test_another_partitioning_than_that_of_the_table_is_refused(logs: Logs) -> None:
    clicks = logs(columns={"at": "timestamptz"}, event_time="at", partition="hour")
    clicks.send(at(NOW))
    clicks.appended()
    clicks.settings["partition"] = "day"
    [paused] = clicks.catch_up()
    assert isinstance(paused, NotAppended)
    assert "is not partitioned as" in paused.reason


def test_maintain_and_drop_know_log_tables(logs: Logs) -> None:
    clicks = logs(columns={"at": "timestamptz"}, event_time="at", partition="day", retention="1 day")
    clicks.send(at(NOW.replace(year=2020)), at(datetime.now(UTC)))
    tables = clicks.open()
    tables.catch_up()
    [report] = maintain_tables(clicks.config, tables.lake, [Target("logs", "clicks", None)])
    assert [(step.step, step.rewritten) for step in report.done if step.rewritten] == [(Step.PARTITIONS, 1)]
    plan = plan_drop(clicks.config, "logs.clicks", purge=True)
    assert [table.name for table in plan.tables] == ["logs.clicks"]
    assert plan.selected
    assert drop(clicks.config, plan).dropped == ("logs.clicks",)
    with clicks.lake.catalog() as catalog:
        assert not catalog.table_exists(("logs", "clicks"))
