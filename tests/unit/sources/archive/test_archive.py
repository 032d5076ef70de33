"""The event archive: written events are read once and in order, even if the writer was interrupted."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from replicator.errors import ArchiveError
from replicator.sources.archive.containers import EVENTS as COLUMNS
from replicator.sources.archive.containers import container, events_of, read_batches
from replicator.sources.archive.documents import (
    PAGE_FORMAT,
    manifest_json,
    page_json,
    parse_manifest,
    parse_page,
)
from replicator.sources.archive.format import Encoding, Event, Manifest
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.writer import ArchiveWriter
from tests.support.archived_events import append_event
from tests.support.old_archive import avro_container

SCHEMAS = Path(__file__).parents[4] / "schemas"


def event(offset: int, topic: str = "shop.shop.orders", partition: int = 0, **fields: object) -> Event:
    values = {"timestamp": 1_700_000_000_000 + offset, "key": b"k", "value": b"v%d" % offset} | fields
    return Event(topic, partition, offset, **values)  # type: ignore[arg-type]


def write(path: Path, events: list[Event], *, encoding: Encoding = "json", **options: Any) -> None:
    with ArchiveWriter(path, topic_prefix="shop", encoding=encoding, **options) as writer:
        for each in events:
            append_event(writer, each)


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
        rows = pq.read_table(file).to_pylist()
        keys = [(r["topic"], r["partition"], r["offset"]) for r in rows]
        assert keys == sorted(keys)
        assert len(keys) <= 30
    assert sorted(read(tmp_path), key=lambda e: e.offset) == events


def test_reader_segments_are_only_those_of_a_range(tmp_path: Path) -> None:
    write(tmp_path, [event(n) for n in range(100)], max_events=10)
    reader = ArchiveReader(tmp_path)
    paths = [segment.path for segment in reader.segments("shop.shop.orders", 0, 25, 40)]
    assert paths == ["events/000003.parquet", "events/000004.parquet"]
    assert [e.offset for e in reader.events("shop.shop.orders", 0, 25, 40)] == list(range(25, 40))
    assert reader.segments("shop.shop.orders", 1) == []
    assert reader.start_offsets() == {("shop.shop.orders", 0): 0}


def test_writer_continues_at_the_end_of_the_manifest(tmp_path: Path) -> None:
    write(tmp_path, [event(0), event(1)])
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json") as writer:
        assert writer.end_offset("shop.shop.orders", 0) == 2
        with pytest.raises(ArchiveError, match="offset 1 after 1"):
            append_event(writer, event(1))
        append_event(writer, event(2))
        assert writer.end_offset("shop.shop.orders", 0) == 3
    assert [e.offset for e in read(tmp_path)] == [0, 1, 2]


def fail_after_flush(path: Path) -> None:
    with ArchiveWriter(path, topic_prefix="shop", encoding="json") as writer:
        append_event(writer, event(0))
        writer.flush()
        append_event(writer, event(1))
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
            append_event(writer, event(n))
    assert [e.offset for e in read(tmp_path)] == list(range(100))
    assert sorted(ArchiveReader(tmp_path).entries) == [
        f"events/{file.name}" for file in sorted((tmp_path / "events").glob("*.parquet"))
    ]


def test_writer_refuses_another_topic_prefix(tmp_path: Path) -> None:
    write(tmp_path, [event(0)])
    with pytest.raises(ArchiveError, match="contains events of 'shop'"):
        ArchiveWriter(tmp_path, topic_prefix="other", encoding="json")
    write(tmp_path, [event(1)])


@pytest.mark.fault(
    "The disk is full (simulated)",
    area="Archive",
    on="local files",
    outcome="recording ends with an error; the archive is whole",
)
def test_writer_reports_a_full_disk_as_an_archive_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json") as writer:
        append_event(writer, event(0))
        with monkeypatch.context() as patch:
            patch.setattr("replicator.sources.archive.storage.os.fsync", full)
            with pytest.raises(ArchiveError, match="No space left"):
                writer.flush()
        assert not list(tmp_path.rglob("*.tmp"))
    assert [e.offset for e in read(tmp_path)] == [0]


def test_reader_fails_with_the_kind_of_damage_of_an_archive(tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="not an event archive"):
        ArchiveReader(tmp_path)
    write(tmp_path, [event(n) for n in range(50)])
    file = tmp_path / "events/000001.parquet"
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(ArchiveError, match="the archive's index says"):
        ArchiveReader(tmp_path)
    file.write_bytes(content[:-40] + bytes(40))
    with pytest.raises(
        ArchiveError, match=r"000001.parquet is damaged: its content does not match its checksum"
    ):
        read(tmp_path)
    file.unlink()
    with pytest.raises(ArchiveError, match="cannot be read"):
        ArchiveReader(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "not the manifest"),
        ({"version": 5}, "version 5"),
        ({"encoding": "xml"}, "encoding: Input should be"),
        ({"topics": {"t": {"0": {"first": 0}}}}, "damaged"),
        ({"index": {"pages": 1}}, "damaged"),
        ({"created": 5}, "damaged"),
    ],
)
def test_manifest_is_refused_when_a_field_is_wrong(change: dict[str, object], message: str) -> None:
    document = json.loads(manifest_json(Manifest("shop", "json"))) | change
    with pytest.raises(ArchiveError, match=message):
        parse_manifest(json.dumps(document), "manifest.json")


def test_archive_keeps_the_schemas_of_avro_events(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="avro") as writer:
        writer.add_schema(7, '"string"')
        append_event(writer, event(0))
        assert (writer.has_schema(7), writer.has_schema(8)) == (True, False)
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="avro") as writer:
        assert writer.has_schema(7)
        writer.add_schema(7, "something else")
        writer.add_schema(8, '"größe"')
        append_event(writer, event(1))
    reader = ArchiveReader(tmp_path)
    assert reader.writer_schemas() == {7: '"string"', 8: '"größe"'}
    document = json.loads((tmp_path / "manifest.json").read_text())
    assert {name: document["schemas"]["7"][name] for name in ("path", "bytes")} == {
        "path": "schemas/7.avsc",
        "bytes": 8,
    }
    (tmp_path / "schemas" / "8.avsc").write_text("cut")
    with pytest.raises(ArchiveError, match=r"schemas/8\.avsc has 3 bytes"):
        ArchiveReader(tmp_path)


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
        parse_manifest(text, "manifest.json")
    except ArchiveError:
        return True
    return False


def source_block(pos: int, gtid: str | None = None) -> bytes:
    """Return an event of Debezium at a position in the binlog."""
    source = {"file": "bin.000002", "pos": pos, "row": 0, "ts_ms": 1000 + pos, "gtid": gtid}
    return json.dumps({"before": None, "after": {"id": pos}, "source": source, "op": "c"}).encode()


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the parsed manifest of an archive with a page, an event and a schema."""
    folder = tmp_path_factory.mktemp("manifest")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("replicator.sources.archive.format.PAGE_SEGMENTS", 1)
        with ArchiveWriter(folder, topic_prefix="shop", encoding="avro") as writer:
            writer.add_topic("shop.shop.orders", "uuid")
            append_event(writer, event(0))
    with ArchiveWriter(folder, topic_prefix="shop", encoding="avro") as writer:
        writer.add_schema(7, '"string"')
        append_event(writer, event(1, value=source_block(40, "u:7")))
    return json.loads((folder / "manifest.json").read_text())


