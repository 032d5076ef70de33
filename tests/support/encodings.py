"""The encodings that events may have: each test of this kind runs once for every one of them."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.source import SourceDatabase


@dataclass(frozen=True, slots=True)
class Encoding:
    """How a connector writes events.

    Attributes:
        name: what docs/conformance.md calls it; one of `tests.support.conformance.ENCODINGS`.
        log: the lines that the mirror's `[log]` section has for it, on the given database; `connect` sets the
            connector's converters up from them.
        is_text: whether events are text, of which golden files are made.
    """

    name: str
    log: Callable[[SourceDatabase], str]
    is_text: bool = True

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


def _avro(registry_url: str | None) -> str:
    # The local registry's converter writes a nullable column's default for NULL, which has to be allowed by name.
    return f'format = "avro"\nregistry_url = "{registry_url}"\nallow_lossy = ["value.converter"]'


ENCODINGS = (
    Encoding("JSON with schemas", lambda _: "schemas = true"),
    Encoding("JSON without schemas", lambda _: "schemas = false"),
    Encoding("Avro", lambda database: _avro(database.endpoints.registry_url), is_text=False),
)
