"""Fill a broker with a layout's events, and compute the state that their mirror must have."""

import json
import time
from array import array
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from benchmarks.avro import AvroWriter
from benchmarks.avro import schema_changes as avro_schema_changes
from benchmarks.events import HEADERS, EventWriter, schema_changes
from benchmarks.workload import DELETE, SNAPSHOT, UPDATE, Layout, TableState, changes, final_state, row

_PRODUCER = {
    "enable.idempotence": True,
    "linger.ms": 50,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 262_144,
}
_POLL_EVERY = 2_000
_WRITERS = 2


@dataclass(frozen=True, slots=True)
class Load:
    """A loaded log: its layout, its totals, and the state of each table after all events are applied."""

    layout: Layout
    tables: dict[str, TableState]
    events: int
    tombstones: int
    changed_bytes: int
    value_bytes: int

    def save(self, path: Path) -> None:
        """Write the values as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> "Load":
        """Read what `save` wrote."""
        data = json.loads(path.read_text())
        data["layout"] = Layout(**data["layout"])
        data["tables"] = {name: TableState(**state) for name, state in data["tables"].items()}
        return cls(**data)


def ensure(bootstrap: str, layout: Layout, state_dir: Path, registry: str = "") -> Load:
    """Return the layout's log on this broker; write it if it is missing or incomplete.

    `registry` is the address at which the schemas of Avro events are registered.
    """
    path = state_dir / f"{layout.prefix}.json"
    if path.exists():
        known = Load.read(path)
        if known.layout == layout and _records(bootstrap, layout) == known.events + known.tombstones:
            return known
        path.unlink()
    load = fill(bootstrap, layout, registry)
    load.save(path)
    return load


def fill(bootstrap: str, layout: Layout, registry: str = "") -> Load:
    """Write the layout's log with two processes, each for complete partitions. An earlier log is replaced."""
    _recreate_topics(bootstrap, layout, registry)
    with ProcessPoolExecutor(_WRITERS + 1, mp_context=get_context("spawn")) as pool:
        writers = [pool.submit(_write, bootstrap, layout, index, registry) for index in range(_WRITERS)]
        tables, totals = pool.submit(final_state, layout).result()
        value_bytes = sum(writer.result() for writer in writers)
    load = Load(layout, tables, value_bytes=value_bytes, **totals)
    found = _records(bootstrap, layout)
    if found != load.events + load.tombstones:
        raise RuntimeError(
            f"the broker holds {found} records, not the {load.events + load.tombstones} written"
        )
    return load


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition that Kafka's default partitioner (murmur2) assigns to a key."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    length = len(key)
    value = 0x9747B28C ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(key[at : at + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        value = value * multiplier & mask ^ word
    if length > whole:
        value = (value ^ int.from_bytes(key[whole:], "little")) * multiplier & mask
    value = (value ^ value >> 13) * multiplier & mask
    return ((value ^ value >> 15) & 0x7FFFFFFF) % partitions


def _recreate_topics(bootstrap: str, layout: Layout, registry: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = {layout.prefix: 1, **{layout.topic(i): layout.partitions for i in range(layout.tables)}}
    stale = [name for name in names if name in admin.list_topics(timeout=30).topics]
    for future in (admin.delete_topics(stale) if stale else {}).values():
        future.result()
    for _ in range(60):
        if not set(names) & set(admin.list_topics(timeout=30).topics):
            break
        time.sleep(0.5)
    config = {"retention.ms": "-1", "retention.bytes": "-1"}
    topics = [NewTopic(name, partitions, 1, config=config) for name, partitions in names.items()]
    for future in admin.create_topics(topics).values():
        future.result()
    producer = Producer({"bootstrap.servers": bootstrap, **_PRODUCER})
    definitions = avro_schema_changes(layout, registry) if layout.avro else schema_changes(layout)
    for key, value in definitions:
        producer.produce(layout.prefix, value, key, partition=0, headers=HEADERS)
    producer.flush()


def read_once(bootstrap: str, layout: Layout) -> None:
    """Read and discard the whole log, so that it is in the page cache for the first measured case too."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "replicator-benchmark",
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            # A fetch at the end of a partition delays the request for the next one, which uses the same connection.
            "fetch.wait.max.ms": 10,
        }
    )
    try:
        for table in range(layout.tables):
            for partition in range(layout.partitions):
                place = TopicPartition(layout.topic(table), partition, 0)
                _, end = _watermarks(consumer, place)
                consumer.assign([place])
                left = end
                while left > 0:
                    left -= len(consumer.consume(min(left, 10_000), timeout=30))
    finally:
        consumer.close()


def _records(bootstrap: str, layout: Layout) -> int:
    """Return the number of records in all data topics of the layout; 0 for a missing topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "replicator-benchmark"})
    try:
        known = consumer.list_topics(timeout=30).topics
        places = [
            TopicPartition(layout.topic(table), partition)
            for table in range(layout.tables)
            if layout.topic(table) in known
            for partition in range(layout.partitions)
        ]
        marks = [_watermarks(consumer, place) for place in places]
        return sum(high - low for low, high in marks)
    finally:
        consumer.close()


@retry(
    retry=retry_if_exception_type(KafkaException),
    stop=stop_after_delay(60),
    wait=wait_fixed(0.5),
    reraise=True,
)
def _watermarks(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """Return first and next offset of a partition; a broker that has just started may not lead it yet."""
    low, high = consumer.get_watermark_offsets(place, timeout=30)
    return low, high


class Sender:
    """One producer; `value_bytes` is the number of bytes of all sent values."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, **_PRODUCER})
        self._sent = 0
        self.value_bytes = 0

    def send(self, topic: str, partition: int, key: str | bytes, value: str | bytes | None) -> None:
        """Queue one record; wait while the queue is full."""
        while True:
            try:
                self._producer.produce(topic, value, key, partition=partition, headers=HEADERS)
                break
            except BufferError:
                self._producer.poll(0.2)
        self.value_bytes += len(value or "")
        self._sent += 1
        if self._sent % _POLL_EVERY == 0:
            self._producer.poll(0)

    def finish(self) -> None:
        """Wait until the broker has all records."""
        self._producer.flush()


def change_records(layout: Layout) -> Iterator[tuple[str, str]]:
    """Yield key and value of each change of a layout of one table, without the events of its snapshot."""
    texts = EventWriter(layout)
    versions = array("i", bytes(4 * (layout.snapshot_rows + layout.changes)))
    for change in changes(layout):
        if change.kind == SNAPSHOT:
            continue
        table, key = layout.locate(change.number)
        version = versions[change.number]
        before = row(key, version) if change.kind in {UPDATE, DELETE} else None
        after = None if change.kind == DELETE else row(key, version + (change.kind == UPDATE))
        versions[change.number] = version + (change.kind == UPDATE)
        yield texts.key(table, key), texts.value(table, change, before, after)


def write_changes(bootstrap: str, layout: Layout) -> None:
    """Append the changes of `layout` to the topic that has its snapshot."""
    sender = Sender(bootstrap)
    for key, value in change_records(layout):
        sender.send(layout.topic(0), 0, key, value)
    sender.finish()


def _write(bootstrap: str, layout: Layout, writer: int, registry: str) -> int:
    """Send the events of this writer's partitions in commit order. Return the number of bytes of the values."""
    texts = AvroWriter(layout, registry) if layout.avro else EventWriter(layout)
    sender = Sender(bootstrap)
    topics = [layout.topic(index) for index in range(layout.tables)]
    versions = array("i", bytes(4 * (layout.snapshot_rows + layout.changes)))
    for change in changes(layout):
        table, key = layout.locate(change.number)
        key_text = texts.key(table, key)
        key_bytes = key_text.encode() if isinstance(key_text, str) else key_text
        partition = partition_of(key_bytes, layout.partitions) if layout.partitions > 1 else 0
        if (table + partition) % _WRITERS != writer:
            continue
        version = versions[change.number]
        before = row(key, version) if change.kind in {UPDATE, DELETE} else None
        after = None
        if change.kind != DELETE:
            after = row(key, version + (change.kind == UPDATE))
            versions[change.number] = version + (change.kind == UPDATE)
        sender.send(topics[table], partition, key_text, texts.value(table, change, before, after))
        if change.kind == DELETE:
            sender.send(topics[table], partition, key_text, None)
    sender.finish()
    return sender.value_bytes
