"""Translate errors of Kafka's client."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from confluent_kafka import KafkaError, KafkaException

from replicator.errors import ConfigError, LogUnavailable

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
