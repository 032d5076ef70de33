"""The output of `status`."""

import io
import time
from dataclasses import replace

import pytest
from rich.console import Console

from replicator.cli.output import duration
from replicator.cli.render import StatusParts, print_status, status_report
from replicator.operations.status.mirror_status import MirrorStatus, TableMaintenance, TableStatus


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


def test_print_status_writes_a_row_per_table_and_notes(capsys: pytest.CaptureFixture[str]) -> None:
    table = TableStatus(
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
    print_status(
        MirrorStatus("shop", "shop", (table,), ("shop.new",), {"shop.log": "no key"}, 5, None), as_json=False
    )
    shown = capsys.readouterr().out
    for text in ("behind, 2 quarantined", "1,200,000", "42", "1 min 30 s", "mysql-bin.000003:1234"):
        assert text in shown
    assert "In the log, not in the lake yet: shop.new" in shown
    assert "shop.log is paused: no key" in shown
    assert "5 events are in quarantine, each with its reason: replicator quarantine list" in shown


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
    "Maintenance is due: shop_ops.quarantine (merge data files, delete snapshots); "
    "next: run: replicator maintain -c FILE"
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
        NOTE,
    ]


def test_print_status_shows_how_many_delete_files_have_keys(capsys: pytest.CaptureFixture[str]) -> None:
    table = replace(OVERDUE, delete_files=12, equality_delete_files=5, equality_deletes=1_234)
    status = MirrorStatus("shop", "shop", (), (), {}, 0, None, maintenance=(table,))
    print_status(status, StatusParts(maintenance=True), as_json=False)
    assert " 12 (5 equality, 1,234 keys) " in capsys.readouterr().out


def test_print_status_shows_only_overdue_maintenance_otherwise(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(maintained(), as_json=False)
    assert capsys.readouterr().out.splitlines()[1:] == [NOTE]


def test_print_status_names_few_tables_with_overdue_maintenance(capsys: pytest.CaptureFixture[str]) -> None:
    print_status(MirrorStatus("shop", "shop", (), (), {}, 0, None, maintenance=(OVERDUE,) * 7), as_json=False)
    assert capsys.readouterr().out.count("shop_ops.quarantine") == 5


def test_maintenance_table_folds_no_numbers_on_a_narrow_terminal() -> None:
    console = Console(width=80, file=io.StringIO(), record=True)
    for part in status_report(maintained(), StatusParts(maintenance=True)):
        console.print(part)
    shown = console.export_text()
    for number in ("1,234", "2.5 MB", "1,001", "0.3 MB"):
        assert number in shown
