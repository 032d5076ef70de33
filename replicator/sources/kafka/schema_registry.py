"""Look up writer schemas by id in a schema registry, by its Confluent-compatible API."""

import threading
from collections.abc import Mapping
from typing import Any, Final, Protocol

import requests
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from replicator.config import KafkaLog
from replicator.errors import ConfigError, DecodeError, LogUnavailable, RegistryRefused
from replicator.model.document import Document, parse_json
from replicator.sources.connector.connect import redirected_to

_TIMEOUT_S: Final = 10
_ATTEMPTS: Final = 3
_UNKNOWN_SCHEMA: Final = 404
_REFUSED: Final = (401, 403)


HEADER_BYTES: Final = 5
"""Length of the prefix in Confluent's wire format: a zero byte and the id of the writer schema."""


def writer_id(data: bytes | None) -> int | None:
    """Return the id of a key's or value's writer schema; None if it is not in Confluent's wire format."""
    if data is None or len(data) <= HEADER_BYTES or data[0] != 0:
        return None
    return int.from_bytes(data[1:HEADER_BYTES], "big")


class WriterSchemas(Protocol):
    """A lookup of the schemas that events were written with."""

    def schema(self, writer: int) -> str | None:
        """Return the Avro schema with this id as JSON text; None if there is none.

        Raises:
            LogUnavailable: the lookup failed temporarily.
            RegistryRefused: the lookup is impossible.
            DecodeError: the schema cannot be used.
        """
        ...


class GivenSchemas:
    """Writer schemas that are already loaded, as from an archive."""

    def __init__(self, schemas: Mapping[int, str]) -> None:
        self._schemas = schemas

    def schema(self, writer: int) -> str | None:
        return self._schemas.get(writer)


class Registry:
    """A schema registry. Ids are immutable, so each is requested only once. Thread-safe."""

    def __init__(self, url: str, login: tuple[str, str] | None = None) -> None:
        self.url = url.rstrip("/")
        self._session = requests.Session()
        self._session.auth = login
        self._known: dict[int, str] = {}
        self._lock = threading.Lock()
        self._retry = Retrying(
            retry=retry_if_exception_type(requests.ConnectionError),
            stop=stop_after_attempt(_ATTEMPTS),
            wait=wait_exponential(0.2),
            reraise=True,
        )

    @classmethod
    def of(cls, log: KafkaLog) -> "Registry":
        """Return the registry of a log in Avro. Raises ConfigError if the log is not in Avro or a secret is missing."""
        if log.registry_url is None:
            raise ConfigError("log.registry_url is not set", 'it is required with log.format = "avro"')
        return cls(log.registry_url, log.registry_login())

    def schema(self, writer: int) -> str | None:
        with self._lock:
            if writer not in self._known:
                found = self._ask(f"/schemas/ids/{writer}")
                if found is None:
                    return None
                self._known[writer] = self._whole(found)
            return self._known[writer]

    def subjects(self) -> list[str]:
        """Return the subjects under which schemas are registered. Raises LogUnavailable, RegistryRefused."""
        with self._lock:
            found = self._ask("/subjects")
        if not isinstance(found, list):
            raise self._no_registry()
        return [str(name) for name in found]

    def _whole(self, answer: Any) -> str:
        """Return the schema in a response. Raises DecodeError if it is not self-contained, as other schemas may be."""
        if not isinstance(answer, dict) or "schema" not in answer:
            raise self._no_registry()
        references = answer.get("references") or []
        if answer.get("schemaType", "AVRO") != "AVRO":
            raise DecodeError("its schema in the registry is not Avro")
        if not references:
            return Document.of(answer, "its schema in the registry").text("schema")
        raise DecodeError(
            "its schema in the registry references others, which is not supported: let the converter register complete "
            "schemas (Apicurio: apicurio.registry.dereference-schema=true)"
        )

    def _ask(self, path: str) -> Any:
        """Send a request to the registry; return None if it does not know `path`."""
        try:
            # Another server must not decide how events are read.
            answer = self._retry(
                self._session.get, self.url + path, timeout=_TIMEOUT_S, allow_redirects=False
            )
        except requests.RequestException as error:
            raise LogUnavailable(
                f"the schema registry at {self.url} cannot be reached",
                "check that it is running and that log.registry_url is correct",
            ) from error
        if answer.is_redirect:
            raise RegistryRefused(
                f"the server at {self.url} is not the schema registry: it redirects to {redirected_to(answer)}",
                "set log.registry_url to the address of the registry itself",
            )
        if answer.status_code == _UNKNOWN_SCHEMA:
            self._check_code(answer)
            return None
        if answer.status_code in _REFUSED:
            raise RegistryRefused(
                f"the schema registry at {self.url} refuses the login ({answer.status_code})",
                "check log.registry_user and log.registry_password",
            )
        if not answer.ok:
            raise LogUnavailable(
                f"the schema registry at {self.url} failed: {answer.status_code} {answer.reason}",
                "see its log",
            )
        document = _parsed(answer)
        if document is None:
            raise self._no_registry()
        return document

    def _check_code(self, answer: requests.Response) -> None:
        """Check that a 404 is a registry's: it reports a missing schema as JSON, unlike any other server."""
        document = _parsed(answer)
        if not isinstance(document, dict) or "error_code" not in document:
            raise self._no_registry()

    def _no_registry(self) -> RegistryRefused:
        return RegistryRefused(
            f"{self.url} is not the API of a schema registry",
            "log.registry_url must be the Confluent-compatible API; Apicurio's ends with /apis/ccompat/v7",
        )


def _parsed(answer: requests.Response) -> Any:
    try:
        return parse_json(answer.content)
    except DecodeError:
        return None