@pytest.mark.parametrize(
    "value", [None, True, 1.0, 1e999, 1, "1", [], {}, [[]], json.loads("[" * 500 + "]" * 500)], ids=repr
)
def test_manifest_is_refused_when_a_field_has_a_value_of_another_type(manifest: Any, value: object) -> None:
    damaged = [path for path, whole in fields(manifest) if type(whole) is not type(value)]
    assert len(damaged) > 10
    accepted = [path for path in damaged if not is_refused(with_field(manifest, path, value))]
    # Values that old writers or events without a position lack. Without the index, files would be missing.
    optional = [path for path in accepted if value is None and path[-1] in {"sha256", "source"}]
    assert accepted == optional


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("files",), [], "totals differ"),
        (("index",), None, "totals differ"),
        (("files", 0, "events"), 2, "differs from that of its partitions"),
        (("files", 0, "sha256"), None, "an index without a checksum"),
        (("files", 0, "sha256"), "x" * 64, "should match pattern"),
        (("files", 0, "partitions", 0, "first"), 5, "first event is after its last"),
        (("files", 0, "partitions", 0, "topic"), "other", "outside of its partition's"),
        (("files", 0, "partitions", 0, "source", "times"), [5, 4], "5 is above 4"),
        (("files", 0, "partitions", 0, "source", "first"), ["bin", 4], "not a binlog file"),
        (("topics", "shop.shop.orders", "0", "end"), 0, "ends before its last event"),
        (("topics", "shop.shop.orders", "0", "count"), 5, "totals differ"),
    ],
)
def test_manifest_is_refused_when_its_fields_contradict_each_other(
    manifest: Any, path: tuple[str | int, ...], value: object, message: str
) -> None:
    with pytest.raises(ArchiveError, match=message):
        parse_manifest(with_field(manifest, path, value), "manifest.json")


