"""Kafka and its archive as one log."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from replicator.errors import DataLossError, LogUnavailable
from replicator.model.commit_marker import OffsetRange
from replicator.sources.archive.format import Event
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.storage import open_storage
from replicator.sources.archive.writer import ArchiveWriter
from replicator.sources.change_log import TooLarge
from replicator.sources.joined_log import JoinedLog, RecordedPast
from tests.support.archived_events import append_event
from tests.support.kept_log import Kept, KeptLog, id_of, joined, record_log
from tests.support.logs import captured_logs

T, U = "shop.shop.t", "shop.shop.u"
PLENTY = 1 << 20


class World:
    """A log with `kept` records, and the archive that is recorded of it."""

    def __init__(self, folder: Path) -> None:
        self.source, self.past = folder / "kafka", folder / "past"
        self.kept: Kept = {}
        self.write({T: 10, U: 4, "shop": 3})

    def write(self, counts: dict[str, int]) -> None:
        with ArchiveWriter(self.source, topic_prefix="shop", encoding="json") as writer:
            for topic, count in counts.items():
                for _ in range(count):
                    offset = writer.end_offset(topic, 0) or 0
                    append_event(writer, Event(topic, 0, offset, 1_000 + offset, b"k", b"%d" % offset))

    def record(self, **options: Any) -> None:
        record_log(self.source, self.past, **options)

    def log(self, topic_ids: dict[str, str] | None = None) -> JoinedLog:
        live = KeptLog(self.source, self.kept, topic_ids)
        return joined(live, RecordedPast(open_storage(self.past), "shop"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def fetched(log: JoinedLog, *ranges: OffsetRange) -> dict[str, list[int]]:
    """Return topic → offsets of the records, in their order; their values are their offsets."""
    found = log.fetch(ranges, PLENTY)
    assert not isinstance(found, TooLarge)
    offsets = {topic: records.column("offset").to_pylist() for topic, records in found.items()}
    for topic, records in found.items():
        assert [int(value) for value in records.column("value").to_pylist()] == offsets[topic]
    return offsets


def schema_offsets(log: JoinedLog) -> list[int]:
    return [record.offset for record in log.schema_changes()]


def test_log_begins_where_the_archive_does(world: World) -> None:
    world.record()
    world.kept |= {(T, 0): 6}
    log = world.log()
    assert log.offsets() == ({T: {0: 0}, U: {0: 0}}, {T: {0: 10}, U: {0: 4}})
    assert fetched(log, OffsetRange(T, 0, 2, 9), OffsetRange(U, 0, 1, 3)) == {T: [*range(2, 9)], U: [1, 2]}
    assert fetched(log, OffsetRange(T, 0, 2, 6)) == {T: [*range(2, 6)]}
    assert fetched(log, OffsetRange(T, 0, 7, 9)) == {T: [7, 8]}
    assert (log.topic_id(T), log.readable_ends()) == (id_of(T), {T: {0: 10}, U: {0: 4}})


def test_archive_tells_how_many_partitions_a_topic_had_whose_beginning_it_has(world: World) -> None:
    world.record()
    world.kept[T, 0] = 6
    log = world.log()
    log.offsets()
    assert log.first_partitions(T) == 1
    assert log.first_partitions(U) is None


def test_manifest_is_read_once_while_it_reaches_kafkas_first_offset(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.record()
    storage = open_storage(world.past)
    reads: list[str] = []
    monkeypatch.setattr(storage, "read", lambda name: reads.append(name) or (world.past / name).read_bytes())
    log = joined(KeptLog(world.source, world.kept), RecordedPast(storage, "shop"))
    for first in range(1, 10):
        world.kept[T, 0] = first
        assert log.offsets()[0][T] == {0: 0}
    assert reads == ["manifest.json"]


def test_records_that_kafka_deletes_after_it_was_asked_are_read_from_the_archive(world: World) -> None:
    world.record()
    log = world.log()
    assert log.offsets()[0][T] == {0: 0}
    world.kept[T, 0] = 5
    assert fetched(log, OffsetRange(T, 0, 3, 8)) == {T: [*range(3, 8)]}


def test_records_that_neither_has_are_reported(world: World) -> None:
    world.record(leave=7)
    world.kept[T, 0] = 5
    log = world.log()
    assert log.offsets()[0][T] == {0: 5}
    with pytest.raises(DataLossError, match="offset 1 was deleted"):
        fetched(log, OffsetRange(T, 0, 1, 8))


def test_records_of_a_recreated_topic_are_not_joined(world: World) -> None:
    world.record()
    log = world.log(ids := {})
    log.offsets()
    # It happens between two questions: then a range is of the earlier topic.
    ids[T], world.kept[T, 0] = "another", 5
    with pytest.raises(DataLossError):
        fetched(log, OffsetRange(T, 0, 3, 8))
    assert log.offsets()[0][T] == {0: 5}


@pytest.mark.parametrize("max_bytes", [3, 7])
def test_size_limit_holds_for_both_parts_together(world: World, max_bytes: int) -> None:
    world.record()
    world.kept[T, 0] = 5
    log = world.log()
    log.offsets()
    found = log.fetch([OffsetRange(T, 0, 0, 10)], max_bytes)
    assert isinstance(found, TooLarge)
    assert found.topic == T
    assert not isinstance(log.fetch([OffsetRange(T, 0, 0, 10)], 10), TooLarge)


def test_archive_is_read_again_when_it_has_grown(world: World) -> None:
    world.record()
    world.kept[T, 0] = 5
    log = world.log()
    log.offsets()
    assert fetched(log, OffsetRange(T, 0, 0, 5)) == {T: [*range(5)]}
    world.write({T: 10})
    world.record()
    live: Any = log._live
    live.refresh()
    world.kept[T, 0] = 15
    assert log.offsets() == ({T: {0: 0}, U: {0: 0}}, {T: {0: 20}, U: {0: 4}})
    assert fetched(log, OffsetRange(T, 0, 8, 18)) == {T: [*range(8, 18)]}


def test_gap_is_reported_once_with_topic_and_reason(world: World) -> None:
    world.record(leave=1)
    world.kept |= {(T, 0): 10, (U, 0): 2}
    log = world.log()
    with captured_logs() as entries:
        for _ in range(3):
            assert log.offsets()[0] == {T: {0: 10}, U: {0: 0}}
    (entry,) = [e for e in entries if e["log_level"] == "warning"]
    assert entry["topics"] == {T: "it ends at offset 9 of partition 0, and Kafka begins at 10"}


def test_archive_of_other_topics_is_not_joined(world: World) -> None:
    with ArchiveWriter(world.past, topic_prefix="other", encoding="json"):
        pass
    world.kept[T, 0] = 5
    with captured_logs() as entries:
        assert world.log().offsets()[0][T] == {0: 5}
    assert "contains events of 'other'" in entries[-1]["reason"]


def test_topic_whose_archived_events_are_damaged_begins_in_kafka_after_some_attempts(world: World) -> None:
    for count in (0, 6):
        world.write({T: count})
        world.record()
    world.kept[T, 0] = 12
    for segment in ArchiveReader(world.past).segments(T, 0, 0, 10):
        (world.past / segment.path).write_bytes(b"damaged")
    log = world.log()
    with captured_logs() as entries:
        for _ in range(3):
            assert log.offsets()[0][T] == {0: 0}
            with pytest.raises(LogUnavailable, match="has 7 bytes"):
                fetched(log, OffsetRange(T, 0, 1, 8))
            # A sample of later events, such as those that name the table.
            assert fetched(log, OffsetRange(T, 0, 10, 13)) == {T: [10, 11, 12]}
        assert log.offsets()[0][T] == {0: 12}
    (entry,) = [e for e in entries if e["log_level"] == "warning"]
    assert entry["topic"] == T


def test_archive_that_was_replaced_by_another_one_is_not_read(world: World) -> None:
    world.record()
    world.kept[T, 0] = 5
    past = RecordedPast(open_storage(world.past), "shop")
    log = joined(KeptLog(world.source, world.kept), past)
    log.offsets()
    assert fetched(log, OffsetRange(T, 0, 0, 5)) == {T: [*range(5)]}
    shutil.rmtree(world.past)
    shutil.rmtree(world.source)
    world.write({T: 20})
    world.record()
    world.kept[T, 0] = 15
    log = joined(KeptLog(world.source, world.kept), past)
    log.offsets()
    with pytest.raises(LogUnavailable, match="was replaced by another archive"):
        fetched(log, OffsetRange(T, 0, 8, 18))


def test_schema_changes_that_kafka_has_deleted_are_read_from_the_archive(world: World) -> None:
    world.record()
    world.kept["shop", 0] = 2
    log = world.log()
    assert schema_offsets(log) == [0, 1, 2]
    assert schema_offsets(log) == []
    world.write({"shop": 5})
    world.record()
    live: Any = log._live
    live.refresh()
    world.kept["shop", 0] = 6
    assert schema_offsets(log) == [*range(3, 8)]


def test_schema_changes_begin_in_kafka_if_the_archive_has_a_gap(world: World) -> None:
    world.record(leave=2)
    world.kept["shop", 0] = 2
    assert schema_offsets(world.log()) == [2]
    assert schema_offsets(world.log({"shop": "another"})) == [2]
