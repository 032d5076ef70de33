"""What a refresh of a pipeline costs on tables of different sizes: 1,000 changes into an aggregate, which are added.

As in `size`, the rows of the table are inserted by Spark. The program `python -m benchmarks.pipeline CONFIG BOOTSTRAP
PREFIX ROWS CHANGES REFRESHES` builds the result; then it writes changes to Kafka, lets the mirror apply them, and
refreshes the result, again and again in one process. At the end, the result is compared with its query.
"""

import json
import shutil
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random

from benchmarks.broker import broker, cache_folder
from benchmarks.engine import Target, drain_cold
from benchmarks.events import EventWriter
from benchmarks.load import Sender, fill
from benchmarks.processes import run_json
from benchmarks.report import CONSOLE, Goal, save, show, show_goals
from benchmarks.workload import UPDATE, Change, Layout, row
from replicator.config import load
from replicator.jvm.spark import own_session, running_session
from replicator.pipelines.checking import check_result
from replicator.pipelines.files import PipelineFiles
from replicator.pipelines.inputs.boundary import Boundary
from replicator.pipelines.inputs.log_ends import LogEnds
from replicator.pipelines.query.definition import parse_definition
from replicator.pipelines.refresh.refresh import Outcome, Refreshed
from replicator.pipelines.service import Pipelines
from replicator.runner.process import run
from replicator.telemetry import setup_logging

_NAMESPACE = "size"
"""That of the program which inserts the rows."""
_GOAL_S = 2.0
_PIPELINE = f"""-- key: bucket
SELECT id % 1000 AS bucket, count(*) AS orders, sum(quantity) AS pieces FROM {_NAMESPACE}.orders GROUP BY id % 1000
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run: numbers of rows, keys that change before each refresh, and refreshes."""

    rows: Sequence[int] = (1_000_000, 10_000_000)
    changes: int = 1_000
    refreshes: int = 12
    driver_memory: str = "4g"


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one table, in seconds.

    Attributes:
        build: the computation as a whole.
        refresh: median of the refreshes of the second half.
        slowest: the slowest of them.
        first: the first refresh, which loads Spark's code for it.
    """

    rows: int
    build: float
    first: float
    refresh: float
    slowest: float
    wrong: str


def pipeline(options: Options, results: Path) -> bool:
    """Run, print and save; return whether all results are right."""
    found = []
    with broker() as (bootstrap, _):
        for rows in options.rows:
            found.append(_measure(options, bootstrap, rows))
            CONSOLE.print(str(found[-1]))
    show(
        f"pipeline: {options.changes:,} changes in each refresh",
        ("rows", "build s", "first refresh s", "refresh s", "slowest s", "wrong"),
        [tuple(asdict(each).values()) for each in found],
    )
    goals = [
        Goal(f"refresh at {each.rows:,} rows, s", each.refresh, _GOAL_S, at_least=False) for each in found
    ]
    show_goals(goals)
    save(results, "pipeline", {"options": asdict(options), "sizes": [asdict(each) for each in found]}, goals)
    return not any(each.wrong for each in found)


def _measure(options: Options, bootstrap: str, rows: int) -> Measured:
    layout = Layout(f"pipeline{rows}", snapshot_rows=1, changes=0)
    fill(bootstrap, layout)
    target = Target(cache_folder() / "lakes" / "pipeline", bootstrap, options.driver_memory)
    shutil.rmtree(target.folder, ignore_errors=True)
    config = target.config(_NAMESPACE, layout.prefix, trigger="continuous", changelog=True)
    drain_cold(target, config)
    run_json([sys.executable, "-m", "benchmarks.size", str(config), str(rows)], target.log("insert"))
    numbers = map(str, (rows, options.changes, options.refreshes))
    command = [sys.executable, "-m", "benchmarks.pipeline", str(config), bootstrap, layout.prefix, *numbers]
    (answer,), _ = run_json(command, target.log("refreshes"))
    seconds = answer["refreshes"]
    settled = seconds[len(seconds) // 2 :]
    return Measured(
        rows, answer["build"], seconds[0], statistics.median(settled), max(settled), answer["wrong"]
    )


def _main(config: Path, bootstrap: str, prefix: str, rows: int, changes: int, refreshes: int) -> None:
    setup_logging()
    settings, layout = load(config), Layout(prefix, snapshot_rows=1, changes=0)
    definition = parse_definition(_PIPELINE, "pieces", "pieces.sql", settings.lake.pipelines_namespace)
    writer = _Writer(bootstrap, layout, rows)
    with running_session(settings) as spark:
        pipelines = Pipelines.open(settings, own_session(spark), PipelineFiles((definition,)))
        build = _refresh(pipelines, prefix, Outcome.BUILT)
        seconds = []
        for _ in range(refreshes):
            writer.write(changes)
            run(settings, until_caught_up=True)
            seconds.append(_refresh(pipelines, prefix, Outcome.CHANGED))
        checked = check_result(pipelines, definition)
    wrong = "" if checked.is_equal else f"{checked.missing} rows missing, {checked.extra} too many"
    print(json.dumps({"build": build, "refreshes": seconds, "wrong": wrong}))


def _refresh(pipelines: Pipelines, prefix: str, expected: Outcome) -> float:
    """Refresh to the end of the log, to which nothing is written meanwhile; return the seconds."""
    began = time.monotonic()
    (result,) = pipelines.refresh(LogEnds(Boundary(), {}, prefix))
    if not isinstance(result, Refreshed) or result.outcome is not expected:
        raise RuntimeError(f"not {expected}: {result}")
    return time.monotonic() - began


class _Writer:
    """Appends updates of uniformly chosen keys to the log."""

    def __init__(self, bootstrap: str, layout: Layout, rows: int) -> None:
        self._layout, self._rows = layout, rows
        self._sender, self._texts = Sender(bootstrap), EventWriter(layout)
        self._random = Random(layout.seed)
        self._quantities: dict[int, int] = {}
        self._step = 0

    def write(self, changes: int) -> None:
        """Append this number of updates."""
        for _ in range(changes):
            key = self._random.randint(1, self._rows)
            before = replace(row(key, 0), quantity=self._quantities.get(key, 0))
            self._quantities[key] = self._random.randint(0, 9)
            after = replace(before, quantity=self._quantities[key])
            change = Change(UPDATE, key - 1, self._step, 1, 200 + 400 * self._step)
            self._step += 1
            value = self._texts.value(0, change, before, after)
            self._sender.send(self._layout.topic(0), 0, self._texts.key(0, key), value)
        self._sender.finish()


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], *map(int, sys.argv[4:7]))
