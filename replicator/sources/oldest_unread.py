"""When the oldest changes were made that a mirror lacks: in the log, and in the source.

The time of the newest change that a table has does not tell how late it is: a table that nobody changes is never late.
"""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition

from replicator.config import Config, KafkaLog
from replicator.errors import ReplicatorError
from replicator.model.common import now_ms
from replicator.model.position import place_order
from replicator.sources.binlog.download import first_commit_s
from replicator.sources.kafka.admin import QUIET
from replicator.sources.source_view import SourceView

_MOST: Final = 200
"""Of at most this many partitions, the first unread event is read."""
_WAIT_S: Final = 3.0
_MOST_POS: Final = 2**32 - 1
"""Maximum of the protocol; only files with a transaction of gigabytes have later events."""
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

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class OldestUnread:
    """When the oldest unread changes were made, milliseconds since the epoch.

    Attributes:
        in_log: (topic, partition) → the time of the first event that is not in the lake, as far as it is known.
        in_source_ms: the time of the first transaction that is not known to be in the log; None if it is unknown.
    """

    in_log: Mapping[Partition, int] = field(default_factory=dict)
    in_source_ms: int | None = None


def read_oldest(
    config: Config, view: SourceView, unread: Mapping[Partition, int], seen: tuple[str, int] | None
) -> OldestUnread:
    """Read when the oldest unread changes were made. What cannot be read is left out.

    `unread` are the partitions with unread events, with the offsets of the first ones; `seen` is the position of the
    newest change in the lake, after which the connector may not have read.
    """
    log = config.log
    in_log = first_times(log, unread) if isinstance(log, KafkaLog) and view.ends is not None else {}
    return OldestUnread(in_log, None if view.log_is_complete is not False else _in_source(config, view, seen))


def _in_source(config: Config, view: SourceView, seen: tuple[str, int] | None) -> int | None:
    if config.source.url is None or view.offset is None or view.offset.in_snapshot:
        return None
    confirmed = (view.offset.file, view.offset.pos)
    places = [confirmed] if seen is None else [max(confirmed, seen, key=place_order), confirmed]
    for file, pos in places:
        if pos > _MOST_POS:
            continue
        try:
            found = first_commit_s(config.source, file, pos)
        except (ReplicatorError, OSError):
            # The change may be another server's, or the account no replica.
            continue
        # Nothing was committed since: the file was only rotated.
        return now_ms() if found is None else found * 1000
    return None


def first_times(log: KafkaLog, unread: Mapping[Partition, int]) -> dict[Partition, int]:
    """Return the time of the first event of each partition from the offset given on, as far as Kafka answers soon."""
    if not unread:
        return {}
    chosen = dict(list(unread.items())[:_MOST])
    found: dict[Partition, int] = {}
    try:
        for message in _first_messages(log, chosen):
            found[message.topic() or "", message.partition() or 0] = _time(message)
    except KafkaException:
        # The age of a change is not worth an error: what cannot be read, the log's problem says already.
        pass
    return found


def _first_messages(log: KafkaLog, wanted: Mapping[Partition, int]) -> Iterator[Message]:
    consumer = Consumer(log.client_options() | dict(_OPTIONS))
    try:
        left = set(wanted)
        consumer.assign([TopicPartition(*p, offset or OFFSET_BEGINNING) for p, offset in wanted.items()])
        deadline = time.monotonic() + _WAIT_S
        while left and time.monotonic() < deadline:
            for message in consumer.consume(1_000, 0.1):
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
