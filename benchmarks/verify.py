"""Measure how fast a mirror is compared with its source: rows per second, and what differences cost.

Beside it: reladiff, which compares the same table with the same Parquet files through DuckDB. MySQL runs on the same
cores, and the mirror runs meanwhile, without changes.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from benchmarks.broker import cache_folder
from benchmarks.engine import Target
from benchmarks.following import running_mirror
from benchmarks.peers.reladiff import environment
from benchmarks.processes import StealMeter, run_measured
from benchmarks.readings import (
    DATABASE,
    TABLE,
    cpu_seconds,
    load_readings,
    mysql_process,
    root_cursor,
)
from benchmarks.report import CONSOLE, Goal, save, show, show_goals
from replicator.config import load
from replicator.lake.reading.reader import open_catalog
from replicator.operations.connector import register
from replicator.operations.stack import Endpoints, LocalStack

_NAME = "checked"
_MD5 = "file://component_classic_hashing"
"""Newer servers have MD5, which reladiff needs, in a component."""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        rows: rows of the table.
        differences: numbers of rows that differ, each of which is measured in turn.
        reladiff: whether reladiff compares the table too.
        runs: how often each check is measured.
    """

    rows: int = 10_000_000
    differences: tuple[int, ...] = (0, 1, 100, 10_000)
    reladiff: bool = True
    runs: int = 3
    driver_memory: str = "2g"


@dataclass(frozen=True, slots=True)
class Run:
    """One check. Times are in seconds, memory in bytes; `checking` is the time without the start of the process.

    `fetched` is the number of rows that were fetched from the source; None if it is not known.
    """

    name: str
    differences: int
    seconds: float
    checking: float
    cpu: float
    mysql_cpu: float
    peak_rss: int
    fetched: int | None


def verify(options: Options, results: Path) -> bool:
    """Run, print and save. Return False if a check is wrong."""
    folder = cache_folder() / "verify"
    stack = LocalStack(folder / "stack")
    stack.remove()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        return _measure(options, results, stack, folder)
    finally:
        stack.down()


def _measure(options: Options, results: Path, stack: LocalStack, folder: Path) -> bool:
    bench = _Bench(options, stack, stack.up(), folder)
    bench.fill()
    runs, wrong, steal = list[Run](), list[str](), StealMeter()
    with running_mirror(bench.config, folder / "logs/mirror.log"):
        for count in options.differences:
            bench.plant(count)
            runs += [bench.check(count, wrong) for _ in range(options.runs)]
            if options.reladiff:
                runs.append(bench.reladiff(count, wrong))
    show(
        "verify",
        ("", "differences", "whole s", "checking s", "rows/s", "CPU s", "MySQL's CPU s", "peak MiB", "fetched"),
        [
            (r.name, r.differences, r.seconds, r.checking, options.rows / r.checking, r.cpu, r.mysql_cpu,
             r.peak_rss / 2**20, "" if r.fetched is None else r.fetched)
            for r in runs
        ],
    )  # fmt: skip
    for line in wrong:
        CONSOLE.print(f"[red]wrong[/] {line}")
    goals = _goals(options, runs)
    show_goals(goals)
    save(
        results,
        "verify",
        {
            "options": asdict(options), "steal": steal.share(), "runs": [asdict(run) for run in runs],
            "wrong": wrong,
        },
        goals,
    )  # fmt: skip
    return not wrong


def _goals(options: Options, runs: Sequence[Run]) -> list[Goal]:
    goals = []
    if equal := _median(runs, 0):
        rate = options.rows / equal.checking
        goals.append(Goal("rows/s, equal", rate, 1_000_000, at_least=True))
        goals.append(Goal("rows fetched, equal", float(equal.fetched or 0), 0, at_least=False))
    for count in filter(None, options.differences):
        if found := _median(runs, count):
            name = f"rows fetched / differences, {count:,}"
            goals.append(Goal(name, (found.fetched or 0) / count, 100, at_least=False))
    return goals


