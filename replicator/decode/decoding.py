"""How records of a table are decoded: their writer schemas, and the schema to which they are decoded."""

from dataclasses import dataclass, replace

from replicator.model.batch_stats import UNKNOWN_SCHEMA
from replicator.model.table import Column, TableSchema
from replicator.schema.history.order import Boundary


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """The schema with which a group of events was written.

    Attributes:
        schema: the columns with their current names, and with their types before masking or hashing.
        fingerprint: id of the schema in the events; 0 for events without one.
        schema_prefix: the text of the events up to the payload, which contains their schema; empty for events
            without one.
        first: where it begins to apply; None if it applies from the beginning.
        end: where it no longer applies; None if it is open.
        event_key: the columns that are the key of the events, whether or not they identify rows.
    """

    schema: TableSchema
    fingerprint: int = 0
    schema_prefix: str = ""
    first: Boundary | None = None
    end: Boundary | None = None
    event_key: tuple[str, ...] = ()

    def before_columns(self, *, for_changelog: bool) -> tuple[Column, ...]:
        """Return the columns that are read of a before-image: all, or without a changelog only the key."""
        return self.schema.columns if for_changelog else self.schema.key_columns


@dataclass(frozen=True, slots=True)
class Decoding:
    """How records of one table are decoded.

    Attributes:
        writer_schemas: all schemas that the records may have; no two overlap.
        target: the schema of the `before` and `after` columns, with types for the values of all writer schemas.
        for_changelog: whether to decode all that a changelog row needs; a mirror needs less.
        undecodable: the verdict on events with a schema that no writer schema has.
    """

    writer_schemas: tuple[WriterSchema, ...]
    target: TableSchema
    for_changelog: bool
    undecodable: str = UNKNOWN_SCHEMA

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What events begin with that carry their schema."""
        return tuple({writer.schema_prefix: None for writer in self.writer_schemas if writer.schema_prefix})

    def of_payloads(self, prefix: str) -> "Decoding":
        """Return how the payloads of those events are decoded that begin with a prefix."""
        writers = (w for w in self.writer_schemas if w.schema_prefix == prefix)
        return replace(self, writer_schemas=tuple(replace(w, schema_prefix="") for w in writers))
