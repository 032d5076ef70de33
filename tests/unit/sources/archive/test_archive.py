"""The event archive: written events are read once and in order, even if the writer was interrupted."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicator.errors import ArchiveError
from replicator.sources.archive import ArchiveReader, ArchiveWriter, Event, Manifest, read_events
from replicator.sources.archive.format import EVENT_SCHEMA

SCHEMAS = Path(__file__).parents[4] / "schemas"


def event(offset: int, topic: str = "shop.shop.orders", partition: int = 0, **fields: object) -> Event:
    values = {"timestamp": 1_700_000_000_000 + offset, "key": b"k", "value": b"v%d" % offset} | fields
    return Event(topic, partition, offset, **values)  # type: ignore[arg-type]


def write(path: Path, events: list[Event], **options: int) -> None:
    with ArchiveWriter(path, topic_prefix="shop", encoding="json", **options) as writer:
        for each in events:
            writer.append(each)


def read(path: Path) -> list[Event]:
    reader = ArchiveReader(path)
    return [
        each
        for topic in reader.topics()
        for partition in reader.partitions(topic)
        for each in reader.events(topic, partition)
    ]


def test_archive_keeps_nulls_and_headers(tmp_path: Path) -> None:
    events = [
        event(3, key=None, value=b"\x00\xff"),
        event(4, value=None),
        event(7, key=b"", value=b"", headers=(("a", b"1"), ("a", None), ("é", b""))),
    ]
    write(tmp_path, events)
    assert read(tmp_path) == events


def test_archive_files_are_sorted_and_limited_by_events(tmp_path: Path) -> None:
    events = [event(n, f"shop.shop.t{n % 3}", n % 2) for n in range(100)]
    write(tmp_path, events, max_events=30)
    files = sorted((tmp_path / "events").iterdir())
    assert len(files) == 4
    for file in files:
        with file.open("rb") as stream:
            rows: Any = fastavro.reader(stream)
            keys = [(r["topic"], r["partition"], r["offset"]) for r in rows]
        assert keys == sorted(keys)
        assert len(keys) <= 30
    assert sorted(read(tmp_path), key=lambda e: e.offset) == events


def test_archive_files_are_limited_by_bytes(tmp_path: Path) -> None:
    write(tmp_path, [event(n, value=b"x" * 100) for n in range(10)], max_bytes=250)
    assert len(list((tmp_path / "events").iterdir())) == 4


def test_reader_files_returns_only_the_files_of_a_range(tmp_path: Path) -> None:
    write(tmp_path, [event(n) for n in range(100)], max_events=10)
    reader = ArchiveReader(tmp_path)
    names = [file.name for file in reader.files("shop.shop.orders", 0, 25, 40)]
    assert names == ["000003.avro", "000004.avro"]
    assert [e.offset for e in reader.events("shop.shop.orders", 0, 25, 40)] == list(range(25, 40))
    assert reader.count("shop.shop.orders", 0, 25, 40) == 20
    assert reader.files("shop.shop.orders", 1) == []
    assert reader.start_offsets() == {("shop.shop.orders", 0): 0}


def test_writer_continues_at_the_end_of_the_manifest(tmp_path: Path) -> None:
    write(tmp_path, [event(0), event(1)])
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json") as writer:
        assert writer.end_offset("shop.shop.orders", 0) == 2
        with pytest.raises(ArchiveError, match="offset 1 after 1"):
            writer.append(event(1))
        writer.append(event(2))
        assert writer.end_offset("shop.shop.orders", 0) == 3
    assert [e.offset for e in read(tmp_path)] == [0, 1, 2]


def test_writer_advance_never_decreases_the_end(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json") as writer:
        writer.append(event(5))
        writer.advance("shop.shop.orders", 0, 9)
        writer.advance("shop.shop.empty", 0, 4)
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json") as writer:
        writer.advance("shop.shop.orders", 0, 7)
    assert ArchiveReader(tmp_path).end_offsets() == {("shop.shop.orders", 0): 9}


def test_archive_without_records_is_valid(tmp_path: Path) -> None:
    write(tmp_path, [])
    assert read(tmp_path) == []


def fail_after_flush(path: Path) -> None:
    with ArchiveWriter(path, topic_prefix="shop", encoding="json") as writer:
        writer.append(event(0))
        writer.flush()
        writer.append(event(1))
        raise RuntimeError


def test_writer_keeps_flushed_events_when_the_block_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        fail_after_flush(tmp_path)
    write(tmp_path, [event(1), event(2)])
    assert [e.offset for e in read(tmp_path)] == [0, 1, 2]


@pytest.mark.parametrize("crash_at", range(8))
def test_writer_loses_only_unflushed_events_when_a_replacement_crashes(
    tmp_path: Path, crash_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    real_replace, calls = Path.replace, 0

    def replace(self: Path, target: Path) -> Path:
        nonlocal calls
        calls += 1
        if calls > crash_at:
            raise KeyboardInterrupt
        return real_replace(self, target)

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path, [event(n) for n in range(100)], max_events=10)
    monkeypatch.undo()
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json", max_events=10) as writer:
        start = writer.end_offset("shop.shop.orders", 0) or 0
        assert start == crash_at // 2 * 10
        for n in range(start, 100):
            writer.append(event(n))
    assert [e.offset for e in read(tmp_path)] == list(range(100))
    assert sorted(ArchiveReader(tmp_path).manifest.files) == [
        f"events/{file.name}" for file in sorted((tmp_path / "events").glob("*.avro"))
    ]


def test_writer_refuses_an_archive_that_another_writer_has_open(tmp_path: Path) -> None:
    with (
        ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json"),
        pytest.raises(ArchiveError, match="another process"),
    ):
        ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json")


def test_writer_refuses_another_topic_prefix(tmp_path: Path) -> None:
    write(tmp_path, [event(0)])
    with pytest.raises(ArchiveError, match="contains events of 'shop'"):
        ArchiveWriter(tmp_path, topic_prefix="other", encoding="json")
    write(tmp_path, [event(1)])


def test_archive_encoding_is_that_of_the_first_event(tmp_path: Path) -> None:
    for encoding, events in (("json", []), ("json-schemas", [event(0)]), ("json", [event(1)])):
        with ArchiveWriter(tmp_path, topic_prefix="shop", encoding=encoding) as writer:  # type: ignore[arg-type]
            for each in events:
                writer.append(each)
    assert ArchiveReader(tmp_path).manifest.encoding == "json-schemas"


def test_writer_reports_a_full_disk_as_an_archive_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json") as writer:
        writer.append(event(0))
        with monkeypatch.context() as patch:
            patch.setattr("replicator.sources.archive.writer.os.fsync", full)
            with pytest.raises(ArchiveError, match="No space left"):
                writer.flush()
        assert not list(tmp_path.rglob("*.tmp"))
    assert [e.offset for e in read(tmp_path)] == [0]


def test_reader_fails_with_the_kind_of_damage_of_an_archive(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="not an event archive"):
        ArchiveReader(tmp_path)
    write(tmp_path, [event(n) for n in range(50)])
    file = tmp_path / "events/000001.avro"
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(ArchiveError, match="the manifest says"):
        ArchiveReader(tmp_path)
    file.write_bytes(content[:-40] + bytes(40))
    with pytest.raises(ArchiveError, match="is damaged"):
        read(tmp_path)
    file.unlink()
    with pytest.raises(ArchiveError, match="cannot be read"):
        ArchiveReader(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not the manifest"),
        ({"version": 3}, "version 3"),
        ({"encoding": "xml"}, "unknown encoding"),
        ({"topics": {"t": {"0": {"first": 0}}}}, "damaged"),
        ({"created": 5}, "damaged"),
    ],
)
def test_manifest_is_refused_when_a_field_is_wrong(change: dict[str, object], message: str) -> None:
    document = json.loads(Manifest("shop", "json").to_json()) | change
    with pytest.raises(ArchiveError, match=message):
        Manifest.from_json(json.dumps(document), "manifest.json")


def test_manifest_of_version_1_is_read() -> None:
    document = json.loads(Manifest("shop", "json").to_json()) | {"version": 1}
    del document["schemas"]
    assert Manifest.from_json(json.dumps(document), "manifest.json").encoding == "json"


def test_archive_keeps_the_schemas_of_avro_events(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="avro") as writer:
        writer.add_schema(7, '"string"')
        writer.append(event(0))
        assert (writer.has_schema(7), writer.has_schema(8)) == (True, False)
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="avro") as writer:
        assert writer.has_schema(7)
        writer.add_schema(7, "something else")
        writer.add_schema(8, '"größe"')
        writer.append(event(1))
    reader = ArchiveReader(tmp_path)
    assert reader.writer_schemas() == {7: '"string"', 8: '"größe"'}
    document = json.loads((tmp_path / "manifest.json").read_text())
    assert document["schemas"]["7"] == {"path": "schemas/7.avsc", "bytes": 8}
    (tmp_path / "schemas" / "8.avsc").write_text("cut")
    with pytest.raises(ArchiveError, match=r"schemas/8\.avsc has 3 bytes"):
        ArchiveReader(tmp_path)


def test_archive_of_json_events_has_no_schemas_and_refuses_avro(tmp_path: Path) -> None:
    write(tmp_path, [event(0)])
    assert ArchiveReader(tmp_path).writer_schemas() is None
    with pytest.raises(ArchiveError, match="contains events in json, not in avro"):
        ArchiveWriter(tmp_path, topic_prefix="shop", encoding="avro")


def test_manifest_is_refused_when_it_is_not_json() -> None:
    with pytest.raises(ArchiveError, match="is not JSON"):
        Manifest.from_json("{", "manifest.json")


def fields(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Return the path and the value of each field of a JSON document, at every level."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in inside:
        yield (*path, name), inner
        yield from fields(inner, (*path, name))


def with_field(document: Any, path: tuple[str | int, ...], value: object) -> str:
    """Return the document as JSON with another value at a path."""
    changed = at = json.loads(json.dumps(document))
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = value
    return json.dumps(changed)


def is_refused(text: str) -> bool:
    try:
        Manifest.from_json(text, "manifest.json")
    except ArchiveError:
        return True
    return False


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the parsed manifest of an archive with an event and a schema."""
    folder = tmp_path_factory.mktemp("manifest")
    with ArchiveWriter(folder, topic_prefix="shop", encoding="avro") as writer:
        writer.add_schema(7, '"string"')
        writer.append(event(0))
    return json.loads((folder / "manifest.json").read_text())


