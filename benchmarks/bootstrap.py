"""Measure how fast a new mirror is filled from MySQL: rows per second, CPU and memory.

Beside it: Debezium's snapshot of the same table through Kafka; dlt, which loads the same table into Parquet files; and
the floor, which is MySQL's own client reading the same rows and discarding them. MySQL runs on the same cores.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

import psutil
import requests
from pyarrow.parquet import ParquetFile

from benchmarks.broker import cache_folder
from benchmarks.engine import Target
from benchmarks.peers.dlt import environment
from benchmarks.processes import StealMeter, Usage, run_measured
from benchmarks.readings import DATABASE, TABLE, cpu_seconds, load_readings, mysql_process, root_cursor
from benchmarks.report import CONSOLE, Goal, save, show, show_goals
from replicator.config import load
from replicator.lake.reading.reader import open_catalog
from replicator.operations.connector import register
from replicator.operations.stack import Endpoints, LocalStack

_TPCH = {
    "region": "r_regionkey INT PRIMARY KEY, r_name CHAR(25), r_comment VARCHAR(152)",
    "nation": "n_nationkey INT PRIMARY KEY, n_name CHAR(25), n_regionkey INT, n_comment VARCHAR(152)",
    "supplier": (
        "s_suppkey INT PRIMARY KEY, s_name CHAR(25), s_address VARCHAR(40), s_nationkey INT, s_phone CHAR(15), "
        "s_acctbal DECIMAL(15,2), s_comment VARCHAR(101)"
    ),
    "customer": (
        "c_custkey INT PRIMARY KEY, c_name VARCHAR(25), c_address VARCHAR(40), c_nationkey INT, c_phone CHAR(15), "
        "c_acctbal DECIMAL(15,2), c_mktsegment CHAR(10), c_comment VARCHAR(117)"
    ),
    "part": (
        "p_partkey INT PRIMARY KEY, p_name VARCHAR(55), p_mfgr CHAR(25), p_brand CHAR(10), p_type VARCHAR(25), "
        "p_size INT, p_container CHAR(10), p_retailprice DECIMAL(15,2), p_comment VARCHAR(23)"
    ),
    "partsupp": (
        "ps_partkey INT, ps_suppkey INT, ps_availqty INT, ps_supplycost DECIMAL(15,2), ps_comment VARCHAR(199), "
        "PRIMARY KEY (ps_partkey, ps_suppkey)"
    ),
    "orders": (
        "o_orderkey INT PRIMARY KEY, o_custkey INT, o_orderstatus CHAR(1), o_totalprice DECIMAL(15,2), "
        "o_orderdate DATE, o_orderpriority CHAR(15), o_clerk CHAR(15), o_shippriority INT, o_comment VARCHAR(79)"
    ),
    "lineitem": (
        "l_orderkey INT, l_partkey INT, l_suppkey INT, l_linenumber INT, l_quantity DECIMAL(15,2), "
        "l_extendedprice DECIMAL(15,2), l_discount DECIMAL(15,2), l_tax DECIMAL(15,2), l_returnflag CHAR(1), "
        "l_linestatus CHAR(1), l_shipdate DATE, l_commitdate DATE, l_receiptdate DATE, l_shipinstruct CHAR(25), "
        "l_shipmode CHAR(10), l_comment VARCHAR(44), PRIMARY KEY (l_orderkey, l_linenumber)"
    ),
}


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        rows: rows of the single table.
        tpch: scale of TPC-H's tables; 0 leaves them out.
        debezium_rows: rows of the table that Debezium's snapshot reads; 0 leaves it out.
        dlt: whether dlt loads the single table too.
        runs: how often each bootstrap is measured.
        changelog: whether the mirror has a changelog too.
    """

    rows: int = 10_000_000
    tpch: float = 1.0
    debezium_rows: int = 1_000_000
    dlt: bool = True
    runs: int = 3
    changelog: bool = False
    driver_memory: str = "2g"


@dataclass(frozen=True, slots=True)
class Run:
    """One run. Times are in seconds, memory in bytes; `reading` is the time from the first row to the publication."""

    name: str
    rows: int
    seconds: float
    reading: float
    cpu: float
    mysql_cpu: float
    peak_rss: int

    @property
    def rate(self) -> float:
        """Rows per second from the request to the publication, without the start of the process."""
        return self.rows / self.reading


def bootstrap(options: Options, results: Path) -> bool:
    """Run, print and save. Return False if rows are missing."""
    folder = cache_folder() / "bootstrap"
    stack = LocalStack(folder / "stack")
    stack.remove()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        return _measure(options, results, stack, folder)
    finally:
        stack.down()


