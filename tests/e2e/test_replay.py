"""An archive that a killed recorder wrote, replayed onto a lake that has a part of it, and onto a new one."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from replicator.model.position import binlog_number
from replicator.sources.archive.reader import ArchiveReader
from tests.support.mirror import COMMAND, FAST_MIRROR, START_S, Comparison, running, until
from tests.support.mirrored_database import MirroredDatabase, MirroredDatabaseBuilder

KILLS = ("after-archive-file:2", "before-archive-manifest:2", "after-archive-manifest:1")


def run(*arguments: object, code: int = 0) -> str:
    command = [COMMAND, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def record_until_killed(config: Path, archive: Path, point: str, ends: dict[tuple[str, int], int]) -> None:
    """Follow the topics until the process is killed. What was archived before must still be there, and whole."""
    command = [COMMAND, "record", "-c", str(config), "--to", str(archive), "--segment-time", "200 ms"]
    process = subprocess.Popen(
        command,
        env=os.environ | {"REPLICATOR_CRASH_AT": point},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert process.wait(START_S) == -signal.SIGKILL
    finally:
        process.kill()
    if not (archive / "manifest.json").exists():
        return
    reader = ArchiveReader(archive)
    for key, end in reader.end_offsets().items():
        assert end >= ends.get(key, 0)
        ends[key] = end
        assert sum(1 for _ in reader.events(*key)) == reader.manifest.partitions[key].count


def other_lake(mirrored: MirroredDatabase, name: str) -> Path:
    text = mirrored.config.read_text().replace("/lake", f"/{name}-lake").replace('/state"', f'/{name}-state"')
    (mirrored.folder / f"{name}-lake").mkdir()
    return mirrored.configured(f"{name}.toml", text)


@pytest.mark.long
def test_replay_onto_a_lake_with_a_part_of_the_archive_duplicates_nothing(
    mirror_database: MirroredDatabaseBuilder,
) -> None:
    mirrored = mirror_database(tables=3, extra=FAST_MIRROR)
    archive, ends = mirrored.folder / "archive", dict[tuple[str, int], int]()
    with running(mirrored.config, mirrored.folder / "out.log") as mirror, mirrored.writers(1, 2):
        for point in KILLS:
            record_until_killed(mirrored.config, archive, point, ends)
        until(mirror.batches, seconds=START_S, doing="the mirror has a part")
        assert mirror.stop() == 0, mirror.tail()
        # The writers go on behind the position.
        middle = "{}:{}".format(*position(mirrored))
        run("record", "-c", mirrored.config, "--to", archive, "--until-caught-up")
    archive_all(mirrored, archive)
    shown = json.loads(run("archive", "--from", archive, "--verify", "--json"))
    assert shown["problems"] == []

    for name, config in (("first", mirrored.config), ("new", other_lake(mirrored, "new"))):
        if name == "new":
            assert "the lake lacks events" in run(
                "replay", "-c", config, "--from", archive, "--after", middle, code=1
            )
        run("replay", "-c", config, "--from", archive, "--until", middle)
        run("replay", "-c", config, "--from", archive, "--after", middle)
        again = run("replay", "-c", config, "--from", archive)
        assert again.startswith("0 events in 0 batches"), again
        comparison = Comparison.of(mirrored.database, config)
        assert comparison.differences() == {}
        assert comparison.assert_changelogs() > 100
    # The mirror continues from Kafka.
    mirrored.database.execute("UPDATE t00 SET number = 6")
    with running(mirrored.config, mirrored.folder / "out.log") as mirror:
        mirrored.comparison.await_equal(mirror, START_S)
        assert mirror.stop() == 0, mirror.tail()
    mirrored.comparison.assert_changelogs()


def position(mirrored: MirroredDatabase) -> tuple[str, int]:
    """Return the end of the source's binlog."""
    statement = "BINARY LOG" if mirrored.database.has_version("8.2.0") else "MASTER"
    ((file, pos, *_),) = mirrored.database.rows(f"SHOW {statement} STATUS")
    return str(file), int(pos)


def archive_all(mirrored: MirroredDatabase, archive: Path) -> None:
    """Record until the archive has everything that the source has: a last change of each table, and all before it."""
    marks = {}
    for table in mirrored.tables:
        file, pos = position(mirrored)
        marks[mirrored.topic(table.name)] = (binlog_number(file), pos)
        mirrored.database.execute(f"UPDATE {table.name} SET number = IF(number = 5, 6, 5) LIMIT 1")

    def has_marks() -> bool:
        run("record", "-c", mirrored.config, "--to", archive, "--until-caught-up")
        reader = ArchiveReader(archive)
        last = {topic: reader.segments(topic, 0)[-1].source for topic in marks}
        return all(
            span and (binlog_number(span.last[0]), span.last[1]) >= marks[t] for t, span in last.items()
        )

    until(has_marks, seconds=START_S, doing="the archive has the newest changes")
