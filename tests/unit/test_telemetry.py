"""Log lines, stage times and batch reports."""

import io
import json
import logging
import threading
from collections.abc import Iterator

import pytest
import structlog
from pydantic import SecretStr

from replicator.telemetry import BatchReport, StageTimes, Stopwatch, get_logger, log_batch, setup_logging


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("replicator")
    before = (root.handlers, root.level, ours.level)
    yield
    root.handlers = before[0]
    root.setLevel(before[1])
    ours.setLevel(before[2])
    structlog.reset_defaults()


def test_setup_logging_writes_json_when_there_is_no_terminal() -> None:
    stream = io.StringIO()
    setup_logging(stream)
    get_logger("replicator.test").info("started", mirror="shop")
    line = json.loads(stream.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {"event": "started", "level": "info", "logger": "replicator.test", "mirror": "shop"}


def test_batch_is_one_line_for_a_person() -> None:
    stream = Terminal()
    setup_logging(stream)
    times = StageTimes({"decode": 0.25, "apply": 1.0}, wall=2.0)
    log_batch(BatchReport(7, 1200, {"INSERT": 1200}, 1, times, lag_seconds=1.26, backlog=30))
    [line] = stream.getvalue().splitlines()
    assert line[9:] == "batch 7: 1,200 events, 1 table, 2.0 s, lag 1.3 s, 30 left"


def test_log_lines_never_contain_secrets() -> None:
    stream = io.StringIO()
    setup_logging(stream)
    get_logger("replicator.test").info(
        "connecting",
        password="hunter2",
        options={"sasl.jaas.config": "hunter2"},
        wrapped=SecretStr("hunter2"),
    )
    line = json.loads(stream.getvalue())
    assert "hunter2" not in stream.getvalue()
    assert line["password"] == line["options"]["sasl.jaas.config"] == "(hidden)"


def test_log_batch_writes_one_line_per_batch() -> None:
    stream = io.StringIO()
    setup_logging(stream)
    times = StageTimes({"decode": 0.25, "apply": 1.00049}, wall=2.0)
    log_batch(BatchReport(7, 1200, {"INSERT": 1000, "DELETE": 200}, 3, times, lag_seconds=1.23456))
    log_batch(BatchReport(8, 1, {}, 0, StageTimes(), quarantined=1, paused=("shop.orders",), backlog=9))
    first, second = map(json.loads, stream.getvalue().splitlines())
    del first["timestamp"]
    assert first == {
        "event": "batch",
        "level": "info",
        "logger": "replicator.batch",
        "batch": 7,
        "events": 1200,
        "rows": {"INSERT": 1000, "DELETE": 200},
        "tables": 3,
        "seconds": 2.0,
        "stages": {"decode": 0.25, "apply": 1.0},
        "events_per_second": 600,
        "lag_seconds": 1.235,
    }
    assert (second["level"], second["quarantined"], second["paused"]) == ("warning", 1, ["shop.orders"])
    assert second["lag_seconds"] is None
    assert second["backlog"] == 9


def test_stopwatch_adds_times_across_threads_and_errors() -> None:
    watch = Stopwatch()
    barrier = threading.Barrier(2)

    def work() -> None:
        with watch.stage("apply"):
            barrier.wait(5)

    threads = [threading.Thread(target=work) for _ in range(2)]
    with watch.stage("decode"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    with pytest.raises(ValueError, match="boom"), watch.stage("failed"):
        raise ValueError("boom")
    times = watch.times()
    assert set(times.seconds) == {"decode", "apply", "failed"}
    assert next(iter(times.seconds)) == "decode"
    assert times.wall >= times.seconds["decode"] > 0
