"""The writer schemas of events in Avro, as far as events have named them."""

from dataclasses import dataclass, field

from replicator.errors import DecodeError
from replicator.log_tables.avro_events import writer_of
from replicator.sources.kafka.schema_registry import WriterSchemas


@dataclass(frozen=True, slots=True)
class WriterLookup:
    """Looks up writer schemas.

    Attributes:
        registry: where they are; None if no events are in Avro.
        known: id → the schema; None if there is none, or if it cannot be used.
    """

    registry: WriterSchemas | None = None
    known: dict[int, str | None] = field(default_factory=dict)

    def look_up(self, number: int) -> None:
        """Look up a schema. Raises LogUnavailable, RegistryRefused."""
        found = None
        if self.registry is not None:
            try:
                found = self.registry.schema(number)
                if found is not None:
                    writer_of(found)
            except DecodeError:
                found = None
        self.known[number] = found
