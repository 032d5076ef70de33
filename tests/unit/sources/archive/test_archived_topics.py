"""What an archive tells of Kafka's topics: their ids, and how many partitions they had at first."""

from dataclasses import replace
from pathlib import Path

from replicator.sources.archive import ArchiveReader, ArchiveWriter
from replicator.sources.archive.change_log import ArchiveChangeLog
from tests.unit.sources.archive.test_archive import event, write


def test_archive_has_the_ids_of_topics_that_it_has_from_their_first_event_on(tmp_path: Path) -> None:
    write(tmp_path, [event(0)])
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json") as writer:
        for topic in ("shop", "shop.shop.orders", "shop.shop.empty"):
            writer.add_topic(topic, f"id of {topic}")
        writer.append(event(0, "shop"))
        writer.append(event(1))
    assert ArchiveReader(tmp_path).manifest.topic_ids == {"shop": "id of shop"}


def test_archive_has_the_number_of_partitions_at_the_first_event_of_a_topic(tmp_path: Path) -> None:
    for partitions in (1, 2):
        with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json") as writer:
            for topic in ("shop.shop.orders", "shop.shop.empty"):
                writer.add_topic(topic, partitions=partitions)
            writer.append(replace(event(0), partition=partitions - 1))
    log = ArchiveChangeLog(tmp_path)
    assert log.first_partitions("shop.shop.orders") == 1
    assert log.first_partitions("shop.shop.empty") is None
    assert log.offsets() == ({"shop.shop.orders": {0: 0, 1: 0}}, {"shop.shop.orders": {0: 1, 1: 1}})


def test_number_of_partitions_is_that_of_the_first_event_not_of_an_empty_topic(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json") as writer:
        for partitions in (1, 2):
            writer.add_topic("shop.shop.orders", partitions=partitions)
        writer.append(event(0))
        writer.add_topic("shop.shop.orders", partitions=3)
    assert ArchiveChangeLog(tmp_path).first_partitions("shop.shop.orders") == 2


def test_range_that_ends_before_a_partition_was_added_does_not_show_it(tmp_path: Path) -> None:
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json") as writer:
        writer.add_topic("shop.shop.orders", partitions=2)
        for partition in range(3):
            writer.append(replace(event(0), partition=partition))
    log = ArchiveChangeLog(tmp_path)
    log.end_at({("shop.shop.orders", partition): 0 for partition in (1, 2)})
    assert log.offsets() == ({"shop.shop.orders": {0: 0, 1: 0}}, {"shop.shop.orders": {0: 1, 1: 0}})
    assert log.readable_ends() == {"shop.shop.orders": {0: 1, 1: 0}}
