"""A schema registry, by its Confluent-compatible API: writer schemas by id."""

import json
import threading
from collections.abc import Mapping
from typing import Any, Final, Protocol

import requests
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_exponential

from replicator.config import KafkaLog
from replicator.errors import ConfigError, DecodeError, LogUnavailable, RegistryRefused

_TIMEOUT_S: Final = 10
_ATTEMPTS: Final = 3
_UNKNOWN_SCHEMA: Final = 404
_REFUSED: Final = (401, 403)


HEADER_BYTES: Final = 5
"""In Confluent's wire format: a zero byte and the id of the writer schema."""


def writer_id(data: bytes | None) -> int | None:
    """The id of the schema that a key or value was written with; None where it is not in Confluent's wire format."""
    if data is None or len(data) <= HEADER_BYTES or data[0] != 0:
        return None
    return int.from_bytes(data[1:HEADER_BYTES], "big")


class WriterSchemas(Protocol):
    """Where the schemas are with which events were written."""

    def schema(self, writer: int) -> str | None:
        """The Avro schema, as JSON text, with this id; None where there is none.

        Raises:
            LogUnavailable: it cannot be looked up now.
            RegistryRefused: it cannot be looked up at all.
            DecodeError: it is no schema that can be used.
        """
        ...


class GivenSchemas:
    """Writer schemas that are at hand, as an archive has them."""

    def __init__(self, schemas: Mapping[int, str]) -> None:
        self._schemas = schemas

    def schema(self, writer: int) -> str | None:
        return self._schemas.get(writer)


class Registry:
    """A schema registry. An id means the same schema for ever, so each is asked for once. Safe for several threads."""

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
        """The registry of a log in Avro. Raises ConfigError where the log is none or a secret is missing."""
        if log.registry_url is None:
            raise ConfigError("log.registry_url is not set", 'it goes with log.format = "avro"')
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
        """The names under which schemas are registered. Raises LogUnavailable, RegistryRefused."""
        with self._lock:
            found = self._ask("/subjects")
        if not isinstance(found, list):
            raise self._no_registry()
        return [str(name) for name in found]

    def _whole(self, answer: Any) -> str:
        """The schema in an answer. Raises DecodeError for one that cannot be read alone: others of the log can."""
        if not isinstance(answer, dict) or "schema" not in answer:
            raise self._no_registry()
        references = answer.get("references") or []
        if answer.get("schemaType", "AVRO") != "AVRO":
            raise DecodeError("its schema in the registry is not Avro")
        if not references:
            return str(answer["schema"])
        raise DecodeError(
            "its schema in the registry refers to others, which is not supported: let the converter register whole "
            "schemas (Apicurio: apicurio.registry.dereference-schema=true)"
        )

    def _ask(self, path: str) -> Any:
        """What the registry answers; None where it knows nothing of `path`."""
        try:
            answer = self._retry(self._session.get, self.url + path, timeout=_TIMEOUT_S)
        except requests.RequestException as error:
            raise LogUnavailable(
                f"the schema registry at {self.url} cannot be reached",
                "is it running, and does log.registry_url fit?",
            ) from error
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
                f"the schema registry at {self.url} fails: {answer.status_code} {answer.reason}",
                "look at its log",
            )
        document = _parsed(answer)
        if document is None:
            raise self._no_registry()
        return document

    def _check_code(self, answer: requests.Response) -> None:
        """A registry says in JSON that it has no such schema; any other server just has no such page."""
        document = _parsed(answer)
        if not isinstance(document, dict) or "error_code" not in document:
            raise self._no_registry()

    def _no_registry(self) -> RegistryRefused:
        return RegistryRefused(
            f"{self.url} is not the API of a schema registry",
            "log.registry_url is the Confluent-compatible API; Apicurio's ends with /apis/ccompat/v7",
        )


def _parsed(answer: requests.Response) -> Any:
    try:
        return json.loads(answer.content)
    except ValueError:
        return None
