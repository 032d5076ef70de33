"""What an archive tells of Kafka's topics: their ids, and how many partitions they had at first."""

from dataclasses import replace
from pathlib import Path

from replicator.sources.archive.change_log import ArchiveChangeLog
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.writer import ArchiveWriter
from tests.support.archived_events import append_event
from tests.unit.sources.archive.test_archive import event, write


def test_archive_has_the_ids_of_topics_that_it_has_from_their_first_event_on(tmp_path: Path) -> None:
    write(tmp_path, [event(0)])
    with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json") as writer:
        for topic in ("shop", "shop.shop.orders", "shop.shop.empty"):
            writer.add_topic(topic, f"id of {topic}")
        append_event(writer, event(0, "shop"))
        append_event(writer, event(1))
    assert ArchiveReader(tmp_path).manifest.topic_ids == {"shop": "id of shop"}


def test_archive_has_the_number_of_partitions_at_the_first_event_of_a_topic(tmp_path: Path) -> None:
    for partitions in (1, 2):
        with ArchiveWriter(tmp_path, topic_prefix="shop", encoding="json") as writer:
            for topic in ("shop.shop.orders", "shop.shop.empty"):
                writer.add_topic(topic, partitions=partitions)
            append_event(writer, replace(event(0), partition=partitions - 1))
    log = ArchiveChangeLog(tmp_path)
    assert log.first_partitions("shop.shop.orders") == 1
    assert log.first_partitions("shop.shop.empty") is None
    assert log.offsets() == ({"shop.shop.orders": {0: 0, 1: 0}}, {"shop.shop.orders": {0: 1, 1: 1}})