@pytest.mark.parametrize(
    "value", [None, True, 1.0, 1e999, 1, "1", [], {}, [[]], json.loads("[" * 500 + "]" * 500)], ids=repr
)
def test_manifest_is_refused_when_a_field_has_a_value_of_another_type(manifest: Any, value: object) -> None:
    damaged = [path for path, whole in fields(manifest) if type(whole) is not type(value)]
    assert len(damaged) > 10
    assert [path for path in damaged if not is_refused(with_field(manifest, path, value))] == []


def test_manifest_is_refused_when_a_number_is_negative(manifest: Any) -> None:
    damaged = [path for path, whole in fields(manifest) if isinstance(whole, int)]
    assert len(damaged) == 11
    assert [path for path in damaged if not is_refused(with_field(manifest, path, -1))] == []


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("files",), {}, "not in the list of files"),
        (("topics", "shop.shop.orders", "0", "files", 0, "path"), "x", "not in the list of files"),
        (("topics", "shop.shop.orders", "0", "files"), [], "damaged"),
        (("topics", "shop.shop.orders", "0", "end"), 0, "ends before its last event"),
        (("topics", "shop.shop.orders", "0", "last"), 5, "totals differ"),
    ],
)
def test_manifest_is_refused_when_its_fields_contradict_each_other(
    manifest: Any, path: tuple[str | int, ...], value: object, message: str
) -> None:
    with pytest.raises(ArchiveError, match=message):
        Manifest.from_json(with_field(manifest, path, value), "manifest.json")


