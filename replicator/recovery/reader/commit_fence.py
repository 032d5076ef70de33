"""Make sure that a reader sees the rows of all events before the end of a topic, with one rotation for many tables.

MySQL writes a transaction to the binlog before readers see it. After a new binlog file has begun, all changes in
earlier files are visible, so also those of the events that the topics had before. One such fence serves every table
that was to be read by then: its events since the fence are applied to the rows, whenever they are read.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace

from replicator.batch.state.partition_counts import number_of
from replicator.config import KafkaLog
from replicator.model.reread import Request
from replicator.sources.kafka.admin import PATIENT_S, KafkaAdmin
from replicator.sources.kafka.topic_states import topic_states


@dataclass(frozen=True, slots=True)
class TopicEnd:
    """Where the topic of a table ends.

    Attributes:
        topic: the table's topic.
        topic_id: None if the topic does not exist yet.
        offsets: partition → offset of the next event.
        count: number of partitions; None if the topic does not exist yet.
    """

    topic: str
    topic_id: str | None
    offsets: Mapping[int, int]
    count: int | None

    @property
    def counts(self) -> dict[str, int]:
        """The number of partitions, as a marker has it."""
        return {} if self.count is None else {self.topic: self.count}


def topic_ends(log: KafkaLog, topic: str, *, all_tables: bool = False) -> dict[str, TopicEnd]:
    """Return where `topic` ends, whether or not it exists; with `all_tables`, also the topics of all other tables.

    Raises:
        LogUnavailable: Kafka does not answer.
    """
    prefixes = f"{log.topic_prefix}." if all_tables else ()
    states = topic_states(
        KafkaAdmin(log, timeout_s=PATIENT_S), lambda name: name == topic or name.startswith(prefixes)
    )
    found = {
        name: TopicEnd(name, state.id, state.ends, number_of(state.ends))
        for name, state in states.items()
        if state.ends
    }
    unborn = TopicEnd(topic, None, dict.fromkeys(range(log.partitions), 0), None)
    return {topic: unborn} | found


@dataclass(frozen=True, slots=True)
class Fence:
    """A rotation of the binlog.

    Attributes:
        began_ms: when it began, milliseconds since the epoch.
        server_id: the server.
        ends: topic → its end before the rotation. Readers see the rows of all earlier events.
        offset: the connector's offset before that, packed as `binlog_key`; the log had all definitions before it.
    """

    began_ms: int
    server_id: int
    ends: Mapping[str, TopicEnd]
    offset: int

    def end_for(self, request: Request, end: TopicEnd, definition: int, server_id: int) -> TopicEnd | None:
        """Return where a topic ended at this fence; None if its table must not be read without another rotation.

        `end` is where it ends now, and `definition` the place of the definition that the table is read with. What the
        request was made for must be visible, and no event since the fence may have an earlier definition.
        """
        # All events of a topic that did not exist are later.
        then = self.ends.get(end.topic, replace(end, offsets=dict.fromkeys(end.offsets, 0)))
        is_same = then.topic_id == end.topic_id and then.offsets.keys() == end.offsets.keys()
        is_later = request.requested_ms <= self.began_ms and definition <= self.offset
        return then if is_same and is_later and server_id == self.server_id else None


class CommitFences:
    """The newest fence, which the readers of one process share."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held while a fence is made, so that other readers wait for it instead of making one each."""
        self.newest: Fence | None = None
