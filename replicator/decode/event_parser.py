"""The protocol of the part of a format that runs in Spark's Python workers too: it reads values, and keeps no state."""

from typing import Protocol

import pyarrow as pa

from replicator.decode.decoding import Decoding, WriterSchema
from replicator.decode.parsed import ParsedEvents, Sources
from replicator.model.table import TableSchema


class EventParser(Protocol):
    """Reads the values of records, which are no tombstones. Implementations can be pickled."""

    def schema_ids(self, values: pa.BinaryArray) -> pa.Int64Array:
        """Return the id of each event's schema; `EventFormat.no_schema` if it neither carries nor names one."""
        ...

    def belongs(self, values: pa.BinaryArray, writer_schema: WriterSchema) -> pa.BooleanArray:
        """Return whether events have the schema of `writer_schema`, whatever its range of positions."""
        ...

    def sources(self, values: pa.BinaryArray) -> Sources:
        """Return the source blocks of events of any schema; null where there is none."""
        ...

    def parse(self, values: pa.BinaryArray, writer_schema: WriterSchema, decoding: Decoding) -> ParsedEvents:
        """Parse events that belong to a writer schema."""
        ...

    def unknown(self, values: pa.BinaryArray, decoding: Decoding) -> pa.StringArray:
        """Return why events with a schema that is not in `decoding` cannot be read."""
        ...

    def unreadable(self, schema: TableSchema, decoding: Decoding) -> str:
        """Return the verdict on events with a value that its column cannot have."""
        ...
