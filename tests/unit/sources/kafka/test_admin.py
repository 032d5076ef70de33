"""Requests to Kafka about topics, and the translation of its errors."""

import socket
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from replicator.config import KafkaLog, SecretRef
from replicator.errors import ConfigError, LogUnavailable, ReplicatorError
from replicator.sources.kafka.admin import KafkaAdmin, translated
from tests.support.mock_broker import MockBroker


def failing(code: int, times: int, calls: list[int]) -> Callable[..., dict[TopicPartition, "Future[Any]"]]:
    """Return an admin client's `list_offsets` that fails `times` times with `code`, then returns offset 7."""

    def list_offsets(places: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, "Future[Any]"]:
        calls.append(1)
        future: Future[Any] = Future()
        if len(calls) <= times:
            future.set_exception(KafkaException(KafkaError(code)))
        else:
            future.set_result(SimpleNamespace(offset=7))
        return dict.fromkeys(places, future)

    return list_offsets


def log(servers: str, **options: str | SecretRef) -> KafkaLog:
    return KafkaLog(kind="kafka", bootstrap_servers=servers, topic_prefix="shop", options=options)


def admin_with(answer: Callable[..., Any]) -> KafkaAdmin:
    """Return an admin whose client has `answer` as its `list_offsets`."""
    client: Any = SimpleNamespace(list_offsets=answer, poll=lambda _: 0)
    return KafkaAdmin(log("127.0.0.1:1"), timeout_s=20, client=client)


def test_kafka_admin_retries_a_partition_without_a_leader() -> None:
    calls: list[int] = []
    answer = failing(KafkaError.NOT_LEADER_FOR_PARTITION, 2, calls)
    assert admin_with(answer).end_offsets([("t", 0)]) == {("t", 0): 7}
    assert len(calls) == 3


def test_kafka_admin_does_not_retry_a_refusal() -> None:
    calls: list[int] = []
    answer = failing(KafkaError.TOPIC_AUTHORIZATION_FAILED, 9, calls)
    admin = admin_with(answer)
    with pytest.raises(LogUnavailable, match=r"Kafka at 127\.0\.0\.1:1 refused"):
        admin.end_offsets([("t", 0)])
    assert len(calls) == 1


@pytest.mark.parametrize("committed", [False, True])
def test_kafka_admin_returns_partitions_and_offsets(committed: bool) -> None:
    broker = MockBroker()
    broker.send("shop.shop.t", b"1", b"2", b"3", partition=1)
    admin = KafkaAdmin(log(broker.servers), timeout_s=10)
    assert admin.partitions() == {"shop.shop.t": [0, 1, 2, 3]}
    asked = [("shop.shop.t", 0), ("shop.shop.t", 1)]
    assert admin.first_offsets(asked) == dict.fromkeys(asked, 0)
    assert admin.end_offsets(asked, committed=committed) == {asked[0]: 0, asked[1]: 3}


def test_kafka_admin_reports_the_cause_when_the_broker_is_unreachable() -> None:
    with socket.socket() as unused:
        # Bound and not listening, so that no other server can respond there.
        unused.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{unused.getsockname()[1]}"
        admin = KafkaAdmin(log(servers), timeout_s=1)
        for request in (admin.partitions, lambda: admin.end_offsets([("t", 0)])):
            with pytest.raises(
                LogUnavailable, match=f"cannot reach Kafka at {servers}: .*Connection refused"
            ):
                request()


