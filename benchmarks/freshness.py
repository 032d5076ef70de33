"""Measure the delay from a commit in MySQL to its commit in the lake, with real servers at a steady rate.

The delay of a change is the commit time of the first Iceberg snapshot of the mirror that contains it, minus the time of
its commit in the source. The files of the changelog show which snapshot that is.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pyarrow.compute as pc
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table

from benchmarks import shopload, threads
from benchmarks.broker import cache_folder
from benchmarks.engine import Target
from benchmarks.processes import TreeMeter, Usage, child_environment
from benchmarks.readings import cpu_seconds, mysql_process, root_cursor
from benchmarks.report import CONSOLE, Goal, save, show, show_goals
from benchmarks.shopload import Server
from replicator.config import Config, load
from replicator.lake.reading.catalog import tables_in
from replicator.lake.reading.reader import open_catalog
from replicator.maintenance.plan import Step
from replicator.operations.connector import register
from replicator.operations.stack import Endpoints, LocalStack
from replicator.operations.status.read import read_status

_PREFIX = "fresh"
_NAMESPACE = "fresh"
_CATCH_UP_S = 180
_WARM_UP_S = 60
_STEADY_GROWTH = 2.0


@dataclass(frozen=True, slots=True)
class Options:
    """Duration and rate of the changes, and settings of the mirror; `trigger` as in the configuration."""

    minutes: float = 5.0
    changes_per_second: float = 1000.0
    trigger: str = "continuous"
    changelog: bool = True
    driver_memory: str = "4g"
    maintenance: bool = True
    checks: bool = True


@dataclass(frozen=True, slots=True)
class Freshness:
    """Seconds from source commit to lake commit; `early` and `late` are medians of the first and last third."""

    changes: int
    p50: float
    p90: float
    p99: float
    highest: float
    early: float
    late: float
    commits: int

    @property
    def sustained(self) -> bool:
        """Return whether the delay did not grow over the run."""
        return self.late <= max(_STEADY_GROWTH * self.early, 1.0)


@dataclass(frozen=True, slots=True)
class Source:
    """CPU seconds of MySQL, and rows that InnoDB read. The writer's statements read rows too."""

    cpu_seconds: float
    rows_read: int

    @classmethod
    def now(cls, stack: LocalStack, at: Endpoints) -> "Source":
        """Return the figures since the server's start."""
        with root_cursor(at) as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Innodb_rows_read'")
            return cls(cpu_seconds(mysql_process(stack)), int(cursor.fetchall()[0][1]))

    def since(self, before: "Source") -> "Source":
        """Return what was used after `before`."""
        return Source(self.cpu_seconds - before.cpu_seconds, self.rows_read - before.rows_read)


@dataclass(frozen=True, slots=True)
class Checks:
    """What the mirror spent on comparing rows: cores of its threads; tables that were compared as a whole, or parts."""

    cores: float
    tables: int
    rows: int


@dataclass(frozen=True, slots=True)
class _Run:
    """What happened: `window` has the first and last moment of the measured changes, milliseconds since the epoch."""

    window: tuple[int, int]
    made: dict[str, float]
    caught_up: float
    usage: Usage
    maintained: float
    source: Source
    checks: Checks


def freshness(options: Options, results: Path) -> bool:
    """Run, print and save. Return False if changes are missing or repeated, or if the delay grew."""
    folder = cache_folder() / "freshness"
    stack = LocalStack(folder / "stack")
    stack.remove()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        endpoints = stack.up()
        root = Server(endpoints.mysql_host, endpoints.mysql_port, "root", endpoints.mysql_root_password)
        shopload.prepare(root)
        target = Target(folder / "lake", endpoints.bootstrap_servers, options.driver_memory)
        secret = folder / "password"
        secret.touch(0o600)
        secret.write_text(endpoints.mysql_password)
        path = target.config(
            _NAMESPACE, _PREFIX, changelog=options.changelog, trigger=options.trigger,
            source=f"mysql://{endpoints.mysql_user}@{endpoints.mysql_host}:{endpoints.mysql_port}/shop",
            password_file=secret, connect_url=endpoints.connect_url,
        )  # fmt: skip
        with path.open("a") as file:
            file.write(f"[maintenance]\nenabled = {json.dumps(options.maintenance)}\n")
            file.write("" if options.checks else "[verify]\nenabled = false\n")
        config = load(path)
        register(config)
        with _mirror(target, path) as meter:
            _wait_for_tables(config)
            _write(root, _WARM_UP_S, options.changes_per_second)
            begun_ms, before = time.time_ns() // 1_000_000, Source.now(stack, endpoints)
            made = _write(root, options.minutes * 60, options.changes_per_second)
            ended_ms, source = time.time_ns() // 1_000_000, Source.now(stack, endpoints).since(before)
            caught_up = _wait_until_current(config)
        window, log = (begun_ms, ended_ms), target.log("mirror")
        # Small files are merged while other tables are written; during other maintenance no batch is applied.
        maintained = sum(
            line["seconds"]
            for line in _logged(log, "maintained", window)
            if [*line["steps"]] != [str(Step.MERGE_SMALL)]
        )
        checked = _logged(log, "table checked", window)
        checks = Checks(
            threads.cpu_of_checks(target.log("threads"), *window) / (ended_ms - begun_ms) * 1000,
            len(checked),
            sum(line["rows"] for line in checked),
        )
        run = _Run(window, made, caught_up, meter.stop(), maintained, source, checks)
        return _report(options, results, root, config, run)
    finally:
        stack.down()


