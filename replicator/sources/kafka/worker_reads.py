"""Read Kafka in Spark's Python workers: there, records do not pass through Java, which costs more than reading them."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, Message, TopicPartition

from replicator.errors import LogUnavailable
from replicator.model.commit_marker import OffsetRange
from replicator.sources.change_log import RECORDS, SCHEMA_PREFIX
from replicator.sources.kafka.admin import PATIENT_S, QUICK_START, kafka_errors
from replicator.sources.kafka.messages import CONSUMER_OPTIONS, HEADERS, headers_of, is_end, reading_ahead

_AT_ONCE: Final = 500
"""Number of records that are taken from the client at once: more of them cost up to twice the time each."""
_GATHER_S: Final = 0.1
_WITH_SCHEMA: Final = b'{"schema":'
_BATCH: Final = 10_000
_BATCH_BYTES: Final = 16 << 20
"""Number of records, and their size, that become one batch of Arrow."""


@dataclass(frozen=True, slots=True)
class KafkaPart:
    """What one Spark task reads; it can be pickled.

    Attributes:
        options: of the client; they contain secrets: never log them.
        with_headers: whether records have their headers.
    """

    options: Mapping[str, Any] = field(repr=False)
    ranges: tuple[OffsetRange, ...]
    with_headers: bool = False

    def __call__(self, prefixes: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Yield the records, as `RECORDS` with `HEADERS` if wanted.

        Of values that begin with one of `prefixes`, it yields the payloads (see `SCHEMA_PREFIX`) where their neighbours
        begin with the same. A schema is most of such a value, which would be copied three times.

        Raises:
            LogUnavailable: Kafka does not answer.
            DataLossError: records of a range are no longer in the log.
        """
        servers = str(self.options["bootstrap.servers"])
        options = {**QUICK_START, **reading_ahead(self.options), **CONSUMER_OPTIONS}
        begins = [prefix.encode() for prefix in prefixes]
        with kafka_errors(servers), closing(Consumer(options)) as consumer:
            yield from _gathered(
                _batch(r.partition, messages, begins, with_headers=self.with_headers)
                for r in self.ranges
                for messages in _messages(consumer, r, servers)
            )


def _messages(consumer: Consumer, r: OffsetRange, servers: str) -> Iterator[list[Message]]:
    """Yield the records of a range in several lists, in offset order."""
    consumer.assign([TopicPartition(r.topic, r.partition, r.start)])
    following, heard = r.start, time.monotonic()
    while following < r.end:
        # It returns once it has this number of records, or after this time.
        found = consumer.consume(min(_AT_ONCE, r.end - following), _GATHER_S)
        if found:
            heard = time.monotonic()
        elif time.monotonic() > heard + PATIENT_S:
            raise LogUnavailable(f"no answer from Kafka at {servers} in {PATIENT_S:.0f} s")
        # Of many records, each call of Python counts.
        records = found
        if {*map(Message.partition, found)} != {r.partition}:
            records = [m for m in found if m.partition() == r.partition]
        if any(map(Message.error, records)):
            ends = [m for m in records if is_end(m, r, servers)]
            records = [m for m in records if m.error() is None]
            # The end of the log is reported by the offset that follows it.
            following = max(following, *(m.offset() or 0 for m in ends))
        if records:
            following = max(following, (records[-1].offset() or 0) + 1)
            # The first offset may be that of a transaction's end marker.
            inside = records if following <= r.end else [m for m in records if (m.offset() or 0) < r.end]
            if inside:
                yield inside


def _gathered(pieces: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join neighbours to batches of a good size."""
    found, rows, size = list[pa.RecordBatch](), 0, 0
    for piece in pieces:
        if found and piece.schema.metadata != found[0].schema.metadata:
            yield pa.concat_batches(found)
            found, rows, size = [], 0, 0
        found.append(piece)
        rows, size = rows + piece.num_rows, size + piece.nbytes
        if rows >= _BATCH or size >= _BATCH_BYTES:
            yield pa.concat_batches(found)
            found, rows, size = [], 0, 0
    if found:
        yield pa.concat_batches(found)


def _batch(
    partition: int, messages: Sequence[Message], prefixes: Sequence[bytes], *, with_headers: bool
) -> pa.RecordBatch:
    values, prefix = _payloads(list(map(Message.value, messages)), prefixes)
    columns: list[pa.Array] = [
        pa.repeat(pa.scalar(partition, pa.int32()), len(messages)),
        pa.array(list(map(Message.offset, messages)), pa.int64()),
        pa.array([m.timestamp()[1] for m in messages], pa.int64()),
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(values, pa.binary()),
    ]
    schema = RECORDS if prefix is None else RECORDS.with_metadata({SCHEMA_PREFIX: prefix})
    if with_headers:
        columns.append(pa.array(map(headers_of, messages), HEADERS.type, size=len(messages)))
        schema = schema.append(HEADERS)
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _payloads(
    values: list[bytes | None], prefixes: Sequence[bytes]
) -> tuple[list[bytes | None], bytes | None]:
    """Return the payloads of values, and the prefix that all of them begin with; or the values, if there is none.

    A flattened event may be a row that looks like an event with a schema. It stays as it is, with its neighbours.
    """
    for prefix in prefixes:
        if all(value is None or value.startswith(prefix) for value in values):
            start = len(prefix)
            payloads = [None if value is None else value[start:-1] for value in values]
            if not any(payload is not None and payload.startswith(_WITH_SCHEMA) for payload in payloads):
                return payloads, prefix
    return values, None


def divided(ranges: Sequence[OffsetRange], tasks: int) -> list[tuple[OffsetRange, ...]]:
    """Divide ranges into at most `tasks` parts of the same number of offsets, in their order."""
    left = [r for r in ranges if r.count]
    most = max(-(-sum(r.count for r in left) // tasks), 1)
    parts: list[tuple[OffsetRange, ...]] = []
    part: list[OffsetRange] = []
    room = most
    for r in left:
        start = r.start
        while start < r.end:
            end = min(r.end, start + room)
            part.append(OffsetRange(r.topic, r.partition, start, end))
            room -= end - start
            start = end
            if not room:
                parts.append(tuple(part))
                part, room = [], most
    return [*parts, tuple(part)] if part else parts
