"""Reads from the broker and from Kafka Connect what the log's checks need to know. Changes nothing there."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import requests
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from replicator.config import KafkaLog
from replicator.errors import ConnectError, LogUnavailable

_TIMEOUT = 5  # seconds

_quiet = logging.getLogger("replicator.check.librdkafka")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic; `retention_ms` is -1 where events are kept for ever."""

    name: str
    partitions: int
    cleanup_policy: str = "delete"
    retention_ms: int = -1


@dataclass(frozen=True, slots=True)
class ConnectorFacts:
    """The Debezium connector that writes this mirror's topics."""

    name: str
    state: str
    failed_tasks: tuple[str, ...]
    """First line of the error of each failed task."""
    options: Mapping[str, str]


def read_topics(log: KafkaLog) -> tuple[TopicFacts, ...]:
    """The topics under `log.topic_prefix`, sorted by name. Raises LogUnavailable."""
    # librdkafka reports every failed attempt on standard error; the one that counts is raised below.
    admin = AdminClient(log.client_options() | {"socket.timeout.ms": _TIMEOUT * 1000}, logger=_quiet)
    try:
        every = admin.list_topics(timeout=_TIMEOUT).topics
        names = sorted(
            name for name in every if name == log.topic_prefix or name.startswith(log.topic_prefix + ".")
        )
        settings = _settings(admin, names)
    except KafkaException as error:
        raise LogUnavailable(
            f"cannot reach Kafka at {log.bootstrap_servers}: {error.args[0].str()}",
            "is the broker running, does log.bootstrap_servers fit, and do [log.options] fit its security?",
        ) from error
    return tuple(
        TopicFacts(
            name,
            len(every[name].partitions),
            settings[name].get("cleanup.policy", "delete"),
            int(settings[name].get("retention.ms", -1)),
        )
        for name in names
    )


def _settings(admin: AdminClient, names: list[str]) -> dict[str, dict[str, str]]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    if not resources:
        return {}
    answers = admin.describe_configs(resources, request_timeout=_TIMEOUT)
    return {
        resource.name: {
            key: entry.value for key, entry in answer.result(_TIMEOUT).items() if entry.value is not None
        }
        for resource, answer in answers.items()
    }


def read_connector(log: KafkaLog) -> ConnectorFacts | None:
    """The connector whose topic.prefix is this mirror's; None when there is none. Raises ConnectError."""
    try:
        answer = requests.get(
            f"{str(log.connect_url).rstrip('/')}/connectors", {"expand": ["info", "status"]}, timeout=_TIMEOUT
        )
        answer.raise_for_status()
        connectors: dict[str, dict[str, Any]] = answer.json()
    except (requests.RequestException, ValueError) as error:
        raise ConnectError(
            f"cannot reach Kafka Connect at {log.connect_url}",
            "is the worker running, and does log.connect_url fit?",
        ) from error
    for name, connector in connectors.items():
        options = connector.get("info", {}).get("config", {})
        if options.get("topic.prefix") == log.topic_prefix:
            return _connector(name, options, connector.get("status", {}))
    return None


def _connector(name: str, options: dict[str, str], status: dict[str, Any]) -> ConnectorFacts:
    failed = [task for task in status.get("tasks", []) if task.get("state") == "FAILED"]
    return ConnectorFacts(
        name,
        status.get("connector", {}).get("state", "UNKNOWN"),
        tuple((task.get("trace") or "no reason given").splitlines()[0] for task in failed),
        options,
    )
