"""What the reports of the commands print."""

import io
import re
import time
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from replicator.cli.output import duration
from replicator.cli.render import noteworthy, print_checks, reread_lines
from replicator.cli.render_status import StatusParts, print_status, status_report
from replicator.model.reread import Phase, Request, new_request
from replicator.model.table import TableId
from replicator.operations.check.result import CheckResult
from replicator.operations.status.mirror_status import (
    MirrorState,
    MirrorStatus,
    Problem,
    RunStatus,
    TableMaintenance,
    TableStatus,
)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (3.21, "3.2 s"),
        (60, "1 min 0 s"),
        (250, "4 min 10 s"),
        (7500, "2 h 5 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_duration_is_rendered_as_text(seconds: float, text: str) -> None:
    assert duration(seconds) == text


TABLE = TableStatus(
    table="shop.orders",
    source="shop.orders",
    state="behind",
    rows=1_200_000,
    changes=None,
    events_behind=42,
    position="mysql-bin.000003:1234",
    newest_change_ms=1,
    lag_seconds=90.0,
    committed_ms=1,
    commits=7,
    quarantined=2,
    data_files=3,
    delete_files=1,
    bytes=9,
)


def test_print_status_writes_a_row_per_table_and_notes(capsys: pytest.CaptureFixture[str]) -> None:
    table = TABLE
    print_status(
        MirrorStatus("shop", "shop", (table,), ("shop.new",), {"shop.log": "no key"}, 5, None), as_json=False
    )
    shown = capsys.readouterr().out
    for text in ("behind", "1,200,000", "42", "1 min"):
        assert text in shown
    assert "In the log, not in the lake yet: shop.new" in shown
    assert "shop.log is paused: no key" in shown
    assert "shop.orders: 2 events are in quarantine" in shown
    assert "5 events are in quarantine, each with its reason\n  next: replicator quarantine list" in shown
    assert "mysql-bin" not in shown


OVERDUE = TableMaintenance(
    table="shop_ops.quarantine",
    source=None,
    data_files=20,
    delete_files=0,
    bytes=0,
    snapshots=20,
    metadata_bytes=None,
    maintained_ms=None,
    steps={},
    due=("merge data files", "delete snapshots"),
    overdue=("merge data files", "delete snapshots"),
)


def maintained() -> MirrorStatus:
    """Return a status with a table that was maintained two and a half hours ago, and one that needs it."""
    last = round(time.time() * 1000) - 9_030_000
    merged = TableMaintenance(
        table="shop.orders",
        source="shop.orders",
        data_files=1_234,
        delete_files=12,
        bytes=2_500_000,
        snapshots=1_001,
        metadata_bytes=345_678,
        maintained_ms=last,
        steps={"delete snapshots": last - 400_000, "merge data files": last},
        due=("merge data files",),
        overdue=(),
    )
    return MirrorStatus("shop", "shop", (), (), {}, 0, None, maintenance=(merged, OVERDUE))


NOTE = (
    "Maintenance is due: shop_ops.quarantine (merge data files, delete snapshots)\n  "
    "next: replicator maintain"
)


def test_print_status_shows_maintenance_when_asked(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(maintained(), StatusParts(maintenance=True), as_json=False)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines() if line.strip()]
    head = "lake table data deletes size snapshots metadata maintained due"
    row = "shop.orders 1,234 12 2.5 MB 1,001 0.3 MB 2 h 30 min ago: merge data files merge data files"
    assert lines[1:] == [
        head,
        row,
        "shop_ops.quarantine 20 0 0.0 MB 20 ? - merge data files, delete snapshots",
        *(line.strip() for line in NOTE.splitlines()),
    ]


def test_print_status_shows_only_overdue_maintenance_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(maintained(), as_json=False)
    assert capsys.readouterr().out.splitlines()[1:] == NOTE.splitlines()


def run_of(state: MirrorState, **changed: Any) -> MirrorStatus:
    """Return the status of a mirror whose process is in a state since half a minute."""
    now = round(time.time() * 1000)
    run = RunStatus(state, 4711, "here", now - 30_000, **changed)
    return MirrorStatus("shop", "shop", (), (), {}, 0, None, run=run, lag_seconds=0.84)


def lines_of(status: MirrorStatus, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_status(status, as_json=False)
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("status", "first"),
    [
        (run_of("killed"), r"shop: NOT RUNNING since (?:\S+ )?\d\d:\d\d:\d\d \(process 4711 was killed\)"),
        (run_of("ended"), r"shop: NOT RUNNING since (?:\S+ )?\d\d:\d\d:\d\d"),
        (
            MirrorStatus("shop", "shop", (), (), {}, 0, None, run=RunStatus("unknown")),
            "shop: NOT RUNNING on this machine, where it has never run",
        ),
    ],
)
def test_first_line_says_that_the_mirror_does_not_run(
    status: MirrorStatus, first: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = lines_of(status, capsys)
    assert re.fullmatch(first, lines[0])
    assert lines[1] == "  next: replicator run"


def test_first_line_has_the_last_commit_if_another_machine_may_run_the_mirror(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = replace(TABLE, committed_ms=round(time.time() * 1000) - 15_000)
    status = MirrorStatus("shop", "shop", (table,), (), {}, 0, None, run=RunStatus("unknown"))
    assert re.search(r"where it has never run; last commit 1\d s ago$", lines_of(status, capsys)[0])


def test_reason_of_the_end_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert "  it ended with: the catalog is away" in lines_of(
        run_of("ended", reason="the catalog is away"), capsys
    )


def test_problem_of_all_tables_is_said_once_before_them(capsys: pytest.CaptureFixture[str]) -> None:
    tables = tuple(
        replace(
            TABLE, source=f"shop.t{n}", state="unknown", reason="has all of the log; the connector is gone"
        )
        for n in range(3)
    )
    status = MirrorStatus(
        "shop",
        "shop",
        tables,
        (),
        {},
        0,
        None,
        problems=(Problem("the connector is gone", "run: replicator connect"),),
    )
    lines = lines_of(status, capsys)
    assert lines[:2] == ["the connector is gone", "  next: replicator connect"]
    assert sum("the connector is gone" in line for line in lines) == 1


def test_status_fits_80_columns() -> None:
    table = replace(
        TABLE, table="shop.orders_of_customers", changes=123_456_789, rows=98_765_432, quarantined=0
    )
    status = replace(run_of("running", batch_ms=round(time.time() * 1000) - 2_000), tables=(table,) * 3)
    console = Console(width=80, file=io.StringIO(), record=True)
    for part in status_report(status):
        console.print(part)
    lines = console.export_text().splitlines()
    assert len(lines) == 5
    assert max(map(len, lines)) <= 80


CHECKS = [
    CheckResult("source: version", "ok", "MySQL 9.7"),
    CheckResult("log: topics", "warn", "no topic", "run: replicator connect; if it runs, wait"),
    CheckResult("lake: warehouse", "fail", "/lake is not writable", "change its owner"),
]


def test_check_shows_failures_first_and_what_passed_only_if_wanted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_checks(CHECKS, "fail", as_json=False, everything=False)
    assert capsys.readouterr().out.splitlines() == [
        "fail  lake: warehouse: /lake is not writable",
        "      next: change its owner",
        "warn  log: topics: no topic",
        "      next: run: replicator connect; if it runs, wait",
        "            replicator connect",
        "Some checks failed: fix them, then run this again. 1 check passed; --all shows them.",
    ]
    print_checks(CHECKS, "fail", as_json=False)
    assert "MySQL 9.7" in capsys.readouterr().out


def request(name: str, phase: Phase, ended_ms: int | None = None) -> Request:
    return replace(new_request(TableId("shop", name), "new table"), phase=phase, ended_ms=ended_ms)


def test_status_shows_unfinished_rereads_and_the_newest_of_the_others() -> None:
    done = [request(f"t{n}", Phase.DONE, n) for n in range(100)]
    others = [request("a", Phase.READING), request("b", Phase.FAILED, 1)]
    shown = noteworthy([*others, *done], at_ms=100)
    assert [r.table.name for r in shown] == ["a", "b", "t95", "t96", "t97", "t98", "t99"]


def test_line_of_a_reread_says_what_happened_or_what_it_waits_for() -> None:
    done = replace(request("a", Phase.DONE, 5), rows=1_000, changed=3, reason="heal")
    failed = replace(request("b", Phase.FAILED, 5), problem="no key")
    reading = replace(request("c", Phase.READING), rows=5, estimated=1_000, problem="MySQL is unavailable")
    new, empty = replace(request("d", Phase.DONE, 5), rows=2), request("e", Phase.DONE, 5)
    assert [line.plain for line in reread_lines([done, failed, reading, new, empty])] == [
        "shop.a: 1,000 rows read, 3 differed (heal)",
        "shop.b: could not be read: no key",
        "shop.c: reading, 5 of about 1,000 rows (new table); MySQL is unavailable",
        "shop.d: 2 rows read (new table)",
        "shop.e: was empty when it was read (new table)",
    ]
