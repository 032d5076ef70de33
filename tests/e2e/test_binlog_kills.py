"""An import of binary logs that is killed, or whose Kafka Connect stands still."""

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from replicator.operations.stack import load_state
from replicator.operations.stack.process import Child
from replicator.operations.stack.state import PartState
from replicator.sources.archive.reader import ArchiveReader
from tests.e2e.test_binlog import MORE, MOVED_EVENTS, command, copies, events, flush, imported
from tests.e2e.test_conformance import execute
from tests.support.mirror import COMMAND, START_S, until
from tests.support.source import SourceDatabase


@pytest.mark.fault(
    "An import of binary logs is killed",
    area="Archive",
    on="MySQL, Debezium, Kafka",
    outcome="the import is repeated",
)
@pytest.mark.long
def test_import_is_repeated_after_a_kill(source_database: SourceDatabase, tmp_path: Path) -> None:
    database = source_database
    first = flush(database)
    execute(database, list(MORE))
    files = copies(database, first, tmp_path / "copies")
    (tmp_path / "lake").mkdir()
    config, archive = tmp_path / "mirror.toml", tmp_path / "archive"
    config.write_text(database.config_text(tmp_path))
    arguments = ("record", "-c", str(config), "--to", str(archive), "--binlog", *map(str, files))
    process = subprocess.Popen([COMMAND, *arguments], stdin=subprocess.DEVNULL, start_new_session=True)
    folder = tmp_path / "state" / "binlog-import" / "stack"
    try:
        until(lambda: len(parts(folder)) == 3, seconds=START_S, doing="servers start")
        left = parts(folder)
        busy = command(*arguments)
        assert busy.returncode == 2
        assert "another import of this mirror is running" in busy.stderr
    finally:
        process.kill()
        process.wait()
    assert any(child.alive() for child in left)
    assert imported(config, archive, "--binlog", *map(str, files))["complete"]
    assert not any(child.alive() for child in left)
    assert not folder.parent.exists()
    topic = f"{database.prefix}.{database.name}.moved"
    assert len(events(archive, topic)) == MOVED_EVENTS


def parts(folder: Path) -> list[Child]:
    """Return the processes of a stack; none if it was not started."""
    return [part.child for part in load_parts(folder)]


def load_parts(folder: Path) -> list[PartState]:
    state = load_state(folder)
    return [] if state is None else list(state.parts.values())


@pytest.mark.fault(
    "Kafka Connect stands still for seconds during an import of binary logs",
    area="Archive",
    on="MySQL, Debezium, Kafka",
    outcome="the archive has each event once",
)
@pytest.mark.long
def test_import_has_each_event_once_when_the_connector_stands_still(
    source_database: SourceDatabase, tmp_path: Path
) -> None:
    database = source_database
    first = flush(database)
    rows = 20_000
    database.execute(
        "CREATE TABLE many (id INT PRIMARY KEY, a VARCHAR(200))",
        "SET SESSION cte_max_recursion_depth = 1000000",
        "INSERT INTO many WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n "
        f"WHERE i < {rows}) SELECT i, REPEAT('a', 200) FROM n",
    )
    files = copies(database, first, tmp_path / "copies")
    (tmp_path / "lake").mkdir()
    config, archive = tmp_path / "mirror.toml", tmp_path / "archive"
    config.write_text(database.config_text(tmp_path))
    arguments = ("record", "-c", str(config), "--to", str(archive), "--binlog", *map(str, files))
    process = subprocess.Popen([COMMAND, *arguments], stdin=subprocess.DEVNULL)
    try:
        pauses = pause_connect(tmp_path / "state" / "binlog-import" / "stack", process)
        assert process.wait(START_S) == 0
    finally:
        process.kill()
        process.wait()
    assert pauses > 1
    topic = f"{database.prefix}.{database.name}.many"
    found = [json.loads(event.value or b"") for event in ArchiveReader(archive).events(topic, 0)]
    assert [(e.get("payload", e))["after"]["id"] for e in found] == list(range(1, rows + 1))
    assert imported(config, archive, "--binlog", *map(str, files))["events"] == 0


def pause_connect(folder: Path, process: subprocess.Popen[bytes]) -> int:
    """Let Kafka Connect stand still again and again while Debezium reads; return how often it did."""
    log = folder / "connect" / "connect.log"

    def reads() -> bool:
        return process.poll() is not None or (log.exists() and b"Connected to binlog at" in log.read_bytes())

    until(reads, seconds=START_S, doing="Debezium reads the files")
    pauses = 0
    while process.poll() is None and pauses < 10:
        for child in (part.child for part in load_parts(folder) if part.part == "connect"):
            child.signal(signal.SIGSTOP)
            time.sleep(1.5)
            child.signal(signal.SIGCONT)
            pauses += 1
        time.sleep(0.3)
    return pauses
