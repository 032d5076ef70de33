"""Checks of the archive that Kafka continues."""

import pytest

from replicator.config import Config
from replicator.operations.check.topics import check_archive
from replicator.sources.archive.format import Manifest, PartitionEntry
from replicator.sources.kafka.topic_states import TopicState
from tests.support.config import minimal_config


@pytest.fixture
def config() -> Config:
    return minimal_config(
        source={"url": "mysql://u@h/shop", "tables": ["shop.*"], "exclude": ["shop.out"]},
        log={"kind": "kafka", "bootstrap_servers": "b:1", "topic_prefix": "p", "archive": "s3://bucket/past"},
    )


def manifest(prefix: str = "p", **ends: int) -> Manifest:
    partitions = {(f"p.shop.{name}", 0): PartitionEntry(0, end - 1, end, end) for name, end in ends.items()}
    return Manifest(prefix, "json", partitions=partitions, topic_ids={t: t for t, _ in partitions})


def topics(**first: int) -> dict[str, TopicState]:
    return {f"p.shop.{name}": TopicState(f"p.shop.{name}", {0: at}, {0: 90}) for name, at in first.items()}


def test_archive_that_kafka_continues_is_accepted(config: Config) -> None:
    kafka = topics(a=30, b=0, out=60) | {"p.other.t": TopicState("x", {0: 5}, {0: 9})}
    (result,) = check_archive("past", manifest(a=40), kafka, config)
    assert (result.status, result.name) == ("ok", "log: archive")


def test_gap_is_reported_with_its_topics_and_the_next_step(config: Config) -> None:
    kafka = topics(a=50, b=10) | {"p": TopicState("p", {0: 5}, {0: 9})}
    (result,) = check_archive("past", manifest(a=40, b=40), kafka, config)
    assert result.status == "warn"
    assert "p: it has no event of partition 0, and Kafka begins at 5" in result.found
    assert "p.shop.a: it ends at offset 40 of partition 0, and Kafka begins at 50" in result.found
    assert "p.shop.b" not in result.found
    assert "run record more often" in result.next_step


def test_missing_archive_and_one_of_other_topics_are_reported(config: Config) -> None:
    (missing,) = check_archive("past", None, topics(a=30), config)
    assert (missing.status, missing.next_step) == ("warn", "run: replicator record --to past")
    (other,) = check_archive("past", manifest("q", a=40), topics(a=30), config)
    assert (other.status, other.found) == ("fail", "past contains events of 'q', not of 'p'")
