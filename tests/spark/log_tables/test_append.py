"""Events of a topic are appended once each, whatever happens in between."""

from collections.abc import Callable

import pytest

from replicator.log_tables.service import NotAppended
from replicator.model.table import LOG_UNNUMBERED_KEY
from tests.spark.log_tables.conftest import TOPIC, LogLake
from tests.support.failpoints import PowerCut, power_cut

Logs = Callable[..., LogLake]
COLUMNS = {"id": "long", "at": "timestamptz", "device": {"os": "string", "version": "int"}}
ROAD = pytest.mark.parametrize("driver_max_events", [10_000, 0])


@ROAD
def test_each_event_is_appended_once_over_several_batches(logs: Logs, driver_max_events: int) -> None:
    clicks = logs(
        {"driver_max_events": driver_max_events, "max_events": 4},
        columns=COLUMNS,
        record=["partition", "offset", "timestamp", "key", "headers"],
    )
    clicks.send('{"id": 1, "at": "2026-11-29T10:00:00Z", "device": {"os": "linux", "version": 7}, "more": 1}')
    clicks.send('{"id": 2, "device": {}}', '{"id": "x"}', "no JSON", None, partition=1)
    clicks.topics.topic(TOPIC).send_record(
        b"k", '{"id": 3}', {"trace": b"abc", "bytes": b"\xff"}, partition=1
    )
    found = clicks.appended()
    assert sum(result.rows for result in found) == 4
    assert sum(result.bad for result in found) == 2
    assert clicks.appended() == []
    clicks.send('{"id": 4, "device": 5}', '{"id": 5}')
    clicks.appended()
    assert clicks.places() == clicks.sent()
    assert clicks.values("id") == [1, 5, 2, None, 3]
    first, *_, last = clicks.rows()
    assert first["device"] == {"os": "linux", "version": 7}
    assert first["at"].isoformat() == "2026-11-29T10:00:00+00:00"
    assert first["kafka_timestamp"].timestamp() == 1_700_000_000
    assert last["kafka_key"] == b"k"
    assert last["kafka_headers"] == '[{"key":"trace","value":"abc"},{"key":"bytes","base64":"/w=="}]'
    assert clicks.reasons() == {
        (0, 1): "device is not a record",
        (1, 1): "id is no long",
        (1, 2): "not a JSON object",
    }


@ROAD
@pytest.mark.parametrize(
    "point",
    ["after-log-quarantine", "after-log-columns", "after-log-files", "before-commit", "after-log-commit"],
)
def test_a_kill_loses_and_doubles_nothing(logs: Logs, driver_max_events: int, point: str) -> None:
    clicks = logs({"driver_max_events": driver_max_events})
    clicks.send('{"id": 1}', "bad")
    clicks.appended()
    clicks.send('{"id": 2, "new": "x"}', "[1]", '{"id": 3}', partition=1)
    with pytest.raises(PowerCut), power_cut(1, point):
        clicks.catch_up()
    clicks.appended()
    assert clicks.places() == clicks.sent()
    assert clicks.values("id", "new") == [(1, None), (2, "x"), (3, None)]


def test_two_processes_append_nothing_twice(logs: Logs) -> None:
    clicks = logs(columns={"id": "long"})
    first, second = clicks.open(), clicks.open()
    for number in range(3):
        clicks.send(f'{{"id": {number}}}')
        for process in (first, second):
            process.catch_up()
    assert clicks.values("id") == [0, 1, 2]


def test_the_table_of_another_topic_is_not_written(logs: Logs) -> None:
    clicks = logs(columns={"id": "long"})
    clicks.send('{"id": 1}')
    clicks.appended()
    clicks.settings["topic"] = "views"
    clicks.topics.topic("views").send('{"id": 2}')
    [paused] = clicks.catch_up()
    assert isinstance(paused, NotAppended)
    assert "is not the table of the topic views" in paused.reason
    assert clicks.values("id") == [1]


def test_deleted_events_pause_the_table_until_the_gap_is_accepted(logs: Logs) -> None:
    clicks = logs(columns={"id": "long"})
    clicks.send('{"id": 0}')
    clicks.appended()
    clicks.send('{"id": 1}', '{"id": 2}')
    clicks.topics.topic(TOPIC).first[0] = 2
    [paused] = clicks.catch_up()
    assert isinstance(paused, NotAppended)
    assert "lacks: offsets 1 to 1 of partition 0" in paused.reason
    clicks.settings["on_gap"] = "continue"
    [result] = clicks.appended()
    assert [(gap.start, gap.end) for gap in result.gaps] == [(1, 2)]
    assert clicks.values("id") == [0, 2]


def test_a_topic_that_was_created_again_is_read_from_its_beginning(logs: Logs) -> None:
    clicks = logs(columns={"id": "long"})
    clicks.send('{"id": 0}', '{"id": 1}')
    clicks.appended()
    topic = clicks.topics.topic(TOPIC)
    topic.id, topic.records = "2", {}
    clicks.send('{"id": 10}')
    assert clicks.property(LOG_UNNUMBERED_KEY) is None
    clicks.appended()
    assert sorted(clicks.values("id")) == [0, 1, 10]
    assert clicks.property(LOG_UNNUMBERED_KEY) == "true"


def test_a_table_notes_that_its_rows_have_no_offsets(logs: Logs) -> None:
    clicks = logs(columns={"id": "long"}, record=["timestamp", "partition"])
    clicks.send('{"id": 0}')
    clicks.appended()
    assert clicks.property(LOG_UNNUMBERED_KEY) == "true"


def test_a_topic_that_lost_its_newest_events_pauses_the_table(logs: Logs) -> None:
    clicks = logs(columns={"id": "long"}, on_gap="continue")
    clicks.send('{"id": 0}', '{"id": 1}')
    clicks.appended()
    del clicks.topics.topic(TOPIC).records[0][1:]
    [paused] = clicks.catch_up()
    assert isinstance(paused, NotAppended)
    assert "ends at offset 1" in paused.reason
