"""How soon results that are computed in stages show what a web shop commits, and what that costs, beside Flink SQL.

A probe is an order that is committed on its own, ten times a second beside the load. Its delay at a stage is the commit
time of the first snapshot of the stage that shows it, minus the time of its commit in the source.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from benchmarks import shop_source
from benchmarks.broker import cache_folder
from benchmarks.engine import Target
from benchmarks.following import running, running_mirror
from benchmarks.peers.flink import shop as flink
from benchmarks.processes import TreeMeter, Usage, child_environment, run_json
from benchmarks.report import CONSOLE, Goal, save, show, show_goals
from benchmarks.shop_source import Written, prepare, send_probe
from benchmarks.shop_stages import (
    CUSTOMERS,
    MEASURED,
    ORDERS,
    PURIFIED,
    REVENUE,
    SALES,
    STAGES,
    TOP_PRODUCTS,
    Sightings,
    Stage,
    checksum,
    nested,
)
from benchmarks.shopload import Server
from replicator.config import Config, load
from replicator.errors import LakeUnavailable
from replicator.lake.reading.reader import open_catalog
from replicator.operations.connector import register
from replicator.operations.stack import Endpoints, LocalStack

_PREFIX: Final = "shop"
_NAMESPACE: Final = "shop"
_RESULTS: Final = "shop_pipelines"
_FILL_S: Final = 900
_CATCH_UP_S: Final = 300
_WARM_UP_S: Final = 60
_QUIET_S: Final = 10
"""When no table has changed for so long, an engine has caught up."""


class Engine(StrEnum):
    """What keeps the stages current."""

    REPLICATOR = "replicator"
    """Mirrors with changelogs, and pipelines that are maintained by changes."""
    FULL = "full"
    """The same with pipelines that are computed as a whole each time."""
    MIRROR = "mirror"
    """The mirrors with changelogs alone."""
    FLINK = "flink"
    """Flink SQL, which writes the stages only."""
    FLINK_MIRRORS = "flink-mirrors"
    """Flink SQL, which writes the source's tables too."""

    @property
    def is_flink(self) -> bool:
        """Return whether it is Flink."""
        return self in (Engine.FLINK, Engine.FLINK_MIRRORS)

    @property
    def tables(self) -> dict[str, Stage]:
        """Return the tables that it writes, by namespace and name."""
        mirrors = () if self is Engine.FLINK else (ORDERS, CUSTOMERS)
        if self.is_flink:
            return {f"{flink.NAMESPACE}.{s.name}": s for s in (*mirrors, PURIFIED, REVENUE, TOP_PRODUCTS)}
        results = () if self is Engine.MIRROR else (PURIFIED, REVENUE, SALES, TOP_PRODUCTS)
        return {f"{_NAMESPACE}.{s.name}": s for s in mirrors} | {f"{_RESULTS}.{s.name}": s for s in results}


@dataclass(frozen=True, slots=True)
class Options:
    """Engines, duration and rate of the changes, orders at the beginning, and the interval of all engines' commits.

    Attributes:
        flink_state: where Flink has its state.
    """

    engines: Sequence[Engine] = tuple(Engine)
    minutes: float = 2.0
    changes_per_second: float = 1000.0
    orders: int = 1_000_000
    seconds: int = 2
    flink_state: flink.State = flink.State.ROCKSDB
    driver_memory: str = "4g"


