"""Caches the last resolved schema of each table."""

from collections.abc import Sequence
from dataclasses import dataclass

from replicator.decode.event_frame import WriterSchema
from replicator.decode.schema_resolution import ResolvedSchema, resolve
from replicator.model.table import TableId
from replicator.schema.history import SchemaHistory


@dataclass(frozen=True, slots=True)
class _Resolution:
    history: SchemaHistory
    writer_schemas: tuple[WriterSchema, ...]
    first: int
    target: int
    resolved: ResolvedSchema

    def is_of(
        self, history: SchemaHistory, writer_schemas: tuple[WriterSchema, ...], first: int, target: int
    ) -> bool:
        # A history is compared by identity: comparing every version would take longer than to resolve again.
        arguments = (writer_schemas, first, target)
        return self.history is history and (self.writer_schemas, self.first, self.target) == arguments


class ResolutionCache:
    """Resolves the schemas of events. Usually the result is that of the previous batch, which is cached.

    Safe for several threads, one per table.
    """

    def __init__(self) -> None:
        self._last: dict[TableId, _Resolution] = {}

    def resolve(
        self,
        table: TableId,
        history: SchemaHistory,
        writer_schemas: Sequence[WriterSchema],
        first: int,
        target: int,
    ) -> ResolvedSchema:
        """Resolve the writer schemas of events to version `target`; see `schema_resolution.resolve`."""
        given, last = tuple(writer_schemas), self._last.get(table)
        if last is None or not last.is_of(history, given, first, target):
            resolved = resolve(history, given, first, target)
            last = self._last[table] = _Resolution(history, given, first, target, resolved)
        return last.resolved
