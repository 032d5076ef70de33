"""When the oldest changes were made that a mirror lacks: in the log, and in the source.

The time of the newest change that a table has does not tell how late it is: a table that nobody changes is never late.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from replicator.config import Config, KafkaLog
from replicator.errors import ReplicatorError
from replicator.model.common import now_ms
from replicator.model.position import place_order
from replicator.sources.source_view import SourceView

_MOST_POS: Final = 2**32 - 1
"""Maximum of the protocol; only files with a transaction of gigabytes have later events."""
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
    in_log = _in_log(log, unread) if isinstance(log, KafkaLog) and view.ends is not None and unread else {}
    return OldestUnread(in_log, None if view.log_is_complete is not False else _in_source(config, view, seen))


def _in_log(log: KafkaLog, unread: Mapping[Partition, int]) -> Mapping[Partition, int]:
    # Kafka's consumer is only needed while events are unread.
    from replicator.sources.kafka.first_events import first_times  # noqa: PLC0415

    return first_times(log, unread)


def _in_source(config: Config, view: SourceView, seen: tuple[str, int] | None) -> int | None:
    if config.source.url is None or view.offset is None or view.offset.in_snapshot:
        return None
    # A client for binary logs, which is only needed while the connector is behind.
    from replicator.sources.binlog.download import first_commit_s  # noqa: PLC0415

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
