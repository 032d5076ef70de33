"""Record the demo's event archive: a web shop on the real stack, from its snapshot to its last change.

    python -m tests.workload.record_demo [--to DIR] [--changes N] [--seed N] [--state DIR]

Starts MySQL, Kafka and Connect in a separate folder, and stops them at the end.
"""

import argparse
import json
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pymysql
from confluent_kafka import Consumer, TopicPartition

from replicator.config import Config, parse
from replicator.operations.connector import register
from replicator.operations.demo import RECORDING
from replicator.operations.record import record, recorded_topics
from replicator.operations.stack import Endpoints, LocalStack, Options
from replicator.operations.verify.mysql import SourceState, database_state
from replicator.operations.verify.recording import SOURCE_NAME, RecordedSource, RecordedTable
from replicator.sources.archive import ArchiveReader
from tests.workload.webshop import WebShop

DATABASE: Final = "shop"
MAX_BYTES: Final = 10_000_000
PATIENCE: Final = 180.0


def main() -> None:
    """Run the whole recording."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="record-demo-") as scratch:
        state = arguments.state or Path(scratch)
        with LocalStack(state / "stack", Options(report=print)) as stack:
            fresh = Path(scratch) / "recording"
            make_recording(stack.endpoints, fresh, changes=arguments.changes, seed=arguments.seed)
        size = sum(file.stat().st_size for file in fresh.rglob("*") if file.is_file())
        if size > MAX_BYTES:
            raise SystemExit(
                f"the recording has {size:,} bytes, more than {MAX_BYTES:,}; record fewer changes"
            )
        _install(fresh, arguments.to)
    print(f"{arguments.to}: {ArchiveReader(arguments.to).manifest.events:,} events, {size:,} bytes")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--to", type=Path, default=RECORDING, help="the recording to replace")
    parser.add_argument("--changes", type=int, default=52_000, help="row changes after the snapshot")
    parser.add_argument("--seed", type=int, default=20_240_229)
    parser.add_argument("--state", type=Path, help="where the stack keeps its files; a temporary folder")
    return parser.parse_args()


def make_recording(endpoints: Endpoints, to: Path, *, changes: int, seed: int) -> RecordedSource:
    """Run the shop on a running stack, and record it to `to` with the source's checksums."""
    config = _config(endpoints, to.parent)
    root = pymysql.connect(
        host=endpoints.mysql_host,
        port=endpoints.mysql_port,
        user="root",
        password=endpoints.mysql_root_password,
        charset="utf8mb4",
    )
    with closing(root):
        with root.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        root.select_db(DATABASE)
        shop = WebShop(root, seed)
        shop.create()
        before = _rows(database_state(root, DATABASE))
        register(config)
        print(f"waiting for the snapshot of {before:,} rows")
        _wait(lambda: _log_end(endpoints) >= before, "the snapshot")
        shop.work(changes, _printer(changes))
        _close_shop(root)
        state = database_state(root, DATABASE)
    print(f"{shop.changes:,} changes in {shop.transactions:,} transactions; waiting for the connector")
    _wait(lambda: _arrived(endpoints, state), "the last change")
    record(config, to, until_caught_up=True)
    source = _source(state, shop, seed)
    _check(to, source)
    (to / SOURCE_NAME).write_text(source.to_json(), encoding="utf-8")
    return source


def _config(endpoints: Endpoints, folder: Path) -> Config:
    host, port = endpoints.mysql_host, endpoints.mysql_port
    secret = folder / "password"
    secret.write_text(endpoints.mysql_password, encoding="utf-8")
    values = {
        "mirror": {"name": "shop"},
        "source": {
            "url": f"mysql://{endpoints.mysql_user}@{host}:{port}/{DATABASE}",
            "password": {"file": str(secret)},
            "tables": [f"{DATABASE}.*"],
        },
        "log": {
            "kind": "kafka",
            "bootstrap_servers": endpoints.bootstrap_servers,
            "topic_prefix": "shop",
            "connect_url": endpoints.connect_url,
        },
        "lake": {
            "catalog": "jdbc",
            "uri": "jdbc:sqlite:catalog.db",
            "warehouse": "lake",
            "namespace": "shop",
        },
    }
    return parse(values, base=folder)


