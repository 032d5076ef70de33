"""What Spark's workers read of Kafka by themselves, on a broker inside the client library."""

import pickle
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message

from replicator.config import KafkaLog
from replicator.errors import DataLossError
from replicator.model.commit_marker import OffsetRange
from replicator.sources.change_log import RECORDS, SCHEMA_PREFIX
from replicator.sources.kafka import worker_reads
from replicator.sources.kafka.log import KafkaChangeLog
from replicator.sources.kafka.messages import HEADERS
from replicator.sources.kafka.worker_reads import divided
from tests.support.mock_broker import MockBroker

TOPIC = "shop.shop.t"


@pytest.fixture
def broker() -> MockBroker:
    return MockBroker()


@pytest.fixture
def log(broker: MockBroker) -> KafkaChangeLog:
    return KafkaChangeLog(KafkaLog(kind="kafka", bootstrap_servers=broker.servers, topic_prefix="shop"))


def test_parts_have_each_record_of_the_ranges_once_and_in_order(
    log: KafkaChangeLog, broker: MockBroker
) -> None:
    broker.send(TOPIC, *(str(i).encode() for i in range(50)), partition=0)
    broker.send(TOPIC, *(str(i).encode() for i in range(30)), partition=2)
    ranges = [OffsetRange(TOPIC, 0, 5, 45), OffsetRange(TOPIC, 2, 0, 30)]
    parts = [pickle.loads(pickle.dumps(part)) for part in log.parts(ranges, 3)]
    read = [pa.Table.from_batches(part(), RECORDS).to_pylist() for part in parts]
    assert [len(rows) for rows in read] == [24, 24, 22]
    found = [(row["partition"], row["offset"], row["value"]) for rows in read for row in rows]
    wanted = [(r.partition, offset, str(offset).encode()) for r in ranges for offset in range(r.start, r.end)]
    assert found == wanted


def test_schemas_of_events_are_left_out_where_neighbours_have_the_same(
    log: KafkaChangeLog, broker: MockBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_reads, "_AT_ONCE", 2)
    one, two = '{"schema":1,"payload":', '{"schema":2,"payload":'
    sent = [
        f"{one}1}}",
        None,
        f"{one}2}}",
        f"{one}3}}",
        f"{one}4}}",
        f"{two}5}}",
        f"{two}6}}",
        f"{two}7}}",
        one,
    ]
    values = [None if value is None else value.encode() for value in sent]
    broker.send(TOPIC, *values, partition=1)
    (part,) = log.parts([OffsetRange(TOPIC, 1, 0, 9)], 1)
    found = [
        ((batch.schema.metadata or {}).get(SCHEMA_PREFIX), batch.column("value").to_pylist())
        for batch in part([one, two])
    ]
    assert found == [
        (one.encode(), [b"1", None, b"2", b"3"]),
        (None, values[4:6]),
        (two.encode(), [b"6", b"7"]),
        (one.encode(), [b""]),
    ]
    assert [value for batch in part() for value in batch.column("value").to_pylist()] == values


def test_a_flattened_row_that_looks_like_an_event_with_a_schema_is_left_whole(
    log: KafkaChangeLog, broker: MockBroker
) -> None:
    """Its first column is named `schema`."""
    prefix = '{"schema":{"type":"struct"},"payload":'
    values = [f'{prefix}{{"schema":"{n}"}}}}'.encode() for n in range(3)]
    broker.send(TOPIC, *values, partition=1)
    (part,) = log.parts([OffsetRange(TOPIC, 1, 0, 3)], 1)
    assert [value for batch in part([prefix]) for value in batch.column("value").to_pylist()] == values


def test_part_has_headers_if_they_are_wanted(log: KafkaChangeLog, broker: MockBroker) -> None:
    broker.send(TOPIC, b"1", partition=1)
    (part,) = log.parts([OffsetRange(TOPIC, 1, 0, 1)], 2, headers=True)
    (batch,) = part()
    assert batch.schema == RECORDS.append(HEADERS)
    assert batch.column("headers").to_pylist() == [[]]


def test_part_fails_if_records_were_deleted(log: KafkaChangeLog, broker: MockBroker) -> None:
    broker.send(TOPIC, b"1", partition=1)
    (part,) = log.parts([OffsetRange(TOPIC, 1, 7, 9)], 1)
    with pytest.raises(DataLossError, match="offset 7 is no longer in the log"):
        list(part())


def test_options_of_the_log_win_over_those_of_reading_ahead(broker: MockBroker) -> None:
    """The client refuses answers that are smaller than what it may fetch."""
    broker.send(TOPIC, b"1", partition=1)
    sizes = {"receive.message.max.bytes": "1100000", "fetch.max.bytes": "1000000"}
    settings = KafkaLog(
        kind="kafka", bootstrap_servers=broker.servers, topic_prefix="shop", options={**sizes}
    )
    (part,) = KafkaChangeLog(settings).parts([OffsetRange(TOPIC, 1, 0, 1)], 1)
    assert [batch.num_rows for batch in part()] == [1]


def test_what_the_client_returns_between_records_is_left_out(
    log: KafkaChangeLog, broker: MockBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may return nothing, the end of a partition, and records of the partition that was read before."""
    broker.send(TOPIC, b"0", b"1", partition=0)
    broker.send(TOPIC, b"2", b"3", partition=1)
    answers: list[list[Message]] = []

    class Recorded(Consumer):
        def consume(self, *_: Any) -> list[Message]:
            answers.append(super().consume(3, 30))
            return answers[-1]

    class Replayed(Consumer):
        def consume(self, *_: Any) -> list[Message]:
            return answers.pop(0)

    ranges = [OffsetRange(TOPIC, 0, 0, 2), OffsetRange(TOPIC, 1, 0, 2)]
    monkeypatch.setattr(worker_reads, "Consumer", Recorded)
    (part,) = log.parts(ranges, 1)
    list(part())
    first, second = answers
    assert [len(first), len(second)] == [3, 3]
    answers[:] = [[], first[:1], [], first[1:], [first[0], second[0]], [], [*first, *second[1:]]]
    monkeypatch.setattr(worker_reads, "Consumer", Replayed)
    found = [value for batch in part() for value in batch.column("value").to_pylist()]
    assert found == [b"0", b"1", b"2", b"3"]


def test_part_shows_no_secret() -> None:
    log = KafkaLog(
        kind="kafka",
        bootstrap_servers="127.0.0.1:1",
        topic_prefix="shop",
        options={"sasl.username": "a-login"},
    )
    assert "a-login" not in repr(KafkaChangeLog(log).parts([OffsetRange(TOPIC, 0, 0, 1)], 1))


@pytest.mark.parametrize(
    ("ranges", "tasks", "counts"),
    [
        ([(0, 0, 10)], 3, [[4], [4], [2]]),
        ([(0, 0, 10), (1, 3, 3), (2, 0, 2)], 2, [[6], [4, 2]]),
        ([(0, 5, 6)], 4, [[1]]),
        ([(0, 0, 0)], 4, []),
    ],
)
def test_ranges_are_divided_into_parts_of_the_same_size(
    ranges: list[tuple[int, int, int]], tasks: int, counts: list[list[int]]
) -> None:
    found = divided([OffsetRange(TOPIC, *r) for r in ranges], tasks)
    assert [[r.count for r in part] for part in found] == counts
