"""Read the facts for the log's checks from the broker and Kafka Connect. Changes nothing there."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from replicator.config import KafkaLog
from replicator.errors import LogUnavailable
from replicator.sources.kafka_connect import KafkaConnect

_TIMEOUT = 5  # seconds

_quiet = logging.getLogger("replicator.operations.check.librdkafka")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic; `retention_ms` is -1 if events are kept indefinitely."""

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
    """Why the connector or its tasks failed, each in one line with the innermost cause."""
    options: Mapping[str, str]


def read_topics(log: KafkaLog) -> tuple[TopicFacts, ...]:
    """Return the topics under `log.topic_prefix`, sorted by name. Raises LogUnavailable."""
    # librdkafka prints every failed attempt to standard error; the relevant one is raised below.
    attempts: list[KafkaError] = []
    options = {"socket.timeout.ms": _TIMEOUT * 1000, "error_cb": attempts.append}
    admin = AdminClient(log.client_options() | options, logger=_quiet)
    try:
        every = admin.list_topics(timeout=_TIMEOUT).topics
        names = sorted(
            name for name in every if name == log.topic_prefix or name.startswith(log.topic_prefix + ".")
        )
        settings = _settings(admin, names)
    except KafkaException as error:
        admin.poll(0)
        raise LogUnavailable(
            f"cannot reach Kafka at {log.bootstrap_servers}: {_cause(attempts) or error.args[0].str()}",
            "check that the broker is running, and that log.bootstrap_servers and [log.options] are correct",
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


def _cause(attempts: Sequence[KafkaError]) -> str | None:
    """Return why the last connection attempt failed; None if there was none. The request's error has no cause."""
    found = [error.str() for error in attempts if error.code() != KafkaError._ALL_BROKERS_DOWN]  # noqa: SLF001
    return found[-1] if found else None


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
    """Return the connector whose topic.prefix is this mirror's; None if there is none. Raises ConnectError."""
    connector = KafkaConnect(str(log.connect_url)).find(log.topic_prefix)
    if connector is None:
        return None
    return ConnectorFacts(connector.name, connector.state.state, connector.state.failures, connector.options)