def _printer(changes: int) -> Callable[[int], None]:
    shown = 0

    def show(done: int) -> None:
        nonlocal shown
        if done - shown >= changes // 10:
            shown = done
            print(f"{done:,} of {changes:,} changes")

    return show


def _rows(state: SourceState) -> int:
    return sum(checksum.rows for _, checksum in state.tables.values())


def _close_shop(connection: "pymysql.Connection[Any]") -> None:
    """Commit a last transaction with one row, so that its event is the last one."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE categories SET name = 'Closed' WHERE id = 1")
    connection.commit()


def _wait(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} did not arrive within {PATIENCE:.0f} s; look at the connector's log")
        time.sleep(1)


def _consumer(endpoints: Endpoints) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": endpoints.bootstrap_servers,
            "group.id": "record-demo",
            "enable.auto.commit": False,
        }
    )


def _ends(consumer: Consumer) -> dict[TopicPartition, int]:
    topics = consumer.list_topics(timeout=10).topics
    places = [
        TopicPartition(name, partition)
        for name in recorded_topics(topics, "shop")
        if name != "shop"
        for partition in topics[name].partitions
    ]
    return {place: consumer.get_watermark_offsets(place, 10)[1] for place in places}


def _log_end(endpoints: Endpoints) -> int:
    with closing(_consumer(endpoints)) as consumer:
        return sum(_ends(consumer).values())


def _arrived(endpoints: Endpoints, state: SourceState) -> bool:
    """Return whether the newest event of the closing table is the last change of the source."""
    with closing(_consumer(endpoints)) as consumer:
        ends = {place: end for place, end in _ends(consumer).items() if place.topic == "shop.shop.categories"}
        consumer.assign([TopicPartition(p.topic, p.partition, end - 1) for p, end in ends.items() if end])
        message = consumer.poll(10)
        value = None if message is None else message.value()
        if value is None:
            return False
        gtid = json.loads(value)["source"]["gtid"]
    return bool(gtid) and re.split("[-:]", state.gtid_set)[-1] == gtid.split(":")[-1]


def _source(state: SourceState, shop: WebShop, seed: int) -> RecordedSource:
    tables = {
        name: RecordedTable(table.key, table.columns, checksum)
        for name, (table, checksum) in state.tables.items()
    }
    return RecordedSource(
        server_version=state.server_version,
        taken_at=state.taken_at,
        gtid_set=state.gtid_set,
        binlog_file=state.binlog_file,
        binlog_position=state.binlog_position,
        seed=seed,
        changes=shop.changes + 1,
        transactions=shop.transactions + 1,
        tables=tables,
    )


def _check(archive: Path, source: RecordedSource) -> None:
    """Check that the recorded events, applied one by one, produce as many rows as the source has."""
    reader = ArchiveReader(archive)
    for name, table in source.tables.items():
        keys: set[bytes | None] = set()
        for event in reader.events(f"shop.{name}", 0):
            op = None if event.value is None else json.loads(event.value)["op"]
            if op == "t":
                keys.clear()
            elif op == "d":
                keys.discard(event.key)
            elif op is not None:
                keys.add(event.key)
        if len(keys) != table.checksum.rows:
            raise SystemExit(
                f"{name}: the events leave {len(keys)} rows, the source has {table.checksum.rows}"
            )


def _install(fresh: Path, to: Path) -> None:
    (fresh / ".lock").unlink(missing_ok=True)
    if to.exists():
        ArchiveReader(to)  # a folder with other contents must not be replaced
        shutil.rmtree(to)
    shutil.copytree(fresh, to)


if __name__ == "__main__":
    main()
