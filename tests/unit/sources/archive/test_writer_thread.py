"""The writer's thread: events are appended while it writes, and no event is lost if it fails."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from replicator.errors import ArchiveError
from replicator.sources.archive import writer
from replicator.sources.archive.containers import container
from replicator.sources.archive.format import Event
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.writer import ArchiveWriter
from tests.support.archived_events import append_event

TOPIC = "shop.shop.t"


class Disk:
    """Replaces the function that makes files: it waits until `ready` is set, and fails while `full`."""

    def __init__(self) -> None:
        self.ready = threading.Event()
        self.full = False

    def container(self, events: pa.Table) -> bytes:
        assert self.ready.wait(30)
        if self.full:
            raise ArchiveError("no space left")
        return container(events)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    made = Disk()
    monkeypatch.setattr(writer, "container", made.container)
    yield made
    made.ready.set()


def event(offset: int) -> Event:
    return Event(TOPIC, 0, offset, 1, None, b"%d" % offset)


def offsets(folder: Path) -> list[int]:
    return [found.offset for found in ArchiveReader(folder).events(TOPIC, 0)]


def test_events_are_appended_while_a_file_is_written(tmp_path: Path, disk: Disk) -> None:
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json", max_events=10) as archive:
        for n in range(15):
            append_event(archive, event(n))
        assert archive.end_offset(TOPIC, 0) == 15
        assert not (tmp_path / "manifest.json").exists()
        with pytest.raises(ArchiveError, match="offset 3 after 14"):
            append_event(archive, event(3))
        disk.ready.set()
    assert offsets(tmp_path) == list(range(15))
    assert [entry.events for entry in ArchiveReader(tmp_path).entries.values()] == [10, 5]


def test_manifest_is_written_soon_after_the_file(tmp_path: Path, disk: Disk) -> None:
    disk.ready.set()
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json", max_events=100) as archive:
        for n in range(100):
            append_event(archive, event(n))
        for n in range(100, 200):
            append_event(archive, event(n))
            if (tmp_path / "manifest.json").exists():
                break
            threading.Event().wait(0.02)
        assert n < 199
        assert offsets(tmp_path) == list(range(100))


def test_manifest_is_written_without_another_event(tmp_path: Path, disk: Disk) -> None:
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json", max_events=10) as archive:
        for n in range(10):
            append_event(archive, event(n))
        archive.settle()
        assert not (tmp_path / "manifest.json").exists()
        disk.ready.set()
        while not (tmp_path / "manifest.json").exists():
            archive.settle()
        assert offsets(tmp_path) == list(range(10))


def test_failed_file_is_reported_and_written_by_the_next_flush(tmp_path: Path, disk: Disk) -> None:
    disk.full = True
    disk.ready.set()
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="avro", max_events=10) as archive:
        archive.add_schema(7, '"string"')
        for n in range(10):
            append_event(archive, event(n))
        archive.advance(TOPIC, 0, 12)
        with pytest.raises(ArchiveError, match="no space left"):
            archive.flush()
        assert not (tmp_path / "manifest.json").exists()
        disk.full = False
        archive.flush()
        assert ArchiveReader(tmp_path).end_offsets()[TOPIC, 0] == 12
        append_event(archive, event(20))
        archive.flush()
        assert archive.has_schema(7)
    reader = ArchiveReader(tmp_path)
    assert offsets(tmp_path) == [*range(10), 20]
    assert (reader.writer_schemas(), reader.end_offsets()[TOPIC, 0]) == ({7: '"string"'}, 21)


def test_interrupted_writer_is_locked_until_its_thread_has_ended(tmp_path: Path, disk: Disk) -> None:
    def leave() -> None:
        with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json", max_events=5) as archive:
            for n in range(5):
                append_event(archive, event(n))
            left.set()
            raise KeyboardInterrupt

    left, ended = threading.Event(), threading.Event()

    def run() -> None:
        with pytest.raises(KeyboardInterrupt):
            leave()
        ended.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert left.wait(30)
    with pytest.raises(ArchiveError, match="another process is writing"):
        ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json")
    disk.ready.set()
    thread.join(30)
    assert ended.is_set()
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json") as archive:
        append_event(archive, event(archive.end_offset(TOPIC, 0) or 0))
    assert offsets(tmp_path) == [0]
    assert len(json.loads((tmp_path / "manifest.json").read_text())["files"]) == 1
