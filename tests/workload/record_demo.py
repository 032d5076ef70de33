"""Record the demo's event archive: a web shop on the real stack, from its snapshot to its last change.

    python -m tests.workload.record_demo [--to DIR] [--changes N] [--seed N] [--state DIR]

Starts MySQL, Kafka and Connect in a separate folder, and stops them at the end.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pymysql
from confluent_kafka import Consumer, TopicPartition

from replicator.config import Config, parse
from replicator.config.column_rules import ColumnRuleBook
from replicator.model.gtid import Transaction
from replicator.model.table import TableId
from replicator.operations.connector import register
from replicator.operations.demo import RECORDING
from replicator.operations.demo.compare import FORMAT, SOURCE_NAME, VERSION
from replicator.operations.record import record, recorded_topics
from replicator.operations.stack import Endpoints, LocalStack, Options
from replicator.sources.archive.reader import ArchiveReader
from replicator.verify.canonical import combined_hash
from replicator.verify.compared_table import ComparedTable, compared_table
from replicator.verify.lake_rows import Checksum
from replicator.verify.source_side import Fence, open_source
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


@dataclass(frozen=True)
class SourceState:
    """The contents of the shop's database, at the position `fence`."""

    fence: Fence
    tables: Mapping[str, tuple[ComparedTable, Checksum]]


def make_recording(endpoints: Endpoints, to: Path, *, changes: int, seed: int) -> None:
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
        before = sum(checksum.rows for _, checksum in source_state(config, DATABASE).tables.values())
        register(config)
        print(f"waiting for the snapshot of {before:,} rows")
        _wait(lambda: _log_end(endpoints) >= before, "the snapshot")
        shop.work(changes, _printer(changes))
        _close_shop(root)
        state = source_state(config, DATABASE)
    print(f"{shop.changes:,} changes in {shop.transactions:,} transactions; waiting for the connector")
    _wait(lambda: _arrived(endpoints, state), "the last change")
    record(config, to, until_caught_up=True)
    _check(to, state)
    text = json.dumps(document(state, shop, seed), indent=1, ensure_ascii=False)
    (to / SOURCE_NAME).write_text(text + "\n", encoding="utf-8")


def source_state(config: Config, database: str) -> SourceState:
    """Let MySQL compute the checksum of each table. The position is exact if nothing is written meanwhile."""
    rules = ColumnRuleBook(config)
    tables = {}
    with open_source(config) as ((connection,), fence):
        names = connection.exec_driver_sql(f"SHOW TABLES FROM `{database}`").scalars().all()
        for name in sorted(names):
            table = compared_table(connection, config, rules, TableId(database, name))
            query = (
                f"SELECT COUNT(*), {combined_hash(table.columns, distinct=False)} FROM {table.source.name}"
            )
            row = connection.exec_driver_sql(query, execution_options={"no_parameters": True}).one()
            tables[table.name] = table, Checksum.of_source(*row)
    return SourceState(fence, tables)


def document(state: SourceState, shop: WebShop, seed: int) -> dict[str, Any]:
    """Return the content of source.json."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "server_version": state.fence.server_version,
        "position": {"file": state.fence.seen.file, "pos": state.fence.seen.pos},
        "workload": {"seed": seed, "changes": shop.changes + 1, "transactions": shop.transactions + 1},
        "tables": {
            name: {
                "rows": checksum.rows,
                "checksum": f"{checksum.hash:016x}",
                "columns": [
                    {"name": c.source, "type": c.declared, "form": str(c.form), "nullable": c.nullable}
                    for c in table.columns
                ],
            }
            for name, (table, checksum) in state.tables.items()
        },
    }


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
    last, seen = Transaction.parse(gtid), state.fence.seen.gtids
    return last is not None and seen is not None and seen.next_number(last.origin) == last.number + 1


def _check(archive: Path, source: SourceState) -> None:
    """Check that the recorded events, applied one by one, produce as many rows as the source has."""
    reader = ArchiveReader(archive)
    for name, (_, checksum) in source.tables.items():
        keys: set[bytes | None] = set()
        for event in reader.events(f"shop.{name}", 0):
            op = None if event.value is None else json.loads(event.value)["op"]
            if op == "t":
                keys.clear()
            elif op == "d":
                keys.discard(event.key)
            elif op is not None:
                keys.add(event.key)
        if len(keys) != checksum.rows:
            raise SystemExit(f"{name}: the events leave {len(keys)} rows, the source has {checksum.rows}")


def _install(fresh: Path, to: Path) -> None:
    (fresh / ".lock").unlink(missing_ok=True)
    if to.exists():
        ArchiveReader(to)  # a folder with other contents must not be replaced
        shutil.rmtree(to)
    shutil.copytree(fresh, to)


if __name__ == "__main__":
    main()
