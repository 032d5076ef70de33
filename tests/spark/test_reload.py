"""SIGHUP to a mirror that runs as a separate process, with an archive in place of Kafka."""

import copy
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from replicator.config import load
from replicator.errors import CheckFailed, LakeUnavailable
from replicator.lake.properties import LEFT_OUT_KEY
from replicator.model.reread import REREAD_KEY, Phase, new_request, requests_in
from replicator.model.table import TableId
from replicator.operations.reload import reload
from replicator.recovery.gaps import LEFT_OUT, LeftOutTables
from replicator.recovery.service import Recovery
from replicator.runner.scheduler import Scheduler
from tests.oracle.compare import assert_changelog_equals, assert_mirror_equals
from tests.oracle.model import DATABASE, Source, SourceTable
from tests.support.lake_harness import LakeHarness
from tests.support.lake_schemas import validate_lake
from tests.support.mirror import family, until

CONFIG = """
[mirror]
name = "shop"
[source]
url = "mysql://u@127.0.0.1:9/shop"
tables = [TABLES]
[log]
kind = "kafka"
bootstrap_servers = "127.0.0.1:9"
topic_prefix = "shop"
[lake]
catalog = "jdbc"
uri = "jdbc:sqlite:lake/catalog.db"
warehouse = "lake"
namespace = "shop"
[spark]
master = "local[1]"
driver_memory = "512m"
conf = { "spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" }
"""
WAIT_S = 180.0


class Running:
    """A mirror as a separate process in `folder`, and the source whose log it follows."""

    def __init__(self, folder: Path, source: Source) -> None:
        unused: Any = None
        self.lake = LakeHarness(unused, folder)
        self.file = folder / "replicator.toml"
        self.log = folder / "out.log"
        self.source = source
        self._written = 0
        self.process: subprocess.Popen[bytes] | None = None

    def write(self) -> None:
        """Append the records that the source has made since the last call to the archive."""
        self.lake.write(self.source.records[self._written :])
        self._written = len(self.source.records)

    def configure(self, *tables: SourceTable) -> None:
        """Write the configuration of a mirror with some tables."""
        names = ", ".join(f'"{DATABASE}.{table.name}"' for table in tables)
        self.file.write_text(CONFIG.replace("TABLES", names))

    def reload(self) -> tuple[str, ...]:
        return reload(load(self.file), self.file, WAIT_S).changed

    def lines(self, event: str) -> list[dict[str, Any]]:
        """Return the log lines with an event."""
        lines = [line for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [found for line in lines if (found := json.loads(line))["event"] == event]

    def holds(self, table: SourceTable) -> Callable[[], bool]:
        """Return whether mirror and changelog of a table equal those of the source."""

        def answer() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            if not (self.file.parent / "lake" / "catalog.db").exists():
                return False
            try:
                with self.lake.catalog() as catalog:
                    assert_mirror_equals(catalog, "shop", table)
                    assert_changelog_equals(catalog, "shop", table)
            # Java creates the catalog's table, and adds a column to it, while this test reads.
            except (AssertionError, LakeUnavailable):
                return False
            return True

        return answer

    def await_equal(self, table: SourceTable) -> None:
        until(
            self.holds(table),
            seconds=WAIT_S,
            doing=f"{table.name} is mirrored\n{self.log.read_text()[-3000:]}",
        )


@contextmanager
def running(folder: Path, source: Source, *tables: SourceTable) -> Iterator[Running]:
    mirror = Running(folder, source)
    mirror.configure(*tables)
    mirror.write()
    command = [sys.executable, "-m", "tests.programs.archive_follower"]
    # The same code that the other tests import.
    env = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with (
        mirror.log.open("wb") as output,
        subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env=env,
        ) as process,
    ):
        mirror.process = process
        try:
            yield mirror
        finally:
            for child in family(process.pid):
                child.kill()
            process.kill()


@pytest.fixture
def source() -> Source:
    made = Source(7, with_schemas=True, truncates=False, alters=0)
    made.start(("bigint", "composite"), rows=10)
    return made


