"""Measure the time from the start of `replicator run` to its first batch, and batches with few changed tables."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks import lake
from benchmarks.broker import broker, cache_folder
from benchmarks.engine import Target, drain_cold
from benchmarks.events import EventWriter
from benchmarks.load import Load, Sender, fill
from benchmarks.processes import child_environment
from benchmarks.report import CONSOLE, Goal, save, show, show_goals
from benchmarks.workload import UPDATE, Change, Layout, TableState, row

_LAYOUT = Layout("start", tables=100, snapshot_rows=10_000, changes=0)
_NEW = Layout("first", tables=40, snapshot_rows=200, changes=0)
_CHANGED_TABLES = 10
_CHANGES_A_TABLE = 100
_STARTS = 5
_ROUNDS = 5
_PATIENCE_S = 180.0
_NAMESPACE = "start"


@dataclass(frozen=True, slots=True)
class Options:
    """The broker, and the memory of the driver."""

    bootstrap: str | None = None
    driver_memory: str = "4g"


@dataclass(frozen=True, slots=True)
class Measured:
    """Seconds.

    Attributes:
        filled: a process that fills all tables.
        starts: from each start of `replicator run` to its first batch.
        rounds: the batches that follow in the last of these processes.
        new: the first batch of a process, in which all tables are new.
    """

    filled: float
    starts: list[float]
    rounds: list[float]
    new: float


def start(options: Options, results: Path) -> bool:
    """Run, print and save. Return False if a table is wrong."""
    with broker(options.bootstrap) as (bootstrap, _):
        loaded = fill(bootstrap, _LAYOUT)
        target = Target(cache_folder() / "lakes" / "start", bootstrap, options.driver_memory)
        shutil.rmtree(target.folder, ignore_errors=True)
        config = target.config(_NAMESPACE, _LAYOUT.prefix, trigger="continuous")
        log = target.log("mirror")
        filled = drain_cold(target, config).seconds
        starts, rounds, versions = [], [], count(1)
        for number in range(_STARTS):
            _change(bootstrap, next(versions))
            started = time.monotonic()
            with _running(config, log) as batches:
                _take(batches)
                starts.append(time.monotonic() - started)
                for _ in range(_ROUNDS if number == _STARTS - 1 else 0):
                    _change(bootstrap, version := next(versions))
                    begun = time.monotonic()
                    _take(batches)
                    rounds.append(time.monotonic() - begun)
        look = lake.look(config, [_NAMESPACE], target.log("look"), timed=False)[_NAMESPACE]
        new, wrong = _new_tables(bootstrap, options)
    wrong += lake.differences(_expected(loaded, version), look.tables)
    return _report(options, results, Measured(filled, starts, rounds, new), wrong)


def _new_tables(bootstrap: str, options: Options) -> tuple[float, list[str]]:
    """Return the seconds of a first batch in which all tables are new, and what is wrong in them."""
    loaded = fill(bootstrap, _NEW)
    target = Target(cache_folder() / "lakes" / "first", bootstrap, options.driver_memory)
    shutil.rmtree(target.folder, ignore_errors=True)
    config = target.config(_NAMESPACE, _NEW.prefix, trigger="continuous")
    with _running(config, target.log("mirror")) as batches:
        seconds = _take(batches, _NEW.snapshot_rows)
    look = lake.look(config, [_NAMESPACE], target.log("look"), timed=False)[_NAMESPACE]
    return seconds, lake.differences(loaded.tables, look.tables)


@contextmanager
def _running(config: Path, log: Path) -> Iterator[Iterator[dict[str, float]]]:
    """Run the mirror in a separate process, and provide the batches that it logs."""
    program = str(Path(sys.executable).parent / "replicator")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        mirror = subprocess.Popen(
            [program, "run", "-c", str(config)], stdout=output, stderr=output, env=child_environment()
        )
        try:
            yield _batches(log, mirror)
        finally:
            mirror.send_signal(signal.SIGTERM)
            try:
                mirror.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                mirror.kill()
                raise


def _batches(log: Path, mirror: "subprocess.Popen[bytes]") -> Iterator[dict[str, float]]:
    """Yield the mirror's log lines about batches as they are written."""
    deadline = time.monotonic() + _PATIENCE_S
    with log.open() as lines:
        while mirror.poll() is None and time.monotonic() < deadline:
            if not (line := lines.readline()):
                time.sleep(0.02)
            elif line.startswith("{") and (fields := json.loads(line)).get("event") == "batch":
                yield fields
    raise RuntimeError(f"the mirror ended or was not done after {_PATIENCE_S:.0f} s; see {log}")


def _take(batches: Iterator[dict[str, float]], events: int = _CHANGED_TABLES * _CHANGES_A_TABLE) -> float:
    """Wait for the batches that contain these events, by default one round of changes; return their seconds."""
    seconds = 0.0
    while events > 0:
        batch = next(batches)
        events -= int(batch["events"])
        seconds += batch["seconds"]
    return seconds


def _change(bootstrap: str, version: int) -> None:
    """Write updates of some rows of a few tables to this version."""
    texts, sender = EventWriter(_LAYOUT), Sender(bootstrap)
    for index in range(_CHANGED_TABLES):
        for key in range(1, _CHANGES_A_TABLE + 1):
            at = (version * _CHANGED_TABLES + index) * _CHANGES_A_TABLE + key
            change = Change(UPDATE, key, at // 100, 1, 1_000 + at * 300)
            value = texts.value(index, change, row(key, version - 1), row(key, version))
            sender.send(_LAYOUT.topic(index), 0, texts.key(index, key), value)
    sender.finish()


def _expected(loaded: Load, version: int) -> dict[str, TableState]:
    changed = [row(key, version) for key in range(1, _CHANGES_A_TABLE + 1)]
    state = TableState(
        len(changed), sum(image.cents for image in changed), sum(image.checksum() for image in changed)
    )
    return loaded.tables | {_LAYOUT.table(index): state for index in range(_CHANGED_TABLES)}


def _report(options: Options, results: Path, measured: Measured, wrong: list[str]) -> bool:
    title = f"{_LAYOUT.tables} tables, {_CHANGED_TABLES} of them changed"
    start = median(measured.starts)
    rows: list[tuple[str, object]] = [
        ("a process that creates and fills all tables", measured.filled),
        ("start to first batch done, median", start),
        ("", f"{min(measured.starts):.1f} to {max(measured.starts):.1f}"),
        (f"a first batch of {_NEW.snapshot_rows} events in {_NEW.tables} new tables", measured.new),
    ]
    rows += [(f"batch {number}", seconds) for number, seconds in enumerate(measured.rounds, start=1)]
    show(title, ("", "seconds"), rows)
    goals = [
        Goal("start of run to first batch done, seconds", start, 7.0, at_least=False),
        Goal(
            "a batch with 10 of 100 tables changed, slowest, seconds",
            max(measured.rounds),
            5.0,
            at_least=False,
        ),
        Goal("a first batch with 40 new tables, seconds", measured.new, 5.0, at_least=False),
    ]
    show_goals(goals)
    for line in wrong:
        CONSOLE.print(f"[red]wrong[/] {line}")
    result = {
        "options": asdict(options),
        "fill_seconds": measured.filled,
        "first_batch_seconds": start,
        "starts_seconds": measured.starts,
        "new_tables_seconds": measured.new,
        "batch_seconds": measured.rounds,
    }
    save(results, "start", result | {"wrong": wrong}, goals)
    return not wrong
