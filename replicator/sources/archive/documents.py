"""The JSON formats of an archive's manifest and of its index pages (schemas/)."""

import json
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Final, TypeVar, cast

from replicator.errors import ArchiveError, DecodeError
from replicator.model.document import parse_json
from replicator.model.position import binlog_number
from replicator.sources.archive.format import (
    ArchivedRows,
    Encoding,
    FileEntry,
    FileRef,
    Manifest,
    Page,
    Pages,
    PartitionEntry,
    PartitionKey,
    Segment,
)
from replicator.sources.archive.positions import SourceSpan

FORMAT: Final = "replicator-archive"
VERSION: Final = 3
READABLE_VERSIONS: Final = (1, 2, 3)
"""Version 2 added events in Avro and their writer schemas; version 3 checksums, the index, and pages."""
PAGE_FORMAT: Final = "replicator-archive-index"
PAGE_VERSION: Final = 1

_ENCODINGS: Final = frozenset({"json", "json-schemas", "avro"})
_SHA256_DIGITS: Final = 64
_WRONG: Final = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)

_T = TypeVar("_T")


def manifest_json(manifest: Manifest) -> str:
    """Return the text of manifest.json (schemas/archive-manifest-v3.json)."""
    topics: dict[str, dict[str, Any]] = {}
    for (topic, partition), entry in sorted(manifest.partitions.items()):
        numbers = {"first": entry.first, "last": entry.last, "count": entry.count, "end": entry.end}
        topics.setdefault(topic, {})[str(partition)] = numbers
    pages = manifest.pages
    document: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "topic_prefix": manifest.topic_prefix,
        "encoding": manifest.encoding,
        "created": manifest.created.astimezone(UTC).isoformat(),
        "index": None
        if pages is None
        else {
            "pages": pages.pages,
            "files": pages.files,
            "events": pages.events,
            "bytes": pages.bytes,
            "last": _ref_json(pages.last),
        },
        "files": [_file_json(entry) for entry in manifest.files],
        "topics": topics,
        "schemas": {str(writer): _ref_json(ref) for writer, ref in sorted(manifest.schemas.items())},
    }
    if manifest.topic_ids:
        document["topic_ids"] = dict(sorted(manifest.topic_ids.items()))
    if manifest.partition_counts:
        document["partition_counts"] = dict(sorted(manifest.partition_counts.items()))
    if manifest.connector_reads_rows is not None:
        document["connector_reads_rows"] = manifest.connector_reads_rows
    if manifest.rows:
        document["rows"] = {topic: asdict(rows) for topic, rows in sorted(manifest.rows.items())}
    return json.dumps(document, indent=1) + "\n"


def page_json(page: Page) -> str:
    """Return the text of an index page (schemas/archive-index-v1.json)."""
    document = {
        "format": PAGE_FORMAT,
        "version": PAGE_VERSION,
        "previous": None if page.previous is None else _ref_json(page.previous),
        "files": [_file_json(entry) for entry in page.files],
    }
    return json.dumps(document, indent=1) + "\n"


def parse_manifest(text: str, where: str) -> Manifest:
    """Parse manifest.json of any version; `where` names it in errors. Raises ArchiveError."""
    document = _document(text, where, FORMAT, READABLE_VERSIONS, "the manifest of an event archive")
    parse = _manifest if document["version"] == VERSION else _old_manifest
    return _parsed(parse, document, where)


def parse_page(text: str, where: str) -> Page:
    """Parse an index page; `where` names it in errors. Raises ArchiveError."""
    document = _document(text, where, PAGE_FORMAT, (PAGE_VERSION,), "a page of an archive's index")
    return _parsed(_page, document, where)


def _document(
    text: str, where: str, kind: str, versions: tuple[int, ...], description: str
) -> dict[str, Any]:
    try:
        document = parse_json(text)
    except DecodeError as error:
        raise ArchiveError(f"{where} is {error.message}", "Restore the file from a copy.") from error
    if not isinstance(document, dict) or document.get("format") != kind:
        raise ArchiveError(f"{where} is not {description}")
    version = document.get("version")
    if type(version) is not int or version not in versions:
        raise ArchiveError(
            f"{where} has version {version!r}; this program reads versions up to {versions[-1]}",
            "Use the release of replicator that wrote it, or a newer one.",
        )
    return document


