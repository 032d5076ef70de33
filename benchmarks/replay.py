"""Measure how fast a log is recorded into an archive, and replayed from it, beside the drain of the same log.

Every replayed table is verified: rows, sum of amounts and a checksum of all values must equal those of the source. The
archive is replayed a second time onto the same lake, which must change nothing.
"""

import shutil
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks import engine, lake
from benchmarks.broker import broker, cache_folder
from benchmarks.engine import Target
from benchmarks.load import Load, ensure, read_once
from benchmarks.processes import StealMeter, Usage, run_measured
from benchmarks.report import CONSOLE, Goal, save, show, show_goals
from benchmarks.workload import Layout

_EVENTS = 10_000_000
_START = Layout("benchreplay-start", snapshot_rows=2_000, changes=1_000)

COLUMNS = ("program", "s", "CPU-s", "events/s", "events/CPU-s", "peak MiB")


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        events: number of events in the log, without tombstones; two thirds are rows of a snapshot.
        tables: number of tables, with two partitions for one and one partition for each of several.
        runs: number of drains and of replays, each a process of its own, in turn.
        changelogs: whether each case has a changelog.
    """

    events: int = _EVENTS
    tables: int = 1
    runs: int = 3
    changelogs: Sequence[bool] = (False, True)
    driver_memory: str = "4g"
    bootstrap: str | None = None

    @property
    def layout(self) -> Layout:
        """The log to measure."""
        changes = self.events // 3
        return Layout(
            f"benchreplay{self.events}x{self.tables}",
            tables=self.tables,
            partitions=2 if self.tables == 1 else 1,
            snapshot_rows=self.events - changes,
            changes=changes,
        )


@dataclass(frozen=True, slots=True)
class Case:
    """The drains and the replays into new namespaces, and a repeated replay."""

    changelog: bool
    drains: tuple[Usage, ...]
    replays: tuple[Usage, ...]
    again: Usage
    stolen: float

    @property
    def name(self) -> str:
        """Return the name for tables."""
        return "mirror + changelog" if self.changelog else "mirror"


def replay(options: Options, results: Path) -> bool:
    """Run all cases, print and save the results. Return False if a table is wrong."""
    with broker(options.bootstrap) as (bootstrap, known):
        layout = options.layout
        CONSOLE.print(f"{layout.tables} table(s), {options.events:,} events, topics {layout.prefix}.*")
        load = ensure(bootstrap, layout, known)
        start = ensure(bootstrap, _START, known)
        target = Target(cache_folder() / "lakes" / "replay", bootstrap, options.driver_memory)
        shutil.rmtree(target.folder, ignore_errors=True)
        try:
            # The first process stores Java's classes for the others.
            engine.drain_cold(target, target.config("start", start.layout.prefix))
            return _measure(options, load, target, results)
        finally:
            shutil.rmtree(target.folder, ignore_errors=True)


def _measure(options: Options, load: Load, target: Target, results: Path) -> bool:
    read_once(target.bootstrap, load.layout)
    archive = target.folder / "archive"
    record = _command(
        "record", target.config("record", load.layout.prefix), "--to", archive, "--until-caught-up"
    )
    recorded = run_measured(record, target.log("record"))
    size = sum(file.stat().st_size for file in (archive / "events").iterdir())
    cases, wrong = [], []
    for changelog in options.changelogs:
        case, problems = _case(options, load, target, archive, changelog=changelog)
        cases.append(case)
        wrong += problems
    show(
        f"replay: {load.events:,} events, archive {size / 1e6:,.0f} MB",
        COLUMNS,
        list(_rows(load, recorded, cases)),
    )
    goals = [_goal(case) for case in cases]
    show_goals(goals)
    for line in wrong:
        CONSOLE.print(f"[red]wrong[/] {line}")
    result = {
        "options": asdict(options),
        "recorded": asdict(recorded),
        "archive_bytes": size,
        "cases": [asdict(case) for case in cases],
        "wrong": wrong,
    }
    small = options.events < _EVENTS
    save(results, f"replay{'-small' if small else ''}", result, goals)
    return not wrong


def _case(
    options: Options, load: Load, target: Target, archive: Path, *, changelog: bool
) -> tuple[Case, list[str]]:
    """Drain and replay in turn into new namespaces. Return the figures and what is wrong."""
    kind = "full" if changelog else "mirror"
    drains, replays, wrong = [], [], []
    again, steal = Usage(0, 0, 0), StealMeter()
    for run in range(options.runs):
        CONSOLE.print(f"running {kind}, {run + 1} of {options.runs}")
        drained = target.config(f"{kind}_drain{run}", load.layout.prefix, changelog=changelog)
        drains.append(engine.drain_cold(target, drained))
        config = target.config(f"{kind}_replay{run}", load.layout.prefix, changelog=changelog)
        command = _command("replay", config, "--from", archive)
        replays.append(run_measured(command, target.log(f"{config.stem}")))
        if run == 0:
            again = run_measured(command, target.log(f"{config.stem}-again"))
        wrong += _differences(load, target, config.stem)
        for namespace in (drained.stem, config.stem):
            for part in (namespace, f"{namespace}_changes"):
                shutil.rmtree(target.warehouse / part, ignore_errors=True)
    return Case(changelog, tuple(drains), tuple(replays), again, steal.share()), wrong


def _differences(load: Load, target: Target, namespace: str) -> list[str]:
    probe = target.config("probe", load.layout.prefix)
    (look,) = lake.look(probe, [namespace], target.log("look"), timed=False).values()
    return [f"{namespace}: {line}" for line in lake.differences(load.tables, look.tables)]


def _command(name: str, config: Path, *arguments: object) -> list[str]:
    program = str(Path(sys.executable).parent / "replicator")
    return [program, name, "-c", str(config), *map(str, arguments)]


def _rows(load: Load, recorded: Usage, cases: Sequence[Case]) -> Iterator[tuple[object, ...]]:
    yield _row("record", load.events + load.tombstones, [recorded])
    for case in cases:
        yield _row(f"drain, {case.name}", load.events, case.drains)
        yield _row(f"replay, {case.name}", load.events, case.replays)
        yield (
            "replay again",
            case.again.seconds,
            case.again.cpu_seconds,
            None,
            None,
            case.again.peak_rss / 2**20,
        )


def _row(name: str, events: int, runs: Sequence[Usage]) -> tuple[object, ...]:
    seconds, cpu = _median(runs), statistics.median(usage.cpu_seconds for usage in runs)
    peak = max(usage.peak_rss for usage in runs) / 2**20
    return name, seconds, cpu, events / seconds, events / cpu, peak


def _median(runs: Sequence[Usage]) -> float:
    return statistics.median(usage.seconds for usage in runs)


def _goal(case: Case) -> Goal:
    return Goal(
        f"replay, {case.name}, events/s, times the drain's",
        _median(case.drains) / _median(case.replays),
        1.0,
        at_least=True,
    )
