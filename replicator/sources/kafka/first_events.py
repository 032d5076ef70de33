"""Read when the source made the first unread changes of the log."""

import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from replicator.config import KafkaLog
from replicator.sources.kafka.admin import QUICK_START, QUIET

_MOST: Final = 200
"""Of at most this many partitions, the first unread event is read."""
_WAIT_S: Final = 3.0
_SOURCE_TIME: Final = re.compile(rb'"source":\{[^{}]*?"ts_ms":(\d{12,14})\b')
_OPTIONS: Final[Mapping[str, Any]] = {
    **QUIET,
    # The group is never joined; the client requires a name.
    "group.id": "replicator-status",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    # One event of each partition is wanted.
    "max.partition.fetch.bytes": 32 << 10,
    "fetch.wait.max.ms": 50,
}


def first_times(log: KafkaLog, unread: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """Return the time of the first event of each partition from the offset given on, as far as Kafka answers soon."""
    if not unread:
        return {}
    chosen = dict(list(unread.items())[:_MOST])
    found: dict[tuple[str, int], int] = {}
    try:
        for message in _first_messages(log, chosen):
            found[message.topic() or "", message.partition() or 0] = _time(message)
    except KafkaException:
        # The age of a change is not worth an error: what cannot be read, the log's problem says already.
        pass
    return found


def _first_messages(log: KafkaLog, wanted: Mapping[tuple[str, int], int]) -> Iterator[Message]:
    consumer = Consumer({**QUICK_START, **log.client_options(), **_OPTIONS})
    try:
        left = set(wanted)
        consumer.assign([TopicPartition(*p, offset) for p, offset in wanted.items()])
        deadline = time.monotonic() + _WAIT_S
        while left and time.monotonic() < deadline:
            for message in consumer.consume(len(left), 0.1):
                partition = (message.topic() or "", message.partition() or 0)
                if message.error() is None and partition in left:
                    left.discard(partition)
                    consumer.pause([TopicPartition(*partition)])
                    yield message
    finally:
        consumer.close()


def _time(message: Message) -> int:
    """Return when the source made a change: as its event says, if that is JSON; otherwise, when it came to Kafka."""
    sent = message.timestamp()[1]
    made = _SOURCE_TIME.search(message.value() or b"")
    return sent if made is None else min(sent, int(made[1]))
