"""An hour of load, faults, ALTERs and maintenance; then every row is equal, and each change is in the changelog."""

import os
import random
import resource
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import psutil
import pymysql
import pytest

from replicator.operations.stack import LocalStack
from replicator.operations.stack.state import Part
from replicator.sources.source_reader import read_source
from tests.support.failover_pair import FailoverPair, failover_pair
from tests.support.mirror import START_S, MirrorProcess, family, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder
from tests.support.source import SourceDatabase
from tests.workload.random_writer import RandomWriter

MINUTES = float(os.environ.get("REPLICATOR_SOAK_MINUTES", "60"))
TABLES = 7
ALTERS = 26
CONFIG = """
[apply]
trigger = "1 second"
[maintenance]
merge_files = 5
max_snapshots = 50
[spark]
driver_memory = "2g"
"""
"""With few snapshots and small merges, so that maintenance has much to do."""
KEYS = 2_000
"""Number of different keys in each table."""

Fault = Literal[
    "kill mirror",
    "stop mirror",
    "freeze mirror",
    "full disk",
    "second mirror",
    "kill kafka",
    "kill connect",
    "kill mysql",
    "restart mysql",
]
FAULTS: tuple[Fault, ...] = (
    *("kill mirror",) * 8,
    *("stop mirror",) * 2,
    *("freeze mirror",) * 3,
    *("full disk",) * 2,
    "second mirror",
    *("kill kafka",) * 3,
    *("kill connect",) * 3,
    "kill mysql",
    "restart mysql",
)
FAILOVERS = (1 / 3, 2 / 3)
"""When the source fails over, of the whole time: to its replica, and back."""


@dataclass
class Load:
    """Two writers, and ALTERs of the tables that they change.

    Attributes:
        added: table → its added columns with the value that earlier rows got.
        changes: number of changed rows of writers that have ended.
    """

    mirrored: MirroredDatabase
    added: dict[str, dict[str, Any]] = field(default_factory=dict)
    changes: int = 0
    _writers: list[RandomWriter] = field(default_factory=list)
    _seed: int = 100

    def start(self) -> None:
        """Start two writers."""
        for _ in range(2):
            self._seed += 1
            writer = RandomWriter(
                lambda: self.mirrored.database.connect(autocommit=False),
                self.mirrored.tables,
                seed=self._seed,
                keys=KEYS,
                pause=0.02,
            )
            writer.start()
            self._writers.append(writer)

    def stop(self, *, lost: bool = False) -> None:
        """Stop the writers; `lost` if their connections were."""
        for writer in self._writers:
            writer.stop()
        for writer in self._writers:
            with suppress(*([pymysql.Error] if lost else [])):
                writer.join()
            self.changes += sum(
                n for kind, n in writer.counts.items() if kind in {"inserts", "updates", "deletes"}
            )
        self._writers.clear()

    def alter(self, number: int) -> None:
        """Add a column to one of the tables."""
        table, column = self.mirrored.tables[number % TABLES].name, f"added_{number}"
        self.mirrored.database.execute(
            f"ALTER TABLE {table} ADD COLUMN {column} INT NOT NULL DEFAULT {number}"
        )
        self.added.setdefault(table, {})[column] = number


