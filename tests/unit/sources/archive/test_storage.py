"""Archives on a disk and in an object store: the same content, complete or absent files, one writer."""

import threading
from pathlib import Path

import pytest

from replicator.errors import ArchiveError
from replicator.sources.archive.format import Event
from replicator.sources.archive.reader import ArchiveReader, find_manifest
from replicator.sources.archive.storage import Storage, open_storage
from replicator.sources.archive.writer import ArchiveWriter
from tests.support.archived_events import append_event
from tests.support.s3 import Bucket
from tests.unit.sources.archive.conftest import OpenStorage

TOPIC = "shop.shop.orders"


def event(offset: int) -> Event:
    return Event(TOPIC, 0, offset, 1_700_000_000_000 + offset, b"k", b"v%d" % offset)


def write(storage: Storage, offsets: range, max_events: int = 10) -> None:
    with ArchiveWriter(storage, topic_prefix="shop", encoding="avro", max_events=max_events) as writer:
        writer.add_schema(offsets.start, '"string"')
        for offset in offsets:
            append_event(writer, event(offset))


def test_archive_is_continued_and_read(opened: OpenStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replicator.sources.archive.format.PAGE_SEGMENTS", 3)
    assert find_manifest(opened()) is None
    write(opened(), range(45))
    write(opened(), range(45, 70))
    reader = ArchiveReader(opened())
    assert list(reader.events(TOPIC, 0)) == [event(n) for n in range(70)]
    assert reader.writer_schemas() == {0: '"string"', 45: '"string"'}
    assert reader.manifest.pages is not None
    assert reader.manifest.pages.pages == 2


def test_second_writer_of_this_machine_is_refused(opened: OpenStorage) -> None:
    with (
        ArchiveWriter(opened(), topic_prefix="shop", encoding="json"),
        pytest.raises(ArchiveError, match="another process is writing"),
    ):
        ArchiveWriter(opened(), topic_prefix="shop", encoding="json")


@pytest.mark.fault(
    "Two machines record into one archive",
    area="Archive",
    on="an S3 server (moto)",
    outcome="one of them ends with an error; the archive is whole",
)
def test_writer_stops_when_another_machine_has_written(
    opened: OpenStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not opened().writer_suffix:
        pytest.skip("a lock excludes other writers")
    first = ArchiveWriter(opened(), topic_prefix="shop", encoding="json")
    append_event(first, event(0))
    first.flush()
    monkeypatch.setenv("REPLICATOR_CACHE", str(tmp_path / "another machine"))
    write_json = ArchiveWriter(opened(), topic_prefix="shop", encoding="json")
    append_event(first, event(1))
    append_event(write_json, event(1))
    append_event(write_json, event(2))
    write_json.close()
    with pytest.raises(ArchiveError, match="another process has written"):
        first.close()
    assert [e.offset for e in ArchiveReader(opened()).events(TOPIC, 0)] == [0, 1, 2]


def test_missing_file_is_reported(s3: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLICATOR_CACHE", str(tmp_path))
    storage = open_storage(f"{s3.url}/missing", lambda: s3.options)
    write(storage, range(3))
    (name,) = ArchiveReader(storage).entries
    s3.files.delete_file(f"{s3.path}/missing/{name}")
    with pytest.raises(ArchiveError, match=rf"{name} belongs to the archive but cannot be read"):
        ArchiveReader(storage)


def test_object_is_invisible_until_it_is_complete(s3: Bucket) -> None:
    """A killed writer leaves an upload without end, of which readers see nothing."""
    path = f"{s3.path}/torn"
    stream = s3.files.open_output_stream(path)
    stream.write(b"x" * (12 << 20))  # More than a part: the upload has begun.
    storage = open_storage(s3.url, lambda: s3.options)
    with pytest.raises(FileNotFoundError):
        storage.read("torn")
    stream.close()
    assert len(storage.read("torn")) == 12 << 20


def test_reader_sees_a_whole_archive_while_it_is_written(opened: OpenStorage) -> None:
    failures: list[object] = []
    done = threading.Event()
    write(opened(), range(1))

    def read() -> None:
        while not done.is_set():
            try:
                found = [e.offset for e in ArchiveReader(opened()).events(TOPIC, 0)]
            except ArchiveError as error:
                failures.append(error)
            else:
                failures.extend([found] if found != list(range(len(found))) else [])

    thread = threading.Thread(target=read)
    thread.start()
    try:
        write(opened(), range(1, 60), max_events=3)
    finally:
        done.set()
        thread.join(30)
    assert failures == []
