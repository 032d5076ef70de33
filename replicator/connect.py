"""The Debezium connector of a mirror: its settings, and its registration with Kafka Connect.

The settings come from `connectors/mysql.json`, which holds those under which nothing is lost, and from the
mirror's configuration. They hold passwords: they are sent to Kafka Connect and never written or logged.
"""

import hashlib
import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any

import requests
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from replicator.config import Config, KafkaLog
from replicator.config.kafka import java_client_options
from replicator.config.models import APICURIO_API
from replicator.errors import ConfigError, ConnectError
from replicator.resources import resource

TEMPLATE = "connectors/mysql.json"
_CONVERTERS = "connectors/converters.json"
_FLATTENED = "connectors/flattened.json"
_REQUEST_SECONDS = 60
"""Connect checks the settings against the database before it answers."""

_SECRET = re.compile(r"password|secret|token|user\.info|sasl\.jaas")
_SHORT = 3
"""So few characters may stand in any text."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A connector that runs: its name, whether it existed before, and its tasks' states by id."""

    name: str
    existed: bool
    tasks: Mapping[int, str]


class _Rebalancing(Exception):  # noqa: N818 -- a state of the worker group, not a failure
    """The worker group is being reordered and takes no requests for the moment."""


def connector_config(config: Config) -> dict[str, str]:
    """Every setting of this mirror's connector, secrets included: never log them.

    Raises ConfigError where the mirror follows an archive or a secret is missing.
    """
    log = _kafka(config)
    server = config.source.server()
    password = config.source.password.reveal().get_secret_value() if config.source.password else ""
    patterns = config.source.tables
    values = {
        "topic_prefix": log.topic_prefix,
        "topic_prefix_pattern": f"^{_literal(log.topic_prefix)}$",
        "host": server.host,
        "port": str(server.port),
        "user": server.user,
        "password": password,
        "server_id": str(_server_id(log.topic_prefix)),
        "databases": ",".join(dict.fromkeys(_regex(name) for p in patterns for name in _databases(p))),
        "tables": table_patterns(patterns, config.source.exclude),
        "partitions": str(log.partitions),
        "bootstrap_servers": log.bootstrap_servers,
    }
    template: dict[str, str] = json.loads(resource(TEMPLATE).read_text())
    settings = {name: Template(value).substitute(values) for name, value in template.items()}
    if log.transactions:
        settings["provide.transaction.metadata"] = "true"
    if table := config.source.signal_table:
        settings["signal.data.collection"] = table
        # A signal is a row of a table that is followed.
        settings["table.include.list"] += "," + _literal(table)
        if (database := _literal(table.split(".", 1)[0])) not in settings["database.include.list"].split(","):
            settings["database.include.list"] += "," + database
    if keys := _message_keys(config):
        settings["message.key.columns"] = keys
    if log.flattened:
        settings |= json.loads(resource(_FLATTENED).read_text())
    return settings | _converters(log) | _history_clients(log)


def _converters(log: KafkaLog) -> dict[str, str]:
    """How keys and values are encoded."""
    settings = json.loads(resource(_CONVERTERS).read_text())[_converter_name(log)]
    login = log.registry_login()
    if login is None:
        settings = {name: value for name, value in settings.items() if "auth." not in name}
    user, password = login or ("", "")
    values = {
        "schemas": "true" if log.schemas else "false",
        "registry": log.registry_url or "",
        "registry_root": (log.registry_url or "").partition(APICURIO_API)[0],
        "user": user,
        "password": password,
    }
    return {name: Template(value).substitute(values) for name, value in settings.items()}


def _converter_name(log: KafkaLog) -> str:
    """Which converter writes the log's format: a registry is best served by its own."""
    if log.format == "json":
        return "json"
    return "avro-apicurio" if log.registry_is_apicurio else "avro-confluent"


def _kafka(config: Config) -> KafkaLog:
    if not isinstance(config.log, KafkaLog):
        raise ConfigError('log.kind is "archive"; a connector writes to Kafka', 'set log.kind = "kafka"')
    return config.log


def table_patterns(include: Iterable[str], exclude: Iterable[str] = ()) -> str:
    """Debezium's `table.include.list` for `database.table` patterns with `*` and `?`.

    Debezium takes either a list to include or one to exclude, so what is excluded becomes a lookahead.
    """
    without = "|".join(map(_regex, exclude))
    return ",".join((f"(?!(?:{without})$)" if without else "") + _regex(pattern) for pattern in include)