@dataclass
class Faults:
    """Does each fault, and ends once the mirror works again."""

    mirrored: MirroredDatabase
    pair: FailoverPair
    mirror: MirrorProcess
    load: Load
    chance: random.Random

    def do(self, fault: Fault) -> None:
        """Do a fault, and wait for a batch after it."""
        match fault.split():
            case [verb, "mirror"]:
                self._mirror_fault(verb)
            case ["full", "disk"]:
                self._limit_files(20_000)
                time.sleep(self.chance.uniform(5, 20))
                self._limit_files(resource.RLIM_INFINITY)
                if not self.mirror.is_alive():
                    self.mirror.start()
            case [verb, part]:
                self._server_fault(verb, cast("Part", part))
        self._await_batch(fault)

    def fail_over(self) -> None:
        """Let the source fail while the connector is between two transactions; wait for a batch from the other."""
        self.load.stop()
        config = self.mirrored.comparison.config
        until(lambda: read_source(config).log_is_complete, seconds=START_S, doing="the connector has all")
        self.pair.fail_over()
        self.load.start()
        self._await_batch("fail-over")

    def _await_batch(self, fault: str) -> None:
        seen = len(self.mirror.batches())
        until(lambda: len(self.mirror.batches()) > seen, seconds=START_S, doing=f"batches after: {fault}")

    def _mirror_fault(self, verb: str) -> None:
        match verb:
            case "kill":
                self.mirror.kill()
                self.mirror.start()
            case "stop":
                assert self.mirror.stop() == 0, self.mirror.tail()
                self.mirror.start()
            case "freeze":
                frozen = list(self._processes())
                for process in frozen:
                    process.suspend()
                time.sleep(self.chance.uniform(5, 30))
                for process in frozen:
                    process.resume()
            case _:
                self._second_mirror()

    def _server_fault(self, verb: str, part: Part) -> None:
        stack = self.pair.primary if part == "mysql" else self.mirrored.database.stack
        if verb == "kill":
            stack.kill(part)
        stack.restart(part)
        if part == "mysql":
            self.load.stop(lost=True)
            self.load.start()

    def _processes(self) -> Iterator[psutil.Process]:
        assert self.mirror.process is not None
        yield psutil.Process(self.mirror.process.pid)
        yield from family(self.mirror.process.pid)

    def _limit_files(self, size: int) -> None:
        """Let the system refuse larger files of the mirror, as it does on a full disk."""
        if self.mirror.is_alive():
            for process in self._processes():
                process.rlimit(psutil.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def _second_mirror(self) -> None:
        text = self.mirrored.config.read_text().replace('/state"', '/other-state"')
        other = MirrorProcess(
            self.mirrored.configured("elsewhere.toml", text), self.mirrored.folder / "elsewhere.log"
        )
        other.start()
        try:
            until(
                lambda: not (self.mirror.is_alive() and other.is_alive()),
                seconds=START_S,
                doing="one of two mirrors gives way",
            )
        finally:
            other.kill()
        if not self.mirror.is_alive():
            assert self.mirror.wait(1) == 3, self.mirror.tail()
            self.mirror.start()


@pytest.fixture
def pair(running_stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FailoverPair]:
    with failover_pair(running_stack, tmp_path_factory.mktemp("pair")) as servers:
        yield servers


@pytest.mark.fault(
    "An hour of kills, stops and freezes of the mirror, under load, with ALTERs and maintenance",
    area="Process",
    on="MySQL, Debezium, Kafka",
    outcome="the mirror continues after each",
)
@pytest.mark.fault(
    "Kafka, Kafka Connect and MySQL are killed or restarted under load, eight times within that hour",
    area="Servers",
    on="MySQL, Debezium, Kafka",
    outcome="the mirror waits, and continues; events that the connector writes again are skipped",
)
@pytest.mark.fault(
    "MySQL is killed, and its replica promoted at the same address; and later back again, within an hour of faults",
    area="Source",
    on="MySQL, Debezium, Kafka",
    outcome="the mirror continues",
)
@pytest.mark.fault(
    "The disk is full (the system refuses larger files)",
    area="Lake",
    on="MySQL, Debezium, Kafka, lake on local files",
    outcome="commits fail as a whole; the mirror continues once there is space",
)
@pytest.mark.long
def test_mirror_equals_the_source_after_an_hour_of_faults(
    pair: FailoverPair, source_database: SourceDatabase, tmp_path: Path
) -> None:
    chance = random.Random(16)
    database = replace(source_database, server=pair.endpoints)
    mirrored = MirroredDatabaseBuilder(database, tmp_path)(tables=TABLES, extra=CONFIG)
    mirror = MirrorProcess(mirrored.config, mirrored.folder / "out.log")
    load = Load(mirrored)
    mirror.start()
    try:
        mirrored.comparison.await_equal(mirror, START_S)
        load.start()
        began = time.monotonic()
        faults = Faults(mirrored, pair, mirror, load, chance)
        todo: list[tuple[float, Callable[[], None]]] = [
            *(((i + 0.5) / len(FAULTS), partial(faults.do, f)) for i, f in enumerate(_shuffled(chance))),
            *((chance.random(), partial(load.alter, n)) for n in range(ALTERS)),
            *((share, faults.fail_over) for share in FAILOVERS),
        ]
        for share, action in sorted(todo, key=lambda pair: pair[0]):
            until(
                partial(_has_passed, began, share * MINUTES * 60),
                seconds=MINUTES * 60,
                doing="the next fault",
            )
            action()
        until(partial(_has_passed, began, MINUTES * 60), seconds=MINUTES * 60, doing="the end")
        load.stop()
        mirrored.comparison.await_equal(mirror, 600)
        assert mirror.stop() == 0, mirror.tail()
    finally:
        mirror.kill()
    assert mirrored.comparison.differences() == {}
    assert mirrored.comparison.assert_changelogs(load.added) >= load.changes
    steps = [line for line in _all_lines(mirror) if '"event": "maintained"' in line]
    assert len(steps) > MINUTES
    paused = [line for line in _all_lines(mirror) if '"event": "table paused"' in line]
    assert not paused, paused
    print(
        f"{load.changes} changes, {len(FAULTS)} faults, {len(FAILOVERS)} fail-overs, {ALTERS} ALTERs,"
        f" {len(steps)} times maintained"
    )


def _has_passed(began: float, seconds: float) -> bool:
    return time.monotonic() - began > seconds


def _shuffled(chance: random.Random) -> list[Fault]:
    return chance.sample(FAULTS, len(FAULTS))


def _all_lines(mirror: MirrorProcess) -> list[str]:
    return mirror.output.read_text(errors="replace").splitlines()
