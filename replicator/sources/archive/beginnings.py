"""Tell of which tables an archive has all rows: from their first one on, or only the changes after some moment.

A table is whole if its events begin with the connector's initial snapshot of it, or after the statement that created
it. That is read from the first events of each topic and from the recorded statements, so it works for archives of all
versions.
"""

import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import fastavro

from replicator.errors import DecodeError
from replicator.model.table import TableId, topic_name
from replicator.schema.history.declared import definitions_of, table_definitions
from replicator.schema.history.order import binlog_key
from replicator.schema.history.versions import TableDefinition
from replicator.sources.archive.positions import EventPosition, PositionReader
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.schema_registry import HEADER_BYTES, writer_id

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
