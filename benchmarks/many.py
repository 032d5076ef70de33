"""Many tables in one mirror: batches in which some of them change, and a large backlog in another one.

Three measurements on one lake:

1. The same tables change before each batch: seconds of a batch.
2. They change at a constant rate, whatever the mirror does: delay of each change, from Kafka to the mirror's commit.
3. The same while the mirror works off a backlog in one further table.
"""

import math
import shutil
import statistics
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pyiceberg.catalog import Catalog

from benchmarks import lake
from benchmarks.broker import broker, cache_folder
from benchmarks.engine import Target, drain_cold
from benchmarks.events import EventWriter
from benchmarks.following import follow_log, running_mirror
from benchmarks.load import Load, Sender, fill
from benchmarks.processes import TreeMeter
from benchmarks.report import CONSOLE, Goal, save, show, show_goals
from benchmarks.workload import INSERT, UPDATE, Change, Layout, TableState, row
from replicator.config import load
from replicator.lake.reading.reader import open_catalog

_NAMESPACE = "many"
_ROWS_PER_TABLE = 100
_BACKLOG_TABLE = 0
_BACKLOG_KEYS = 100_000
_WARM_UP = 3
"""Number of batches of each process that are not measured; Java compiles its code meanwhile."""
_GOAL_BATCH_S = 20.0
_GOAL_BATCHES = 2.0


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        tables: number of tables.
        changed: number of tables that change.
        changes: number of changes of each of them in a round.
        batches: number of measured batches.
        seconds: how long the tables change at a constant rate, without a backlog.
        backlog: number of events in the backlog.
    """

    tables: int = 1_000
    changed: int = 100
    changes: int = 10
    batches: int = 20
    seconds: float = 180.0
    backlog: int = 5_000_000
    driver_memory: str = "4g"

    @property
    def events(self) -> int:
        """Number of events of a round."""
        return self.changed * self.changes


@dataclass(slots=True)
class Changes:
    """Writes the changes, and knows the state of the source.

    Attributes:
        arrived: when each round was written, in seconds of the system's clock.
    """

    options: Options
    layout: Layout
    bootstrap: str
    arrived: list[float] = field(default_factory=list)
    _position: int = 0
    _backlog: int = 0

    def write_round(self) -> None:
        """Change the first rows of each changing table."""
        texts, sender, version = EventWriter(self.layout), Sender(self.bootstrap), len(self.arrived) + 1
        self.arrived.append(time.time())
        for table in self.changing:
            for key in range(1, self.options.changes + 1):
                value = texts.value(
                    table, self._change(UPDATE, key), row(key, version - 1), row(key, version)
                )
                sender.send(self.layout.topic(table), 0, texts.key(table, key), value)
        sender.finish()

    def write_backlog(self) -> None:
        """Write the backlog: new rows, and then updates of all of them in turn."""
        texts, sender, table = EventWriter(self.layout), Sender(self.bootstrap), _BACKLOG_TABLE
        for number in range(self.options.backlog):
            version, place = divmod(number, _BACKLOG_KEYS)
            key = _ROWS_PER_TABLE + 1 + place
            before = None if version == 0 else row(key, version - 1)
            change = self._change(UPDATE if version else INSERT, key)
            value = texts.value(table, change, before, row(key, version))
            sender.send(self.layout.topic(table), 0, texts.key(table, key), value)
        sender.finish()
        self._backlog = self.options.backlog

    def expected(self, loaded: Load) -> dict[str, TableState]:
        """Return the state of all tables after everything that was written."""
        found = dict(loaded.tables)
        rows = dict.fromkeys(range(1, _ROWS_PER_TABLE + 1), 0)
        changed = rows | {key: len(self.arrived) for key in range(1, self.options.changes + 1)}
        for table in self.changing:
            found[self.layout.table(table)] = _state(changed)
        whole, rest = divmod(self._backlog, _BACKLOG_KEYS)
        last = {
            _ROWS_PER_TABLE + 1 + place: whole - (place >= rest)
            for place in range(min(self._backlog, _BACKLOG_KEYS))
        }
        found[self.layout.table(_BACKLOG_TABLE)] = _state(rows | last)
        return found

    @property
    def changing(self) -> range:
        """The indexes of the tables that change."""
        return range(_BACKLOG_TABLE + 1, _BACKLOG_TABLE + 1 + self.options.changed)

    def _change(self, kind: int, key: int) -> Change:
        self._position += 1
        return Change(kind, key, self._position // 100, 1, 1_000 + self._position * 300)


@dataclass(frozen=True, slots=True)
class Delays:
    """The delays of changes, from their arrival in Kafka to the mirror's commit, in seconds."""

    changes: int
    median: float
    p99: float
    longest: float
    batches: int
    """Number of batches meanwhile."""

    @classmethod
    def of(cls, seconds: Sequence[float], batches: int) -> "Delays":
        """Return the statistics of delays."""
        ordered = sorted(seconds)
        p99 = ordered[math.ceil(0.99 * len(ordered)) - 1]
        return cls(len(ordered), statistics.median(ordered), p99, ordered[-1], batches)


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures. Times are in seconds, memory in bytes.

    Attributes:
        fill: the process that creates and fills all tables.
        first_batch: from the start of a mirror to the end of its first batch.
        batches: times of the batches, each with one round of changes.
        memory: greatest memory of the mirror and Java together, without and with the backlog.
        interval: between two rounds of changes at a constant rate.
        drained: from the end of the first batch to the end of the backlog.
    """

    fill: float
    first_batch: float
    batches: list[float]
    memory: tuple[int, int]
    interval: float
    alone: Delays
    beside_backlog: Delays
    drained: float


def many(options: Options, results: Path) -> bool:
    """Run, print and save. Return whether all tables are right."""
    layout = Layout(
        f"many{options.tables}",
        tables=options.tables,
        snapshot_rows=options.tables * _ROWS_PER_TABLE,
        changes=0,
    )
    with broker() as (bootstrap, _):
        loaded = fill(bootstrap, layout)
        target = Target(cache_folder() / "lakes" / "many", bootstrap, options.driver_memory)
        shutil.rmtree(target.folder, ignore_errors=True)
        config = target.config(_NAMESPACE, layout.prefix, trigger="continuous")
        with config.open("a") as file:
            # The events are old, so the mirror would count as far behind.
            file.write('[maintenance]\nmax_lag = "1000000 days"\n')
        filled = drain_cold(target, config).seconds
        CONSOLE.print(f"filled in {filled:.0f} s")
        changes = Changes(options, layout, bootstrap)
        figures = _measure(options, target, config, changes, filled)
        look = lake.look(config, [_NAMESPACE], target.log("look"), timed=False)[_NAMESPACE]
    wrong = lake.differences(changes.expected(loaded), look.tables)
    _report(options, results, figures, wrong)
    return not wrong


@dataclass(slots=True)
class Followed:
    """A running mirror, whose log lines are followed.

    Attributes:
        events, batches: number of events that it applied and of its batches so far.
    """

    lines: Iterator[dict[str, object]]
    meter: TreeMeter
    events: int = 0
    batches: int = 0

    def next_batch(self) -> None:
        """Wait for the end of a batch."""
        line = next(line for line in self.lines if line.get("event") == "batch")
        self.events += int(str(line["events"]))
        self.batches += 1

    def until(self, events: int) -> None:
        """Wait until the mirror has applied that many events since its start."""
        while self.events < events:
            self.next_batch()


@contextmanager
def _mirror(config: Path, log: Path) -> Iterator[Followed]:
    with running_mirror(config, log) as process:
        meter = TreeMeter(process.pid)
        try:
            yield Followed(follow_log(log, process), meter)
        finally:
            meter.stop()


def _measure(options: Options, target: Target, config: Path, changes: Changes, filled: float) -> Figures:
    changes.write_round()
    started = time.monotonic()
    with _mirror(config, target.log("alone")) as mirror:
        mirror.until(options.events)
        first_batch = time.monotonic() - started
        batches = [_lockstep(mirror, changes) for _ in range(_WARM_UP + options.batches)][_WARM_UP:]
        CONSOLE.print(f"batches: {', '.join(f'{s:.1f}' for s in batches)} s")
        interval = 1.25 * statistics.median(batches)
        first = len(changes.arrived)
        count = -mirror.batches
        with _writing(changes, interval):
            _wait_for(mirror, lambda: (len(changes.arrived) - first) * interval >= options.seconds)
        mirror.until(len(changes.arrived) * options.events)
        count += mirror.batches
        memory = mirror.meter.peak_rss
    alone = Delays.of(_delays(options, config, changes, first), count)
    CONSOLE.print(str(alone))
    rounds = len(changes.arrived)
    changes.write_backlog()
    # The first batch has changes of other tables too, so that it takes a part of the backlog only.
    changes.write_round()
    CONSOLE.print("the backlog is written")
    with _mirror(config, target.log("backlog")) as mirror:
        mirror.next_batch()
        began = time.monotonic()
        with _writing(changes, interval):
            for _ in range(_WARM_UP - 1):
                mirror.next_batch()
            first, count = len(changes.arrived), -mirror.batches
            _wait_for(
                mirror,
                lambda: (
                    len(changes.arrived) > first
                    and _written(options, changes, rounds) - mirror.events <= 3 * options.events
                ),
            )
        drained = time.monotonic() - began
        mirror.until(_written(options, changes, rounds))
        count += mirror.batches
        backlog_memory = mirror.meter.peak_rss
    beside = Delays.of(_delays(options, config, changes, first), count)
    return Figures(filled, first_batch, batches, (memory, backlog_memory), interval, alone, beside, drained)


def _lockstep(mirror: Followed, changes: Changes) -> float:
    """Write a round of changes, and return the seconds until it is in the lake."""
    began, events = time.monotonic(), mirror.events
    changes.write_round()
    mirror.until(events + changes.options.events)
    return time.monotonic() - began


def _written(options: Options, changes: Changes, rounds: int) -> int:
    """Return the number of events that were written since the first `rounds` rounds."""
    return options.backlog + (len(changes.arrived) - rounds) * options.events


def _wait_for(mirror: Followed, condition: Callable[[], bool]) -> None:
    while not condition():
        mirror.next_batch()


@contextmanager
def _writing(changes: Changes, interval: float) -> Iterator[None]:
    """Write rounds of changes at a constant rate, in a thread, while the block runs."""
    done = threading.Event()

    def write() -> None:
        due = time.monotonic()
        while not done.wait(max(0.0, due - time.monotonic())):
            changes.write_round()
            due += interval

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        done.set()
        writer.join()


def _delays(options: Options, config: Path, changes: Changes, first: int) -> list[float]:
    """Return the delay of each changing table in each round from number `first` on."""
    found: list[float] = []
    with open_catalog(load(config).lake) as catalog:
        for table in changes.changing:
            committed = _commit_times(catalog, changes.layout.table(table))
            for number in range(first, len(changes.arrived)):
                # An update has two rows in the changelog.
                rows = _ROWS_PER_TABLE + 2 * options.changes * (number + 1)
                at = next(seconds for reached, seconds in committed if reached >= rows)
                found.append(at - changes.arrived[number])
    return found


def _commit_times(catalog: Catalog, name: str) -> list[tuple[int, float]]:
    """Return (rows of the changelog, time of the mirror's commit) for each commit to a table, oldest first."""
    changelog, mirror = (
        catalog.load_table((namespace, name)).snapshots()
        for namespace in (f"{_NAMESPACE}_changes", _NAMESPACE)
    )
    times = [snapshot.timestamp_ms for snapshot in mirror]
    found = []
    for snapshot in changelog:
        rows = 0 if snapshot.summary is None else int(snapshot.summary["total-records"] or 0)
        # The mirror's commit follows that of the changelog. A merge of files follows both.
        after = bisect_left(times, snapshot.timestamp_ms)
        if after < len(times):
            found.append((rows, times[after] / 1000))
    return found


def _state(versions: Mapping[int, int]) -> TableState:
    """Return the state of a table with these rows: key → version."""
    images = [row(key, version) for key, version in versions.items()]
    return TableState(
        len(images), sum(image.cents for image in images), sum(image.checksum() for image in images)
    )


def _report(options: Options, results: Path, figures: Figures, wrong: Sequence[str]) -> None:
    batch = statistics.median(figures.batches)
    ordered = sorted(figures.batches)
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    show(
        f"many: {options.tables:,} tables, {options.changed} of them with {options.changes} changes in a batch",
        ("", "value"),
        [
            ("create and fill all tables, s", figures.fill),
            ("start to end of first batch, s", figures.first_batch),
            ("batch, median, s", batch),
            ("batch, p95, s", p95),
            ("batch, slowest, s", ordered[-1]),
            ("memory, bytes", figures.memory[0]),
            ("memory with the backlog, bytes", figures.memory[1]),
            (f"backlog of {options.backlog:,} events, s", figures.drained),
        ],
    )
    show(
        f"delay of changes, a round every {figures.interval:.1f} s",
        ("", "changes", "median s", "p99 s", "longest s", "batches"),
        [
            (name, *asdict(delays).values())
            for name, delays in (("no backlog", figures.alone), ("backlog", figures.beside_backlog))
        ],
    )
    later = (figures.beside_backlog.p99 - figures.alone.p99) / batch
    goals = [
        Goal("batch, slowest, seconds", ordered[-1], _GOAL_BATCH_S, at_least=False),
        Goal("p99 of the delay is later with the backlog, batches", later, _GOAL_BATCHES, at_least=False),
    ]
    show_goals(goals)
    for line in wrong:
        CONSOLE.print(f"[red]wrong[/] {line}")
    save(
        results, "many", {"options": asdict(options), "figures": asdict(figures), "wrong": list(wrong)}, goals
    )
