"""What the Kafka log does about a broker that is not quite ready."""

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from replicator.config import KafkaLog
from replicator.errors import LogUnavailable
from replicator.sources.kafka import KafkaChangeLog


def failing(code: int, times: int, calls: list[int]) -> Callable[..., dict[TopicPartition, "Future[Any]"]]:
    """An admin client's `list_offsets` that fails `times` times with `code`, then answers offset 7."""

    def list_offsets(places: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, "Future[Any]"]:
        calls.append(1)
        future: Future[Any] = Future()
        if len(calls) <= times:
            future.set_exception(KafkaException(KafkaError(code)))
        else:
            future.set_result(SimpleNamespace(offset=7))
        return dict.fromkeys(places, future)

    return list_offsets


@pytest.fixture
def log() -> KafkaChangeLog:
    return KafkaChangeLog(KafkaLog(kind="kafka", bootstrap_servers="127.0.0.1:1", topic_prefix="shop"))


def test_a_partition_without_a_leader_is_asked_again(
    log: KafkaChangeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    answer = failing(KafkaError.NOT_LEADER_FOR_PARTITION, 2, calls)
    monkeypatch.setattr(log, "_admin", SimpleNamespace(list_offsets=answer))
    assert log._list_offsets([TopicPartition("t", 0)], OffsetSpec.latest()) == {"t": {0: 7}}
    assert len(calls) == 3


def test_a_refusal_is_final(log: KafkaChangeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    answer = failing(KafkaError.TOPIC_AUTHORIZATION_FAILED, 9, calls)
    monkeypatch.setattr(log, "_admin", SimpleNamespace(list_offsets=answer))
    with pytest.raises(LogUnavailable):
        log._list_offsets([TopicPartition("t", 0)], OffsetSpec.latest())
    assert len(calls) == 1