def _measure(options: Options, results: Path, stack: LocalStack, folder: Path) -> bool:
    bench = _Bench(options, stack, stack.up(), folder)
    runs, wrong = list[Run](), list[str]()
    bench.load_single(options.rows)
    steal = StealMeter()
    floor = bench.floor()
    runs += [bench.run("one table", options.rows, wrong) for _ in range(options.runs)]
    if options.dlt:
        runs.append(bench.dlt(options.rows, wrong))
    if options.tpch:
        rows = bench.load_tpch(options.tpch)
        runs += [bench.run(f"TPC-H {options.tpch:g}", rows, wrong) for _ in range(options.runs)]
    if options.debezium_rows:
        bench.load_single(options.debezium_rows)
        runs.append(bench.debezium(options.debezium_rows, wrong))
    show(
        "bootstrap",
        ("", "rows", "whole s", "reading s", "rows/s", "CPU s", "MySQL's CPU s", "rows/CPU s", "peak MiB"),
        [
            (r.name, r.rows, r.seconds, r.reading, r.rate, r.cpu, r.mysql_cpu, r.rows / (r.cpu + r.mysql_cpu),
             r.peak_rss / 2**20)
            for r in runs
        ],
    )  # fmt: skip
    if floor is not None:
        CONSOLE.print(f"floor: MySQL's client reads and discards {options.rows:,} rows in {floor:.1f} s")
    for line in wrong:
        CONSOLE.print(f"[red]wrong[/] {line}")
    goals = _goals(runs, floor)
    show_goals(goals)
    save(
        results,
        "bootstrap",
        {
            "options": asdict(options), "floor_seconds": floor, "steal": steal.share(),
            "runs": [asdict(run) | {"rate": run.rate} for run in runs], "wrong": wrong,
        },
        goals,
    )  # fmt: skip
    return not wrong


def _goals(runs: Sequence[Run], floor: float | None) -> list[Goal]:
    single = _median([run for run in runs if run.name == "one table"])
    goals = [Goal("rows/s, one table", single.rate, 800_000, at_least=True)]
    goals.append(Goal("peak MiB, one table", single.peak_rss / 2**20, 2048, at_least=False))
    if floor is not None:
        goals.append(Goal("times the floor", single.reading / floor, 2.0, at_least=False))
    if tpch := [run for run in runs if run.name.startswith("TPC-H")]:
        goals.append(Goal("rows/s, TPC-H", _median(tpch).rate, 500_000, at_least=True))
    if debezium := [run for run in runs if run.name == "Debezium"]:
        goals.append(Goal("times Debezium's speed", single.rate / debezium[0].rate, 20.0, at_least=True))
    return goals


