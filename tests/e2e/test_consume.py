"""Consumers of a busy mirror on the real stack, which are killed again and again."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.canonical_rows import describe
from tests.support.mirror import COMMAND, FAST_MIRROR, START_S, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder

BUSY = f"""
[maintenance]
merge_files = 2
max_snapshots = 2
{FAST_MIRROR}
"""
"""Nearly every batch merges files and deletes snapshots."""
KILLS = 8


@dataclass
class ConsumingProgram:
    """A program that reads the lines of `replicator consume`, and stores them up to the newest cursor.

    Attributes:
        rows: key → row.
        places: the places of all changes, to find any that comes twice.
    """

    config: Path
    table: str
    key: Sequence[str]
    start: str
    folder: Path
    rows: dict[Any, dict[str, Any]] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)
    cursor: dict[str, Any] | None = None

    def read(self, *, kill_after: int | None) -> None:
        """Read until there is nothing more, or kill the command after so many lines."""
        file = self.folder / f"{self.start}.cursor"
        if self.cursor is not None:
            file.write_text(json.dumps(self.cursor))
        start = self.start if self.cursor is None else str(file)
        arguments = [COMMAND, "consume", self.table, "-c", str(self.config), "--from", start]
        arguments += ["--batch-rows", "5", *(["--follow"] if kill_after is not None else [])]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            waiting: list[dict[str, Any]] = []
            for number, line in enumerate(process.stdout):
                waiting.append(json.loads(line))
                if waiting[-1]["type"] == "cursor":
                    self._store(waiting)
                    waiting = []
                if number == kill_after:
                    process.kill()
                    return
            assert process.wait() == 0, process.stderr.read().decode()

    def _store(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            if line["type"] == "row":
                self.rows[self._key(line["row"])] = line["row"]
            elif line["type"] == "change":
                self.places.append(json.dumps(line["change"]))
                if line["change"]["kind"] in ("INSERT", "UPDATE_AFTER"):
                    self.rows[self._key(line["row"])] = line["row"]
                elif line["change"]["kind"] == "DELETE":
                    del self.rows[self._key(line["row"])]
        self.cursor = lines[-1]["cursor"]

    def _key(self, row: dict[str, Any]) -> Any:
        return json.dumps([row[name] for name in self.key])


def programs(mirrored: MirroredDatabase, table: str) -> list[ConsumingProgram]:
    with mirrored.database.connect() as connection:
        key = describe(connection, mirrored.database.name, table).key
    name = f"{mirrored.database.name}.{table}"
    return [
        ConsumingProgram(mirrored.config, name, key, start, mirrored.folder)
        for start in ("mirror", "changelog")
    ]


def mirror_rows(mirrored: MirroredDatabase, table: str) -> dict[Any, dict[str, Any]]:
    (program, _) = programs(mirrored, table)
    program.read(kill_after=None)
    assert program.places == []
    return program.rows


@pytest.mark.fault(
    "A consumer is killed between two changes",
    area="Process",
    on="MySQL, Debezium, Kafka",
    outcome="it continues with its cursor",
)
@pytest.mark.long
def test_consumers_that_are_killed_have_the_rows_of_the_source(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=2, extra=BUSY)
    found = programs(mirrored, "t00")
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        until(mirror.batches, seconds=START_S, doing="the first batch")
        mirrored.comparison.await_equal(mirror, START_S)
        # All rows of the mirror at once: a consumer that has a part of them needs their snapshot.
        found[0].read(kill_after=None)
        with mirrored.writers(1, 2):
            for kill in range(KILLS):
                for program in found:
                    program.read(kill_after=30 * (kill + 1))
        mirrored.comparison.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()
    wanted = mirror_rows(mirrored, "t00")
    for program in found:
        program.read(kill_after=None)
        assert program.rows == wanted, program.start
        assert len(set(program.places)) == len(program.places), program.start
    assert len(found[0].places) > KILLS