def _databases(pattern: str) -> list[str]:
    """What a pattern's database may be: where a name has dots, each of them may be the one before the table."""
    parts = pattern.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts))]


def _regex(pattern: str) -> str:
    """One pattern as a Java regular expression that contains no bare comma, which separates the list."""
    words = {"*": ".*", "?": "."}
    return "".join(words.get(part) or _literal(part) for part in re.split(r"([*?])", pattern))


def _literal(text: str) -> str:
    return re.sub(r"([^\w])", r"\\\1", text, flags=re.ASCII)


def _server_id(topic_prefix: str) -> int:
    """The connector's id as a replica of MySQL: the same for one prefix, unlikely to meet another's."""
    digest = hashlib.sha256(topic_prefix.encode()).digest()
    return 100_000 + int.from_bytes(digest[:4]) % 2_000_000_000


def _message_keys(config: Config) -> str:
    """Keys that the configuration gives to tables, as Debezium's `message.key.columns`."""
    return ";".join(f"{_literal(table.name)}:{','.join(table.key)}" for table in config.tables if table.key)


def _history_clients(log: KafkaLog) -> dict[str, str]:
    """The schema history has Kafka clients of its own, which need the same security settings."""
    options = {name: value for name, value in log.client_options().items() if name != "bootstrap.servers"}
    java = java_client_options(options)
    return {
        f"schema.history.internal.{client}.{name}": value
        for client in ("producer", "consumer")
        for name, value in java.items()
    }


def register(config: Config, *, seconds: float = 90) -> Registered:
    """Create or update the connector and wait until its task runs; safe to repeat.

    Raises ConfigError for settings that are missing, ConnectError where Kafka Connect cannot be reached,
    refuses the settings, or the task fails.
    """
    log = _kafka(config)
    if log.connect_url is None:
        raise ConfigError("log.connect_url is not set", 'add connect_url = "http://host:8083" to [log]')
    settings = connector_config(config)
    worker = _Worker(log.connect_url.rstrip("/"), _secrets(settings))
    name = config.mirror.name
    before = worker.status(name)
    worker.put(name, settings)
    if before and _failures(before):
        # New settings alone do not wake a failed task, and the cause may have been mended elsewhere.
        worker.restart(name)
    return Registered(name, before is not None, _wait(worker, name, seconds))


def _secrets(settings: Mapping[str, str]) -> list[str]:
    """What no message may repeat; the longest first, because one may be a part of another."""
    found = {value for name, value in settings.items() if _SECRET.search(name)}
    # A login in one setting, as user:password.
    found |= {value.partition(":")[2] for name, value in settings.items() if name.endswith("user.info")}
    return sorted((value for value in found if len(value) > _SHORT), key=len, reverse=True)


def _wait(worker: "_Worker", name: str, seconds: float) -> dict[int, str]:
    """Wait until all tasks run, seen twice, since a task that cannot work fails just after its start."""
    deadline = time.monotonic() + seconds
    seen_running = 0
    failed_since: float | None = None
    while True:
        status = worker.status(name) or {}
        failures = _failures(status)
        now = time.monotonic()
        failed_since = (failed_since or now) if failures else None
        # A failure from before a restart is shown for a moment.
        if failures and failed_since is not None and now - failed_since > 2:
            raise ConnectError(
                f"the connector {name} failed: {worker.clean(failures[0])}", _failure_hint(failures[0])
            )
        tasks = {int(task["id"]): str(task["state"]) for task in status.get("tasks", [])}
        seen_running = seen_running + 1 if tasks and set(tasks.values()) == {"RUNNING"} else 0
        if seen_running >= 2:
            return tasks
        if now > deadline:
            raise ConnectError(
                f"the connector {name} does not run after {seconds:.0f} s (tasks: {tasks or 'none'})",
                "look at the log of the Kafka Connect worker",
            )
        time.sleep(0.5)


def _failures(status: Mapping[str, Any]) -> list[str]:
    """Why the connector or its tasks failed: the first line of each trace, with its root cause."""
    parts = [status.get("connector", {}), *status.get("tasks", [])]
    return [_cause(str(part.get("trace") or "")) for part in parts if part.get("state") == "FAILED"]


def _cause(trace: str) -> str:
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    if not lines:
        return "no reason given"
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    first = _without_class(lines[0])
    root = _without_class(causes[-1]) if causes else first
    return first if root in first else f"{first} ({root})"