@contextmanager
def _mirror(target: Target, config: Path) -> Iterator[TreeMeter]:
    """Run the mirror in a separate process, and stop it with SIGTERM as an operator would."""
    program = [sys.executable, "-m", "benchmarks.threads", str(target.log("threads"))]
    log = target.log("mirror")
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        mirror = subprocess.Popen(
            [*program, "run", "-c", str(config)], stdout=output, stderr=output, env=child_environment()
        )
        try:
            yield TreeMeter(mirror.pid)
        finally:
            mirror.send_signal(signal.SIGTERM)
            try:
                mirror.wait(60)
            except subprocess.TimeoutExpired:
                mirror.kill()
                raise


def _logged(log: Path, event: str, window: tuple[int, int]) -> list[dict[str, Any]]:
    """Return the lines about one kind of event that the mirror logged between two times."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    return [
        line
        for line in lines
        if line.get("event") == event
        and window[0] <= datetime.fromisoformat(line["timestamp"]).timestamp() * 1000 <= window[1]
    ]


def _write(server: Server, seconds: float, changes_per_second: float) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.shopload", server.host, str(server.port), server.user]
    done = subprocess.run(
        [*command, str(seconds), str(changes_per_second)],
        input=server.password + "\n", stdout=subprocess.PIPE, text=True, check=True, env=child_environment(),
    )  # fmt: skip
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def _wait_for_tables(config: Config) -> None:
    deadline = time.monotonic() + _CATCH_UP_S
    while True:
        rows = {table.source: table.rows or 0 for table in read_status(config).tables}
        if len(rows) == len(shopload.TABLES) and all(n >= shopload.START_ROWS for n in rows.values()):
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"after {_CATCH_UP_S} s the mirror holds {rows}; see its log")
        time.sleep(0.5)


def _wait_until_current(config: Config) -> float:
    """Return the seconds until the mirror contains all events of the topics."""
    started = time.monotonic()
    while time.monotonic() - started < _CATCH_UP_S:
        # Debezium may still send events: the mirror is complete if its status is equal after one second.
        before = read_status(config)
        time.sleep(1)
        after = read_status(config)
        still = [(t.source, t.commits) for t in before.tables] == [
            (t.source, t.commits) for t in after.tables
        ]
        if still and all(table.state == "current" for table in after.tables):
            return time.monotonic() - started - 1
    raise RuntimeError(f"the mirror did not catch up in {_CATCH_UP_S} s; see its log")


def _report(options: Options, results: Path, root: Server, config: Config, run: _Run) -> bool:
    with open_catalog(config.lake) as catalog:
        mirrors = tables_in(catalog, config.lake.namespace)
        changelogs = tables_in(catalog, config.lake.changes_namespace)
        measured = _measure(mirrors, changelogs, run.window)
        wrong = _wrong(mirrors, shopload.sums(root))
    if measured.changes != run.made["changes"]:
        wrong.append(f"{run.made['changes']:.0f} changes were made, the changelogs hold {measured.changes}")
    if not measured.sustained:
        wrong.append(f"the mirror fell behind: {measured.early:.1f} s early, {measured.late:.1f} s late")
    seconds = (run.window[1] - run.window[0]) / 1000
    rate = run.made["changes"] / (options.minutes * 60 + run.made["slipped_seconds"])
    rows = [
        ("changes", measured.changes), ("changes/s", rate), ("commits a table", measured.commits / 10),
        ("p50 s", measured.p50), ("p90 s", measured.p90), ("p99 s", measured.p99),
        ("highest s", measured.highest),
        ("median, first third", measured.early), ("median, last third", measured.late),
        ("caught up after, s", run.caught_up), ("mirror's cores", run.usage.cpu_seconds / run.usage.seconds),
        ("mirror's peak MiB", run.usage.peak_rss / 2**20),
        ("maintenance between batches, share", run.maintained / seconds),
        ("threads that compare rows, cores", run.checks.cores),
        ("tables or parts compared as a whole", run.checks.tables), ("their rows/s", run.checks.rows / seconds),
        ("MySQL's cores", run.source.cpu_seconds / seconds), ("InnoDB's rows read/s", run.source.rows_read / seconds),
    ]  # fmt: skip
    show(f"freshness, ten tables, trigger {options.trigger}", ("", "value"), rows)
    goals = [
        Goal("p50, seconds", measured.p50, 0.7, at_least=False),
        Goal("p99, seconds", measured.p99, 2.0, at_least=False),
        Goal("changes/s", rate, 0.98 * options.changes_per_second, at_least=True),
        Goal("threads that compare rows, cores", run.checks.cores, 0.02, at_least=False),
    ]
    show_goals(goals)
    for line in wrong:
        CONSOLE.print(f"[red]wrong[/] {line}")
    result = {
        "options": asdict(options),
        "freshness": asdict(measured) | {"sustained": measured.sustained},
        "changes_per_second": rate,
        "caught_up_seconds": run.caught_up,
        "usage": asdict(run.usage),
        "maintenance_seconds": run.maintained,
        "seconds": seconds,
        "source": asdict(run.source),
        "checks": asdict(run.checks),
        "load_average": os.getloadavg(),
        "wrong": wrong,
    }
    save(results, "freshness" if options.checks else "freshness-without-checks", result, goals)
    return not wrong


def _measure(mirrors: dict[str, Table], changelogs: dict[str, Table], window: tuple[int, int]) -> Freshness:
    """Return the delays of all changes that the source committed in the window (milliseconds since 1970)."""
    delays: list[tuple[int, float]] = []
    commits = 0
    for name, changelog in changelogs.items():
        ends = _visible_from(mirrors[name], changelog)
        changes = _changes(changelog, window)
        commits += len({end for end, _ in ends})
        at = 0
        for offset, source_ms in changes:
            while ends[at][0] <= offset:
                at += 1
            delays.append((source_ms, (ends[at][1] - source_ms) / 1000))
    delays.sort()
    seconds = [delay for _, delay in delays]
    third = len(seconds) // 3
    cuts = quantiles(seconds, n=100)
    return Freshness(
        len(seconds), cuts[49], cuts[89], cuts[98], max(seconds),
        median(seconds[:third]), median(seconds[-third:]), commits,
    )  # fmt: skip


def _visible_from(mirror: Table, changelog: Table) -> list[tuple[int, int]]:
    """Return (end offset, commit time in ms) of the mirror's commits, oldest first, for one partition.

    A batch commits to the changelog first, whose files tell its offsets, and then to the mirror.
    """
    times = sorted(snapshot.timestamp_ms for snapshot in mirror.snapshots())
    offset_id = changelog.schema().find_field("_change.offset").field_id
    found = []
    for snapshot in sorted(changelog.snapshots(), key=lambda one: one.timestamp_ms):
        added = [
            entry.data_file.upper_bounds[offset_id]
            for manifest in snapshot.manifests(changelog.io)
            if manifest.added_snapshot_id == snapshot.snapshot_id
            for entry in manifest.fetch_manifest_entry(changelog.io)
            if entry.status == ManifestEntryStatus.ADDED
        ]
        after = bisect_left(times, snapshot.timestamp_ms)
        if added and after < len(times):
            found.append(
                (max(int.from_bytes(bound, "little", signed=True) for bound in added) + 1, times[after])
            )
    return found


def _changes(changelog: Table, window: tuple[int, int]) -> list[tuple[int, int]]:
    """Return (offset, source commit time in ms) of each event in the window, in the order of offsets."""
    column = changelog.scan(selected_fields=("_change",)).to_arrow().column("_change").combine_chunks()
    kinds, offsets = column.field("kind"), column.field("offset")
    times = pc.divide(pc.cast(column.field("source_ts"), "int64"), 1000)
    wanted = pc.and_(pc.not_equal(kinds, "UPDATE_BEFORE"), pc.not_equal(column.field("op"), "r"))
    pairs = zip(offsets.filter(wanted).to_pylist(), times.filter(wanted).to_pylist(), strict=True)
    return sorted(pair for pair in pairs if window[0] <= pair[1] <= window[1])


def _wrong(mirrors: dict[str, Table], expected: dict[str, tuple[int, int]]) -> list[str]:
    found = {}
    for name, table in mirrors.items():
        amounts = table.scan(selected_fields=("amount",)).to_arrow().column("amount")
        found[name] = (len(amounts), int(pc.sum(amounts).as_py() * 100))
    return [
        f"{name}: {found.get(name)} instead of {want}"
        for name, want in expected.items()
        if found.get(name) != want
    ]
