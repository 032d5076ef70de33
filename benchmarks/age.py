"""What a batch and a reader cost as a table ages: many small commits on one table, with maintenance and without.

The table is filled with a snapshot. Then a mirror applies batches of updates, inserts and deletes of uniformly chosen
keys, and commits each of them. At each mark, the mirror is stopped and the table is inspected.
"""

import json
import shutil
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import lake
from benchmarks.broker import broker, cache_folder
from benchmarks.engine import Target, drain_cold
from benchmarks.following import follow_log, running_mirror
from benchmarks.load import fill, write_changes
from benchmarks.report import CONSOLE, Goal, save, show, show_goals
from benchmarks.workload import Layout, final_state

_NAMESPACE = "age"
_WINDOW = 50
"""Number of batches before a mark whose median is the time of a batch at the mark."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        marks: numbers of commits after which the table is inspected.
        rows: number of rows of the snapshot.
        changes: number of changes in each batch.
        maintenance: whether the mirror maintains the table.
    """

    marks: Sequence[int] = (100, 1_000, 10_000)
    rows: int = 2_000_000
    changes: int = 1_000
    maintenance: bool = True
    driver_memory: str = "4g"


@dataclass(frozen=True, slots=True)
class Mark:
    """The table after a number of commits. Times are in seconds, sizes in bytes."""

    commits: int
    batch_median: float
    batch_max: float
    maintenance: float
    read: float
    fresh_read: float
    full_read: float
    fresh_full_read: float
    data_files: int
    delete_files: int
    metadata: int


def age(options: Options, results: Path) -> bool:
    """Run, print and save; return whether the table has the rows of the source."""
    layout = Layout("age", snapshot_rows=options.rows, changes=0)
    all_changes = Layout("age", snapshot_rows=options.rows, changes=options.changes * options.marks[-1])
    with broker() as (bootstrap, _):
        fill(bootstrap, layout)
        target = Target(cache_folder() / "lakes" / "age", bootstrap, options.driver_memory)
        shutil.rmtree(target.folder, ignore_errors=True)
        drain_cold(target, target.config(_NAMESPACE, layout.prefix))
        write_changes(bootstrap, all_changes)
        config = target.config(
            _NAMESPACE, layout.prefix, trigger="continuous", max_events=options.changes, changelog=False
        )
        with config.open("a") as file:
            # The events are old, so the mirror would count as far behind.
            file.write(
                f'[maintenance]\nenabled = {json.dumps(options.maintenance)}\nmax_lag = "1000000 days"\n'
            )
        marks = list(_marks(options, target, config))
        look = lake.look(config, [_NAMESPACE], target.log("look"), timed=False)[_NAMESPACE]
    expected, _ = final_state(all_changes)
    wrong = lake.differences(expected, look.tables)
    _report(options, results, marks, wrong)
    return not wrong


def _marks(options: Options, target: Target, config: Path) -> Iterator[Mark]:
    done = 0
    for commits in options.marks:
        CONSOLE.print(f"commits {done} to {commits}")
        log = target.log(f"mirror-{commits}")
        seconds, maintained = _apply(config, log, commits - done)
        done = commits
        look = lake.look(config, [_NAMESPACE], target.log(f"look-{commits}"))[_NAMESPACE]
        window = seconds[-_WINDOW:]
        mark = Mark(
            commits,
            statistics.median(window),
            max(window),
            maintained,
            look.read_seconds or 0,
            look.compacted_read_seconds or 0,
            look.full_read_seconds or 0,
            look.compacted_full_read_seconds or 0,
            look.data_files,
            look.delete_files,
            _metadata_bytes(target.warehouse / _NAMESPACE),
        )
        CONSOLE.print(str(mark))
        yield mark


def _apply(config: Path, log: Path, batches: int) -> tuple[list[float], float]:
    """Run the mirror for a number of batches; return their seconds, and the seconds of all maintenance."""
    seconds: list[float] = []
    maintained = 0.0
    with running_mirror(config, log) as mirror:
        for line in follow_log(log, mirror):
            if line.get("event") == "batch":
                seconds.append(float(str(line["seconds"])))
            elif line.get("event") == "maintained":
                maintained += float(str(line["seconds"]))
            if len(seconds) >= batches:
                break
    return seconds, maintained


def _metadata_bytes(namespace: Path) -> int:
    """Return the size of the newest metadata.json."""
    files = sorted(namespace.rglob("*.metadata.json"), key=lambda path: path.name)
    return files[-1].stat().st_size


def _report(options: Options, results: Path, marks: Sequence[Mark], wrong: Sequence[str]) -> None:
    title = f"age: {options.rows:,} rows, {options.changes:,} changes per commit"
    columns = (
        *("commits", "batch s", "slowest", "maintenance s", "read s", "fresh read s"),
        *("full read s", "fresh full read s", "data files", "delete files", "metadata bytes"),
    )
    show(title, columns, [tuple(asdict(mark).values()) for mark in marks])
    first, last = marks[0], marks[-1]
    goals = [
        Goal("batch, last mark / first mark", last.batch_median / first.batch_median, 1.2, at_least=False),
        Goal("read of one column, times a fresh copy", last.read / last.fresh_read, 1.3, at_least=False),
        Goal(
            "read of all columns, times a fresh copy",
            last.full_read / last.fresh_full_read,
            1.3,
            at_least=False,
        ),
    ]
    show_goals(goals)
    for line in wrong:
        CONSOLE.print(f"[red]wrong[/] {line}")
    name = "age" if options.maintenance else "age-without-maintenance"
    save(
        results,
        name,
        {"options": asdict(options), "marks": [asdict(mark) for mark in marks], "wrong": list(wrong)},
        goals,
    )
