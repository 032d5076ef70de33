"""Large batches: Spark's workers write the files, of each hour or day its own; what they leave, Spark does."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from replicator.lake.quarantine import Quarantine
from replicator.log_tables import staging
from replicator.log_tables.row_writing import RowWriting
from replicator.log_tables.service import NotAppended
from replicator.model.commit_marker import OffsetRange
from replicator.sources.change_log import LogPart
from tests.spark.log_tables.conftest import LogLake
from tests.support.lake_files import unreferenced
from tests.support.log_topics import MemoryTopics

Logs = Callable[..., LogLake]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
SORTED = "ALTER TABLE lake.logs.clicks WRITE ORDERED BY id"


@pytest.fixture
def roads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return who wrote the rows of each batch."""
    found: list[str] = []
    by_workers, by_spark = staging._by_workers, staging._by_spark

    def workers(*args: Any) -> Any:
        staged = by_workers(*args)
        found.extend([] if staged is None else ["workers"])
        return staged

    def spark(*args: Any) -> Any:
        found.append("spark")
        return by_spark(*args)

    monkeypatch.setattr(staging, "_by_workers", workers)
    monkeypatch.setattr(staging, "_by_spark", spark)
    return found


def event(number: int, moment: datetime | None) -> str:
    return f'{{"id": {number}, "at": {"null" if moment is None else chr(34) + moment.isoformat() + chr(34)}}}'


def partitions(clicks: LogLake) -> Counter[Any]:
    """Return partition → number of its rows."""
    found = Counter[Any]()
    with clicks.lake.catalog() as catalog:
        for row in catalog.load_table(("logs", "clicks")).inspect.files().to_pylist():
            found[next(iter(row["partition"].values()), None)] += row["record_count"]
    return found


def large(logs: Logs, **settings: Any) -> LogLake:
    """Return log tables all of whose batches are large."""
    return logs({"driver_max_events": 0}, **settings)


@pytest.mark.parametrize("format_version", [2, 3])
def test_workers_write_a_file_for_each_hour(logs: Logs, roads: list[str], format_version: int) -> None:
    clicks = logs(
        {"driver_max_events": 0, "format_version": format_version},
        columns={"id": "long", "at": "timestamptz"},
        event_time="at",
        partition="hour",
    )
    times = [EPOCH, EPOCH - timedelta(microseconds=1), None, EPOCH + 7 * HOUR, EPOCH - HOUR, EPOCH + HOUR / 2]
    clicks.send(*(event(n, time) for n, time in enumerate(times)))
    clicks.send(*(event(n, time) for n, time in enumerate(times, 10)), "bad", partition=1)
    clicks.appended()
    assert roads == ["workers"]
    assert partitions(clicks) == {0: 4, -1: 4, None: 2, 7: 2}
    assert clicks.values("id", "at") == [*enumerate(times), *enumerate(times, 10)]
    assert clicks.places() == clicks.sent()
    rows = clicks.lake.session(clicks.config).table("lake.logs.clicks")
    assert rows.where("at < timestamp '1970-01-01 00:00:00Z'").count() == 4
    assert not unreferenced(clicks.lake)


@pytest.mark.parametrize("partition", ["hour", None])
def test_times_of_records_divide_rows(logs: Logs, roads: list[str], partition: str | None) -> None:
    clicks = large(logs, columns={"id": "long"}, event_time="kafka_timestamp", partition=partition)
    clicks.send(*(event(n, None) for n in range(6)))
    clicks.appended()
    assert roads == ["workers"]
    assert partitions(clicks) == {472222 if partition else None: 6}
    assert clicks.values("id") == list(range(6))


@pytest.mark.parametrize("change", [SORTED, "many hours"])
def test_spark_writes_what_workers_do_not(logs: Logs, roads: list[str], change: str) -> None:
    clicks = large(logs, columns={"id": "long", "at": "timestamptz"}, event_time="at", partition="hour")
    clicks.send(event(0, EPOCH))
    clicks.appended()
    if change == SORTED:
        clicks.lake.session(clicks.config).sql(SORTED)
    hours = 250 if change == "many hours" else 3
    clicks.send(*(event(n, EPOCH + n * HOUR) for n in range(1, hours)), "bad", '{"id": "x"}')
    clicks.appended()
    assert roads == ["workers", "spark"]
    assert partitions(clicks) == dict.fromkeys(range(hours), 1)
    assert clicks.values("id") == list(range(hours))
    assert clicks.places() == clicks.sent()
    assert not unreferenced(clicks.lake)


