"""Tracks the schemas of all source tables and of their events; the interface of this package for other packages."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from replicator.decode.decoding import WriterSchema
from replicator.decode.event_format import EventFormat
from replicator.decode.schemas.discovery import SchemaDiscovery
from replicator.decode.schemas.histories import SchemaHistories
from replicator.decode.schemas.resolution import ResolvedSchema, resolve
from replicator.errors import DecodeError
from replicator.model.events import BadRecord, RawRecord
from replicator.model.table import TableId
from replicator.schema.history.versions import SchemaHistory, TableDefinition


class SchemaTracker(SchemaHistories):
    """The schema histories of all tables, and how their events are decoded. Safe for several threads, one per table.

    Attributes:
        format: the format of the log's events.
        discovery: the schemas of events.
    """

    def __init__(
        self,
        event_format: EventFormat,
        *,
        reads_again: bool = False,
        was_recovered: Callable[[TableDefinition], bool] = lambda _: False,
    ) -> None:
        """Track events in `event_format`.

        Args:
            event_format: the format of the log's events.
            reads_again: whether the mirror can read a table from the source; see `HistoryBuilder`.
            was_recovered: returns of a definition that a snapshot read whether events continue as if there was none.
        """
        super().__init__(reads_again=reads_again)
        self.format = event_format
        self.discovery = SchemaDiscovery(event_format, self)
        self._was_recovered = was_recovered
        self._resolved: dict[TableId, tuple[SchemaHistory, object, ResolvedSchema]] = {}

    def add_schema_changes(self, records: Iterable[RawRecord]) -> list[BadRecord]:
        """Apply records of the schema-change topic, in its order; redelivered ones change nothing.

        Return the records that are not schema changes. Tombstones are ignored.
        """
        bad: list[BadRecord] = []
        for record in records:
            if record.value is None:
                continue
            try:
                found = self.format.definitions_in(record.value)
            except DecodeError as error:
                bad.append(BadRecord(record, error.message))
                continue
            self.apply(replace(d, recovered=d.is_read and self._was_recovered(d)) for d in found)
        return bad

    def resolve(
        self,
        table: TableId,
        history: SchemaHistory,
        writer_schemas: Sequence[WriterSchema],
        since: int | None,
        target: int,
    ) -> ResolvedSchema:
        """Return how to decode events with `writer_schemas` to version `target` of `history`.

        No event has an earlier version than the one in effect at `since`; None if they may have any version. Usually
        the result is that of the previous batch.
        """
        first = history.own if since is None else max(history.own, history.index_at(since))
        arguments, last = (tuple(writer_schemas), first, target), self._resolved.get(table)
        # A history is compared by identity: comparing every version would take longer than to resolve again.
        if last is None or last[0] is not history or last[1] != arguments:
            last = self._resolved[table] = history, arguments, resolve(history, *arguments)
        return last[2]
