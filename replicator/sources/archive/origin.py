"""Where the events of an archive come from, and of which tables it has all rows from their first one on.

Offsets of such an archive are those of no Kafka topic. So its topics have an id of their own, which keeps a lake from
taking them for Kafka's.

A table is whole if its events begin with the connector's initial snapshot of it, or after the statement that created
it. That is read from the first events of each topic and from the recorded statements, so it works for archives of all
versions.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final

import fastavro

from replicator.errors import ArchiveError, DecodeError
from replicator.model.table import TableId, topic_name
from replicator.schema.history.declared import definitions_of, table_definitions
from replicator.schema.history.order import binlog_key
from replicator.schema.history.versions import TableDefinition
from replicator.sources.archive.positions import EventPosition, PositionReader
from replicator.sources.archive.reader import ArchiveReader, find_manifest
from replicator.sources.archive.storage import Storage, locked
from replicator.sources.kafka.schema_registry import HEADER_BYTES, writer_id

ORIGIN_NAME: Final = "origin.json"
ID_PREFIX: Final = "binlog:"
_FORMAT: Final = "replicator-binlog-import"
_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Origin:
    """The binary log that an archive was imported from.

    Attributes:
        first_file: name of the first file.
        created: when the server began that file, Unix seconds.
        server_id: the server's id.
        settings: hash of what else decides which events there are: definitions, tables and options of the connector.
    """

    first_file: str
    created: int
    server_id: int
    settings: str

    def topic_id(self, topic: str) -> str:
        """Return the id of a topic: it is the same in every import that has the same events at the same offsets."""
        content = f"{topic}\n{self.first_file}\n{self.created}\n{self.server_id}"
        return ID_PREFIX + sha256(content.encode()).hexdigest()[:32]

    def to_json(self) -> str:
        """Serialize as origin.json (schemas/archive-origin-v1.json)."""
        return json.dumps({"format": _FORMAT, "version": _VERSION, **asdict(self)}, indent=1) + "\n"


def is_import(topic_id: str | None) -> bool:
    """Return whether a topic's id is that of an imported archive."""
    return topic_id is not None and topic_id.startswith(ID_PREFIX)