def test_files_of_rows_that_are_decoded_again_are_removed(logs: Logs, roads: list[str]) -> None:
    clicks = large(logs, columns={"id": "long"}, schema="evolve")
    clicks.send('{"id": 1}')
    clicks.appended()
    clicks.send('{"id": 2}', '{"id": 3, "more": 1}', partition=1)
    clicks.appended()
    assert roads == ["workers"] * 3
    assert clicks.values("id", "more") == [(1, None), (2, None), (3, 1)]
    clicks.settings["schema"] = "freeze"
    clicks.send('{"id": 4, "further": 1}')
    assert isinstance(clicks.catch_up()[0], NotAppended)
    assert not unreferenced(clicks.lake)


def test_files_of_other_tasks_are_removed_if_one_has_too_many_partitions(
    logs: Logs, roads: list[str]
) -> None:
    clicks = large(logs, columns={"id": "long", "at": "timestamptz"}, event_time="at", partition="hour")
    clicks.send(event(0, EPOCH))
    clicks.appended()
    clicks.send(*(event(n, EPOCH) for n in range(1, 131)))
    clicks.send(*(event(n, EPOCH + n * HOUR) for n in range(131, 261)), partition=1)
    clicks.appended()
    assert roads == ["workers", "spark"]
    assert clicks.values("id") == list(range(261))
    assert not unreferenced(clicks.lake)


class FailingTopics(MemoryTopics):
    """The second part of a topic cannot be read to its end, once a file of the first part is in a folder."""

    def __init__(self, topics: Any, folder: Path) -> None:
        super().__init__(topics)
        self._folder, self._known = folder, len(_files(folder))

    def parts(self, ranges: Sequence[OffsetRange], tasks: int, *, headers: bool) -> list[LogPart]:
        first, *others = super().parts(ranges, tasks, headers=headers)
        return [first, *(partial(_failing, part, self._folder, self._known) for part in others)]


def _files(folder: Path) -> list[Path]:
    return list(folder.rglob("data/*.parquet"))


def _failing(
    part: LogPart, folder: Path, known: int, _prefixes: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    yield from part()
    deadline = time.monotonic() + 30
    while len(_files(folder)) == known and time.monotonic() < deadline:
        time.sleep(0.01)
    raise OSError("no answer" if len(_files(folder)) > known else "no file of the first part")


def test_files_of_a_batch_that_fails_are_removed(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    clicks = large(logs, columns={"id": "long"})
    clicks.send(*(f'{{"id": {n}}}' for n in range(4)))
    clicks.appended()
    clicks.send('{"id": 4}', "bad", '{"id": 5}')

    def fails(*_: Any) -> None:
        raise OSError("no answer")

    healthy = clicks.topics
    with monkeypatch.context() as patches:
        patches.setattr(Quarantine, "add", fails)
        with pytest.raises(OSError, match="no answer"):
            clicks.catch_up()
    clicks.topics = FailingTopics(healthy.topics, clicks.lake.folder)
    with pytest.raises(Exception, match="no answer"):
        clicks.catch_up()
    assert not unreferenced(clicks.lake)
    clicks.topics = healthy
    clicks.appended()
    assert clicks.values("id") == list(range(6))
    assert clicks.places() == clicks.sent()


def test_files_of_a_task_that_was_repeated_are_removed(logs: Logs, monkeypatch: pytest.MonkeyPatch) -> None:
    clicks = large(logs, columns={"id": "long"})
    clicks.send('{"id": 1}')
    clicks.appended()
    [file] = clicks.lake.folder.rglob("data/*.parquet")
    by_workers = staging._by_workers

    def repeated(*args: Any) -> Any:
        def begun(*given: Any) -> Any:
            found = RowWriting(*given)
            Path(file.parent, f"{found.label}-of-the-first-attempt.parquet").touch()
            return found

        with monkeypatch.context() as patches:
            patches.setattr("replicator.log_tables.staging.RowWriting", begun)
            return by_workers(*args)

    monkeypatch.setattr(staging, "_by_workers", repeated)
    clicks.send('{"id": 2}')
    clicks.appended()
    assert clicks.values("id") == [1, 2]
    assert not unreferenced(clicks.lake)
