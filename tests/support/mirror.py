"""Run a mirror as a separate process, and compare its lake with the source."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from replicator.config import Config, load
from replicator.errors import ReplicatorError
from replicator.lake.reading.reader import open_catalog
from replicator.model.table import lake_names
from replicator.operations.status.read import read_status
from tests.oracle.compare import applied_order
from tests.support.canonical_rows import (
    SourceTable,
    canonical_value,
    describe,
    sort_key,
    source_rows,
    use_utc,
)
from tests.support.source import SourceDatabase

COMMAND = str(Path(sys.executable).with_name("replicator"))
_POLL_S = 0.2
_LONGEST_REST_S = 4.0
_UNCHANGED_S = 5.0
"""Seconds until a lake is compared again that has no new commit: the source may have changed."""

JAVA_OPTIONS = "JDK_JAVA_OPTIONS"
"""Variable with options of all Java programs; those of a mirror are in its configuration."""
START_S = 300
"""Seconds until the first batch of a mirror on a busy machine."""
FAST_MIRROR = """
[apply]
trigger = "1 second"
[spark]
driver_memory = "1g"
# Runs are short: a fast start of the JVM matters more than its later speed.
conf = { "spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" }
"""
"""Sections for a mirror that starts fast and polls for events every second."""
HEALING_MIRROR = f"""
[bootstrap]
by = "mirror"
[heal]
mode = "auto"
min_interval = "1 second"
{FAST_MIRROR}
"""
"""The same for a mirror that reads new tables by itself, and again if that is due."""


def rest(began: float) -> None:
    """Sleep after a question that was asked at `began`: asking must not take the time of what it waits for."""
    time.sleep(min(max(_POLL_S, 4 * (time.monotonic() - began)), _LONGEST_REST_S))


def until(condition: Callable[[], Any], *, seconds: float, doing: str) -> Any:
    """Wait until `condition` returns a true value, and return that."""
    deadline = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if answer := condition():
            return answer
        assert time.monotonic() < deadline, f"not within {seconds} s: {doing}"
        rest(began)


@dataclass
class MirrorProcess:
    """`replicator run` of one configuration. `output` collects the output of all its starts."""

    config: Path
    output: Path
    arguments: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    _read_from: int = field(default=0)
    _family: set[psutil.Process] = field(default_factory=set)

    def start(self, **environment: str) -> None:
        self._read_from = self.output.stat().st_size if self.output.exists() else 0
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                [COMMAND, "run", "-c", str(self.config), *self.arguments],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                env=os.environ | {JAVA_OPTIONS: ""} | environment,
                # Signals to the tests do not reach it.
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill the process and its JVM with SIGKILL, as a power cut would."""
        assert self.process is not None
        self._notice_family()
        self.process.kill()
        self._kill_family()
        self.process.wait(30)

    def stop(self, seconds: float = 240) -> int:
        """Send SIGTERM, and return the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.wait(seconds)

    def wait(self, seconds: float) -> int:
        """Wait for the end and return the exit code. A JVM that survived a crash is ended too."""
        assert self.process is not None
        deadline = time.monotonic() + seconds
        try:
            while True:
                # After the end of the process, its JVM can no longer be identified.
                self._notice_family()
                try:
                    return self.process.wait(_POLL_S)
                except subprocess.TimeoutExpired:
                    if time.monotonic() > deadline:
                        self.process.kill()
                        raise
        finally:
            self._kill_family()

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        assert self.process is not None
        return self.process.poll() is None

    def _notice_family(self) -> None:
        assert self.process is not None
        self._family.update(family(self.process.pid))

    def _kill_family(self) -> None:
        for process in self._family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self._family.clear()

    def lines(self) -> list[dict[str, Any]]:
        """Return the log lines since the last start."""
        if not self.output.exists():
            return []
        with self.output.open("rb") as output:
            output.seek(self._read_from)
            found = []
            for line in output.read().splitlines():
                try:
                    found.append(json.loads(line))
                except ValueError:
                    continue
        return [line for line in found if isinstance(line, dict)]

    def batches(self) -> list[dict[str, Any]]:
        """Return the batches since the last start."""
        return [line for line in self.lines() if line.get("event") == "batch"]

    def tail(self, size: int = 3000) -> str:
        """Return the end of the output, for the message of a failure."""
        return self.output.read_text(errors="replace")[-size:]


def family(pid: int) -> list[psutil.Process]:
    """Return all descendants of a process: Java, and its executors if there are any."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


@contextmanager
def running(config: Path, output: Path, **environment: str) -> Iterator[MirrorProcess]:
    """Run a mirror during the block."""
    mirror = MirrorProcess(config, output)
    mirror.start(**environment)
    try:
        yield mirror
    finally:
        mirror.kill()