def _without_class(line: str) -> str:
    """`org.example.SomeException: text` without the class, which says nothing to a user."""
    return re.sub(r"^(?:[\w$]+\.)+[\w$]+: ", "", line)


def _failure_hint(cause: str) -> str:
    """The next step for the failures that are most usual."""
    lower = cause.lower()
    if "using password" in lower:
        return "check the user in source.url, and that source.password names the right variable or file"
    if "access denied" in lower:
        return (
            "give the user SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES"
        )
    if "binlog" in lower and ("purged" in lower or "no longer available" in lower):
        return "the server dropped binlogs that were still needed: a new snapshot is needed"
    return "mend the cause and run this again; the whole trace is in the log of the Kafka Connect worker"


class _Worker:
    """The REST interface of Kafka Connect, as far as it is needed. Its methods raise ConnectError."""

    def __init__(self, url: str, secrets: Sequence[str]) -> None:
        self._url = url
        self._secrets = secrets
        # Only until the group is in order again; everything else is final.
        self._retry = Retrying(
            retry=retry_if_exception_type(_Rebalancing),
            stop=stop_after_delay(60),
            wait=wait_fixed(1),
            reraise=True,
        )

    def status(self, name: str) -> dict[str, Any] | None:
        """The state of a connector; None where there is none of that name."""
        answer = self._ask("GET", f"/connectors/{name}/status", missing_is_fine=True)
        return None if answer is None else dict(answer)

    def put(self, name: str, settings: Mapping[str, str]) -> None:
        """Create or update a connector."""
        try:
            self._ask("PUT", f"/connectors/{name}/config", body=dict(settings))
        except ConnectError:
            # Connect may fail while it puts its own answer together; its preflight has the reasons then.
            if reasons := self._invalid({"name": name, **settings}):
                text = self.clean("; ".join(reasons))
                raise ConnectError(
                    f"Kafka Connect refused the connector: {text}", _failure_hint(text)
                ) from None
            raise

    def _invalid(self, settings: Mapping[str, str]) -> list[str]:
        """What the connector itself finds wrong with the settings."""
        kind = settings["connector.class"].rsplit(".", 1)[-1]
        try:
            answer = self._ask("PUT", f"/connector-plugins/{kind}/config/validate", body=dict(settings))
        except ConnectError:
            return []
        values = [entry.get("value") or {} for entry in answer.get("configs", [])]
        return [
            f"{value.get('name')}: {' '.join(str(error).split())}"
            for value in values
            for error in value.get("errors", [])
        ]

    def restart(self, name: str) -> None:
        """Start failed parts of a connector again."""
        self._ask("POST", f"/connectors/{name}/restart?includeTasks=true&onlyFailed=true")

    def clean(self, text: str) -> str:
        """The text without secrets, should a message repeat one."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def _ask(self, method: str, path: str, *, body: object = None, missing_is_fine: bool = False) -> Any:
        try:
            return self._retry(self._ask_once, method, path, body, missing_is_fine)
        except _Rebalancing as error:
            raise ConnectError(
                f"Kafka Connect at {self._url} is busy: {error}", "try again when its workers are in order"
            ) from error

    def _ask_once(self, method: str, path: str, body: object, missing_is_fine: bool) -> Any:
        try:
            answer = requests.request(method, self._url + path, json=body, timeout=_REQUEST_SECONDS)
        except requests.RequestException as error:
            # The request itself is not repeated here: it holds the password.
            raise ConnectError(
                f"cannot reach Kafka Connect at {self._url}",
                "is the worker running, and does log.connect_url fit?",
            ) from error
        if answer.status_code == 404 and missing_is_fine:
            return None
        if answer.ok:
            return answer.json() if answer.content else None
        reason = self._reason(answer)
        if answer.status_code == 409:
            raise _Rebalancing(reason)
        if "Failed to find any class" in reason:
            raise ConnectError(
                f"Kafka Connect at {self._url} has no Debezium MySQL connector",
                "install debezium-connector-mysql in the worker's plugin.path",
            )
        raise ConnectError(f"Kafka Connect refused the connector: {reason}", _failure_hint(reason))

    def _reason(self, answer: requests.Response) -> str:
        """What Connect says, in one line."""
        try:
            text = str(answer.json().get("message") or answer.reason)
        except (ValueError, AttributeError):
            text = str(answer.reason)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        told = [
            line
            for line in lines
            if not line.startswith(("Connector configuration is invalid", "You can also find"))
        ]
        return self.clean("; ".join(told) or text)
