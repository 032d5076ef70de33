"""Damaged archives: what is read is what was written, or a clear error."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicator.errors import ArchiveError
from replicator.sources.archive.format import Event
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.writer import ArchiveWriter
from tests.support.archived_events import append_event
from tests.support.fuzz import EXAMPLES, changed

TOPICS = ("shop.shop.orders", "shop.shop.users")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an archive of several files; tests change copies of it."""
    folder = tmp_path_factory.mktemp("archive")
    with ArchiveWriter(folder, topic_prefix="shop", encoding="json", max_events=7) as writer:
        for offset in range(20):
            for topic in TOPICS:
                append_event(
                    writer, Event(topic, 0, offset, 1_700_000_000_000 + offset, b"k", b"v%d" % offset)
                )
    return folder


def read(folder: Path) -> list[Event] | ArchiveError:
    try:
        reader = ArchiveReader(folder)
        return [
            event
            for topic in reader.topics()
            for partition in reader.partitions(topic)
            for event in reader.events(topic, partition)
        ]
    except ArchiveError as error:
        return error


def read_damaged(archive: Path, damage: Callable[[Path], object]) -> list[Event] | ArchiveError:
    """Return what is read of a damaged copy."""
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "archive"
        shutil.copytree(archive, copy)
        damage(copy)
        return read(copy)


def damage_bytes(folder: Path, seed: int) -> None:
    """Change, remove, add or exchange bytes of one file."""
    chance = random.Random(seed)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = chance.choice(files)
    content = bytearray(path.read_bytes())
    at = chance.randrange(len(content) + 1)
    match chance.randrange(5):
        case 0:
            del content[at:]
        case 1:
            content[at : at + 1] = chance.randbytes(1)
        case 2:
            content[at:at] = chance.randbytes(chance.randint(1, 9))
        case 3:
            content = bytearray(chance.choice(files).read_bytes())
        case _:
            path.unlink()
            return
    path.write_bytes(content)


@pytest.mark.fault(
    "Any bytes of an archive's file are changed",
    area="Archive",
    on="local files",
    outcome="an error, or the same events",
)
@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32))
def test_damaged_file_is_reported_or_changes_nothing(archive: Path, seed: int) -> None:
    written = read(archive)
    assert isinstance(written, list)
    found = read_damaged(archive, lambda folder: damage_bytes(folder, seed))
    # A changed manifest may leave out whole partitions. It never invents an event.
    assert isinstance(found, ArchiveError) or is_part(found, written)


@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_changed_manifest_is_reported_or_invents_no_event(archive: Path, data: st.DataObject) -> None:
    written = read(archive)
    assert isinstance(written, list)
    manifest = data.draw(changed(json.loads((archive / "manifest.json").read_text())))
    found = read_damaged(archive, lambda folder: write_manifest(folder, manifest))
    assert isinstance(found, ArchiveError) or is_part(found, written)


@pytest.mark.parametrize("path", ["/etc/passwd", "../outside", "data/../../outside", "", "a\0b"])
def test_files_outside_of_the_archive_are_refused(archive: Path, path: str) -> None:
    manifest = json.loads((archive / "manifest.json").read_text())
    manifest["files"][0]["path"] = path
    found = read_damaged(archive, lambda folder: write_manifest(folder, manifest))
    assert isinstance(found, ArchiveError)
    assert "is not a path within the archive" in found.message


def write_manifest(folder: Path, manifest: Any) -> None:
    (folder / "manifest.json").write_text(json.dumps(manifest))


def is_part(found: list[Event], written: list[Event]) -> bool:
    return all(event in written for event in found)
