"""`replicator archive` shows what an archive has, and finds damaged files."""

import json
from pathlib import Path
from typing import Any

import pytest

from replicator.sources.archive.format import Event
from replicator.sources.archive.writer import ArchiveWriter
from tests.support.archived_events import append_event

UUID = "e95b1ac8-e5bc-11f1-811f-02fc00000001"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Return an archive with two tables, in four files."""
    folder = tmp_path / "recorded"
    with ArchiveWriter(folder, topic_prefix="shop", encoding="json", max_events=5) as writer:
        for offset in range(10):
            for table in ("orders", "items"):
                source = {
                    "file": "bin.000002",
                    "pos": 10 + offset,
                    "ts_ms": 1_700_000_000_000 + 1000 * offset,
                }
                event = {"op": "c", "after": {}, "source": source | {"gtid": f"{UUID}:{offset + 1}"}}
                append_event(
                    writer, Event(f"shop.shop.{table}", 0, offset, 5, None, json.dumps(event).encode())
                )
    return folder


def test_archive_shows_the_ranges_of_each_partition(cli: Any, archive: Path) -> None:
    ran = cli("archive", "--from", str(archive))
    assert ran.code == 0
    assert "20 events in 4 files" in ran.out
    (line,) = [line for line in ran.out.splitlines() if line.startswith("shop.shop.orders")]
    for text in ("10", "0 to 9", "bin.000002:10 to bin.000002:19", f"{UUID}:1-10", "2023-11-14T22:13:20Z to"):
        assert text in line
    segments = cli("archive", "--from", str(archive), "--table", "shop.items", "--segments").out
    assert "shop.shop.orders" not in segments
    assert [line for line in segments.splitlines() if line.startswith("events/000002.parquet")]


def test_archive_verify_names_every_damaged_file(cli: Any, archive: Path) -> None:
    ran = cli("archive", "--from", str(archive), "--verify")
    assert (ran.code, "4 files verified" in ran.out) == (0, True)
    damaged = archive / "events" / "000002.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"!")
    (archive / "events" / "000003.parquet").unlink()
    ran = cli("archive", "--from", str(archive), "--verify", "--json")
    assert ran.code == 1
    damage, missing = json.loads(ran.out)["problems"]
    assert "000002.parquet is damaged: its content does not match its checksum" in damage
    assert "events/000003.parquet belongs to the archive but cannot be read" in missing
    assert cli("archive", "--from", str(archive)).code == 3


def test_archive_refuses_unknown_tables_and_folders(cli: Any, archive: Path, tmp_path: Path) -> None:
    ran = cli("archive", "--from", str(archive), "--table", "shop.nothing")
    assert (ran.code, "no topic of this table" in ran.err) == (2, True)
    ran = cli("archive", "--from", str(tmp_path))
    assert (ran.code, "is not an event archive" in ran.err) == (3, True)
