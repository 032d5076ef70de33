"""Where Kafka continues an archive, and which part of a range is read from where."""

import pytest

from replicator.model.commit_marker import OffsetRange
from replicator.sources.archive.format import Manifest, PartitionEntry
from replicator.sources.archive.joints import Joint, joined, split
from replicator.sources.kafka.topic_states import TopicState

TOPIC = "shop.shop.t"


def archive(
    first: int, end: int, *, partition: int = 0, topic_id: str | None = "a", topic: str = TOPIC
) -> Manifest:
    entry = PartitionEntry(first, end - 1, end - first, end)
    ids = {} if topic_id is None else {topic: topic_id}
    return Manifest("shop", "json", partitions={(topic, partition): entry}, topic_ids=ids)


def kafka(first: int, end: int, topic_id: str | None = "a") -> dict[str, TopicState]:
    return {TOPIC: TopicState(topic_id, {0: first}, {0: end})}


@pytest.mark.parametrize(
    ("manifest", "topics", "joint"),
    [
        pytest.param(archive(0, 60), kafka(50, 90), Joint(0, 50), id="overlap"),
        pytest.param(archive(20, 50), kafka(50, 90), Joint(20, 50), id="no gap and no overlap"),
        pytest.param(archive(0, 90), kafka(90, 90), Joint(0, 90), id="Kafka has deleted all"),
        pytest.param(archive(0, 60), kafka(0, 90), None, id="Kafka has all"),
        pytest.param(archive(0, 60, topic_id="b"), kafka(0, 90), None, id="recreated, and Kafka has all"),
        pytest.param(archive(50, 60), kafka(50, 90), None, id="the archive has nothing older"),
        pytest.param(archive(70, 80), kafka(50, 90), None, id="the archive begins later"),
        pytest.param(Manifest("shop", "json"), kafka(50, 50), None, id="neither has a record"),
        pytest.param(Manifest("shop", "json"), {}, None, id="Kafka has no topic"),
    ],
)
def test_partition_begins_in_the_archive_if_kafka_continues_it(
    manifest: Manifest, topics: dict[str, TopicState], joint: Joint | None
) -> None:
    found = joined(topics, manifest)
    assert found.partitions == ({} if joint is None else {(TOPIC, 0): joint})
    assert found.problems == {}


@pytest.mark.parametrize(
    ("manifest", "topics", "problem"),
    [
        pytest.param(archive(0, 49), kafka(50, 90), "ends at offset 49 of partition 0", id="gap"),
        pytest.param(archive(0, 60, topic_id="b"), kafka(50, 90), "earlier topic", id="recreated"),
        pytest.param(
            archive(0, 60, topic_id=None), kafka(50, 90), "does not tell", id="recorded without ids"
        ),
        pytest.param(archive(0, 60), kafka(50, 90, None), "earlier topic", id="Kafka without ids"),
        pytest.param(
            archive(0, 60, partition=1), kafka(50, 90), "no event of partition 0", id="other partition"
        ),
        pytest.param(Manifest("shop", "json"), kafka(50, 90), "no event of partition 0", id="empty archive"),
        pytest.param(archive(0, 60, topic="shop.shop.u"), kafka(50, 90), "no event of", id="other topic"),
    ],
)
def test_partition_begins_in_kafka_if_the_archive_does_not_reach_it(
    manifest: Manifest, topics: dict[str, TopicState], problem: str
) -> None:
    found = joined(topics, manifest)
    assert found.partitions == {}
    assert list(found.problems) == [TOPIC]
    assert problem in found.problems[TOPIC]


@pytest.mark.parametrize(
    ("start", "end", "archived", "live"),
    [
        (20, 40, (20, 40), None),
        (20, 50, (20, 50), None),
        (20, 70, (20, 50), (50, 70)),
        (49, 51, (49, 50), (50, 51)),
        (50, 70, None, (50, 70)),
        # The archive does not begin early enough: Kafka reports that the records are missing.
        (9, 70, None, (9, 70)),
    ],
)
def test_range_is_divided_at_kafkas_first_offset(
    start: int, end: int, archived: tuple[int, int] | None, live: tuple[int, int] | None
) -> None:
    found = split([OffsetRange(TOPIC, 0, start, end)], {(TOPIC, 0): Joint(10, 50)})
    expected = [[OffsetRange(TOPIC, 0, *part)] if part else [] for part in (archived, live)]
    assert list(found) == expected