def _median(runs: Sequence[Run]) -> Run:
    return sorted(runs, key=lambda run: run.reading)[len(runs) // 2]


class _Bench:
    """The servers, and the tables in them."""

    def __init__(self, options: Options, stack: LocalStack, endpoints: Endpoints, folder: Path) -> None:
        self._options = options
        self._stack = stack
        self._at = endpoints
        self._folder = folder
        self._number = 0

    def load_single(self, rows: int) -> None:
        """Create the database with the single table."""
        load_readings(self._at, rows)

    def load_tpch(self, scale: float) -> int:
        """Create the database with the tables of TPC-H. Return the number of their rows."""
        files = self._folder / "tpch"
        program = str(Path(sys.executable).parent / "tpchgen-cli")
        subprocess.run([program, "-s", f"{scale:g}", "--output-dir", str(files)], check=True)
        rows = 0
        with root_cursor(self._at) as cursor:
            cursor.execute("SET GLOBAL local_infile = 1")
            cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
            cursor.execute(f"CREATE DATABASE {DATABASE}")
            for table, columns in _TPCH.items():
                cursor.execute(f"CREATE TABLE {DATABASE}.{table} ({columns})")
            cursor.execute("SET SESSION sql_log_bin = 0")
            for table in _TPCH:
                rows += cursor.execute(
                    f"LOAD DATA LOCAL INFILE '{files / table}.tbl' INTO TABLE {DATABASE}.{table} "
                    "FIELDS TERMINATED BY '|'"
                )
                cursor.execute(f"ANALYZE TABLE {DATABASE}.{table}")
        shutil.rmtree(files)
        return rows

    def floor(self) -> float | None:
        """Return the seconds in which MySQL's client reads the single table; None if there is no client."""
        client = _client()
        if client is None:
            return None
        command = [
            *client, "--protocol=tcp", f"--host={self._at.mysql_host}", f"--port={self._at.mysql_port}", "--user=root",
            "--quick", "--batch", "--skip-column-names", f"--execute=SELECT * FROM {DATABASE}.{TABLE}",
        ]  # fmt: skip
        times = []
        for _ in range(3):
            began = time.monotonic()
            subprocess.run(
                command, stdout=subprocess.DEVNULL, check=True,
                env=os.environ | {"MYSQL_PWD": self._at.mysql_root_password},
            )  # fmt: skip
            times.append(time.monotonic() - began)
        return sorted(times)[1]

    def run(self, name: str, rows: int, wrong: list[str]) -> Run:
        """Fill a new mirror with `replicator bootstrap`, and measure that."""
        config = self._config("mirror")
        register(load(config))
        mysql = self._mysql()
        before = cpu_seconds(mysql)
        program = str(Path(sys.executable).parent / "replicator")
        log, lines = self._folder / "logs" / f"{config.stem}.log", list[str]()
        usage = run_measured(
            [program, "bootstrap", "-c", str(config), "--json"], log, lambda line, _: lines.append(line)
        )
        spent = cpu_seconds(mysql) - before
        self._drop_connector(config)
        self._check(config, rows, wrong)
        return self._result(name, rows, usage, _reading("".join(lines)), spent)

    def debezium(self, rows: int, wrong: list[str]) -> Run:
        """Fill a new mirror from Debezium's snapshot, from the connector's registration to the lake."""
        config = self._config("connector")
        mysql = self._mysql()
        before, began = cpu_seconds(mysql), time.monotonic()
        register(load(config))
        program = str(Path(sys.executable).parent / "replicator")
        log = self._folder / "logs" / f"{config.stem}.log"
        usage = run_measured([program, "run", "--until-caught-up", "-c", str(config)], log)
        seconds = time.monotonic() - began
        self._drop_connector(config)
        self._check(config, rows, wrong)
        return self._result("Debezium", rows, usage, seconds, cpu_seconds(mysql) - before)

    def dlt(self, rows: int, wrong: list[str]) -> Run:
        """Load the single table with dlt, which reads it in one query, into Parquet files."""
        python, folder = environment.python(), self._folder / "dlt"
        url = self._folder / "url"
        url.touch(0o600)
        url.write_text(
            f"mysql://{self._at.mysql_user}:{quote(self._at.mysql_password, safe='')}@"
            f"{self._at.mysql_host}:{self._at.mysql_port}/{DATABASE}"
        )
        script = Path(__file__).parent / "peers/dlt/load.py"
        mysql = self._mysql()
        before = cpu_seconds(mysql)
        usage = run_measured(
            [str(python), str(script), str(url), TABLE, str(folder)], self._folder / "logs/dlt.log"
        )
        spent = cpu_seconds(mysql) - before
        found = sum(
            ParquetFile(file).metadata.num_rows
            for file in (folder / f"lake/loaded/{TABLE}").glob("*.parquet")
        )
        if found != rows:
            wrong.append(f"dlt: {found:,} rows instead of {rows:,}")
        shutil.rmtree(folder)
        return self._result("dlt", rows, usage, usage.seconds, spent)

    def _result(self, name: str, rows: int, usage: Usage, reading: float, mysql_cpu: float) -> Run:
        run = Run(name, rows, usage.seconds, reading, usage.cpu_seconds, mysql_cpu, usage.peak_rss)
        CONSOLE.print(f"{run} {run.rate:,.0f} rows/s")
        return run

    def _config(self, by: str) -> Path:
        self._number += 1
        name = f"bench{self._number}"
        target = Target(self._folder / name, self._at.bootstrap_servers, self._options.driver_memory)
        secret = self._folder / "password"
        secret.touch(0o600)
        secret.write_text(self._at.mysql_password)
        path = target.config(
            name, name, changelog=self._options.changelog,
            source=f"mysql://{self._at.mysql_user}@{self._at.mysql_host}:{self._at.mysql_port}/{DATABASE}",
            password_file=secret, connect_url=self._at.connect_url,
        )  # fmt: skip
        with path.open("a") as file:
            file.write(f"[bootstrap]\nby = {json.dumps(by)}\n")
        return path

    def _mysql(self) -> psutil.Process:
        return mysql_process(self._stack)

    def _drop_connector(self, config: Path) -> None:
        requests.delete(f"{self._at.connect_url}/connectors/{config.stem}", timeout=60).raise_for_status()

    def _check(self, config: Path, rows: int, wrong: list[str]) -> None:
        """Compare the number of rows, and remove the lake."""
        lake = load(config).lake
        with open_catalog(lake) as catalog:
            found = sum(
                catalog.load_table(name).scan().count() for name in catalog.list_tables(lake.namespace)
            )
        if found != rows:
            wrong.append(f"{config.stem}: {found:,} rows instead of {rows:,}")
        shutil.rmtree(config.parent / "warehouse", ignore_errors=True)


def _reading(report: str) -> float:
    """Return the seconds from the first request to the last publication in a report of `replicator bootstrap`."""
    found = json.loads(report)["rereads"]
    ended = max(reread["ended_ms"] for reread in found)
    return float(ended - min(reread["requested_ms"] for reread in found)) / 1000


def _client() -> list[str] | None:
    """Return the command of MySQL's client; None if this machine has none."""
    if (found := shutil.which("mysql")) is not None:
        return [found]
    root = cache_folder().parent / "mysql-root"
    if (root / "usr/bin/mysql").exists() and os.geteuid() == 0:
        return ["chroot", str(root), "mysql"]
    return None