def _parsed(parse: Callable[[dict[str, Any]], _T], document: dict[str, Any], where: str) -> _T:
    try:
        return parse(document)
    except _WRONG as error:
        raise ArchiveError(
            f"{where} is damaged: {type(error).__name__}: {error}", "Restore the file from a copy."
        ) from error


def _manifest(document: dict[str, Any]) -> Manifest:
    index = document["index"]
    found = Manifest(
        topic_prefix=_text(document["topic_prefix"]),
        encoding=_encoding(document["encoding"]),
        created=datetime.fromisoformat(document["created"]),
        files=tuple(_file(entry) for entry in _list(document["files"])),
        pages=None if index is None else _pages(index),
        partitions={
            (topic, int(partition)): _partition(entry)
            for topic, partitions in document["topics"].items()
            for partition, entry in partitions.items()
        },
        schemas={int(writer): _ref(ref) for writer, ref in document["schemas"].items()},
        topic_ids={topic: _text(given) for topic, given in document.get("topic_ids", {}).items()},
        partition_counts={
            topic: _number(count) for topic, count in document.get("partition_counts", {}).items()
        },
        connector_reads_rows=_flag(document.get("connector_reads_rows")),
        rows={topic: _rows(value) for topic, value in document.get("rows", {}).items()},
    )
    for entry in found.files:
        for segment in entry.segments:
            known = found.partitions.get(segment.key)
            if known is None or segment.first < known.first or segment.last > known.last:
                raise ValueError(f"{entry.path} has offsets outside of its partition's")
    if sum(entry.count for entry in found.partitions.values()) != found.events:
        raise ValueError("the partitions' totals differ from the sum of the files")
    return found


def _page(document: dict[str, Any]) -> Page:
    previous = document["previous"]
    files = tuple(_file(entry) for entry in _list(document["files"]))
    return Page(files, None if previous is None else _ref(previous))


def _file_json(entry: FileEntry) -> dict[str, Any]:
    return {
        "path": entry.path,
        "events": entry.events,
        "bytes": entry.bytes,
        "sha256": entry.sha256,
        "partitions": [_segment_json(segment) for segment in entry.segments],
    }


def _segment_json(segment: Segment) -> dict[str, Any]:
    source = segment.source
    return {
        "topic": segment.topic,
        "partition": segment.partition,
        "first": segment.first,
        "last": segment.last,
        "count": segment.count,
        "times": segment.times,
        "source": None
        if source is None
        else {
            "first": source.first,
            "last": source.last,
            "times": source.times,
            "gtids": dict(sorted(source.gtids.items())),
        },
    }


def _file(value: dict[str, Any]) -> FileEntry:
    path = _path(value["path"])
    segments = tuple(_segment(path, segment) for segment in _list(value["partitions"]))
    sha256 = value["sha256"]
    entry = FileEntry(
        path,
        _number(value["events"]),
        _number(value["bytes"]),
        segments,
        None if sha256 is None else _sha256(sha256),
    )
    if any(segment.is_indexed != (sha256 is not None) for segment in segments):
        raise ValueError(f"{path} has an index without a checksum, or the reverse")
    if sum(segment.count for segment in segments) != entry.events:
        raise ValueError(f"the number of events of {path} differs from that of its partitions")
    return entry


def _segment(path: str, value: dict[str, Any]) -> Segment:
    times, source = value["times"], value["source"]
    if value["first"] > value["last"]:
        raise ValueError(f"{path} has a partition whose first event is after its last one")
    return Segment(
        path=path,
        topic=_text(value["topic"]),
        partition=_number(value["partition"]),
        first=_number(value["first"]),
        last=_number(value["last"]),
        count=_number(value["count"]),
        times=None if times is None else _pair(times),
        source=None if source is None else _source(source),
    )


def _source(value: dict[str, Any]) -> SourceSpan:
    return SourceSpan(
        first=_place(value["first"]),
        last=_place(value["last"]),
        times=_pair(value["times"]),
        gtids={_text(source): _pair(numbers) for source, numbers in value["gtids"].items()},
    )


def _place(value: Any) -> tuple[str, int]:
    file, pos = _list(value)
    binlog_number(_text(file))
    return file, _number(pos)


