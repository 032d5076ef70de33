"""Tracks the schemas of all source tables and of their events; the interface of this package for other packages."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame

from replicator.decode.event_format import EventFormat, ImageFields
from replicator.decode.event_frame import WriterSchema
from replicator.decode.schemas.discovery import SchemaDiscovery
from replicator.decode.schemas.histories import FollowedVersion, SchemaHistories
from replicator.decode.schemas.resolution import ResolutionCache, ResolvedSchema
from replicator.errors import DecodeError
from replicator.model.commit_marker import OffsetRange
from replicator.model.events import BadRecord, RawRecord
from replicator.model.table import TableId, TableSchema
from replicator.schema.history.versions import SchemaHistory, TableDefinition


class SchemaTracker:
    """Keeps the schema histories of all tables, and determines the schemas of events and how to decode them.

    A facade: methods delegate to the histories, to the discovery of schemas, or to the format of the log's events.
    Safe for several threads, one per table.
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
        self._format = event_format
        self._was_recovered = was_recovered
        self._histories = SchemaHistories(reads_again=reads_again)
        self._discovery = SchemaDiscovery(event_format, self._histories)
        self._resolutions = ResolutionCache()

    # Definitions and histories.

    @property
    def revision(self) -> int:
        """A number that changes with each definition."""
        return self._histories.revision

    @property
    def takes_definitions(self) -> bool:
        """See `EventFormat`."""
        return self._format.takes_definitions

    def add_schema_changes(self, records: Iterable[RawRecord]) -> list[BadRecord]:
        """Apply records of the schema-change topic, in its order; redelivered ones change nothing.

        Return the records that are not schema changes. Tombstones are ignored.
        """
        bad: list[BadRecord] = []
        for record in records:
            if record.value is None:
                continue
            try:
                found = self._format.definitions_in(record.value)
            except DecodeError as error:
                bad.append(BadRecord(record, error.message))
                continue
            self._histories.apply(replace(d, recovered=d.is_read and self._was_recovered(d)) for d in found)
        return bad

    def definitions_in(self, value: bytes) -> list[TableDefinition]:
        """See `EventFormat`. Raises DecodeError."""
        return self._format.definitions_in(value)

    def define(self, table: TableId, schema: TableSchema) -> None:
        """See `SchemaHistories`."""
        self._histories.define(table, schema)

    def follow(self, table: TableId, version: FollowedVersion) -> None:
        """See `SchemaHistories`."""
        self._histories.follow(table, version)

    def history(self, table: TableId) -> SchemaHistory:
        """See `SchemaHistories`."""
        return self._histories.history(table)

    def earlier_names(self, table: TableId) -> frozenset[TableId]:
        """See `SchemaHistories`."""
        return self._histories.earlier_names(table)

    def later_names(self, table: TableId) -> frozenset[TableId]:
        """See `SchemaHistories`."""
        return self._histories.later_names(table)

    def spelling_of(self, table: TableId) -> TableId:
        """See `SchemaHistories`."""
        return self._histories.spelling_of(table)

    def tables_called(self, topic: str) -> set[TableId]:
        """See `SchemaHistories`."""
        return self._histories.tables_called(topic)

    def defined_columns(self) -> dict[TableId, set[str]]:
        """See `SchemaHistories`."""
        return self._histories.defined_columns()

    # Schemas of events.

    def knows(self, table: TableId) -> bool:
        """See `SchemaDiscovery`."""
        return self._discovery.knows(table)

    def writer_schemas(
        self, table: TableId, since: int | None, until: int | None = None
    ) -> list[WriterSchema]:
        """See `SchemaDiscovery`. Raises MissingSchema."""
        return self._discovery.writer_schemas(table, since, until)

    def needs_definitions(self, table: TableId) -> bool:
        """See `SchemaDiscovery`."""
        return self._discovery.needs_definitions(table)

    def image_fields(self, value: bytes) -> ImageFields | None:
        """See `EventFormat`."""
        return self._format.image_fields(value)

    def needs_inspection(self, table: TableId) -> bool:
        """See `SchemaDiscovery`."""
        return self._discovery.needs_inspection(table)

    def inspect_values(self, table: TableId, values: Iterable[bytes]) -> None:
        """See `SchemaDiscovery`."""
        self._discovery.inspect_values(table, values)

    def learn(self, table: TableId, records: DataFrame, *, patient: bool = False) -> list[WriterSchema]:
        """See `SchemaDiscovery`. Raises SchemaError, LogUnavailable, RegistryRefused."""
        return self._discovery.learn(table, records, patient=patient)

    def learn_from_sample(
        self, table: TableId, sample: DataFrame, *, patient: bool = False
    ) -> list[WriterSchema]:
        """See `SchemaDiscovery`. Raises SchemaError, LogUnavailable, RegistryRefused."""
        return self._discovery.learn_from_sample(table, sample, patient=patient)

    def resolve(
        self,
        table: TableId,
        history: SchemaHistory,
        writer_schemas: Sequence[WriterSchema],
        since: int | None,
        target: int,
    ) -> ResolvedSchema:
        """Return how to decode events with `writer_schemas` to version `target` of `history`.

        No event has an earlier version than the one in effect at `since`; None if they may have any version.
        """
        first = history.own if since is None else max(history.own, history.index_at(since))
        return self._resolutions.resolve(table, history, writer_schemas, first, target)

    # Events.

    def carries_schema(self, value: bytes) -> bool:
        """See `EventFormat`."""
        return self._format.carries_schema(value)

    def table_named_in(self, value: bytes) -> TableId | None:
        """See `EventFormat`."""
        return self._format.table_named_in(value)

    def with_sources(self, records: DataFrame) -> DataFrame:
        """See `EventFormat`."""
        return self._format.with_sources(records)

    def decode(
        self,
        records: DataFrame,
        writer_schemas: Sequence[WriterSchema],
        target: TableSchema,
        ranges: Sequence[OffsetRange],
        *,
        for_changelog: bool,
        undecodable: str,
    ) -> DataFrame:
        """Decode records of one table; see `decode.json.events`."""
        return self._format.decode(
            records,
            writer_schemas,
            target,
            ranges,
            for_changelog=for_changelog,
            undecodable=undecodable,
        )
