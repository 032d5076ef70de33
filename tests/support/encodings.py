"""The encodings of events. Tests that depend on the encoding run once for each."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.source import SourceDatabase


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a connector writes events.

    Attributes:
        name: its name in docs/conformance.md; one of `tests.support.conformance.ENCODINGS`.
        log: its lines in the mirror's `[log]` section, for the given database; `connect` derives the connector's
            converters from them.
        is_text: whether events are text, from which golden files are made.
    """

    name: str
    log: Callable[[SourceDatabase], str]
    is_text: bool = True

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def _avro(registry_url: str | None) -> str:
    # The local registry's converter writes a nullable column's default for NULL, which must be allowed by name.
    return f'format = "avro"\nregistry_url = "{registry_url}"\nallow_lossy = ["value.converter"]'


ENCODINGS = (
    Encoding("JSON with schemas", lambda _: "schemas = true"),
    Encoding("JSON without schemas", lambda _: "schemas = false"),
    Encoding("Avro", lambda database: _avro(database.endpoints.registry_url), is_text=False),
)
