"""What a batch and a reader cost as a table ages: many small commits on one table, with maintenance and without.

The table is filled with a snapshot. Then a mirror applies batches of updates, inserts and deletes of uniformly chosen
keys, and commits each of them. At each mark, the mirror is stopped and the table is inspected. Flink with Iceberg can
do the same instead of the mirror.
"""

import json
import shutil
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from benchmarks import lake
from benchmarks.broker import broker, cache_folder
from benchmarks.engine import Target, drain_cold
from benchmarks.following import Stretch, follow_log, running_mirror
from benchmarks.load import fill, write_changes
from benchmarks.peers.flink.age import FlinkTable
from benchmarks.report import CONSOLE, Goal, save, show, show_goals
from benchmarks.workload import Layout, final_state

_NAMESPACE = "age"
_WINDOW = 50
"""Number of batches before a mark whose median is the time of a batch at the mark."""


class Peer(StrEnum):
    """Another engine, which is measured instead of the mirror: Flink with one job or two."""

    FLINK = "flink"
    FLINK_ONE_JOB = "flink-one-job"


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        marks: numbers of commits after which the table is inspected.
        rows: number of rows of the snapshot.
        changes: number of changes in each batch.
        maintenance: whether the table is maintained.
        peer: the engine that is measured; None means a mirror.
    """

    marks: Sequence[int] = (100, 1_000, 10_000)
    rows: int = 2_000_000
    changes: int = 1_000
    maintenance: bool = True
    driver_memory: str = "4g"
    peer: Peer | None = None

    @property
    def name(self) -> str:
        """Return the name of the result."""
        return (
            f"age{f'-{self.peer}' if self.peer else ''}{'' if self.maintenance else '-without-maintenance'}"
        )


@dataclass(frozen=True, slots=True)
class Mark:
    """The table after a number of commits. Times are in seconds, sizes in bytes.

    Attributes:
        batch_median, batch_max: of the last batches.
        batch_mean: of all batches since the previous mark except the first, with the maintenance between them.
        snapshots: number of snapshots that have these batches; a peer may divide a batch.
    """

    commits: int
    snapshots: int
    batch_median: float
    batch_max: float
    batch_mean: float
    maintenance: float
    read: float
    fresh_read: float
    full_read: float
    fresh_full_read: float
    data_files: int
    delete_files: int
    metadata: int


class AgingTable(Protocol):
    """A table that an engine keeps up to date.

    Attributes:
        config: configuration of a mirror of the same lake, for inspections.
        namespace: the table's namespace.
    """

    @property
    def config(self) -> Path: ...

    @property
    def namespace(self) -> str: ...

    def fill(self) -> None:
        """Fill the table with the snapshot."""

    def apply(self, commits: int, log: Path) -> Stretch:
        """Apply a number of batches and commit each of them. The engine runs meanwhile only."""


class MirrorTable:
    """A table of a mirror of replicator."""

    namespace = _NAMESPACE

    def __init__(self, target: Target, changes: Layout, options: Options) -> None:
        self._target, self._changes, self._options = target, changes, options
        self.config = target.config(_NAMESPACE, changes.prefix)

    def fill(self) -> None:
        """Fill the table, and write all changes: the mirror commits each `changes` of them."""
        drain_cold(self._target, self.config)
        write_changes(self._target.bootstrap, self._changes)
        self.config = self._target.config(
            _NAMESPACE,
            self._changes.prefix,
            trigger="continuous",
            max_events=self._options.changes,
            changelog=False,
        )
        enabled = json.dumps(self._options.maintenance)
        with self.config.open("a") as file:
            # The events are old, so the mirror would count as far behind.
            file.write(f'[maintenance]\nenabled = {enabled}\nmax_lag = "1000000 days"\n')

    def apply(self, commits: int, log: Path) -> Stretch:
        """Run the mirror for a number of batches."""
        seconds: list[float] = []
        maintained = 0.0
        with running_mirror(self.config, log) as mirror:
            for line in follow_log(log, mirror):
                if line.get("event") == "batch":
                    seconds.append(float(str(line["seconds"])))
                elif line.get("event") == "maintained":
                    maintained += float(str(line["seconds"]))
                if len(seconds) >= commits:
                    break
        return Stretch(seconds, len(seconds), maintained, alternating=True)


def age(options: Options, results: Path) -> bool:
    """Run, print and save; return whether the table has the rows of the source."""
    snapshot = Layout("age", snapshot_rows=options.rows, changes=0)
    changes = replace(snapshot, changes=options.changes * options.marks[-1])
    with broker() as (bootstrap, _):
        fill(bootstrap, snapshot)
        target = Target(cache_folder() / "lakes" / options.name, bootstrap, options.driver_memory)
        shutil.rmtree(target.folder, ignore_errors=True)
        table: AgingTable
        if options.peer:
            table = FlinkTable(
                target,
                changes,
                options.changes,
                maintained=options.maintenance,
                one_job=options.peer is Peer.FLINK_ONE_JOB,
            )
        else:
            table = MirrorTable(target, changes, options)
        table.fill()
        marks = list(_marks(options, target, table))
        look = _look(target, table, "look", timed=False)
    expected, _ = final_state(changes)
    wrong = lake.differences(expected, look.tables)
    _report(options, results, marks, wrong)
    return not wrong


def _marks(options: Options, target: Target, table: AgingTable) -> Iterator[Mark]:
    done = 0
    for commits in options.marks:
        CONSOLE.print(f"commits {done} to {commits}")
        stretch = table.apply(commits - done, target.log(f"mirror-{commits}"))
        done = commits
        look = _look(target, table, f"look-{commits}")
        window = stretch.seconds[-_WINDOW:]
        mark = Mark(
            commits,
            stretch.snapshots,
            statistics.median(window),
            max(window),
            stretch.mean,
            stretch.maintenance,
            look.read_seconds or 0,
            look.compacted_read_seconds or 0,
            look.full_read_seconds or 0,
            look.compacted_full_read_seconds or 0,
            look.data_files,
            look.delete_files,
            _metadata_bytes(target.warehouse / table.namespace),
        )
        CONSOLE.print(str(mark))
        yield mark


def _look(target: Target, table: AgingTable, log: str, *, timed: bool = True) -> lake.Look:
    return lake.look(table.config, [table.namespace], target.log(log), timed=timed)[table.namespace]


def _metadata_bytes(namespace: Path) -> int:
    """Return the size of the newest metadata.json."""
    files = sorted(namespace.rglob("*.metadata.json"), key=lambda path: path.name)
    return files[-1].stat().st_size


def _report(options: Options, results: Path, marks: Sequence[Mark], wrong: Sequence[str]) -> None:
    title = f"{options.name}: {options.rows:,} rows, {options.changes:,} changes per commit"
    columns = (
        *("commits", "snapshots", "batch s", "slowest", "mean", "maintenance s", "read s", "fresh read s"),
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
    result = {"options": asdict(options), "marks": [asdict(mark) for mark in marks], "wrong": list(wrong)}
    save(results, options.name, result, goals)
