"""`replicator quarantine` as a user calls it."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from replicator.cli import app
from replicator.model.quarantine import (
    LogCoordinate,
    QuarantinedEvent,
    QuarantineFilter,
    ReplayResult,
    Resolution,
)
from tests.support.command_line import replace_module

PLACE = LogCoordinate("shop.shop.orders", 0, 17)
WAITING = QuarantinedEvent(PLACE, "shop.orders", 5, 1_700_000_000_000, "not JSON", b"k", b"garb\xff")
OLD = QuarantinedEvent(
    LogCoordinate("shop", 0, 3),
    None,
    5,
    1_600_000_000_000,
    "odd",
    None,
    None,
    Resolution.DROPPED,
    1_650_000_000_000,
)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> list[QuarantineFilter]:
    """Provide a quarantine of two events, and collect the filters with which it is read."""
    asked: list[QuarantineFilter] = []

    def read(_: Any, wanted: QuarantineFilter) -> list[QuarantinedEvent]:
        asked.append(wanted)
        return wanted.of([WAITING, OLD])

    replace_module(monkeypatch, "replicator.lake.reading.quarantine", read_quarantine=read)
    return asked


def test_quarantine_list_shows_unresolved_events(
    cli: Any, config: Path, there: list[QuarantineFilter]
) -> None:
    ran = cli("quarantine", "list", "--payload")
    assert ran.code == 0
    for shown in ("shop.shop.orders:0:17", "shop.orders", "not JSON", "garb\ufffd"):
        assert shown in ran.out
    assert "odd" not in ran.out
    ran = cli("quarantine", "list", "--all", "--limit", "1")
    assert "(schema changes)" in ran.out
    assert "dropped: odd" in ran.out
    assert "1 more; show them with --limit 2" in ran.out
    assert "No matching event" in cli("quarantine", "list", "--table", "shop.other").out


def test_quarantine_list_passes_the_filters(cli: Any, config: Path, there: list[QuarantineFilter]) -> None:
    options = ["--table", "shop.orders", "--table", "shop.b", "--reason", "json", "--id", str(PLACE)]
    cli("quarantine", "list", *options, "--since", "2020-01-31T12:00")
    at = round(datetime(2020, 1, 31, 12, tzinfo=UTC).timestamp() * 1000)
    assert there == [QuarantineFilter(("shop.orders", "shop.b"), "json", at, (PLACE,))]
    ran = cli("quarantine", "list", "--id", "17")
    assert (ran.code, "TOPIC:PARTITION:OFFSET" in ran.err) == (2, True)


def test_quarantine_replay_reports_each_result(
    cli: Any, config: Path, there: list[QuarantineFilter], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [
        ReplayResult(taken=[PLACE], ahead=[PLACE]),
        ReplayResult(bad=[(PLACE, "still not JSON")], gone=[PLACE]),
    ] * 2
    replace_module(
        monkeypatch, "replicator.operations.quarantine", replay_quarantined=lambda *_: answers.pop(0)
    )
    ran = cli("quarantine", "replay")
    assert (ran.code, "1 replayed, 0 left" in ran.out, "1 are beyond their table's position" in ran.out) == (
        0,
        True,
        True,
    )
    ran = cli("quarantine", "replay")
    assert ran.code == 1
    assert "0 replayed, 2 left" in ran.out
    assert "still not JSON" in ran.out
    found = json.loads(cli("quarantine", "replay", "--json").out)
    assert found == {"version": 1, "replayed": [str(PLACE)], "ahead": [str(PLACE)], "left": []}


def test_quarantine_drop_requires_confirmation(
    cli: Any,
    config: Path,
    there: list[QuarantineFilter],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dropped: list[list[LogCoordinate]] = []

    def drop(_: Any, places: list[LogCoordinate]) -> int:
        dropped.append(places)
        return len(places)

    replace_module(monkeypatch, "replicator.operations.quarantine", drop_quarantined=drop)
    asked = CliRunner().invoke(app, ["quarantine", "drop"], input="n\n")
    assert (asked.exit_code, "Drop 1 event permanently?" in asked.output) == (1, True)
    assert dropped == []
    ran = cli("quarantine", "drop", "--yes")
    assert (ran.code, "1 event dropped." in ran.out) == (0, True)
    assert dropped == [[PLACE]]
    ran = cli("quarantine", "drop", "--table", "shop.other", "--yes")
    assert (ran.code, "No matching event" in ran.out) == (1, True)