@dataclass(frozen=True, slots=True)
class Delays:
    """Seconds from the commit of probes to a stage; `early` and `late` are medians of the first and last third."""

    p50: float
    p99: float
    highest: float
    early: float
    late: float
    snapshots: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What one engine did.

    Attributes:
        stages: delays by stage.
        changes: number of changed rows in the measured time, of which a second are `rate`.
        cpu_ms: CPU milliseconds of a change, until every stage showed all of them.
        cores: CPU seconds of the engine's processes in a second, until then.
        caught_up: seconds from the end of the load until every stage showed all of it.
        wrong: the tables that differ from the source.
    """

    engine: Engine
    stages: Mapping[str, Delays]
    changes: int
    rate: float
    cpu_ms: float
    cores: float
    caught_up: float
    wrong: Sequence[str]

    @property
    def last(self) -> Delays:
        """Return the delays of the last stage."""
        return list(self.stages.values())[-1]


def shop(options: Options, results: Path) -> bool:
    """Run each engine on a new stack, print and save; return whether all caught up and all tables are right."""
    found, failed = list[Measured](), list[str]()
    for engine in options.engines:
        CONSOLE.print(f"{engine}: starting")
        try:
            found.append(_measure(options, engine))
            CONSOLE.print(str(found[-1]))
        except RuntimeError as error:
            failed.append(f"{engine}: {error}")
            CONSOLE.print(f"[red]failed[/] {failed[-1]}")
    _report(options, results, found, failed)
    return not failed and not any(each.wrong for each in found)


def _measure(options: Options, engine: Engine) -> Measured:
    folder = cache_folder() / "shop"
    stack = LocalStack(folder / "stack")
    stack.remove()
    shutil.rmtree(folder, ignore_errors=True)
    try:
        endpoints = stack.up()
        source = Server(endpoints.mysql_host, endpoints.mysql_port, "root", endpoints.mysql_root_password)
        prepare(source, options.orders)
        target = Target(folder / "lake", endpoints.bootstrap_servers, options.driver_memory)
        path = _config(options, engine, target, endpoints)
        config = load(path)
        register(config)
        stages = [
            Sightings(stage, name.rpartition(".")[0])
            for name, stage in engine.tables.items()
            if stage in MEASURED
        ]
        with _running(options, engine, target, path) as process:
            meter = TreeMeter(process.pid)
            # The first one may be in the connector's snapshot, the second one is behind it.
            for _ in range(2):
                _await(config, stages, send_probe(source), process, _FILL_S)
            _write(source, _WARM_UP_S, options.changes_per_second)
            # So that what is measured is the work for these changes, if an engine falls behind.
            _await(config, stages, send_probe(source), process, _CATCH_UP_S)
            before = meter.usage()
            written = _write(source, options.minutes * 60, options.changes_per_second)
            caught_up = _await(config, stages, send_probe(source), process, _CATCH_UP_S)
            used = _since(before, meter.usage())
            _await_quiet(config, stages)
            meter.stop()
        wrong = _wrong(source, engine, target, path)
    finally:
        stack.down()
    return Measured(
        engine,
        {each.stage.name: _delays(each, written) for each in stages},
        written.changes,
        written.changes / (options.minutes * 60 + written.slipped_seconds),
        used.cpu_seconds / written.changes * 1000,
        used.cpu_seconds / used.seconds,
        caught_up,
        wrong,
    )


def _config(options: Options, engine: Engine, target: Target, endpoints: Endpoints) -> Path:
    """Write the configuration of the mirror, and its pipelines. Its connector sends the events to all engines."""
    secret = target.folder / "password"
    secret.parent.mkdir(parents=True)
    secret.touch(0o600)
    secret.write_text(endpoints.mysql_password)
    path = target.config(
        _NAMESPACE, _PREFIX, changelog=True, trigger=f"{options.seconds} seconds",
        source=f"mysql://{endpoints.mysql_user}@{endpoints.mysql_host}:{endpoints.mysql_port}/shop",
        password_file=secret, connect_url=endpoints.connect_url,
    )  # fmt: skip
    with path.open("a") as file:
        # All engines get the first rows from the topics.
        file.write('[bootstrap]\nby = "connector"\n')
        file.write(f'[pipelines]\nevery = "{options.seconds} seconds"\n')
    if engine in (Engine.REPLICATOR, Engine.FULL):
        folder = path.parent / "pipelines"
        folder.mkdir()
        for stage in (PURIFIED, REVENUE, SALES, TOP_PRODUCTS):
            (folder / f"{stage.name}.sql").write_text(_pipeline(stage, whole=engine is Engine.FULL))
    return path


def _pipeline(stage: Stage, *, whole: bool) -> str:
    header = [f"key: {', '.join(stage.key)}"]
    if whole:
        header.append("refresh: full")
    elif stage in (PURIFIED, SALES):
        header.append("changelog: true")
    names = {s.name: f"{_RESULTS if s.query else _NAMESPACE}.{s.name}" for s in STAGES.values()}
    return "".join(f"-- {line}\n" for line in header) + stage.query.format_map(names) + "\n"


@contextmanager
def _running(
    options: Options, engine: Engine, target: Target, config: Path
) -> "Iterator[subprocess.Popen[bytes]]":
    log = target.log(engine)
    if engine.is_flink:
        mirrors = engine is Engine.FLINK_MIRRORS
        command = flink.command(target, _PREFIX, f"{options.seconds} s", options.flink_state, mirrors=mirrors)
        with running(command, log) as process:
            yield process
    else:
        with running_mirror(config, log) as process:
            yield process


def _write(server: Server, seconds: float, changes_per_second: float) -> Written:
    command = [sys.executable, "-m", shop_source.__name__, server.host, str(server.port), server.user]
    done = subprocess.run(
        [*command, str(seconds), str(changes_per_second)],
        input=server.password + "\n", stdout=subprocess.PIPE, text=True, check=True, env=child_environment(),
    )  # fmt: skip
    answer = json.loads(done.stdout)
    return Written(answer["changes"], answer["slipped_seconds"], tuple(map(tuple, answer["probes"])))


def _await(
    config: Config,
    stages: Sequence[Sightings],
    probe: int,
    process: "subprocess.Popen[bytes]",
    patience: float,
) -> float:
    """Wait until every stage shows a probe; return the seconds.

    Raises:
        RuntimeError: the engine ended, or one of its stages does not show it.
    """
    started = time.monotonic()
    while True:
        shown = _read(config, stages)
        if all(number >= probe for number in shown.values()):
            return time.monotonic() - started
        ended = process.poll() is not None
        if ended or time.monotonic() - started > patience:
            reason = "the engine ended" if ended else f"not all stages show it after {patience:.0f} s"
            raise RuntimeError(f"probe {probe}: {reason}, {shown}; see the log of the engine")
        time.sleep(1)


def _await_quiet(config: Config, stages: Sequence[Sightings]) -> None:
    since, before = time.monotonic(), [each.snapshots for each in stages]
    while time.monotonic() - since < _QUIET_S:
        time.sleep(1)
        _read(config, stages)
        if (now := [each.snapshots for each in stages]) != before:
            since, before = time.monotonic(), now


def _read(config: Config, stages: Sequence[Sightings]) -> dict[str, int]:
    """Return the newest probe that each stage shows; 0 while the engine has not made the catalog."""
    try:
        with open_catalog(config.lake) as catalog:
            return {each.stage.name: each.read(catalog) for each in stages}
    except LakeUnavailable:
        return dict.fromkeys((each.stage.name for each in stages), 0)


def _since(before: Usage, after: Usage) -> Usage:
    return Usage(after.seconds - before.seconds, after.cpu_seconds - before.cpu_seconds, after.peak_rss)


def _delays(stage: Sightings, written: Written) -> Delays:
    found = stage.delays(written.probes)
    cuts, third = quantiles(found, n=100), len(found) // 3
    ended = written.probes[0][1], written.probes[-1][1]
    snapshots = sum(ended[0] <= at <= ended[1] for at, _ in stage.seen)
    return Delays(cuts[49], cuts[98], max(found), median(found[:third]), median(found[-third:]), snapshots)


def _wrong(source: Server, engine: Engine, target: Target, config: Path) -> list[str]:
    """Return one line for each table that differs from its SELECT over the source."""
    tables = engine.tables
    command = [sys.executable, "-m", "benchmarks.shop_stages", str(config), *tables]
    answers, _ = run_json(command, target.log("tables"))
    found = {answer["table"]: (answer["rows"], answer["checksum"]) for answer in answers}
    wrong = []
    with source.connect() as connection, connection.cursor() as cursor:
        for name, stage in tables.items():
            cursor.execute(checksum(stage, f"({nested(stage)})", spark=False))
            rows, total = cursor.fetchall()[0]
            if found.get(name) != (want := (int(rows), int(total or 0))):
                wrong.append(f"{name}: {found.get(name)} instead of {want}")
    return wrong


def _report(options: Options, results: Path, found: Sequence[Measured], failed: Sequence[str]) -> None:
    show(
        f"shop: {options.orders:,} orders, {options.changes_per_second:,.0f} changes/s, every {options.seconds} s",
        ("engine, stage", "p50 s", "p99 s", "highest s", "first third", "last third", "snapshots"),
        [
            (f"{each.engine}: {stage}", d.p50, d.p99, d.highest, d.early, d.late, d.snapshots)
            for each in found
            for stage, d in each.stages.items()
        ],
    )
    show(
        "CPU",
        ("engine", "changes/s", "CPU ms/change", "cores", "caught up s"),
        [(e.engine, e.rate, e.cpu_ms, e.cores, e.caught_up) for e in found],
    )
    goals = _goals({each.engine: each for each in found})
    show_goals(goals)
    for each in found:
        for line in each.wrong:
            CONSOLE.print(f"[red]wrong[/] {each.engine}: {line}")
    name = "shop" if len(options.engines) == len(Engine) else "-".join(["shop", *options.engines])
    result = {
        "options": asdict(options),
        "engines": [asdict(each) for each in found],
        "failed": list(failed),
        "load_average": os.getloadavg(),
    }
    save(results, name, result, goals)


def _goals(found: Mapping[Engine, Measured]) -> list[Goal]:
    own, peer = found.get(Engine.REPLICATOR), found.get(Engine.FLINK)
    goals = []
    if own is not None:
        goals += [
            Goal("last stage, p50, s", own.last.p50, 4.0, at_least=False),
            Goal("last stage, p99, s", own.last.p99, 12.0, at_least=False),
        ]
    if own is not None and peer is not None:
        goals.append(Goal("CPU of a change, times Flink's", own.cpu_ms / peer.cpu_ms, 1.0, at_least=False))
    return goals
