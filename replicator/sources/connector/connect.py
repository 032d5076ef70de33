"""Call Kafka Connect's REST API: the state, settings and offsets of connectors."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import quote

import requests
from requests.utils import get_auth_from_url
from tenacity import (
    Retrying,
    retry_if_exception_message,
    retry_if_exception_type,
    stop_after_delay,
    wait_fixed,
)

from replicator.errors import ConnectError
from replicator.sources.connector.state import NO_REASON, Connector, ConnectorState, cause, failure_hint

QUICK_S: Final = 5.0
"""Timeout of requests that change nothing."""
_SLOW_S: Final = 60.0
"""Timeout of requests during which Connect queries the source database."""
_POLL_S: Final = 0.2
"""Time between two looks at a state that is awaited."""

_NOT_STOPPED: Final = r".*STOPPED state"
"""What Connect answers if offsets are to be changed and the tasks of the connector have not stopped yet."""


class _Rebalancing(Exception):  # noqa: N818 -- a state of the worker group, not a failure
    """The worker group is being rebalanced and temporarily rejects requests."""


class KafkaConnect:
    """The parts of Kafka Connect's REST API that are needed. All methods raise ConnectError.

    `secrets` are texts that no message may contain. A login in `url` is sent, and is in no message either.
    """

    def __init__(self, url: str, secrets: Sequence[str] = (), *, patience: float = 60) -> None:
        # For messages, which must not contain a login.
        self.url = without_login(url).rstrip("/")
        user, password = get_auth_from_url(url)
        self._login = (user, password) if user or password else None
        secrets = (*secrets, *filter(None, (password, quote(password, safe=""))))
        # The longest first, because one may contain another.
        self._secrets = sorted(secrets, key=len, reverse=True)
        self._patience = patience
        # Retry only during a rebalance; all other errors are final.
        self._retry = Retrying(
            retry=retry_if_exception_type(_Rebalancing),
            stop=stop_after_delay(patience),
            wait=wait_fixed(1),
            reraise=True,
        )

    def find(self, topic_prefix: str) -> Connector | None:
        """Return the connector with this `topic.prefix`; None if there is none."""
        with self._understood():
            answer = self._ask("GET", "/connectors?expand=info&expand=status")
            for name, connector in sorted(answer.items()):
                options = connector.get("info", {}).get("config", {})
                if options.get("topic.prefix") == topic_prefix:
                    return Connector(self._state(name, connector.get("status", {})), options)
            return None

    def names(self) -> list[str]:
        """Return the names of all connectors."""
        with self._understood():
            return sorted(self._ask("GET", "/connectors"))

    def delete(self, name: str) -> None:
        """Stop a connector, wait until it has stopped, and remove it with its offsets."""
        self.stop(name)
        self.await_stopped(name)
        self._delete_offsets(name)
        self._ask("DELETE", f"/connectors/{name}")

    def state(self, name: str) -> ConnectorState | None:
        """Return the state of a connector; None if no connector has this name."""
        with self._understood():
            answer = self._ask("GET", f"/connectors/{name}/status", missing_is_fine=True)
            return None if answer is None else self._state(name, answer)

    def options(self, name: str) -> Mapping[str, str] | None:
        """Return the settings of a connector, with passwords in plain text; None if no connector has this name."""
        with self._understood():
            answer = self._ask("GET", f"/connectors/{name}/config", missing_is_fine=True)
            return None if answer is None else {str(key): str(value) for key, value in answer.items()}

    def has_sent(self, name: str) -> bool:
        """Return whether a connector has sent anything to any topic since it was created."""
        with self._understood():
            answer = self._ask("GET", f"/connectors/{name}/topics", missing_is_fine=True) or {}
            return bool(answer.get(name, {}).get("topics"))

    def offset(self, name: str) -> Mapping[str, Any] | None:
        """Return the source offset last committed by a connector; None if there is none.

        A connector that had another `topic.prefix` before has an offset of each; that of the present one counts.
        Connect commits an offset only when all records before it are in Kafka, once every
        `offset.flush.interval.ms` of the worker.
        """
        with self._understood():
            answer = self._ask("GET", f"/connectors/{name}/offsets", missing_is_fine=True) or {}
            entries = [entry for entry in answer.get("offsets", []) if entry.get("offset")]
            if len(entries) > 1:
                prefix = (self.options(name) or {}).get("topic.prefix")
                entries = [e for e in entries if (e.get("partition") or {}).get("server") == prefix]
            return next((dict(entry["offset"]) for entry in entries), None)

    def put(self, name: str, settings: Mapping[str, str]) -> None:
        """Create or update a connector."""
        try:
            self._ask("PUT", f"/connectors/{name}/config", body=dict(settings), timeout=_SLOW_S)
        except ConnectError:
            # Connect may fail while it builds its own response; its validation then has the reasons.
            self.check(name, settings)
            raise

    def create_at(
        self, name: str, settings: Mapping[str, str], partition: Mapping[str, str], offset: Mapping[str, Any]
    ) -> None:
        """Create a connector that starts at a source offset, as if it had committed it."""
        body = {"name": name, "config": dict(settings), "initial_state": "STOPPED"}
        self._ask("POST", "/connectors", body=body, timeout=_SLOW_S)
        offsets = [{"partition": dict(partition), "offset": dict(offset)}]
        self._ask("PATCH", f"/connectors/{name}/offsets", body={"offsets": offsets}, timeout=_SLOW_S)
        self.resume(name)

    def check(self, name: str, settings: Mapping[str, str]) -> None:
        """Let the connector validate its settings. Raises ConnectError with all problems found."""
        kind = settings["connector.class"].rsplit(".", 1)[-1]
        path = f"/connector-plugins/{kind}/config/validate"
        try:
            answer = self._ask("PUT", path, body={"name": name, **settings}, timeout=_SLOW_S)
        except ConnectError:
            # The response to the request for the connector itself is more detailed.
            return
        values = [entry.get("value") or {} for entry in answer.get("configs", [])]
        reasons = [
            f"{value.get('name')}: {' '.join(str(error).split())}"
            for value in values
            for error in value.get("errors", [])
        ]
        if reasons:
            text = self.clean("; ".join(dict.fromkeys(reasons)))
            raise ConnectError(f"Kafka Connect refused the connector: {text}", failure_hint(text))

    def restart(self, name: str) -> None:
        """Restart the failed tasks of a connector, and the connector itself if it failed."""
        self._ask("POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true")

    def reset(self, name: str) -> None:
        """Let a connector forget what it has read, so that it begins as if it was new."""
        self.stop(name)
        self._delete_offsets(name)
        self.resume(name)

    def stop(self, name: str) -> None:
        """Tell a connector to stop; its tasks may stop later."""
        self._ask("PUT", f"/connectors/{name}/stop")

    def has_stopped(self, name: str) -> bool:
        """Return whether a connector has stopped: it has no tasks left, and writes nothing more."""
        state = self.state(name)
        return state is not None and state.state == "STOPPED" and not state.tasks

    def await_stopped(self, name: str) -> None:
        """Wait until none of the tasks of a connector that was told to stop runs any more.

        Raises:
            ConnectError: it does not stop, or Kafka Connect does not answer.
        """
        deadline = time.monotonic() + self._patience
        while not self.has_stopped(name):
            if time.monotonic() > deadline:
                raise ConnectError(
                    f"the connector {name} does not stop", "see the log of the Kafka Connect worker"
                )
            time.sleep(_POLL_S)

    def resume(self, name: str) -> None:
        """Let a stopped connector continue from its offset."""
        self._ask("PUT", f"/connectors/{name}/resume")

    def _delete_offsets(self, name: str) -> None:
        """Delete the offsets of a connector once its tasks have stopped; until then Connect refuses to."""
        stopped = Retrying(
            retry=retry_if_exception_message(match=_NOT_STOPPED),
            stop=stop_after_delay(self._patience),
            wait=wait_fixed(0.5),
            reraise=True,
        )
        stopped(self._ask, "DELETE", f"/connectors/{name}/offsets", timeout=_SLOW_S)

    def clean(self, text: str) -> str:
        """Remove secrets from a text, in case a message contains one."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _state(self, name: str, status: Mapping[str, Any]) -> ConnectorState:
        connector, tasks = status.get("connector", {}), status.get("tasks", [])
        failed = [part for part in (connector, *tasks) if part.get("state") == "FAILED"]
        reasons = dict.fromkeys(self.clean(cause(str(part.get("trace") or ""))) for part in failed)
        if len(reasons) > 1:
            reasons.pop(NO_REASON, None)
        return ConnectorState(
            name,
            str(connector.get("state", "UNASSIGNED")),
            {int(task["id"]): str(task["state"]) for task in tasks},
            tuple(reasons),
            f"{self.url}/connectors/{quote(name, safe='')}",
        )

    def _ask(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        missing_is_fine: bool = False,
        timeout: float = QUICK_S,
    ) -> Any:
        try:
            return self._retry(self._ask_once, method, path, body, missing_is_fine, timeout)
        except _Rebalancing as error:
            raise ConnectError(
                f"Kafka Connect at {self.url} is busy: {error}", "try again when its workers have rebalanced"
            ) from error

    def _ask_once(self, method: str, path: str, body: object, missing_is_fine: bool, timeout: float) -> Any:
        try:
            # The body has passwords: another server, or the same one unencrypted, must not get them.
            answer = requests.request(
                method, self.url + path, json=body, timeout=timeout, auth=self._login, allow_redirects=False
            )
        except requests.RequestException as error:
            # The request is not included in the error: it contains the password.
            raise ConnectError(
                f"cannot reach Kafka Connect at {self.url}",
                "check that the worker is running and that log.connect_url is correct",
            ) from error
        if answer.status_code == 404 and missing_is_fine:
            return None
        if answer.is_redirect:
            raise ConnectError(
                f"the server at {self.url} is not Kafka Connect: it redirects to {redirected_to(answer)}",
                "set log.connect_url to the address of Kafka Connect itself",
            )
        if answer.ok:
            with self._understood():
                return answer.json() if answer.content else None
        reason = self._reason(answer)
        if answer.status_code == 409 or "a rebalance is expected" in reason:
            raise _Rebalancing(reason)
        if "Failed to find any class" in reason:
            raise ConnectError(
                f"Kafka Connect at {self.url} has no Debezium MySQL connector",
                "install debezium-connector-mysql in the worker's plugin.path",
            )
        if method == "GET":
            raise ConnectError(f"Kafka Connect at {self.url} answered {answer.status_code}: {reason}")
        raise ConnectError(f"Kafka Connect refused the connector: {reason}", failure_hint(reason))

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Raise ConnectError if a response does not have the expected structure."""
        try:
            yield
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ConnectError(
                f"the server at {self.url} does not respond like Kafka Connect", "correct log.connect_url"
            ) from error

    def _reason(self, answer: requests.Response) -> str:
        """Return Connect's error message as one line."""
        try:
            text = str(answer.json().get("message") or answer.reason)
        except (ValueError, AttributeError):
            text = str(answer.reason)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [
            line
            for line in lines
            if not line.startswith(("Connector configuration is invalid", "You can also find"))
        ]
        return self.clean("; ".join(errors) or text)


def without_login(url: str) -> str:
    """Return a URL without user and password, for messages."""
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}"


def redirected_to(answer: requests.Response) -> str:
    """Return the address to which a server redirects: scheme, host and path, without login and query."""
    return without_login(answer.headers["Location"]).partition("?")[0]