def test_running_mirror_gets_and_loses_tables_and_refuses_files_with_errors(
    tmp_path: Path, source: Source
) -> None:
    first, second = source.tables
    with running(tmp_path, source, first) as mirror:
        mirror.await_equal(first)
        assert mirror.process is not None
        (java,) = psutil.Process(mirror.process.pid).children()
        assert not mirror.holds(second)()

        # A file with an error changes nothing, and is reported as at a start.
        mirror.file.write_text(CONFIG.replace("[TABLES]", '["shop"]'))
        mirror.process.send_signal(signal.SIGHUP)
        [refused] = until(
            lambda: mirror.lines("configuration not reloaded"), seconds=WAIT_S, doing="the file is refused"
        )
        assert refused["level"] == "error"
        assert 'source.tables[0]: "shop" is not a table pattern' in refused["reason"]
        mirror.configure(first)
        mirror.file.write_text(mirror.file.read_text().replace("local[1]", "local[2]"))
        with pytest.raises(CheckFailed, match=r"spark\.master \(Java has been started with it\)"):
            mirror.reload()

        # A table is added.
        source.run(30)
        mirror.write()
        mirror.configure(first, second)
        assert mirror.reload() == ("source.tables",)
        mirror.await_equal(first)
        mirror.await_equal(second)

        # A table is taken out, and stays in the lake as it is.
        kept = copy.deepcopy(first)
        source.run(30)
        mirror.write()
        mirror.configure(second)
        assert mirror.reload() == ("source.tables",)
        mirror.await_equal(second)
        assert kept.rows != first.rows
        assert mirror.holds(kept)()

        # A service manager may send the signal to every process that it finds.
        mirror.configure(second, first)
        java.send_signal(signal.SIGHUP)
        assert mirror.reload() == ("source.tables",)
        mirror.await_equal(first)
        assert psutil.Process(mirror.process.pid).children() == [java]
        assert [line["changed"] for line in mirror.lines("configuration reloaded")] == [["source.tables"]] * 3
        # Batches are numbered on.
        numbers = [line["batch"] for line in mirror.lines("batch")]
        assert numbers == sorted(set(numbers))

        mirror.process.terminate()
        assert mirror.process.wait(WAIT_S) == 0
        java.wait(WAIT_S)
        summary = mirror.log.read_text().splitlines()[-1]
        assert f" in {numbers[-1]} batches" in summary
        assert " 2 tables" in summary


def test_reread_of_a_table_that_was_taken_out_is_given_up(lake: LakeHarness) -> None:
    source = Source(3, with_schemas=True)
    source.start(("bigint", "composite"), rows=3)
    lake.write(source.records)
    mirror = lake.catch_up()
    kept, left = (new_request(TableId(DATABASE, table.name), "a test") for table in source.tables)
    left = replace(left, phase=Phase.READING)
    config = lake.config(source={"tables": ["shop.*"], "exclude": [str(left.table)]})
    ops = config.lake.ops_namespace
    for request in (kept, left):
        mirror.context.lake.set_namespace_property(ops, REREAD_KEY + str(request.table), request.to_json())

    mirror = lake.mirror(config)
    recovery = Recovery(mirror.context, mirror.tables, mirror.stopping)
    recovery.ask_for_new_tables()
    assert [request.table for request in recovery.requests()] == [kept.table]
    recorded = {r.table: r for r in requests_in(mirror.context.lake.namespace_properties(ops))}
    assert (recorded[kept.table].phase, recorded[left.table].phase) == (Phase.REQUESTED, Phase.FAILED)
    assert "replicator reload" in (recorded[left.table].problem or "")


def test_tables_that_return_to_the_configuration_are_known(lake: LakeHarness) -> None:
    source = Source(3, with_schemas=True)
    source.start(("bigint", "composite"), rows=3)
    lake.write(source.records)
    lake.catch_up()
    left = TableId(DATABASE, source.tables[0].name)
    without = lake.config(source={"tables": ["shop.*"], "exclude": [str(left)]})
    ops = without.lake.ops_namespace

    def recorded(mirror: Scheduler) -> list[str]:
        properties = mirror.context.lake.namespace_properties(ops)
        return [key for key in properties if key.startswith(LEFT_OUT_KEY)]

    mirror = lake.mirror(without)
    for _ in range(2):
        LeftOutTables(mirror.context).record()
        assert recorded(mirror) == [LEFT_OUT_KEY + str(left)]
    assert LeftOutTables(mirror.context).returned() == {}
    with lake.catalog() as catalog:
        validate_lake(catalog, "shop")

    mirror = lake.mirror()
    tables = LeftOutTables(mirror.context)
    assert tables.returned() == {left: LEFT_OUT}
    tables.record()
    assert recorded(mirror) == [LEFT_OUT_KEY + str(left)]
    # An archive cannot be combined with the source, so nothing can be done for the table but a warning.
    Recovery(mirror.context, mirror.tables, mirror.stopping).open()
    assert (recorded(mirror), mirror.summary().paused) == ([], {})
