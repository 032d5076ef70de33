"""What a commit costs: CPU time of the mirror process for each batch that commits to a mirror and its changelog.

Uniform changes of one table, committed as soon as possible. Versions can be compared: their processes alternate.
"""

import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil

from benchmarks.broker import broker, cache_folder
from benchmarks.engine import Target, drain_cold
from benchmarks.following import follow_log, running_mirror
from benchmarks.load import fill, write_changes
from benchmarks.machine import revision
from benchmarks.processes import CHECKOUT
from benchmarks.report import CONSOLE, Goal, save, show, show_goals
from benchmarks.workload import DATABASE, Layout

_GOAL_CPU_S = 0.15
_GOAL_CHANGES = 100
_NOW, _UNMAINTAINED, _BEFORE = "now", "now, no maintenance", "before"


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        changes: numbers of changes in each batch.
        rows: number of rows of the snapshot.
        batches: number of measured batches.
        before: another checkout with an environment in `.venv`, to be compared with this one.
        partition: how the mirror is partitioned, such as `bucket(8, id)`; empty for not at all.
    """

    changes: Sequence[int] = (10, 100, 1_000, 10_000)
    rows: int = 100_000
    batches: int = 100
    before: Path | None = None
    partition: str = ""


def _warm_up(changes: int) -> int:
    """Return the number of batches before the measured ones: a mirror runs for weeks, and Java compiles in minutes."""
    return max(100, min(500, 500_000 // changes))


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a batch of one version. Times are in seconds."""

    version: str
    changes: int
    cpu: float
    seconds: float


def commit(options: Options, results: Path) -> None:
    """Run, print and save."""
    checkouts = {_NOW: CHECKOUT, _UNMAINTAINED: CHECKOUT}
    if options.before:
        checkouts[_BEFORE] = options.before
    costs = []
    with broker() as (bootstrap, _):
        for changes in options.changes:
            every = changes * (_warm_up(changes) + options.batches)
            layout = Layout(f"commit{changes}", snapshot_rows=options.rows, changes=every)
            fill(bootstrap, replace(layout, changes=0))
            target = Target(cache_folder() / "lakes" / "commit", bootstrap)
            shutil.rmtree(target.folder, ignore_errors=True)
            for version, checkout in checkouts.items():
                drain_cold(target, _config(options, target, layout, options.rows, version), checkout)
            write_changes(bootstrap, layout)
            for version, checkout in checkouts.items():
                costs.append(_cost(options, target, layout, changes, version, checkout))
                CONSOLE.print(str(costs[-1]))
    show("a commit of a mirror and its changelog", ("version", "changes", "CPU s", "seconds"),
         [(c.version, c.changes, round(c.cpu, 3), round(c.seconds, 3)) for c in costs])  # fmt: skip
    small = next((c for c in costs if (c.version, c.changes) == (_NOW, _GOAL_CHANGES)), None)
    # The goal is for an unpartitioned table: each partition takes files of its own.
    goals = []
    if small and not options.partition:
        goals.append(Goal("CPU s of 100 changes", small.cpu, _GOAL_CPU_S, at_least=False))
    show_goals(goals)
    values = asdict(options) | {"before": revision(options.before) if options.before else ""}
    name = "commit-partitioned" if options.partition else "commit"
    save(results, name, {"options": values, "costs": [asdict(cost) for cost in costs]}, goals)


def _cost(
    options: Options, target: Target, layout: Layout, changes: int, version: str, checkout: Path
) -> Cost:
    """Measure batches with `changes` changes each."""
    config, log = _config(options, target, layout, changes, version), target.log("commit")
    warm_up, batches = _warm_up(changes), 0
    began = cpu = 0.0
    with running_mirror(config, log, checkout) as mirror:
        for line in follow_log(log, mirror):
            batches += line.get("event") == "batch"
            if not began and batches == warm_up:
                began, cpu = time.monotonic(), tree_cpu(mirror.pid)
            if batches == warm_up + options.batches - 1:
                break
        spent, seconds = tree_cpu(mirror.pid) - cpu, time.monotonic() - began
    measured = options.batches - 1
    return Cost(version, changes, spent / measured, seconds / measured)


def _config(options: Options, target: Target, layout: Layout, max_events: int, version: str) -> Path:
    namespace = "commit_" + "".join(filter(str.isalpha, version))
    config = target.config(namespace, layout.prefix, trigger="continuous", max_events=max_events)
    if version != _BEFORE:
        with config.open("a") as file:
            # The events are old, so the mirror would count as far behind.
            file.write(f'[maintenance]\nmax_lag = "1000000 days"\nenabled = {str(version == _NOW).lower()}\n')
    if options.partition:
        with config.open("a") as file:
            file.write(
                f'[[table]]\nname = "{DATABASE}.{layout.table(0)}"\npartition = ["{options.partition}"]\n'
            )
    return config


def tree_cpu(pid: int) -> float:
    """Return the CPU seconds that a process and its descendants have used."""
    root = psutil.Process(pid)
    times = [process.cpu_times() for process in (root, *root.children(recursive=True))]
    return sum(found.user + found.system for found in times)
