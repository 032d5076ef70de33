"""Archives whose files are in Avro are read and continued, by every way of reading."""

import json
from pathlib import Path

import pytest

from replicator.errors import ArchiveError
from replicator.model.commit_marker import OffsetRange
from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.sources.archive.format import Event
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.writer import ArchiveWriter
from tests.support.archived_events import append_event
from tests.support.old_archive import as_version_3

TOPIC = "shop.shop.t"


def event(offset: int) -> Event:
    value = None if offset % 7 == 3 else json.dumps({"id": offset, "note": "x" * 300}).encode()
    return Event(TOPIC, offset % 2, offset // 2, 5 + offset, b"k", value, (("h", b"v"), ("n", None)))


def write(folder: Path, events: list[Event]) -> None:
    with ArchiveWriter(folder, topic_prefix="shop", encoding="json", max_events=40) as writer:
        for each in events:
            append_event(writer, each)


@pytest.fixture
def continued(tmp_path: Path) -> Path:
    """Return an archive of version 3 that this version has continued."""
    write(tmp_path, [event(n) for n in range(100)])
    as_version_3(tmp_path, block_bytes=1000)
    write(tmp_path, [event(n) for n in range(100, 160)])
    return tmp_path


def test_continued_archive_has_all_events_in_files_of_both_formats(continued: Path) -> None:
    reader = ArchiveReader(continued)
    assert json.loads((continued / "manifest.json").read_text())["version"] == 4
    assert [entry.path[-8:] for entry in reader.entries.values()] == [
        *("001.avro", "002.avro", "003.avro", ".parquet", ".parquet"),
    ]
    for partition in (0, 1):
        expected = [event(n) for n in range(160) if n % 2 == partition]
        assert list(reader.events(TOPIC, partition)) == expected
        assert list(reader.events(TOPIC, partition, 30, 60)) == expected[30:60]


@pytest.mark.parametrize("tasks", [1, 2, 8])
def test_parts_and_driver_read_both_formats_alike(continued: Path, tasks: int) -> None:
    ranges = [OffsetRange(TOPIC, 0, 3, 70), OffsetRange(TOPIC, 1, 40, 80)]
    log = ArchiveChangeLog(continued, "shop")
    parts = [row for part in log.parts(ranges, tasks) for batch in part() for row in batch.to_pylist()]
    fetched = log.fetch(ranges, 1 << 20)
    assert isinstance(fetched, dict)
    wanted = [event(n) for n in range(160) if event(n).offset in range(*((3, 70), (40, 80))[n % 2])]
    expected = [(e.partition, e.offset, e.timestamp, e.key, e.value) for e in wanted]
    for rows in (parts, fetched[TOPIC].to_pylist()):
        assert sorted(tuple(row.values()) for row in rows) == sorted(expected)


def test_changed_file_in_avro_is_refused(continued: Path) -> None:
    file = continued / "events" / "000001.avro"
    file.write_bytes(bytes(file.stat().st_size))
    with pytest.raises(ArchiveError, match="does not match its checksum"):
        list(ArchiveReader(continued).events(TOPIC, 0))
