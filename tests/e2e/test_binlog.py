"""Import binary logs of a real MySQL, and compare with what Debezium made of the same history while it happened."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pymysql.err import OperationalError

from replicator.config import Config, load
from replicator.lake.reading.reader import open_catalog
from replicator.model.binlog import ConnectorOffset
from replicator.operations.connector import register
from replicator.operations.record import record
from replicator.sources.archive.format import Event
from replicator.sources.archive.origin import load_origin
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.archive.storage import open_storage
from replicator.sources.connector.settings import connect_client
from tests.e2e.test_conformance import (
    available,
    await_records,
    execute,
    expected_records,
    written_after,
    written_before,
)
from tests.support.lake_contents import contents
from tests.support.mirror import COMMAND, FAST_MIRROR, START_S, until
from tests.support.source import SourceDatabase, small_statement_cache
from tests.workload.column_types import MODES, TABLES, TypeTable

BY_EVENTS = f"""
[bootstrap]
by = "connector"
{FAST_MIRROR}
"""
"""All rows come from events, and none from the source."""
MORE = (
    "CREATE TABLE moved (id INT PRIMARY KEY, a INT, b VARCHAR(20) CHARACTER SET latin1)",
    "INSERT INTO moved VALUES (1, 1, 'ä'), (2, 2, NULL), (3, 3, 'c')",
    "ALTER TABLE moved RENAME COLUMN a TO c, ADD COLUMN a BIGINT NOT NULL DEFAULT 7",
    "UPDATE moved SET a = 8, b = 'é' WHERE id = 2",
    "UPDATE moved SET id = 30 WHERE id = 3",
    "TRUNCATE TABLE moved",
    "INSERT INTO moved (id, b) VALUES (4, 'd')",
)
"""A renamed and an added column with the old name, another key, and TRUNCATE, between rows."""
MOVED_EVENTS = 9
"""Three inserts, an update, three records for another key, TRUNCATE, an insert."""


@dataclass(frozen=True)
class History:
    """A source whose whole history Debezium has written to Kafka, and copies of its binary logs."""

    database: SourceDatabase
    config: Path
    files: tuple[Path, ...]

    @property
    def settings(self) -> Config:
        return load(self.config)

    def other(self, name: str, **changes: str) -> Path:
        """Return the configuration of a mirror with another lake and state."""
        folder = self.config.parent / name
        (folder / "lake").mkdir(parents=True)
        path = folder / "mirror.toml"
        text = self.database.config_text(folder, BY_EVENTS)
        for old, new in changes.items():
            text = text.replace(old, new)
        path.write_text(text)
        return path


def flush(database: SourceDatabase) -> str:
    """Let the server begin another binary log, and return its name."""
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOGS")
        return str(cursor.fetchall()[-1][0])


def begin(database: SourceDatabase, folder: Path) -> Path:
    """Register a connector, and wait until it streams, so that all rows come from the binary log."""
    (folder / "lake").mkdir(parents=True)
    config = folder / "mirror.toml"
    text = database.config_text(folder, BY_EVENTS)
    # As `check` demands of a mirror whose source compresses transactions.
    config.write_text(text.replace("[lake]", "transactions = true\n[lake]", 1))
    settings = load(config)
    register(settings)
    client = connect_client(settings)
    assert client is not None

    def streams() -> bool:
        offset = client.offset(settings.mirror.name)
        return offset is not None and not ConnectorOffset.from_json(offset).in_snapshot

    until(streams, seconds=120, doing="the connector streams")
    return config


def copies(database: SourceDatabase, first: str, folder: Path) -> tuple[Path, ...]:
    """Copy the binary logs from `first` on, the one that is being written too."""
    folder.mkdir()
    data = database.stack.folder / "mysql" / "data"
    names = sorted(path for path in data.glob("mysql-bin.[0-9]*") if path.name >= first)
    return tuple(Path(shutil.copy(path, folder)) for path in names)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=START_S * 2,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def succeeded(*arguments: str) -> str:
    done = command(*arguments)
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-1000:]
    return done.stdout


def imported(config: Path, archive: Path, *arguments: str) -> dict[str, Any]:
    text = succeeded("record", "-c", str(config), "--to", str(archive), "--json", *arguments)
    return dict(json.loads(text))


def events(archive: Path, topic: str) -> list[Event]:
    """Return the events of a topic, without the times of the connector's own clock and the id of its run."""
    found = []
    for event in ArchiveReader(archive).events(topic, 0):
        value = event.value
        if value is not None:
            document = json.loads(value)
            payload = document.get("payload", document)
            value = json.dumps(
                {k: v for k, v in payload.items() if k not in ("ts_ms", "ts_us", "ts_ns")}
            ).encode()
        headers = tuple(header for header in event.headers if header[0] != "__debezium.context.runId")
        found.append(replace(event, value=value, timestamp=0, headers=headers))
    return found


