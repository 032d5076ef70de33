"""The output of `status`."""

import pytest

from replicator.cli.render import duration, print_status
from replicator.operations.status import MirrorStatus, TableStatus


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
