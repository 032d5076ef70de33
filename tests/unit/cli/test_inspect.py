"""The commands `status`, `check` and `connect`: the modules that they import, and their output."""

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from replicator.cli.render_status import StatusParts, print_status, watch_status
from replicator.operations.status.mirror_status import ConnectorStatus, MirrorStatus, TableStatus
from replicator.schema.evolution.changes import KeepRows
from replicator.sources.archive.format import Event
from replicator.sources.archive.writer import ArchiveWriter
from tests.support.archived_events import append_event

CONFIG = """
[mirror]
name = "shop"
[source]
SOURCE
tables = ["shop.*"]
[log]
LOG
[lake]
catalog = "jdbc"
uri = "jdbc:sqlite:catalog.db"
warehouse = "lake"
namespace = "shop"
"""
KAFKA = """kind = "kafka"
bootstrap_servers = "127.0.0.1:9"
topic_prefix = "p"
connect_url = "http://127.0.0.1:9"
"""
PROGRAM = """
import sys
from replicator.cli.main import main
codes = []
for command in ("status", "check", "connect"):
    try:
        main([command, "-c", sys.argv[1]])
    except SystemExit as end:
        codes.append(end.code)
print([name for name in ("pyspark", "py4j") if name in sys.modules], len(codes))
"""


def entry(**fields: object) -> TableStatus:
    known: dict[str, object] = {
        "table": "shop.orders",
        "source": "shop.orders",
        "state": "behind",
        "rows": 3,
        "changes": None,
        "events_behind": 1,
        "position": "mysql-bin.000003:1234",
        "newest_change_ms": 1,
        "lag_seconds": 90.0,
        "committed_ms": 1,
        "commits": 7,
        "quarantined": 0,
        "data_files": 3,
        "delete_files": 1,
        "bytes": 9,
    }
    return TableStatus(**{**known, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("log", ["kafka", "archive"])
def test_inspection_commands_load_no_spark(tmp_path: Path, log: str) -> None:
    with ArchiveWriter(tmp_path / "recorded", topic_prefix="p", encoding="json") as writer:
        append_event(writer, Event("p.shop.orders", 0, 0, 0, None, b"{}", ()))
    source = 'url = "mysql://cdc@127.0.0.1:9/shop"' if log == "kafka" else ""
    text = CONFIG.replace("SOURCE", source).replace(
        "LOG", KAFKA if log == "kafka" else 'kind = "archive"\npath = "recorded"'
    )
    (tmp_path / "shop.toml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "shop.toml")],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.splitlines()[-1].startswith("[]")


def test_piped_status_report_has_no_shortened_or_wrapped_lines(capsys: pytest.CaptureFixture[str]) -> None:
    reason = "a reason of many words " * 30
    name = "n" * 250
    table = entry(
        table=f"shop.{name}", source=f"shop.{name}", state="paused", reason=reason, next_step="do\nthat"
    )
    found = MirrorStatus("shop", "shop", (table,), (), {}, 0, None)
    print_status(found, StatusParts(positions=True), as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(f"shop.{name} ")
    assert lines[1].rstrip().endswith("mysql-bin.000003:1234")
    assert lines[2:] == [f"shop.{name} is paused: {' '.join(reason.split())}", "  next: do that"]


def test_status_report_names_the_connector_empty_tables_and_unfilled_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    connector = ConnectorStatus("p", "FAILED", "no way", "make one", "b.1:4", "b.1:9", 3)
    found = MirrorStatus(
        "shop",
        "shop",
        (
            entry(
                state="current",
                unfilled=("u", "v"),
                kept=(KeepRows("ALTER TABLE o DROP PARTITION p", 7, "b.1:4"),),
            ),
        ),
        (),
        {},
        0,
        None,
        connector=connector,
        empty=("shop.none",),
        unread=("shop.later",),
    )
    print_status(found, StatusParts(positions=True), as_json=False)
    shown = capsys.readouterr().out
    assert (
        "connector p FAILED; no way; has confirmed b.1:4; the source is at b.1:9, 3 transactions later\n"
    ) in shown
    assert "shop.orders: older rows have null in u, v," in shown
    assert (
        "shop.orders keeps its rows from before a statement that changed rows in the source without events, last at "
        "b.1:4: ALTER TABLE o DROP PARTITION p\n"
    ) in shown
    assert "Empty in the source, so not in the lake yet: shop.none" in shown
    assert "In the source, neither in the log nor in the lake yet: shop.later\n" in shown


@pytest.mark.parametrize("as_json", [True, False])
def test_watched_status_report_is_printed_until_it_is_interrupted(
    capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    looks = iter([3, 4])

    def read() -> MirrorStatus:
        for rows in looks:
            return MirrorStatus("shop", "shop", (entry(rows=rows),), (), {}, 0, None)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watch_status(read, as_json=as_json, seconds=0)
    shown = capsys.readouterr().out
    if as_json:
        assert [json.loads(line)["tables"][0]["rows"] for line in shown.splitlines()] == [3, 4]
    else:
        assert shown.count("shop.orders ") == 2


def test_watched_status_report_is_redrawn_in_place_on_a_terminal(tmp_path: Path) -> None:
    """In a pseudo-terminal: the cursor moves up before the second report."""
    archive = tmp_path / "recorded"
    with ArchiveWriter(archive, topic_prefix="p", encoding="json") as writer:
        append_event(writer, Event("p.shop.orders", 0, 0, 0, None, b"{}", ()))
    text = CONFIG.replace("SOURCE", "").replace("LOG", 'kind = "archive"\npath = "recorded"')
    (tmp_path / "shop.toml").write_text(text)
    command = [str(Path(sys.executable).with_name("replicator")), "status", "--watch"]
    leader, follower = pty.openpty()
    with subprocess.Popen(
        [*command, "-c", str(tmp_path / "shop.toml")], stdout=follower, stderr=follower, close_fds=True
    ) as process:
        os.close(follower)
        seen, deadline = b"", time.monotonic() + 60
        try:
            while seen.count(b"has no table") < 2:
                ready, _, _ = select.select([leader], [], [], max(0, deadline - time.monotonic()))
                assert ready, f"not within 60 s: two reports, only {seen!r}"
                seen += os.read(leader, 4096)
        finally:
            process.terminate()
            os.close(leader)
    assert b"\x1b[1A" in seen