def differing_types(
    database: SourceDatabase, tables: Sequence[TypeTable], found: Path, wanted: Path
) -> set[str]:
    """Return the labels of the columns whose values differ in two archives; all else must be equal."""
    labels: set[str] = set()
    for table in tables:
        topic = f"{database.prefix}.{database.name}.{table.name}"
        pairs = list(zip(events(found, topic), events(wanted, topic), strict=True))
        assert pairs
        for one, other in pairs:
            assert replace(one, value=None) == replace(other, value=None)
            ours, theirs = json.loads(one.value or b""), json.loads(other.value or b"")
            for image in ("before", "after"):
                rows = [document.pop(image) or {} for document in (ours, theirs)]
                assert rows[0].keys() == rows[1].keys()
                columns = {table.column(case): case.label for case in table.cases}
                labels |= {columns[name] for name, value in rows[0].items() if value != rows[1][name]}
            assert ours == theirs
    return labels


def lake(config: Path) -> dict[str, Any]:
    settings = load(config).lake
    with open_catalog(settings) as catalog:
        found = contents(catalog, settings.namespace)
    for rows in found["changelog"].values():
        for row in rows:
            # The lakes were written in different numbers of commits.
            del row["_change"]["commit"]
    return found


@pytest.fixture
def history(source_database: SourceDatabase, tmp_path: Path) -> History:
    """Provide the workload of the conformance test, in several files, and in part in compressed transactions."""
    database = source_database
    tables = [available(table, database) for table in TABLES]
    first = flush(database)
    config = begin(database, tmp_path / "live")
    execute(database, written_before(tables))
    flush(database)
    execute(database, ["SET SESSION binlog_transaction_compression = ON", *written_after(tables)])
    flush(database)
    execute(database, [MODES, *MORE])
    await_records(database, {**expected_records(tables, later=True), "moved": MOVED_EVENTS})
    return History(database, config, copies(database, first, tmp_path / "copies"))


@pytest.mark.long
def test_import_equals_what_debezium_wrote_at_the_time(history: History, tmp_path: Path) -> None:
    archive, live = tmp_path / "archive", tmp_path / "live-archive"
    other = history.other("other")
    assert len(history.files) == 3
    report = imported(other, archive, "--binlog", *map(str, history.files))
    assert report["complete"]
    assert [file["name"] for file in report["files"]] == [path.name for path in history.files]
    record(history.settings, live, until_caught_up=True)
    prefix = history.database.prefix
    topics = [topic for topic in ArchiveReader(live).topics() if topic != prefix]
    assert len(topics) == 2 * len(TABLES) + 2
    assert [topic for topic in ArchiveReader(archive).topics() if topic != prefix] == topics
    for topic in topics:
        assert events(archive, topic) == events(live, topic), topic
    some = json.loads(next(e.value for e in ArchiveReader(archive).events(topics[0], 0) if e.value))
    assert some["source"]["gtid"]
    succeeded("run", "-c", str(history.config), "--until-caught-up")
    succeeded("replay", "-c", str(other), "--from", str(archive))
    wanted, found = lake(history.config), lake(other)
    for part in ("mirror", "mirror columns", "changelog", "changelog columns"):
        assert found[part].keys() == wanted[part].keys()
        for table, rows in wanted[part].items():
            assert found[part][table] == rows, f"{part} of {table}"
    assert sum(map(len, wanted["changelog"].values())) > 100
    # A repeated import and replay add nothing; another log's offsets are refused.
    assert imported(other, archive, "--binlog", *map(str, history.files))["events"] == 0
    succeeded("replay", "-c", str(other), "--from", str(archive))
    assert lake(other)["changelog"] == wanted["changelog"]
    refused = command("replay", "-c", str(history.config), "--from", str(archive))
    assert refused.returncode == 1
    assert "imported from binary logs" in refused.stderr
    assert lake(history.config)["changelog"] == wanted["changelog"]


