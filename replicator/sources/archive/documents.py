"""The JSON formats of an archive's manifest and of its index pages (schemas/)."""

import json
from typing import Any, Final

from pydantic import ValidationError

from replicator.errors import ArchiveError, DecodeError
from replicator.model.document import parse_json
from replicator.model.recorded import adapter
from replicator.sources.archive.format import RESTORE, FileEntry, Manifest, Page

FORMAT: Final = "replicator-archive"
VERSION: Final = 4
READABLE_VERSIONS: Final = (1, 2, 3, 4)
"""Version 2 added events in Avro and their writer schemas; version 3 checksums, the index, and pages;
version 4 files in Parquet."""
_INDEXED: Final = 3
"""The first version with an index."""
PAGE_FORMAT: Final = "replicator-archive-index"
PAGE_VERSION: Final = 1

_WRONG: Final = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError)


def manifest_json(manifest: Manifest) -> str:
    """Return the text of manifest.json (schemas/archive-manifest-v4.json)."""
    return _json(manifest, FORMAT, VERSION)


def page_json(page: Page) -> str:
    """Return the text of an index page (schemas/archive-index-v1.json)."""
    return _json(page, PAGE_FORMAT, PAGE_VERSION)


def _json(value: Manifest | Page, kind: str, version: int) -> str:
    written: Any = type(value)
    (found,) = adapter(written).dump_python((value,), mode="json", by_alias=True)
    return json.dumps({"format": kind, "version": version, **found}, indent=1) + "\n"


def parse_manifest(text: str, where: str) -> Manifest:
    """Parse manifest.json of any version; `where` names it in errors. Raises ArchiveError."""
    document = _document(text, where, FORMAT, READABLE_VERSIONS, "the manifest of an event archive")
    try:
        if document["version"] < _INDEXED:
            document = _indexed(document)
        found: Manifest = _read(Manifest, document)
        _check_files(found.files)
        _check_partitions(found)
    except _WRONG as error:
        raise _damaged(where, error) from error
    return found


def parse_page(text: str, where: str) -> Page:
    """Parse an index page; `where` names it in errors. Raises ArchiveError."""
    document = _document(text, where, PAGE_FORMAT, (PAGE_VERSION,), "a page of an archive's index")
    try:
        found: Page = _read(Page, document)
        _check_files(found.files)
    except _WRONG as error:
        raise _damaged(where, error) from error
    return found


def _read(kind: Any, document: dict[str, Any]) -> Any:
    for file in document["files"]:
        for segment in file["partitions"]:
            segment["path"] = file["path"]
    # As JSON, a list can be a tuple, and a text a time.
    return adapter(kind).validate_json(json.dumps((document,)))[0]


def _damaged(where: str, error: Exception) -> ArchiveError:
    reason = f"{type(error).__name__}: {error}"
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc'][1:]))}: {first['msg']}"
    return ArchiveError(f"{where} is damaged: {reason}", RESTORE)


def _document(
    text: str, where: str, kind: str, versions: tuple[int, ...], description: str
) -> dict[str, Any]:
    try:
        document = parse_json(text)
    except DecodeError as error:
        raise ArchiveError(f"{where} is {error.message}", RESTORE) from error
    if not isinstance(document, dict) or document.get("format") != kind:
        raise ArchiveError(f"{where} is not {description}")
    version = document.get("version")
    if type(version) is not int or version not in versions:
        raise ArchiveError(
            f"{where} has version {version!r}; this program reads versions up to {versions[-1]}",
            "Use the release of replicator that wrote it, or a newer one.",
        )
    return document


def _check_files(files: tuple[FileEntry, ...]) -> None:
    for entry in files:
        if any(segment.is_indexed != (entry.sha256 is not None) for segment in entry.segments):
            raise ValueError(f"{entry.path} has an index without a checksum, or the reverse")
        if sum(segment.count for segment in entry.segments) != entry.events:
            raise ValueError(f"the number of events of {entry.path} differs from that of its partitions")
        if any(segment.first > segment.last for segment in entry.segments):
            raise ValueError(f"{entry.path} has a partition whose first event is after its last one")


def _check_partitions(manifest: Manifest) -> None:
    if any(not entry.first <= entry.last < entry.end for entry in manifest.partitions.values()):
        raise ValueError("a partition ends before its last event")
    for entry in manifest.files:
        for segment in entry.segments:
            known = manifest.partitions.get(segment.key)
            if known is None or segment.first < known.first or segment.last > known.last:
                raise ValueError(f"{entry.path} has offsets outside of its partition's")
    if sum(entry.count for entry in manifest.partitions.values()) != manifest.events:
        raise ValueError("the partitions' totals differ from the sum of the files")


def _indexed(document: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest of version 1 or 2, which lists the files of each partition, without checksums and index."""
    unknown = {"sha256": None, "times": None, "source": None}
    files = {path: {"path": path, **f, **unknown, "partitions": []} for path, f in document["files"].items()}
    for topic, partitions in document["topics"].items():
        for partition, entry in partitions.items():
            for segment in entry["files"]:
                found = {**segment, **unknown, "topic": topic, "partition": int(partition)}
                files[segment["path"]]["partitions"].append(found)
    schemas = {writer: {**ref, "sha256": None} for writer, ref in document.get("schemas", {}).items()}
    return {**document, "index": None, "files": list(files.values()), "schemas": schemas}
