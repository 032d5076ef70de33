"""Measure the import of binary logs, beside Debezium on a live server, and beside plain parsing of the files."""

import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import pymysql
from confluent_kafka import Consumer, TopicPartition

from benchmarks.broker import cache_folder
from benchmarks.peers import binlog as plain
from benchmarks.report import CONSOLE, save, show
from replicator.config import Config, parse
from replicator.operations.binlog import ImportRequest, import_binlog
from replicator.operations.binlog.scratch import connector_settings, scratch_config
from replicator.operations.stack import Endpoints, LocalStack
from replicator.sources.archive.reader import ArchiveReader
from replicator.sources.connector.connect import KafkaConnect

_DATABASE = "bench"
_TOPIC = "bench.bench.orders"
_COLUMNS = (
    "id BIGINT NOT NULL PRIMARY KEY, customer INT NOT NULL, quantity INT NOT NULL, amount DECIMAL(12,2) NOT NULL, "
    "status VARCHAR(16) NOT NULL, note VARCHAR(120) NOT NULL, placed DATETIME(6) NOT NULL, "
    "changed TIMESTAMP(3) NOT NULL"
)
_PER_TRANSACTION = 100
_FILES = 4
_PATIENCE_S = 3600.0


@dataclass(frozen=True, slots=True)
class Options:
    """Row changes, of which 60 % are inserts, 30 % updates and 10 % deletes; in compressed transactions or not."""

    changes: int = 2_000_000
    compressed: bool = False