@pytest.mark.long
def test_import_continues_with_given_definitions(source_database: SourceDatabase, tmp_path: Path) -> None:
    database = source_database
    tables = [available(table, database) for table in TABLES]
    execute(database, [MODES, *(table.create() for table in tables)])
    config = begin(database, tmp_path / "live")
    first = flush(database)
    execute(database, [MODES, *(table.insert(row, row) for table in tables for row in range(table.rows))])
    flush(database)
    execute(
        database,
        [
            MODES,
            *(table.update(row, (row + 1) % table.rows) for table in tables for row in range(1, table.rows)),
        ],
    )
    wanted = {t.name: 2 * t.rows - 1 for t in tables}
    await_records(database, wanted)
    files = copies(database, first, tmp_path / "copies")
    archive, live = tmp_path / "archive", tmp_path / "live-archive"
    dump = tmp_path / "definitions.sql"
    with database.connect() as connection, connection.cursor() as cursor:
        lines = []
        for table in tables:
            cursor.execute(f"SHOW CREATE TABLE {table.name}")
            lines.append(f"{(cursor.fetchone() or ())[1]};\n")
    dump.write_text("".join(lines))
    given = ("--definitions", str(dump))
    half = imported(config, archive, "--binlog", str(files[0]), *given)
    assert half["events"] > 0
    rest = imported(config, archive, "--binlog", *map(str, files), *given)
    record(load(config), live, until_caught_up=True)
    assert differing_types(database, tables, archive, live) == set()
    assert half["events"] + rest["events"] == ArchiveReader(archive).manifest.events
    dump.write_text(f"{dump.read_text()}CREATE TABLE other (id INT);\n")
    refused = command(
        "record",
        "-c",
        str(config),
        "--to",
        str(archive),
        "--binlog",
        *map(str, files),
        "--definitions",
        str(dump),
    )
    assert refused.returncode == 3
    assert "contains events of" in refused.stderr


@pytest.mark.long
def test_import_fetches_the_files_of_the_server(source_database: SourceDatabase, tmp_path: Path) -> None:
    database = source_database
    # Other tests have written what no import can read.
    database.execute(f"PURGE BINARY LOGS TO '{flush(database)}'")
    config = begin(database, tmp_path / "live")
    execute(database, list(MORE))
    await_records(database, {"moved": MOVED_EVENTS})
    archive, live = tmp_path / "archive", tmp_path / "live-archive"
    report = imported(config, archive, "--from-server")
    names = [file["name"] for file in report["files"]]
    data = database.stack.folder / "mysql" / "data"
    assert names[0] == min(path.name for path in data.glob("mysql-bin.[0-9]*"))
    record(load(config), live, until_caught_up=True)
    topic = f"{database.prefix}.{database.name}.moved"
    assert events(archive, topic) == events(live, topic)
    assert load_origin(open_storage(archive)) is not None