def read_container(content: bytes, name: str) -> list[Event]:
    return [each for batch in read_batches(content, name) for each in events_of(batch)]


@pytest.mark.parametrize("name", ["new.parquet", "old.avro"])
@given(at=st.integers(0, 4000), piece=st.binary(min_size=1, max_size=8))
def test_container_with_any_bytes_changed_is_refused_or_read(
    containers: dict[str, bytes], name: str, at: int, piece: bytes
) -> None:
    content = containers[name]
    at %= len(content)
    with contextlib.suppress(ArchiveError):
        read_container(content[:at] + piece + content[at + len(piece) :], name)


@pytest.mark.parametrize(
    ("name", "message"),
    [("new.parquet", "its columns are others"), ("old.avro", "its schema is another one")],
)
def test_container_whose_schema_was_changed_is_refused(
    containers: dict[str, bytes], name: str, message: str
) -> None:
    with pytest.raises(ArchiveError, match=message):
        read_container(containers[name].replace(b"partition", b"partitiom"), name)


@pytest.mark.parametrize("column", ["topic", "partition", "offset", "timestamp", "headers"])
def test_container_with_events_that_lack_a_value_is_refused(
    containers: dict[str, bytes], column: str
) -> None:
    events = pq.read_table(pa.BufferReader(containers["new.parquet"])).cast(COLUMNS)
    rows = [row | ({column: None} if i else {}) for i, row in enumerate(events.to_pylist())]
    content = container(pa.Table.from_pylist(rows, COLUMNS))
    with pytest.raises(ArchiveError, match=f"no {column}"):
        read_container(content, "new.parquet")
    headers = [{"key": None, "value": b"1"}]
    rows = [row | {"headers": headers} for row in events.to_pylist()]
    with pytest.raises(ArchiveError, match="a header has no key"):
        read_container(container(pa.Table.from_pylist(rows, COLUMNS)), "new.parquet")


def test_container_with_one_value_for_many_events_is_refused() -> None:
    event = {"topic": "t", "partition": 0, "timestamp": 0, "value": bytes(1 << 20), "headers": []}
    sink = pa.BufferOutputStream()
    rows = pa.Table.from_pylist([event | {"offset": n} for n in range(3)], COLUMNS)
    pq.write_table(rows, sink, compression="zstd", store_schema=False)
    with pytest.raises(ArchiveError, match="have a dictionary"):
        read_container(sink.getvalue().to_pybytes(), "new.parquet")


@pytest.fixture(scope="module")
def containers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the bytes of an event file in each format."""
    folder = tmp_path_factory.mktemp("whole")
    events = [event(0), event(1, headers=(("a", b"1"),))]
    write(folder, events)
    (name,) = ArchiveReader(folder).entries
    return {"new.parquet": (folder / name).read_bytes(), "old.avro": avro_container(events)}


def test_written_documents_match_the_published_schemas(manifest: Any, tmp_path: Path) -> None:
    schemas = [
        json.loads((SCHEMAS / name).read_text())
        for name in ("archive-manifest-v4.json", "archive-index-v1.json")
    ]
    names = ("archive-manifest-v4.json", "archive-index-v1.json")
    registry: Any = Registry().with_resources(
        [(name, DRAFT202012.create_resource(schema)) for name, schema in zip(names, schemas, strict=True)]
    )
    validators = [Draft202012Validator(schema, registry=registry) for schema in schemas]
    validators[0].validate(manifest)
    page = {"format": PAGE_FORMAT, "version": 1, "previous": None, "files": manifest["files"]}
    validators[1].validate(page)
    assert json.loads(page_json(parse_page(json.dumps(page), "page"))) == page
    for wrong in (manifest | {"more": 1}, with_field(manifest, ("files", 0, "sha256"), "x")):
        document = json.loads(wrong) if isinstance(wrong, str) else wrong
        assert not validators[0].is_valid(document)


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