def test_manifest_that_is_read_equals_the_written_one(manifest: Any) -> None:
    read = Manifest.from_json(json.dumps(manifest), "manifest.json")
    assert (read.topic_prefix, read.encoding, read.events) == ("shop", "avro", 1)
    assert json.loads(read.to_json()) == manifest


@given(st.integers(0, 2000), st.binary(min_size=1, max_size=8))
def test_container_with_any_bytes_changed_is_refused_or_read(
    container: bytes, tmp_path_factory: pytest.TempPathFactory, at: int, piece: bytes
) -> None:
    at %= len(container)
    file = tmp_path_factory.getbasetemp() / "changed.avro"
    file.write_bytes(container[:at] + piece + container[at + len(piece) :])
    with contextlib.suppress(ArchiveError):
        list(read_events(file))


@pytest.fixture(scope="module")
def container(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the bytes of an event file of an archive."""
    folder = tmp_path_factory.mktemp("whole")
    write(folder, [event(0), event(1)])
    (name,) = ArchiveReader(folder).manifest.files
    return (folder / name).read_bytes()


def test_published_event_schema_equals_the_one_in_use() -> None:
    published = json.loads((SCHEMAS / "event-archive-v1.avsc").read_text())
    published.pop("doc")
    for field in published["fields"]:
        field.pop("doc", None)
    assert published == EVENT_SCHEMA


def test_published_manifest_schema_names_the_written_fields(tmp_path: Path) -> None:
    write(tmp_path, [event(0)])
    published = json.loads((SCHEMAS / "archive-manifest-v2.json").read_text())
    document = json.loads((tmp_path / "manifest.json").read_text())
    assert set(document) == set(published["required"]) == set(published["properties"])
    entry = published["properties"]["topics"]["additionalProperties"]["additionalProperties"]
    assert set(document["topics"]["shop.shop.orders"]["0"]) == set(entry["required"])
    assert Manifest.from_json(json.dumps(document), "x").to_json() == json.dumps(document, indent=1) + "\n"


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["shop", "shop.shop.a", "shop.shop.b"]),
        st.integers(0, 2),
        st.integers(1, 4),
        st.none() | st.binary(max_size=8),
        st.none() | st.binary(max_size=30),
        st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=2),
    ),
    max_size=40,
)


@given(rows=EVENTS, cut=st.integers(0, 40), max_events=st.integers(1, 12))
def test_archive_returns_all_events_of_several_writers(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[Any, ...]], cut: int, max_events: int
) -> None:
    path = tmp_path_factory.mktemp("archive")
    ends: dict[tuple[str, int], int] = {}
    events = []
    for topic, partition, step, key, value, headers in rows:
        offset = ends.get((topic, partition), -1) + step
        ends[(topic, partition)] = offset
        events.append(Event(topic, partition, offset, 1, key, value, tuple(headers)))
    write(path, events[:cut], max_events=max_events)
    write(path, events[cut:], max_events=max_events)
    assert read(path) == sorted(events, key=lambda e: (e.topic, e.partition, e.offset))
    assert ArchiveReader(path).end_offsets() == {key: end + 1 for key, end in ends.items()}
