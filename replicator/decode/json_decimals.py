"""Learns the encoding of decimals in the JSON events of each table; see `decimal_encoding`."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from replicator.decode.decimal_encoding import (
    combined,
    decimal_encoding_of,
    decisive_events,
    undecided,
    with_encoding,
)
from replicator.decode.event_frame import WriterSchema
from replicator.decode.json_events import fingerprint
from replicator.model.table import Column, TableId
from replicator.model.types import Encoding


class DecimalEncodings:
    """Learns and stores the encoding of decimals, for each table and fingerprint of a carried schema.

    Safe for several threads, one per table.
    """

    def __init__(self, *, flattened: bool = False) -> None:
        self._flattened = flattened
        self._encodings: dict[tuple[TableId, int], Encoding] = {}

    def inspect_values(
        self, table: TableId, writer_schemas: Sequence[WriterSchema], values: Iterable[bytes]
    ) -> None:
        """Learn from `values`, a few events without a schema."""
        if columns := _undecided(writer_schemas):
            self._note(table, 0, self._encoding_in(values, columns, 0))

    def inspect_records(
        self, table: TableId, writer_schemas: Sequence[WriterSchema], sample: bytes, records: DataFrame
    ) -> None:
        """Learn from events of one schema: from `sample`, or by a Spark job from `records` if it is not sufficient.

        If an encoding is stored already, it was learned from the first events, and later ones may differ. Then
        `records` are searched in any case.
        """
        columns = _undecided(writer_schemas)
        if not columns:
            return
        schema_id = writer_schemas[0].fingerprint
        found = None
        if (table, schema_id) not in self._encodings:
            found = self._encoding_in([sample], columns, schema_id)
        if found is None:
            own = records.where(F.col("value").isNotNull() & (fingerprint(F.col("value")) == schema_id))
            decisive = decisive_events(own, columns, with_schema=schema_id != 0, flattened=self._flattened)
            found = self._encoding_in(decisive, columns, schema_id)
        self._note(table, schema_id, found)

    def applied(self, table: TableId, writer_schema: WriterSchema) -> WriterSchema:
        """Return `writer_schema` with the encoding that was learned for its events."""
        encoding = self._encodings.get((table, writer_schema.fingerprint))
        if encoding is None or not undecided(writer_schema.schema.columns):
            return writer_schema
        return replace(writer_schema, schema=with_encoding(writer_schema.schema, encoding))

    def _encoding_in(
        self, values: Iterable[bytes], columns: Sequence[Column], schema_id: int
    ) -> Encoding | None:
        return decimal_encoding_of(values, columns, with_schema=schema_id != 0, flattened=self._flattened)

    def _note(self, table: TableId, schema_id: int, found: Encoding | None) -> None:
        if found is not None:
            # If another encoding was found before, the log has both.
            known = self._encodings.get((table, schema_id), found)
            self._encodings[table, schema_id] = combined(known, found)


def _undecided(writer_schemas: Iterable[WriterSchema]) -> tuple[Column, ...]:
    return tuple({c.written: c for e in writer_schemas for c in undecided(e.schema.columns)}.values())
