"""The index of an archive: ranges of each segment, pages, and what a damaged or interrupted one is read as."""

import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from replicator.errors import ArchiveError
from replicator.model.commit_marker import OffsetRange
from replicator.sources.archive import containers, worker_reads
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.sources.archive.format import Event
from replicator.sources.archive.positions import SourceSpan
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.writer import ArchiveWriter
from tests.support.archived_events import append_event

ROOT = Path(__file__).parents[4]
TOPIC = "shop.shop.t"


def event(offset: int, topic: str = TOPIC, size: int = 0, time: int = 1) -> Event:
    source = {
        "file": "bin.000002",
        "pos": 10 * offset,
        "row": 0,
        "ts_ms": 100 + offset,
        "gtid": f"u:{offset}",
    }
    after = {"id": offset, "note": "x" * size}
    value = json.dumps({"before": None, "after": after, "source": source, "op": "c"})
    return Event(topic, 0, offset, time, None, value.encode())


def write(path: Path, events: list[Event], max_events: int = 10) -> None:
    with ArchiveWriter(path, topic_prefix="shop", encoding="json", max_events=max_events) as writer:
        for each in events:
            append_event(writer, each)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replicator.sources.archive.format.PAGE_SEGMENTS", 4)


def test_segment_has_the_ranges_of_its_events(tmp_path: Path) -> None:
    write(
        tmp_path,
        [event(4, time=9), event(5, time=7), event(6, "shop.shop.u"), Event(TOPIC, 0, 8, 8, None, None)],
    )
    (entry,) = ArchiveReader(tmp_path).entries.values()
    first, second = entry.segments
    assert (first.topic, first.first, first.last, first.count, first.times) == (TOPIC, 4, 8, 3, (7, 9))
    assert first.source == SourceSpan(("bin.000002", 40), ("bin.000002", 50), (104, 105), {"u": (4, 5)})
    assert (second.topic, second.source and second.source.gtids) == ("shop.shop.u", {"u": (6, 6)})


def test_manifest_stays_small_while_the_archive_grows(tmp_path: Path, small_pages: None) -> None:
    sizes = []
    for end in range(10, 500, 10):
        write(tmp_path, [event(n) for n in range(end - 10, end)])
        sizes.append((tmp_path / "manifest.json").stat().st_size)
    assert max(sizes[20:]) < 1.1 * max(sizes[:20])
    reader = ArchiveReader(tmp_path)
    assert [e.offset for e in reader.events(TOPIC, 0)] == list(range(490))
    assert [entry.path for entry in reader.entries.values()] == [
        f"events/{n:06d}.parquet" for n in range(1, 50)
    ]
    assert reader.manifest.pages is not None
    assert (reader.manifest.pages.pages, reader.manifest.events) == (12, 490)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda page: page.unlink(), "cannot be read"),
        (lambda page: page.write_bytes(page.read_bytes()[:-1]), "the archive's index says"),
        (lambda page: page.write_bytes(page.read_bytes().replace(b"u", b"v")), "does not match its checksum"),
    ],
)
def test_damaged_page_is_refused(tmp_path: Path, small_pages: None, damage: object, message: str) -> None:
    write(tmp_path, [event(n) for n in range(95)])
    damage(tmp_path / "index" / "000001.json")  # type: ignore[operator]
    with pytest.raises(ArchiveError, match=message):
        ArchiveReader(tmp_path)


@pytest.mark.fault(
    "A recorder is killed at each failpoint",
    area="Archive",
    on="local files",
    outcome="the archive is whole; recording continues",
)
@pytest.mark.parametrize(
    ("point", "times"),
    [
        ("after-archive-file", 1),
        ("after-archive-page", 2),
        ("before-archive-manifest", 4),
        ("after-archive-manifest", 1),
    ],
)
def test_killed_writer_leaves_a_whole_archive(tmp_path: Path, point: str, times: int) -> None:
    folder = tmp_path / "archive"
    command = [sys.executable, "tests/programs/archive_writer.py", str(folder)]
    plan = {**os.environ, "REPLICATOR_CRASH_AT": f"{point}:{times}"}
    killed = subprocess.run(command, cwd=ROOT, env=plan, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    if (folder / "manifest.json").exists():
        found = [e.offset for e in ArchiveReader(folder).events(TOPIC, 0)]
        assert found == list(range(len(found)))
        assert len(found) % 10 == 0
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    reader = ArchiveReader(folder)
    assert [e.value for e in reader.events(TOPIC, 0)] == [b"%d" % n for n in range(100)]
    # Leftovers were replaced: their names were used again.
    assert {f"events/{file.name}" for file in (folder / "events").iterdir()} == set(reader.entries)


def test_part_gives_large_records_in_small_batches_and_stops_at_its_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(containers, "_GROUP_BYTES", 3000)
    write(tmp_path / "archive", [event(n, size=1000) for n in range(9)])
    decoded = []

    def counted(*args: Any, **options: Any) -> Iterator[Any]:
        for batch in containers.read_batches(*args, **options):
            decoded.extend(batch.column("offset").to_pylist())
            yield batch

    monkeypatch.setattr(worker_reads, "read_batches", counted)
    (part,) = ArchiveChangeLog(tmp_path / "archive", "shop").parts([OffsetRange(TOPIC, 0, 0, 5)], 1)
    assert [batch.num_rows for batch in part()] == [2, 2, 1]
    assert decoded == [0, 1, 2, 3, 4, 5]


def test_parts_have_all_records_once_and_verify_their_files(tmp_path: Path) -> None:
    write(tmp_path / "archive", [event(n) for n in range(30)])
    log = ArchiveChangeLog(tmp_path / "archive", "shop")
    files = list(log.reader.entries)
    for tasks in (1, 2, 5):
        parts = [
            pickle.loads(pickle.dumps(part)) for part in log.parts([OffsetRange(TOPIC, 0, 3, 29)], tasks)
        ]
        assert len(parts) <= tasks
        found = [row["offset"] for part in parts for batch in part() for row in batch.to_pylist()]
        assert sorted(found) == list(range(3, 29))
    (tmp_path / "archive" / files[1]).write_bytes(bytes(log.reader.entries[files[1]].bytes))
    (part,) = log.parts([OffsetRange(TOPIC, 0, 0, 30)], 1)
    with pytest.raises(ArchiveError, match="does not match its checksum"):
        list(part())
