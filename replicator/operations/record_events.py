"""Take the events of a recording from messages of Kafka, and read where their changes are in the source."""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from replicator.config import KafkaLog
from replicator.decode.avro.parser import AvroParser, writer_ids
from replicator.decode.avro.schema import Writer, parse_writer_schema
from replicator.decode.json.parser import JsonParser
from replicator.errors import DecodeError, UnsupportedChange
from replicator.sources.archive.format import Event, PartitionKey
from replicator.sources.archive.pending import Headers, Records
from replicator.sources.kafka.schema_registry import WriterSchemas

Messages = Mapping[PartitionKey, Sequence[Message]]
"""Messages of each partition, in offset order."""


def partition_of(message: Message) -> PartitionKey:
    """Return the partition of a message."""
    return message.topic() or "", message.partition() or 0


def offset_of(message: Message) -> int:
    """Return the offset of a message that Kafka has sent."""
    return message.offset() or 0


def by_partition(messages: Iterable[Message]) -> Messages:
    """Return the messages of each partition."""
    found: dict[PartitionKey, list[Message]] = {}
    for key, run in groupby(messages, partition_of):
        found.setdefault(key, []).extend(run)
    return found


def records_of(messages: Sequence[Message]) -> Records:
    """Return the records of messages of one partition."""
    return Records(
        offsets=list(map(offset_of, messages)),
        timestamps=[message.timestamp()[1] for message in messages],
        keys=list(map(Message.key, messages)),
        values=list(map(Message.value, messages)),
        headers=list(map(_headers, messages)),
    )


def _headers(message: Message) -> Headers:
    # The client returns the values as bytes.
    return tuple(cast("Headers", message.headers() or ()))


def events_of(key: PartitionKey, records: Records) -> Iterator[Event]:
    """Yield the records of a partition one by one."""
    columns = records.offsets, records.timestamps, records.keys, records.values, records.headers
    return map(partial(Event, *key), *columns)


def source_columns(log: KafkaLog, values: pa.BinaryArray, schemas: WriterSchemas) -> Mapping[str, pa.Array]:
    """Return the source blocks of events as a mirror reads them; see `sources.archive.spans`."""
    if log.format == "avro":
        return AvroParser(_writers(log, values, schemas)).sources(values)
    return JsonParser(log.flattened).sources(values)


def _writers(log: KafkaLog, values: pa.BinaryArray, schemas: WriterSchemas) -> dict[int, Writer]:
    """Return the writer schemas of events, by their ids, without those that a mirror would refuse."""
    found: dict[int, Writer] = {}
    for number in pc.unique(writer_ids(values)).to_pylist():
        text = schemas.schema(number)
        with contextlib.suppress(DecodeError, UnsupportedChange):
            if text is not None:
                found[number], _ = parse_writer_schema(text, flattened=log.flattened)
    return found