@dataclass
class Comparison:
    """A source database and its lake."""

    database: SourceDatabase
    config: Config

    @classmethod
    def of(cls, database: SourceDatabase, config: Path) -> "Comparison":
        return cls(database, load(config))

    def tables(self, only: Collection[str] | None = None, besides: Collection[str] = ()) -> list[SourceTable]:
        """Return the source's tables, or those in `only`, without those in `besides`."""
        with self.database.connect() as connection:
            names = [str(row[0]) for row in self.database.rows("SHOW TABLES")]
            return [
                describe(connection, self.database.name, name)
                for name in names
                if (only is None or name in only) and name not in besides
            ]

    def differences(
        self, only: Collection[str] | None = None, besides: Collection[str] = ()
    ) -> dict[str, str]:
        """Return table → how it differs from the source; empty if all of `tables` are equal."""
        tables = self.tables(only, besides)
        try:
            with open_catalog(self.config.lake) as catalog:
                return {t.name: text for t in tables if (text := self._difference(catalog, t))}
        except ReplicatorError as error:
            return {"lake": error.message}

    def _difference(self, catalog: Catalog, table: SourceTable) -> str | None:
        with self.database.connect() as connection:
            use_utc(connection)
            wanted = source_rows(connection, table)
        try:
            found = catalog.load_table((self.config.lake.namespace, table.name)).scan().to_arrow()
        except NoSuchTableError:
            return None if not wanted else "not in the lake"
        lacking = set(_lake_names(table).values()) - set(found.column_names)
        if lacking:
            return f"columns missing: {lacking}"
        rows = sorted((_canonical(table, row) for row in found.to_pylist()), key=sort_key)
        if rows == wanted:
            return None
        left, right = Counter(rows), Counter(wanted)
        return f"extra {list((left - right).items())[:3]}, missing {list((right - left).items())[:3]}"

    def await_equal(self, mirror: MirrorProcess, seconds: float, besides: Collection[str] = ()) -> None:
        """Wait until every table but `besides` equals its source row by row."""
        deadline, left = time.monotonic() + seconds, None
        while True:
            began, version = time.monotonic(), self._lake_version()
            found = self.differences(left, besides)
            if not found and left is None:
                return
            assert not found or time.monotonic() < deadline, (
                f"still different: {found}\n{self._status()}\n{mirror.tail()}"
            )
            assert mirror.process is None or mirror.process.poll() is None, f"it ended:\n{mirror.tail()}"
            # Reading all tables each time would use one core of the machine. At the end, all are read once more.
            left = found.keys() or None
            if found:
                rest(began)
                while self._lake_version() == version and time.monotonic() < began + _UNCHANGED_S:
                    time.sleep(_POLL_S)

    def _lake_version(self) -> list[int]:
        """Return what changes with each commit."""
        catalog = Path(str(self.config.lake.uri).removeprefix("jdbc:sqlite:"))
        return [file.stat().st_mtime_ns for file in sorted(catalog.parent.glob(f"{catalog.name}*"))]

    def _status(self) -> str:
        """Return what `replicator status` says of each table and of the connector, for the message of a failure."""
        status = read_status(self.config)
        tables = [(t.table, t.state, t.events_behind, t.position, t.reason) for t in status.tables]
        return f"{tables}\n{status.connector}"

    def assert_changelogs(
        self, added: Mapping[str, Mapping[str, Any]] | None = None, besides: Collection[str] = ()
    ) -> int:
        """Assert that the changes of each key are a chain that ends in the source's row. Return the number of changes.

        Each before-image equals the after-image of the preceding change, so no change is missing or duplicated.
        `added` has, by table, the columns that were added in the meantime and the values that existing rows got:
        earlier changes may have NULL there. Tables in `besides` are left out, as those without a key must be.
        """
        changes = 0
        with open_catalog(self.config.lake) as catalog:
            for table in self.tables(besides=besides):
                changes += self._assert_changelog(catalog, table, (added or {}).get(table.name, {}))
        return changes

    def _assert_changelog(self, catalog: Catalog, table: SourceTable, added: Mapping[str, Any]) -> int:
        try:
            rows = (
                catalog.load_table((self.config.lake.changes_namespace, table.name))
                .scan()
                .to_arrow()
                .to_pylist()
            )
        except NoSuchTableError:
            return 0
        for row in rows:
            row.update({name: value for name, value in added.items() if row[name] is None})
        events = Counter(_place(r["_change"], r, table) for r in rows)
        twice = [place for place, count in events.items() if count > 1]
        assert not twice, f"{table.name}: twice in the changelog: {twice[:5]}"
        state: dict[Any, tuple[bytes | None, ...]] = {}
        for row in sorted(rows, key=applied_order):
            _step(state, table, row)
        with self.database.connect() as connection:
            use_utc(connection)
            wanted = source_rows(connection, table)
        assert sorted(state.values(), key=sort_key) == wanted, f"{table.name}: the changelog ends elsewhere"
        return len(rows)


def _canonical(table: SourceTable, row: Mapping[str, Any]) -> tuple[bytes | None, ...]:
    names = _lake_names(table)
    return tuple(canonical_value(c.kind, row[names[c.name]]) for c in table.columns)


def _lake_names(table: SourceTable) -> dict[str, str]:
    return lake_names(c.name for c in table.columns)


def _key(table: SourceTable, image: Sequence[bytes | None]) -> tuple[bytes | None, ...]:
    names = [c.name for c in table.columns]
    return tuple(image[names.index(name)] for name in table.key)


def _place(change: Mapping[str, Any], row: Mapping[str, Any], table: SourceTable) -> tuple[Any, ...]:
    place = tuple(change[name] for name in ("server_id", "file", "pos", "row", "op", "kind"))
    # All rows of a snapshot or of a re-read have one position.
    return (*place, *_key(table, _canonical(table, row))) if change["op"] in {"r", "h"} else place


def _step(state: dict[Any, tuple[bytes | None, ...]], table: SourceTable, row: Mapping[str, Any]) -> None:
    image, change = _canonical(table, row), row["_change"]
    key = _key(table, image)
    match change["kind"]:
        case "INSERT":
            assert key not in state, f"{table.name}: inserted twice: {key} at {change}"
            state[key] = image
        case "UPDATE_BEFORE":
            assert state[key] == image, f"{table.name}: {key} was another row before {change}"
        case "UPDATE_AFTER":
            state[key] = image
        case "DELETE":
            assert state.pop(key) == image, f"{table.name}: {key} was another row before {change}"
        case "TRUNCATE":
            state.clear()
