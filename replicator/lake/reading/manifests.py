"""Read the lists of a snapshot's manifests, and the manifests. Format: Iceberg's table spec, "Manifests"."""

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import fastavro

from replicator.lake.reading.files import Files

POSITION_DELETES: Final = 1
EQUALITY_DELETES: Final = 2
"""Values of `FileEntry.content`; 0 are data."""
_ADDED: Final = 1
_DELETED: Final = 2
"""Values of the status of an entry; 0 is an entry of an earlier manifest."""
_PATH_ID: Final = 2147483546
"""Field id of `file_path` in position-delete files; Iceberg's table spec, "Reserved Field IDs"."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """A manifest: a list of files. It lists either data files or delete files."""

    path: str
    has_deletes: bool
    sequence: int


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A data file or delete file of a snapshot.

    Attributes:
        content: 0 for data, or `POSITION_DELETES`, or `EQUALITY_DELETES`.
        sequence: the sequence number of the commit that added it; 0 if there is none.
        is_vector: whether it is a deletion vector.
        data_file: the only data file to which deletes of positions apply; None if there may be several.
    """

    path: str
    content: int
    rows: int
    sequence: int
    is_vector: bool
    data_file: str | None


def read_manifests(files: Files, manifest_list: str) -> list[Manifest]:
    """Read the list of a snapshot's manifests.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged.
    """
    return [
        Manifest(found["manifest_path"], found.get("content") == 1, found.get("sequence_number") or 0)
        for found in _records(files, manifest_list)
    ]


def read_entries(files: Files, manifest: Manifest) -> Iterator[FileEntry]:
    """Yield the files that a manifest lists, without those that its commit removed. Raises as `read_manifests`."""
    for found in _records(files, manifest.path):
        if found["status"] == _DELETED:
            continue
        file, sequence = found["data_file"], found.get("sequence_number")
        if sequence is None and found["status"] == _ADDED:
            # It was not known yet when the manifest was written.
            sequence = manifest.sequence
        yield FileEntry(
            file["file_path"],
            file.get("content") or 0,
            file["record_count"],
            sequence or 0,
            file["file_format"].upper() == "PUFFIN",
            file.get("referenced_data_file") or _only_path(file),
        )


def _records(files: Files, location: str) -> list[dict[str, Any]]:
    with files.open(location) as stream:
        # The parser reads single bytes, each of which would be a request to an object store.
        content = io.BytesIO(stream.read())
    try:
        reader = fastavro.reader(content)
        schema = _without_partitions(reader.writer_schema)
        if schema is not None:
            content.seek(0)
            reader = fastavro.reader(content, reader_schema=schema)
        return list(reader)  # type: ignore[arg-type]
    except Exception as error:
        # What the parser raises of damaged content has no common class.
        raise ValueError(f"{location} is damaged: {error!r}") from error


def _without_partitions(schema: Any) -> Any:
    """Return the schema of a manifest without values of partitions: Python has no dates of the year 0.

    None if it has none, or if it is that of a list of manifests.
    """
    entry = {field["name"]: field for field in schema["fields"]}
    file = {field["name"]: field for field in entry.get("data_file", {}).get("type", {}).get("fields", ())}
    if not file.get("partition", {}).get("type", {}).get("fields"):
        return None
    others = [field for name, field in file.items() if name != "partition"]
    data_file = {**entry["data_file"], "type": {**entry["data_file"]["type"], "fields": others}}
    return {**schema, "fields": list({**entry, "data_file": data_file}.values())}


def _only_path(file: Mapping[str, Any]) -> str | None:
    """Return the only path in a position-delete file; None if there may be several. Bounds of paths are exact."""
    lower, upper = (_bound(file.get(name)) for name in ("lower_bounds", "upper_bounds"))
    return lower.decode() if lower is not None and lower == upper else None


def _bound(bounds: list[dict[str, Any]] | None) -> bytes | None:
    return next((bytes(bound["value"]) for bound in bounds or () if bound["key"] == _PATH_ID), None)
