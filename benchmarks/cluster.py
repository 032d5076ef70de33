"""Measure how a drain scales with the workers of a standalone Spark cluster, beside Spark inside the process.

Every run is verified: rows, sum of amounts and a checksum of all values must equal those of the source.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks import engine, lake
from benchmarks.broker import broker, cache_folder
from benchmarks.drain import layouts
from benchmarks.engine import Target
from benchmarks.load import Load, ensure, read_once
from benchmarks.processes import StealMeter, Usage, typical
from benchmarks.report import CONSOLE, Goal, save, show, show_goals
from benchmarks.spark_cluster import spark_cluster

_LOCAL = 0
"""In place of a number of workers: `local[1]`."""
COLUMNS = ("Spark", "s", "CPU-s", "events/s", "events/CPU-s", "driver's peak MiB", "stolen")


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        workers: numbers of workers, each with one core; `local[1]` is always measured.
        warm_runs: number of measured runs in each process.
        small: whether only the benchmark itself is tested.
    """

    workers: Sequence[int] = (1, 2, 4)
    warm_runs: int = 2
    small: bool = False
    driver_memory: str = "4g"
    bootstrap: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """The warm runs of one cluster. The memory of `warm` is that of the driver's process."""

    workers: int
    changelog: bool
    warm: tuple[Usage, ...]
    stolen: float

    def row(self, events: int) -> tuple[object, ...]:
        """Return the row of the table."""
        where = f"{self.workers} worker(s)" if self.workers else "local[1]"
        usage = typical(self.warm)
        return (
            f"{where}{' + changelog' if self.changelog else ''}",
            usage.seconds,
            usage.cpu_seconds,
            events / usage.seconds,
            events / usage.cpu_seconds,
            max(usage.peak_rss for usage in self.warm) / 2**20,
            f"{self.stolen:.0%}",
        )


def cluster(options: Options, results: Path) -> bool:
    """Run all cases, print and save the results. Return False if a table is wrong."""
    with broker(options.bootstrap) as (bootstrap, known):
        load = ensure(bootstrap, layouts(small=options.small)["one"], known)
        read_once(bootstrap, load.layout)
        target = Target(cache_folder() / "lakes" / "cluster", bootstrap, options.driver_memory)
        cases, wrong = [], []
        for workers in (_LOCAL, *options.workers):
            for changelog in (False, True):
                case, problems = _case(options, load, target, workers, changelog=changelog)
                cases.append(case)
                wrong += problems
    show(
        f"cluster: one table, {load.events:,} events, warm runs",
        COLUMNS,
        [case.row(load.events) for case in cases],
    )
    goals = _goals(cases)
    show_goals(goals)
    for line in wrong:
        CONSOLE.print(f"[red]wrong[/] {line}")
    found = [asdict(case) for case in cases]
    result = {"options": asdict(options), "events": load.events, "cases": found, "wrong": wrong}
    save(results, f"cluster{'-small' if options.small else ''}", result, goals)
    return not wrong


def _case(
    options: Options, load: Load, target: Target, workers: int, *, changelog: bool
) -> tuple[Case, list[str]]:
    """Drain into new namespaces with one process, and delete its files. Return the figures and what is wrong."""
    shutil.rmtree(target.folder, ignore_errors=True)
    CONSOLE.print(f"running {workers or 'no'} worker(s){' with changelog' if changelog else ''}")
    steal = StealMeter()
    with _spark(target, workers) as (where, processes):
        first, *measured = [
            where.config(f"run{number}", load.layout.prefix, changelog=changelog)
            for number in range(options.warm_runs + 1)
        ]
        warm = engine.drain_warm(where, first, measured, beside=processes)
    case = Case(workers, changelog, tuple(warm), steal.share())
    names = [path.stem for path in measured]
    looks = lake.look(
        target.config("probe", load.layout.prefix), names, target.log("look"), timed=False
    ).values()
    wrong = [
        f"{case.row(load.events)[0]}, {look.namespace}: {line}"
        for look in looks
        for line in lake.differences(load.tables, look.tables)
    ]
    shutil.rmtree(target.folder, ignore_errors=True)
    return case, wrong


@contextmanager
def _spark(target: Target, workers: int) -> Iterator[tuple[Target, Sequence[int]]]:
    """Provide the target with the settings of a running cluster, and the ids of its processes."""
    if workers == _LOCAL:
        yield replace(target, spark={"master": "local[1]"}), ()
        return
    with spark_cluster(target.folder / "spark", workers) as running:
        # Spark begins when all cores are there.
        conf = {"spark.cores.max": str(workers), "spark.driver.host": "127.0.0.1"}
        yield replace(target, spark={"master": running.address, "conf": conf}), running.processes


def _goals(cases: Sequence[Case]) -> list[Goal]:
    """Return the goals of clusters that have twice the workers of another, if the machine has a core for each process.

    One more is for the driver.
    """
    seconds = {(case.workers, case.changelog): typical(case.warm).seconds for case in cases if case.workers}
    return [
        Goal(
            f"{workers} workers{', with changelog' if changelog else ''}, events/s, times those of {workers // 2}",
            seconds[workers // 2, changelog] / needed,
            1.7,
            at_least=True,
        )
        for (workers, changelog), needed in seconds.items()
        if workers % 2 == 0 and (workers // 2, changelog) in seconds and (os.cpu_count() or 1) > workers
    ]
