"""Compare the drain of two versions of the engine: this one and another checkout, on one broker and one log.

Processes of both versions alternate, because a shared machine becomes faster and slower within minutes.
"""

import shutil
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.broker import broker_and_registry, cache_folder
from benchmarks.drain import layouts
from benchmarks.engine import Target, drain_warm
from benchmarks.load import ensure, read_once
from benchmarks.machine import revision
from benchmarks.peers import flink
from benchmarks.processes import CHECKOUT, Usage
from benchmarks.report import CONSOLE, save, show
from replicator.errors import UsageError


@dataclass(frozen=True, slots=True)
class Options:
    """What to compare.

    Attributes:
        before: the other checkout; it needs a separate environment in `.venv`.
        layout: the log, a name of `drain.layouts`.
        processes: number of processes of each version and case.
        warm_runs: number of measured runs in each process.
        changelog: the cases: without a changelog, with one, or both.
        with_flink: whether to run Flink in the same session.
    """

    before: Path
    layout: str = "one"
    processes: int = 2
    warm_runs: int = 3
    changelog: tuple[bool, ...] = (False, True)
    with_flink: bool = True


Runs = dict[tuple[str, bool], list[Usage]]
"""The measured runs by engine and whether they wrote a changelog."""


def versions(options: Options, results: Path) -> None:
    """Run all cases; print the medians and ranges; save every run."""
    _check(options.before)
    with broker_and_registry(registry=False) as (bootstrap, known, _):
        layout = layouts(small=False)[options.layout]
        load = ensure(bootstrap, layout, known)
        read_once(bootstrap, layout)
        target = Target(cache_folder() / "lakes" / "versions", bootstrap)
        runs: Runs = {}
        if options.with_flink:
            shutil.rmtree(target.folder, ignore_errors=True)
            runs["flink", False] = flink.drain(
                target, layout, "upsert", options.processes * options.warm_runs
            )[1:]
        for _ in range(options.processes):
            for changelog in options.changelog:
                for name, checkout in (("before", options.before), ("this version", CHECKOUT)):
                    CONSOLE.print(f"running {name}{', with changelog' if changelog else ''}")
                    usages = _drain(target, checkout, layout.prefix, options.warm_runs, changelog=changelog)
                    runs.setdefault((name, changelog), []).extend(usages)
    _report(options, runs, load.events, results)


def _check(checkout: Path) -> None:
    if not _python(checkout).exists():
        raise UsageError(f"{checkout} has no environment", f"run `make setup` in {checkout}")


def _python(checkout: Path) -> Path:
    return Path(sys.executable) if checkout == CHECKOUT else checkout / ".venv" / "bin" / "python"


def _drain(target: Target, checkout: Path, prefix: str, warm_runs: int, *, changelog: bool) -> list[Usage]:
    shutil.rmtree(target.folder, ignore_errors=True)
    first, *measured = [
        target.config(f"run{number}", prefix, changelog=changelog) for number in range(warm_runs + 1)
    ]
    return drain_warm(target, first, measured, _python(checkout), checkout)


def _report(options: Options, runs: Runs, events: int, results: Path) -> None:
    rows = [
        (
            f"{name}{' + changelog' if changelog else ''}",
            len(usages),
            *_median_and_range([usage.seconds for usage in usages]),
            *_median_and_range([usage.cpu_seconds for usage in usages]),
        )
        for (name, changelog), usages in runs.items()
    ]
    show(
        f"drain, {options.layout}: {events:,} events, warm runs",
        ("engine", "runs", "seconds", "range", "CPU-s", "range"),
        rows,
    )
    every = [
        {"engine": name, "changelog": changelog, **asdict(usage)}
        for (name, changelog), usages in runs.items()
        for usage in usages
    ]
    result = {
        "options": asdict(options) | {"before": revision(options.before)},
        "events": events,
        "runs": every,
    }
    save(results, f"versions-{options.layout}", result, [])


def _median_and_range(figures: list[float]) -> tuple[float, str]:
    return statistics.median(figures), f"{min(figures):.1f}-{max(figures):.1f}"