def binlog(options: Options, results: Path) -> bool:
    """Run, print and save. Return False if the import has another number of events than Debezium wrote."""
    folder = cache_folder() / "binlog"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        with LocalStack(folder / "source") as stack:
            first = _write(options, stack.endpoints)
            live_events, live_rate = _live(stack.endpoints, first, _config(folder))
            files = _copy(stack, first, folder / "files")
        return _measure(options, results, files, (live_events, live_rate), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measure(
    options: Options, results: Path, files: list[Path], live: tuple[int, float], folder: Path
) -> bool:
    size = sum(file.stat().st_size for file in files)
    rows, plain_rate = plain.rows_per_second(files, folder / "plain.log")
    phases = _Phases()
    request = ImportRequest(folder / "archive", tuple(files))
    done = import_binlog(_config(folder), request, on_progress=phases.see)
    phases.end()
    events = sum(segment.count for segment in ArchiveReader(request.to).segments(_TOPIC, 0))
    written = _archive_rate(request.to)
    title = f"{rows:,} row changes in {len(files)} files, {size / 1e6:,.0f} MB; {live[0]:,} events"
    table: list[tuple[str, float | None, float]] = [
        ("plain parsing, binlog client of Debezium, rows", rows / plain_rate, plain_rate),
        ("Debezium on the live server, first to last event", live[0] / live[1], live[1]),
        ("Debezium in the import, first to last event", events / written, written),
        *((f"import: {name}", seconds, events / seconds) for name, seconds in phases.seconds.items()),
        ("import, whole", phases.total, events / phases.total),
    ]
    show(title, ("", "seconds", "events/s"), table)
    wrong = [] if events == live[0] else [f"the import has {events:,} events, Debezium wrote {live[0]:,}"]
    for line in wrong:
        CONSOLE.print(f"[red]wrong[/] {line}")
    result = {
        "options": asdict(options),
        "rows": rows,
        "bytes": size,
        "transactions": done.transactions,
        "measured": [{"what": what, "seconds": seconds, "rate": rate} for what, seconds, rate in table],
        "wrong": wrong,
    }
    save(results, "binlog", result, [])
    return not wrong


class _Phases:
    """The seconds of each phase of an import."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._phase = "checking"
        self._since = self._started = time.monotonic()

    def see(self, phase: str, _done: int, _total: int) -> None:
        if phase != self._phase:
            self.end()
            self._phase = phase

    def end(self) -> None:
        now = time.monotonic()
        self.seconds[self._phase] = self.seconds.get(self._phase, 0) + now - self._since
        self._since = now

    @property
    def total(self) -> float:
        return self._since - self._started


def _config(folder: Path) -> Config:
    return parse(
        {
            "mirror": {"name": "bench", "state_dir": "state"},
            "source": {"tables": [f"{_DATABASE}.*"]},
            "log": {"kind": "archive", "path": "archive", "topic_prefix": "bench"},
            "lake": {
                "catalog": "jdbc",
                "uri": "jdbc:sqlite:lake.db",
                "warehouse": "lake",
                "namespace": "bench",
            },
        },
        base=folder,
    )


def _write(options: Options, at: Endpoints) -> str:
    """Write the changes into several files; return the name of the first one."""
    connection = pymysql.connect(
        host=at.mysql_host, port=at.mysql_port, user="root", password=at.mysql_root_password, autocommit=False
    )
    with connection, connection.cursor() as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOGS")
        first = str(cursor.fetchall()[-1][0])
        cursor.execute(f"SET SESSION binlog_transaction_compression = {int(options.compressed)}")
        cursor.execute(f"CREATE DATABASE {_DATABASE}")
        cursor.execute(f"CREATE TABLE {_DATABASE}.orders ({_COLUMNS})")
        inserts = options.changes * 6 // 10
        statements = list(_statements(inserts, options.changes * 3 // 10, options.changes // 10))
        for number, statement in enumerate(statements, start=1):
            cursor.execute(statement)
            connection.commit()
            if number % (len(statements) // _FILES + 1) == 0:
                cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("FLUSH BINARY LOGS")
    return first


def _statements(inserts: int, updates: int, deletes: int) -> Iterator[str]:
    """Yield statements of a hundred rows each."""
    table = f"{_DATABASE}.orders"
    for begin in range(0, inserts, _PER_TRANSACTION):
        rows = (
            f"({key}, {key * 7919 % 100_003}, {key % 50}, {key % 100_000}.{key % 100:02d}, 'status {key % 7}', "
            f"'note {key} {'x' * (key % 60)}', '2026-01-01 00:00:00.{key % 1_000_000:06d}', '2026-01-02 00:00:00.123')"
            for key in range(begin, begin + _PER_TRANSACTION)
        )
        yield f"INSERT INTO {table} VALUES {', '.join(rows)}"
    for begin in range(0, updates, _PER_TRANSACTION):
        end = begin + _PER_TRANSACTION
        yield f"UPDATE {table} SET quantity = quantity + 1, status = 'sent' WHERE id >= {begin} AND id < {end}"
    for begin in range(0, deletes, _PER_TRANSACTION):
        yield f"DELETE FROM {table} WHERE id >= {begin} AND id < {begin + _PER_TRANSACTION}"


def _live(at: Endpoints, first: str, config: Config) -> tuple[int, float]:
    """Let Debezium read the history from the server itself; return the number of events, and events/s."""
    settings = connector_settings(scratch_config(config, at), at)
    beginning = {"file": first, "pos": 4, "gtids": "ffffffff-ffff-ffff-ffff-ffffffffffff:1"}
    client = KafkaConnect(at.connect_url)
    client.create_at("live", settings, {"server": "bench"}, beginning)
    deadline = time.monotonic() + _PATIENCE_S
    last, still_since = -1, time.monotonic()
    consumer = Consumer({"bootstrap.servers": at.bootstrap_servers, "group.id": "bench"})
    try:
        while True:
            state = client.state("live")
            if (state is not None and state.failures) or time.monotonic() > deadline:
                raise RuntimeError(f"Debezium did not read the history: {state}")
            end = _end(consumer)
            if end != last:
                last, still_since = end, time.monotonic()
            # The offset of the connector does not pass the end of the history, so the topic decides.
            if end > 0 and time.monotonic() - still_since > 10:
                break
            time.sleep(0.2)
        first_ms, last_ms = _timestamp(consumer, 0), _timestamp(consumer, end - 1)
    finally:
        consumer.close()
    return end, end / max((last_ms - first_ms) / 1000, 0.001)


def _end(consumer: Consumer) -> int:
    if _TOPIC not in consumer.list_topics(timeout=20).topics:
        return 0
    return int(consumer.get_watermark_offsets(TopicPartition(_TOPIC, 0), timeout=20)[1])


def _timestamp(consumer: Consumer, offset: int) -> int:
    consumer.assign([TopicPartition(_TOPIC, 0, offset)])
    message = consumer.poll(30)
    if message is None or message.error():
        raise RuntimeError(f"no event at offset {offset}")
    return int(message.timestamp()[1])


def _archive_rate(archive: Path | str) -> float:
    """Return the events/s at which the import's connector wrote to its broker."""
    reader = ArchiveReader(archive)
    end = reader.end_offsets()[_TOPIC, 0]
    first = next(reader.events(_TOPIC, 0, 0, 1)).timestamp
    last = next(reader.events(_TOPIC, 0, end - 1, end)).timestamp
    return end / max((last - first) / 1000, 0.001)


def _copy(stack: LocalStack, first: str, folder: Path) -> list[Path]:
    folder.mkdir()
    data = stack.folder / "mysql" / "data"
    names = sorted(path for path in data.glob("mysql-bin.[0-9]*") if path.name >= first)
    return [Path(shutil.copy(path, folder)) for path in names]