def load_origin(archive: Storage) -> Origin | None:
    """Return the origin of an archive; None if it was recorded from Kafka. Raises ArchiveError."""
    file = f"{archive.location}/{ORIGIN_NAME}"
    try:
        document = json.loads(archive.read(ORIGIN_NAME))
        if (document["format"], document["version"]) != (_FORMAT, _VERSION):
            raise ArchiveError(f"{file} was written by another version", "use the release that wrote it")
        return Origin(
            str(document["first_file"]),
            int(document["created"]),
            int(document["server_id"]),
            str(document["settings"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, LookupError, TypeError, ValueError) as error:
        raise ArchiveError(f"{file} is damaged: {error}", "restore the file from a copy") from error


def save_origin(archive: Storage, origin: Origin) -> None:
    """Write the origin of a new archive, or verify that an existing one has the same.

    Raises:
        ArchiveError: the archive has events of another origin, or cannot be written.
    """
    known = load_origin(archive)
    if known == origin:
        return
    if known is not None or find_manifest(archive) is not None:
        what = "Kafka's topics" if known is None else f"{known.first_file} with its definitions and tables"
        raise ArchiveError(
            f"{archive.location} contains events of {what}",
            "import into another folder; an import continues only with the same first file and definitions",
        )
    with locked(archive):
        try:
            archive.write(ORIGIN_NAME, origin.to_json().encode())
        except OSError as error:
            raise ArchiveError(f"cannot write to {archive.location}: {error}") from error


_AD_HOC: Final = "incremental"
_MOST_RENAMES: Final = 100


class Beginning(StrEnum):
    """What an archive has of the rows that a table had at its first archived event."""

    WHOLE = "whole"
    PARTIAL = "partial"
    UNKNOWN = "unknown"


@dataclass(slots=True)
class _Told:
    """What the recorded statements tell of a table: where it was created or got its name, and the name before that."""

    created: int | None = None
    renamed: int | None = None
    before: TableId | None = None
    in_snapshot: bool = False


class Beginnings:
    """The beginnings of the tables of one archive."""

    def __init__(self, reader: ArchiveReader, *, connector_reads_rows: bool | None = None) -> None:
        """`connector_reads_rows` is used if the manifest does not tell it."""
        known = reader.manifest.connector_reads_rows
        self._reader = reader
        self._prefix = reader.manifest.topic_prefix
        self._schemas = reader.writer_schemas() or {}
        self._positions = PositionReader(self._schemas.get)
        self._reads_rows = connector_reads_rows if known is None else known
        self._told = self._read_statements()
        self._found: dict[str, Beginning] = {}

    def of(self, topic: str) -> Beginning:
        """Return whether the archive has a table's topic, and the rows from before it. Raises ArchiveError."""
        if topic in self._reader.manifest.rows:
            return Beginning.WHOLE
        if topic not in self._found:
            self._found[topic] = self._of(topic, _MOST_RENAMES)
        return self._found[topic]

    def _of(self, topic: str, most: int) -> Beginning:
        firsts = list(self._firsts(topic))
        if any(self._is_snapshot_row(event) for _, event in firsts):
            if all(offset == 0 for offset, _ in firsts) or (
                len(firsts) == 1 and firsts[0][1] is not None and firsts[0][1].snapshot.startswith("first")
            ):
                return Beginning.WHOLE
            return Beginning.PARTIAL
        if any(offset for offset, _ in firsts):
            return Beginning.PARTIAL
        told = self._told.get(topic.removeprefix(f"{self._prefix}."))
        if told is None:
            return Beginning.UNKNOWN
        first = min((event.key for _, event in firsts if event is not None), default=None)
        if told.created is not None and (first is None or told.created <= first):
            return Beginning.WHOLE
        if told.before is not None and most and (first is None or (told.renamed or 0) <= first):
            return self._of(f"{self._prefix}.{topic_name(told.before)}", most - 1)
        if self._reads_rows is False:
            return Beginning.PARTIAL
        # A table of the snapshot without rows of it had none.
        return Beginning.WHOLE if self._reads_rows and told.in_snapshot else Beginning.UNKNOWN

    def _firsts(self, topic: str) -> Iterator[tuple[int, EventPosition | None]]:
        """Yield the first offset of each partition, and the first event that has a position."""
        for partition in self._reader.partitions(topic):
            segment = self._reader.segments(topic, partition)[0]
            events = self._reader.events(topic, partition, end=segment.last + 1)
            positions = (self._positions.read(event.value) for event in events)
            yield segment.first, next((found for found in positions if found is not None), None)

    @staticmethod
    def _is_snapshot_row(event: EventPosition | None) -> bool:
        return event is not None and event.snapshot not in ("", "false", _AD_HOC)

    def _read_statements(self) -> Mapping[str, _Told]:
        told: dict[str, _Told] = {}
        for definition in self._definitions():
            known = told.setdefault(topic_name(definition.table), _Told())
            known.in_snapshot |= definition.snapshot
            if definition.snapshot or definition.passing:
                continue
            if definition.key_change.created:
                known.created, known.before = binlog_key(definition.position), None
            elif definition.schema is not None and definition.other_name is not None:
                known.before, known.renamed = definition.other_name, binlog_key(definition.position)
                known.created = None
        return told

    def _definitions(self) -> Iterator[TableDefinition]:
        for partition in self._reader.partitions(self._prefix):
            for event in self._reader.events(self._prefix, partition):
                try:
                    yield from self._read(event.value or b"")
                except DecodeError:
                    continue

    def _read(self, value: bytes) -> list[TableDefinition]:
        number = writer_id(value)
        if number is None:
            return table_definitions(value)
        record = _avro_record(value, self._schemas.get)
        return [] if record is None else definitions_of(record)


def _avro_record(value: bytes, schema: Callable[[int], str | None]) -> Mapping[str, Any] | None:
    text = schema(writer_id(value) or 0)
    if text is None:
        return None
    try:
        record: Any = fastavro.schemaless_reader(io.BytesIO(value[HEADER_BYTES:]), json.loads(text), None)
    except Exception:  # noqa: BLE001 - fastavro raises anything for bytes that are not Avro
        return None
    return record if isinstance(record, dict) else None
