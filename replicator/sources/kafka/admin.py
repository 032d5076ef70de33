"""Query a Kafka cluster about topics: partitions, ids, offsets, settings; translate its errors. Changes nothing."""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final, TypeAlias, TypeVar

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition, Uuid
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, OffsetSpec, ResourceType
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_exponential

from replicator.config import KafkaLog
from replicator.errors import ConfigError, LogUnavailable

_Read = TypeVar("_Read")
_Answer: TypeAlias = "Future[dict[str, ConfigEntry]]"

_UNREACHABLE: Final = frozenset(
    {
        KafkaError._TRANSPORT,  # noqa: SLF001 - the client's own public names
        KafkaError._RESOLVE,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
    }
)
_REFUSED: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)


@contextmanager
def kafka_errors(servers: str, cause: Callable[[], KafkaError | None] | None = None) -> Iterator[None]:
    """Translate a KafkaException of the block.

    If a request fails because no broker can be reached, its error does not tell the reason, but `cause` may.

    Raises:
        ConfigError: the client rejects a setting of log.options.
        LogUnavailable: the brokers at `servers` cannot be reached, or fail or refuse the request.
    """
    try:
        yield
    except KafkaException as error:
        found: KafkaError = error.args[0]
        if cause is not None and found.code() in _UNREACHABLE:
            found = cause() or found
        raise translated(found, servers) from error


def translated(error: KafkaError, servers: str) -> ConfigError | LogUnavailable:
    """Return the error to raise for an error of the client."""
    reason, code = error.str(), error.code()
    if code == KafkaError._INVALID_ARG:  # noqa: SLF001
        return ConfigError(f"Kafka client settings: {reason}", "check log.options")
    if code in _REFUSED:
        return LogUnavailable(f"Kafka at {servers} refused: {reason}", "check the credentials in log.options")
    failed = (
        f"cannot reach Kafka at {servers}" if code in _UNREACHABLE else f"Kafka at {servers} cannot be read"
    )
    return LogUnavailable(
        f"{failed}: {reason}",
        "check that the broker is running, and that log.bootstrap_servers and log.options are correct",
    )


QUICK_S: Final = 5.0
"""Timeout of commands that report what they find, unavailable brokers included."""
QUICK_START: Final[Mapping[str, int]] = {"reconnect.backoff.ms": 20}
"""Half of it passes before a new client connects; it grows with each failure. A user's option comes first."""
_REFUSED_S: Final = 1.0
"""For how long they try brokers that refuse. Of a name with two addresses, the first one may refuse."""
PATIENT_S: Final = 20.0
"""Timeout of processes that need the answer."""

QUIET: Final[Mapping[str, str | int | bool]] = {
    # While a broker is unavailable, the client would log every connection attempt, forty lines per second. The errors
    # are raised as exceptions too.
    "log_level": 2,
}

_PASSING: Final = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.OFFSET_NOT_AVAILABLE,
    }
)
_UNREADABLE: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        # Deleted since it was listed.
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
_NO_ID: Final = str(Uuid(0, 0))
_REMEMBERED: Final = 128
"""Maximum number of failed connection attempts remembered for a message."""