@pytest.mark.parametrize("answer", [None, KafkaError.CLUSTER_AUTHORIZATION_FAILED])
def test_cause_of_a_failure_is_told_until_a_request_is_answered(
    monkeypatch: pytest.MonkeyPatch, answer: int | None
) -> None:
    options: dict[str, Any] = {}
    answers: list[int | None] = [KafkaError._TIMED_OUT, KafkaError._TIMED_OUT, answer, KafkaError._TIMED_OUT]

    def list_topics(timeout: float) -> SimpleNamespace:
        if (code := answers.pop(0)) is not None:
            raise KafkaException(KafkaError(code))
        return SimpleNamespace(topics={})

    def client(given: dict[str, Any]) -> SimpleNamespace:
        options.update(given)
        return SimpleNamespace(list_topics=list_topics, poll=lambda _: 0)

    monkeypatch.setattr("replicator.sources.kafka.admin.AdminClient", client)
    admin = KafkaAdmin(log("b:1"), timeout_s=1)
    options["error_cb"](KafkaError(KafkaError._TRANSPORT, "Connection refused"))
    # No attempt to connect is due during the second request.
    for _ in range(2):
        with pytest.raises(LogUnavailable, match="Connection refused"):
            admin.partitions()
    with nullcontext() if answer is None else pytest.raises(LogUnavailable, match="refused"):
        admin.partitions()
    with pytest.raises(LogUnavailable, match="imed out"):
        admin.partitions()


def test_kafka_admin_waits_for_a_slow_broker_but_not_for_one_that_refuses() -> None:
    broker = MockBroker()
    KafkaAdmin(log(broker.servers), timeout_s=10).connect()
    with socket.socket() as unused, socket.create_server(("127.0.0.1", 0)) as silent:
        unused.bind(("127.0.0.1", 0))
        refusing, slow = (f"127.0.0.1:{found.getsockname()[1]}" for found in (unused, silent))
        for servers, timeout_s, took_s in ((refusing, 9, 1), (f"{refusing},{slow}", 2, 2), (slow, 0.5, 0.5)):
            begin = time.monotonic()
            with pytest.raises(LogUnavailable, match=f"cannot reach Kafka at {servers}"):
                KafkaAdmin(log(servers), timeout_s=timeout_s).connect()
            assert took_s - 0.1 < time.monotonic() - begin < took_s + 4


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (KafkaError._TRANSPORT, LogUnavailable, "cannot reach Kafka at host:9092: "),
        (KafkaError._TIMED_OUT, LogUnavailable, "cannot reach Kafka at host:9092: "),
        (KafkaError.SASL_AUTHENTICATION_FAILED, LogUnavailable, "Kafka at host:9092 refused: "),
        (KafkaError._BAD_MSG, LogUnavailable, "Kafka at host:9092 cannot be read: "),
        (KafkaError._INVALID_ARG, ConfigError, "Kafka client settings: "),
    ],
)
def test_translated_error_has_a_class_a_message_and_a_hint(
    code: int, kind: type[ReplicatorError], text: str
) -> None:
    found = translated(KafkaError(code), "host:9092")
    assert type(found) is kind
    assert found.message.startswith(text)
    assert found.hint


def test_option_of_the_user_precedes_that_of_a_quick_start(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []
    monkeypatch.setattr("replicator.sources.kafka.admin.AdminClient", given.append)
    KafkaAdmin(log("b:1"), timeout_s=1)
    KafkaAdmin(log("b:1", **{"reconnect.backoff.ms": "70"}), timeout_s=1)
    assert [found["reconnect.backoff.ms"] for found in given] == [20, "70"]
    # The client refuses a maximum below the first value.
    assert [found.get("reconnect.backoff.max.ms") for found in given] == [250, None]


def test_brokers_that_refused_before_the_first_request_are_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options: dict[str, Any] = {}
    timeouts: list[float] = []

    def list_topics(timeout: float) -> SimpleNamespace:
        timeouts.append(timeout)
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def client(given: dict[str, Any]) -> SimpleNamespace:
        options.update(given)
        return SimpleNamespace(list_topics=list_topics, poll=lambda _: 0)

    monkeypatch.setattr("replicator.sources.kafka.admin.AdminClient", client)
    admin = KafkaAdmin(log("b:1"), timeout_s=20)
    options["error_cb"](KafkaError(KafkaError._ALL_BROKERS_DOWN))
    with pytest.raises(LogUnavailable):
        admin.connect()
    assert timeouts == [1.0]
