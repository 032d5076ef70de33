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
from pathlib import Path

from benchmarks import lake
from benchmarks.broker import broker, cache_folder
from benchmarks.engine import Target, drain_cold
from benchmarks.events import EventWriter
from benchmarks.load import Load, Sender, fill
from benchmarks.processes import child_environment
from benchmarks.report import CONSOLE, Goal, save, show, show_goals
from benchmarks.workload import UPDATE, Change, Layout, TableState, row

_LAYOUT = Layout("start", tables=100, snapshot_rows=10_000, changes=0)
_CHANGED_TABLES = 10
_CHANGES_A_TABLE = 100
_ROUNDS = 5
_PATIENCE_S = 180.0
_NAMESPACE = "start"


@dataclass(frozen=True, slots=True)
class Options:
    """The broker, and the memory of the driver."""

    bootstrap: str | None = None
    driver_memory: str = "4g"


def start(options: Options, results: Path) -> bool:
    """Run, print and save. Return False if a table is wrong."""
    with broker(options.bootstrap) as (bootstrap, _):
        loaded = fill(bootstrap, _LAYOUT)
        target = Target(cache_folder() / "lakes" / "start", bootstrap, options.driver_memory)
        shutil.rmtree(target.folder, ignore_errors=True)
        config = target.config(_NAMESPACE, _LAYOUT.prefix, trigger="continuous")
        log = target.log("mirror")
        filled = drain_cold(target, config).seconds
        _change(bootstrap, 1)
        started = time.monotonic()
        with _running(config, log) as batches:
            _take(batches)
            first_batch = time.monotonic() - started
            rounds = []
            for version in range(2, _ROUNDS + 2):
                _change(bootstrap, version)
                begun = time.monotonic()
                _take(batches)
                rounds.append(time.monotonic() - begun)
        look = lake.look(config, [_NAMESPACE], target.log("look"), timed=False)[_NAMESPACE]
    wrong = lake.differences(_expected(loaded), look.tables)
    return _report(options, results, (filled, first_batch, rounds), wrong)


@contextmanager
def _running(config: Path, log: Path) -> Iterator[Iterator[dict[str, float]]]:
    """Run the mirror in a separate process, and provide the batches that it logs."""
    program = str(Path(sys.executable).parent / "replicator")
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


def _take(batches: Iterator[dict[str, float]]) -> None:
    """Wait for the batches that contain one round of changes."""
    left = _CHANGED_TABLES * _CHANGES_A_TABLE
    while left > 0:
        left -= int(next(batches)["events"])


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


def _expected(loaded: Load) -> dict[str, TableState]:
    changed = [row(key, _ROUNDS + 1) for key in range(1, _CHANGES_A_TABLE + 1)]
    state = TableState(
        len(changed), sum(image.cents for image in changed), sum(image.checksum() for image in changed)
    )
    return loaded.tables | {_LAYOUT.table(index): state for index in range(_CHANGED_TABLES)}


def _report(
    options: Options, results: Path, measured: tuple[float, float, list[float]], wrong: list[str]
) -> bool:
    filled, first_batch, rounds = measured
    title = f"{_LAYOUT.tables} tables, {_CHANGED_TABLES} of them changed"
    rows = [
        ("a process that creates and fills all tables", filled),
        ("start to first batch done", first_batch),
    ]
    rows += [(f"batch {number}", seconds) for number, seconds in enumerate(rounds, start=1)]
    show(title, ("", "seconds"), rows)
    goals = [
        Goal("start of run to first batch done, seconds", first_batch, 7.0, at_least=False),
        Goal("a batch with 10 of 100 tables changed, slowest, seconds", max(rounds), 5.0, at_least=False),
    ]
    show_goals(goals)
    for line in wrong:
        CONSOLE.print(f"[red]wrong[/] {line}")
    result = {
        "options": asdict(options),
        "fill_seconds": filled,
        "first_batch_seconds": first_batch,
        "batch_seconds": rounds,
    }
    save(results, "start", result | {"wrong": wrong}, goals)
    return not wrong
