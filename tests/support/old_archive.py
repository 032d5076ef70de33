"""Event archives as version 3 wrote them: with files in Avro."""

import hashlib
import io
import json
from collections.abc import Iterable
from pathlib import Path

import fastavro

from replicator.sources.archive.format import EVENT_SCHEMA, Event
from replicator.sources.archive.reader import ArchiveReader


def avro_container(events: Iterable[Event], *, block_bytes: int = 1 << 20) -> bytes:
    """Return a file with these events, in Avro; `block_bytes` is about the size of its blocks."""
    stream = io.BytesIO()
    records = [
        {
            "topic": event.topic,
            "partition": event.partition,
            "offset": event.offset,
            "timestamp": event.timestamp,
            "key": event.key,
            "value": event.value,
            "headers": [{"key": key, "value": value} for key, value in event.headers],
        }
        for event in events
    ]
    fastavro.writer(
        stream, fastavro.parse_schema(EVENT_SCHEMA), records, codec="deflate", sync_interval=block_bytes
    )
    return stream.getvalue()


def as_version_3(folder: Path, *, block_bytes: int = 1 << 20) -> None:
    """Rewrite an archive without pages as version 3 would have written it."""
    reader = ArchiveReader(folder)
    manifest = json.loads((folder / "manifest.json").read_text()) | {"version": 3}
    for file in manifest["files"]:
        old, name = folder / file["path"], file["path"].replace(".parquet", ".avro")
        content = avro_container(reader.file_events(file["path"]), block_bytes=block_bytes)
        old.unlink()
        (folder / name).write_bytes(content)
        file |= {"path": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))