def _pages(value: dict[str, Any]) -> Pages:
    pages, files, events, size = (_number(value[name]) for name in ("pages", "files", "events", "bytes"))
    return Pages(pages, files, events, size, _ref(value["last"]))


def _partition(value: dict[str, Any]) -> PartitionEntry:
    entry = PartitionEntry(*(_number(value[name]) for name in ("first", "last", "count", "end")))
    if not entry.first <= entry.last < entry.end:
        raise ValueError("a partition ends before its last event")
    return entry


def _rows(value: dict[str, Any]) -> ArchivedRows:
    database, table, topic = (_text(value[name]) for name in ("database", "table", "topic"))
    file, pos = _place([value["file"], value["pos"]])
    return ArchivedRows(
        database, table, topic, file, pos, _number(value["server_id"]), _number(value["ts_ms"])
    )


def _ref_json(ref: FileRef) -> dict[str, Any]:
    return {"path": ref.path, "bytes": ref.bytes, "sha256": ref.sha256}


def _ref(value: dict[str, Any]) -> FileRef:
    sha256 = value["sha256"]
    return FileRef(_path(value["path"]), _number(value["bytes"]), None if sha256 is None else _sha256(sha256))


# ---- versions 1 and 2: the manifest lists the segments of each partition, without checksums and index


def _old_manifest(document: dict[str, Any]) -> Manifest:
    sizes = {
        _path(path): (_number(f["events"]), _number(f["bytes"])) for path, f in document["files"].items()
    }
    partitions: dict[PartitionKey, PartitionEntry] = {}
    segments: dict[str, list[Segment]] = {path: [] for path in sizes}
    for topic, entries in document["topics"].items():
        for partition, value in entries.items():
            found = [_old_segment(topic, int(partition), segment) for segment in _list(value["files"])]
            partitions[topic, int(partition)] = _old_partition(value, found)
            for segment in found:
                if segment.path not in segments:
                    raise ValueError("a partition has a file that is not in the list of files")
                segments[segment.path].append(segment)
    return Manifest(
        topic_prefix=_text(document["topic_prefix"]),
        encoding=_encoding(document["encoding"]),
        created=datetime.fromisoformat(document["created"]),
        files=tuple(FileEntry(path, *sizes[path], tuple(parts)) for path, parts in segments.items()),
        partitions=partitions,
        schemas={
            int(writer): FileRef(_path(entry["path"]), _number(entry["bytes"]), None)
            for writer, entry in document.get("schemas", {}).items()
        },
    )


def _old_segment(topic: str, partition: int, value: dict[str, Any]) -> Segment:
    first, last, count = (_number(value[name]) for name in ("first", "last", "count"))
    return Segment(_text(value["path"]), topic, partition, first, last, count)


def _old_partition(value: dict[str, Any], segments: list[Segment]) -> PartitionEntry:
    entry = _partition(value)
    if [entry.first, entry.last, entry.count] != [
        segments[0].first,
        segments[-1].last,
        sum(segment.count for segment in segments),
    ]:
        raise ValueError("a partition's totals differ from the sum of its files")
    return entry


# ---- values


def _encoding(value: Any) -> Encoding:
    if value not in _ENCODINGS:
        raise ValueError(f"unknown encoding {value!r}")
    return cast("Encoding", value)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.60} is not a list")
    return value


def _pair(value: Any) -> tuple[int, int]:
    first, last = map(_number, _list(value))
    if first > last:
        raise ValueError(f"{first} is above {last}")
    return first, last


def _flag(value: Any) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise TypeError(f"{value!r:.60} is neither true nor false")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is not a text")
    return value


def _path(value: Any) -> str:
    """Return the path of a file within the archive. Another file of the machine must not be read as one of it."""
    path = PurePosixPath(_text(value))
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in str(path):
        raise ValueError(f"{value!r:.60} is not a path within the archive")
    return str(value)


def _sha256(value: Any) -> str:
    text = _text(value)
    if len(text) != _SHA256_DIGITS or not set(text) <= set("0123456789abcdef"):
        raise ValueError(f"{text[:80]!r} is not a checksum")
    return text


def _number(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r:.60} is not a number of at least 0")
    return value