def _median(runs: Sequence[Run], count: int) -> Run | None:
    found = sorted(
        (run for run in runs if run.name == "replicator" and run.differences == count),
        key=lambda run: run.checking,
    )
    return found[len(found) // 2] if found else None


class _Bench:
    """The servers, the table, and the mirror of it."""

    def __init__(self, options: Options, stack: LocalStack, endpoints: Endpoints, folder: Path) -> None:
        self._options = options
        self._stack = stack
        self._at = endpoints
        self._folder = folder
        secret = folder / "password"
        secret.touch(0o600)
        secret.write_text(endpoints.mysql_password)
        target = Target(folder / "lake", endpoints.bootstrap_servers, options.driver_memory)
        self.config = target.config(
            _NAME, _NAME, changelog=True,
            source=f"mysql://{endpoints.mysql_user}@{endpoints.mysql_host}:{endpoints.mysql_port}/{DATABASE}",
            password_file=secret, connect_url=endpoints.connect_url,
        )  # fmt: skip
        with self.config.open("a") as file:
            # The planted differences must remain.
            file.write('[bootstrap]\nby = "mirror"\n[heal]\nmode = "ask"\n')

    def fill(self) -> None:
        """Load the table, and fill the mirror."""
        load_readings(self._at, self._options.rows)
        register(load(self.config))
        run_measured(
            [self._program, "bootstrap", "-c", str(self.config)], self._folder / "logs/bootstrap.log"
        )

    def plant(self, count: int) -> None:
        """Make `count` rows differ, spread evenly over the table; undo those of earlier calls."""
        step = self._options.rows // count if count else 0
        with root_cursor(self._at) as cursor:
            cursor.execute("SET SESSION sql_log_bin = 0")
            cursor.execute(f"UPDATE {DATABASE}.{TABLE} SET active = active - 100 WHERE active >= 100")
            if count:
                # All keys but the last are below the number of rows.
                keys = f"id % {step} = {step // 2} AND id <= {step * count}"
                cursor.execute(f"UPDATE {DATABASE}.{TABLE} SET active = active + 100 WHERE {keys}")

    def check(self, count: int, wrong: list[str]) -> Run:
        """Check the mirror with `replicator verify`."""
        lines = list[str]()
        usage, spent = self._measured(
            ["sh", "-c", '"$0" verify -c "$1" --json || test $? = 1', self._program, str(self.config)],
            "verify", lines,
        )  # fmt: skip
        report = json.loads("".join(lines))
        table = report["tables"][0]
        if table["verdict"] != ("different" if count else "equal") or table["different"] != count:
            wrong.append(f"verify found {table['different']} rows instead of {count}: {table['reason']}")
        return self._result("replicator", count, usage, table["seconds"], spent, table["fetched_rows"])

    def reladiff(self, count: int, wrong: list[str]) -> Run:
        """Compare the table with the files of the mirror with reladiff."""
        python, conf = environment.python(), self._conf()
        lines = list[str]()
        usage, spent = self._measured(
            [str(python.parent / "reladiff"), "--conf", str(conf), "-k", "id", "-c", "%", "--json"],
            "reladiff",
            lines,
        )
        # reladiff reports each differing row twice: as removed and as added.
        found = sum(line.startswith(('["+"', '["-"')) for line in lines)
        if found != 2 * count:
            wrong.append(f"reladiff found {found} rows instead of {2 * count}")
        return self._result("reladiff", count, usage, usage.seconds, spent, None)

    def _conf(self) -> Path:
        """Write the configuration of reladiff, and a DuckDB database with the files of the mirror."""
        lake = self._folder / "lake.duckdb"
        config = load(self.config)
        with open_catalog(config.lake) as catalog:
            tasks = list(
                catalog.load_table(catalog.list_tables(config.lake.namespace)[0]).scan().plan_files()
            )
        if any(task.delete_files for task in tasks):
            raise RuntimeError("the mirror has delete files, which DuckDB would not see")
        files = "\n".join(urlparse(task.file.file_path).path for task in tasks)
        script = Path(__file__).parent / "peers/reladiff/lake.py"
        subprocess.run(
            [str(environment.python()), str(script), str(lake), TABLE], input=files, text=True, check=True
        )
        with root_cursor(self._at) as cursor:
            if not cursor.execute("SELECT 1 FROM mysql.component WHERE component_urn = %s", (_MD5,)):
                cursor.execute(f"INSTALL COMPONENT '{_MD5}'")
        source: dict[str, Any] = {
            "driver": "mysql", "host": self._at.mysql_host, "port": self._at.mysql_port, "user": "root",
            "password": self._at.mysql_root_password, "database": DATABASE,
        }  # fmt: skip
        conf = self._folder / "reladiff.toml"
        conf.touch(0o600)
        conf.write_text(
            "\n".join(
                [
                    "[database.source]", *(f"{k} = {json.dumps(v)}" for k, v in source.items()),
                    "[database.lake]", 'driver = "duckdb"', f"filepath = {json.dumps(str(lake))}",
                    "[run.default]", "verbose = false",
                    "limit = 1000000",
                    "[run.default.1]", 'database = "source"', f'table = "{TABLE}"',
                    "[run.default.2]", 'database = "lake"', f'table = "{TABLE}"', "",
                ]
            )
        )  # fmt: skip
        return conf

    @property
    def _program(self) -> str:
        return str(Path(sys.executable).parent / "replicator")

    def _measured(self, command: Sequence[str], name: str, lines: list[str]) -> tuple[Any, float]:
        mysql = mysql_process(self._stack)
        before = cpu_seconds(mysql)
        usage = run_measured(command, self._folder / f"logs/{name}.log", lambda line, _: lines.append(line))
        return usage, cpu_seconds(mysql) - before

    def _result(
        self, name: str, count: int, usage: Any, checking: float, mysql_cpu: float, fetched: int | None
    ) -> Run:
        run = Run(name, count, usage.seconds, checking, usage.cpu_seconds, mysql_cpu, usage.peak_rss, fetched)
        CONSOLE.print(f"{run} {self._options.rows / checking:,.0f} rows/s")
        return run