class KafkaAdmin:
    """An admin client with one timeout for all requests. Thread-safe. Raises what `kafka_errors` raises."""

    def __init__(self, log: KafkaLog, *, timeout_s: float, client: AdminClient | None = None) -> None:
        """Use `client`; if None, create one with the settings of `log`."""
        self._servers = log.bootstrap_servers
        self._timeout_s = timeout_s
        self._attempts: deque[KafkaError] = deque(maxlen=_REMEMBERED)
        # For a moment, a partition that was just created or whose broker was just started has no leader.
        self._retry = Retrying(
            retry=retry_if_exception(_passes),
            wait=wait_exponential(0.1, max=2),
            stop=stop_after_delay(timeout_s),
            reraise=True,
        )
        self._client = self._connected(log) if client is None else client

    def _connected(self, log: KafkaLog) -> AdminClient:
        own: dict[str, Any] = {
            "socket.timeout.ms": round(self._timeout_s * 1000),
            "error_cb": self._attempts.append,
        }
        options = {**QUICK_START, **log.client_options(), **QUIET, **own}
        if "reconnect.backoff.ms" not in log.options:
            # So each request includes an attempt to connect.
            options.setdefault("reconnect.backoff.max.ms", max(round(self._timeout_s * 250), 100))
        with kafka_errors(self._servers):
            return AdminClient(options)

    def connect(self) -> None:
        """Open the first connection, and give up early if no broker accepts one."""
        # Attempts since the client was created count: that all brokers are down is said only once.
        with self._errors():
            try:
                self._client.list_topics(timeout=min(_REFUSED_S, self._timeout_s))
            except KafkaException:
                if self._all_refuse() or self._timeout_s <= _REFUSED_S:
                    raise
                self._client.list_topics(timeout=self._timeout_s - _REFUSED_S)

    def partitions(self) -> dict[str, list[int]]:
        """Return the partitions of every topic that is available."""
        with self._errors():
            topics = self._client.list_topics(timeout=self._timeout_s).topics
        return {name: sorted(topic.partitions) for name, topic in topics.items() if topic.error is None}

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return topic → id of those `topics` that have one. Old brokers give none."""
        if not topics:
            return {}
        with self._errors():
            asked = self._client.describe_topics(
                TopicCollection(list(topics)), request_timeout=self._timeout_s
            )
            found = {topic: str(answer.result().topic_id) for topic, answer in asked.items()}
        return {topic: topic_id for topic, topic_id in found.items() if topic_id != _NO_ID}

    def first_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Return the offset of the first record of each partition, given as (topic, partition)."""
        return self._offsets(partitions, OffsetSpec.earliest())

    def end_offsets(
        self, partitions: Iterable[tuple[str, int]], *, committed: bool = False
    ) -> dict[tuple[str, int], int]:
        """Return the offset of the next record of each partition; if `committed`, before any open transaction."""
        options = {"isolation_level": IsolationLevel.READ_COMMITTED} if committed else {}
        return self._offsets(partitions, OffsetSpec.latest(), **options)

    def delete_topics(self, topics: Collection[str]) -> None:
        """Delete topics; do nothing if there are none."""
        if not topics:
            return
        with self._errors():
            for answer in self._client.delete_topics(
                list(topics), request_timeout=self._timeout_s, operation_timeout=self._timeout_s
            ).values():
                answer.result()

    def settings(self, topics: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings of `topics` that have a value, defaults included."""
        return self._described(
            topics, lambda answer: {k: e.value for k, e in answer.result().items() if e.value is not None}
        )

    def compacted(self, topics: Iterable[str]) -> frozenset[str]:
        """Return those of `topics` that are compacted, as far as this account may read their settings."""
        return frozenset(name for name, found in self._described(topics, _is_compacted).items() if found)

    def _described(self, topics: Iterable[str], read: Callable[[_Answer], _Read]) -> dict[str, _Read]:
        """Return what `read` returns for the settings of each topic."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in topics]
        if not resources:
            return {}
        with self._errors():
            asked = self._client.describe_configs(resources, request_timeout=self._timeout_s)
            return {resource.name: read(answer) for resource, answer in asked.items()}

    def _offsets(
        self, partitions: Iterable[tuple[str, int]], spec: OffsetSpec, **options: Any
    ) -> dict[tuple[str, int], int]:
        wanted = {TopicPartition(*partition): spec for partition in partitions}
        if not wanted:
            return {}

        def ask() -> dict[tuple[str, int], int]:
            asked = self._client.list_offsets(wanted, request_timeout=self._timeout_s, **options)
            return {(p.topic, p.partition): answer.result().offset for p, answer in asked.items()}

        with self._errors():
            return self._retry(ask)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        with kafka_errors(self._servers, self._cause):
            try:
                yield
            except KafkaException as error:
                if error.args[0].code() not in _UNREACHABLE:
                    self._forget_attempts()
                raise
        self._forget_attempts()

    def _forget_attempts(self) -> None:
        """Forget failures before an answer. Those before a failure stay: a request can end between two attempts."""
        self._client.poll(0)
        self._attempts.clear()

    def _all_refuse(self) -> bool:
        """Whether the attempts to connect to all brokers failed; a broker that is slow has not failed."""
        self._client.poll(0)
        return any(e.code() == KafkaError._ALL_BROKERS_DOWN for e in self._attempts)  # noqa: SLF001

    def _cause(self) -> KafkaError | None:
        """Return why the last connection attempt since an answer failed; None if there was none."""
        self._client.poll(0)
        found = [e for e in self._attempts if e.code() != KafkaError._ALL_BROKERS_DOWN]  # noqa: SLF001
        return found[-1] if found else None


def _is_compacted(answer: _Answer) -> bool:
    try:
        policy = answer.result()["cleanup.policy"].value
    except KafkaException as error:
        if error.args[0].code() in _UNREADABLE:
            return False
        raise
    return "compact" in (policy or "")


def _passes(error: BaseException) -> bool:
    """Return whether the error is temporary, so that a retry may succeed."""
    return isinstance(error, KafkaException) and bool(error.args) and error.args[0].code() in _PASSING