@pytest.mark.fault(
    "A binary log file is damaged",
    area="Archive",
    on="MySQL",
    outcome="the import is refused before it begins",
)
def test_import_refuses_damaged_files_before_it_starts_servers(
    source_database: SourceDatabase, tmp_path: Path
) -> None:
    database = source_database
    first = flush(database)
    execute(database, list(MORE))
    flush(database)
    files = copies(database, first, tmp_path / "copies")
    (tmp_path / "lake").mkdir()
    config = tmp_path / "mirror.toml"
    config.write_text(database.config_text(tmp_path))
    content = bytearray(files[0].read_bytes())
    content[len(content) // 2] ^= 0xFF
    files[0].write_bytes(content)
    refused = command("record", "-c", str(config), "--to", str(tmp_path / "a"), "--binlog", *map(str, files))
    assert refused.returncode == 3
    assert "is damaged at offset" in refused.stderr
    assert not (tmp_path / "a").exists()
    assert not (tmp_path / "state" / "binlog-import").exists()


@pytest.mark.fault(
    "A binary log file has an incident: the server could not write changes",
    area="Archive",
    on="MySQL",
    outcome="the import is refused before it begins",
)
def test_import_refuses_files_that_lack_changes(source_database: SourceDatabase, tmp_path: Path) -> None:
    database = source_database
    database.execute("CREATE TABLE m (id INT PRIMARY KEY AUTO_INCREMENT, v TEXT) ENGINE = MyISAM")
    first = flush(database)
    with small_statement_cache(database), pytest.raises(OperationalError, match="max_binlog_stmt_cache"):
        database.execute(f"INSERT INTO m (v) VALUES {', '.join(['(REPEAT(0, 3000))'] * 9)}")
    files = copies(database, first, tmp_path / "copies")
    (tmp_path / "lake").mkdir()
    config = tmp_path / "mirror.toml"
    config.write_text(database.config_text(tmp_path))
    refused = command("record", "-c", str(config), "--to", str(tmp_path / "a"), "--binlog", *map(str, files))
    assert refused.returncode == 3
    assert f"{files[0].name} lacks changes" in refused.stderr


@pytest.mark.fault(
    "Binary logs have a statement that Debezium cannot parse",
    area="Archive",
    on="MySQL, Debezium, Kafka",
    outcome="the import skips it, or refuses it with its text if it may define an imported table",
)
def test_import_skips_a_statement_unless_it_may_define_an_imported_table(
    source_database: SourceDatabase, tmp_path: Path
) -> None:
    database = source_database
    first, other = flush(database), f"{source_database.name}_other"
    columns = "(id INT PRIMARY KEY, url VARCHAR(300))"
    execute(database, [f"CREATE DATABASE {other}", f"CREATE TABLE {other}.links {columns}", *MORE])
    execute(database, [f"DROP DATABASE {other}"])
    flush(database)
    # No row follows: Debezium would fail at it, perhaps before the statement is in the topic.
    execute(database, ["ALTER TABLE moved ADD COLUMN url VARCHAR(300)"])
    files = copies(database, first, tmp_path / "copies")
    (tmp_path / "lake").mkdir()
    config, archive = tmp_path / "mirror.toml", tmp_path / "archive"
    config.write_text(database.config_text(tmp_path))
    assert imported(config, archive, "--binlog", str(files[0]))["complete"]
    topic = f"{database.prefix}.{database.name}.moved"
    assert len(events(archive, topic)) == MOVED_EVENTS
    refused = command("record", "-c", str(config), "--to", str(archive), "--binlog", *map(str, files))
    assert refused.returncode == 3
    assert "cannot parse a statement that may define the table moved: ALTER TABLE " in refused.stderr


@pytest.mark.long
def test_import_leaves_out_an_incomplete_transaction_at_the_end(
    source_database: SourceDatabase, tmp_path: Path
) -> None:
    database = source_database
    first = flush(database)
    execute(database, list(MORE))
    (file,) = copies(database, first, tmp_path / "copies")
    os.truncate(file, file.stat().st_size - 40)
    (tmp_path / "lake").mkdir()
    config = tmp_path / "mirror.toml"
    config.write_text(database.config_text(tmp_path))
    report = imported(config, tmp_path / "archive", "--binlog", str(file))
    assert report["files"][0]["cut_at"] is not None
    # The last INSERT is missing, and nothing else.
    found = ArchiveReader(tmp_path / "archive")
    segments = found.segments(f"{database.prefix}.{database.name}.moved", 0)
    assert sum(segment.count for segment in segments) == MOVED_EVENTS - 1
