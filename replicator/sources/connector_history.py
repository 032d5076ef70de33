"""Read from Debezium's schema history since which position a connector knows the definitions of tables.

The history is a topic of its own. When a connector starts, it takes the definitions from before its offset from there.
If its offset is before its snapshot, there are none, and it fails at the first event.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Final

from replicator.config import KafkaLog
from replicator.model.commit_marker import OffsetRange
from replicator.model.position import binlog_number
from replicator.sources.change_log import TooLarge
from replicator.sources.kafka import KafkaChangeLog
from replicator.sources.kafka_admin import PATIENT_S, KafkaAdmin

TOPIC_SETTING: Final = "schema.history.internal.kafka.topic"
_MAX_BYTES: Final = 512 << 20
"""Size of a history that is read at most; of a larger one, nothing is known."""


def first_known_file(log: KafkaLog, settings: Mapping[str, str]) -> int | None:
    """Return the number of the first binlog file that a connector can read from its beginning; None if unknown.

    Args:
        settings: those of the connector.

    Raises:
        LogError: Kafka does not answer, or refuses access to the topic.
    """
    topic = settings.get(TOPIC_SETTING)
    if topic is None:
        return None
    admin = KafkaAdmin(log, timeout_s=PATIENT_S)
    partitions = [(topic, partition) for partition in admin.partitions().get(topic, [])]
    first, ends = admin.first_offsets(partitions), admin.end_offsets(partitions)
    ranges = [OffsetRange(topic, p, first[topic, p], ends[topic, p]) for _, p in partitions]
    found = KafkaChangeLog(log, admin).fetch([r for r in ranges if r.count], _MAX_BYTES)
    if isinstance(found, TooLarge) or topic not in found:
        return None
    newest = newest_snapshot(found[topic].column("value").to_pylist())
    return None if newest is None else newest + 1


def newest_snapshot(records: Iterable[bytes | None]) -> int | None:
    """Return the number of the binlog file at which the newest snapshot in a schema history was taken.

    The first record belongs to a snapshot; later ones say so. None if no record has a position.
    """
    found: int | None = None
    for value in records:
        position = _position(value)
        number = _file_number(position)
        if number is not None and (found is None or _is_snapshot(position)):
            found = number if found is None else max(found, number)
    return found


def _position(value: bytes | None) -> Mapping[str, object]:
    try:
        position = json.loads(value or b"{}").get("position")
    except (ValueError, AttributeError):
        return {}
    return position if isinstance(position, dict) else {}


def _file_number(position: Mapping[str, object]) -> int | None:
    try:
        return binlog_number(str(position["file"]))
    except (KeyError, ValueError):
        return None


def _is_snapshot(position: Mapping[str, object]) -> bool:
    return str(position.get("snapshot", False)).lower() not in ("false", "none")
