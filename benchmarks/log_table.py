"""How fast events of about 300 bytes are appended to a log table: from Kafka, in a process with a warm Spark session.

The program `python -m benchmarks.log_table CONFIG RUNS` appends the whole topic to a new table, again and again; the
first run warms Spark up. Each table is checked: it has each offset once, and the sum of the numbers of all events.
"""

import json
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.broker import broker, cache_folder
from benchmarks.processes import StealMeter, run_json
from benchmarks.report import Goal, save, show, show_goals
from replicator.config import Config, KafkaLog, load
from replicator.jvm.spark import own_session, running_session
from replicator.log_tables.batch import Appended
from replicator.log_tables.service import LogTables

_GOAL = 200_000
_PARTITIONS = 4
_TOPIC = "log-table-events"
_POLL_EVERY = 10_000
_CONFIG = """
[mirror]
name = "logs"
[source]
url = "mysql://nobody@localhost/none"
tables = ["none.*"]
[log]
kind = "kafka"
bootstrap_servers = "{bootstrap}"
topic_prefix = "none"
[lake]
catalog = "jdbc"
uri = "jdbc:sqlite:lake/catalog.db"
warehouse = "lake"
namespace = "shop"
[apply]
max_events = {batch}
[spark]
driver_memory = "{memory}"
[[log_table]]
topic = "{topic}"
table = "logs.clicks"
event_time = "at"
partition = "hour"
schema = "{policy}"
[log_table.columns]
{columns}
"""
_COLUMNS = """id = "long"
at = "timestamptz"
user = "string"
action = "string"
price = "double"
ok = "boolean"
page = "string"
session = "string"
device = { os = "string", version = "int" }
note = "string"
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What to run: the number of events, of a batch, measured runs, and the policy for unknown fields."""

    events: int = 4_000_000
    batch: int = 1_000_000
    runs: int = 3
    policy: str = "evolve"
    driver_memory: str = "3g"


def log_table(options: Options, results: Path) -> bool:
    """Run, print and save; return whether all tables are right."""
    folder = cache_folder() / "lakes" / "log_table"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lake").mkdir(parents=True)
    with broker() as (bootstrap, _):
        size = _fill(bootstrap, options.events)
        config = folder / "mirror.toml"
        config.write_text(
            _CONFIG.format(
                bootstrap=bootstrap,
                batch=options.batch,
                memory=options.driver_memory,
                topic=_TOPIC,
                policy=options.policy,
                columns=_COLUMNS,
            )
        )
        steal = StealMeter()
        command = [sys.executable, "-m", "benchmarks.log_table", str(config), str(options.runs + 1)]
        (answer,), _ = run_json(command, folder / "run.log")
    runs = answer["runs"][1:]
    speeds = [options.events / run["seconds"] for run in runs]
    cpu = [run["cpu"] / options.events * 1e6 for run in runs]
    rows = [
        (number, options.events / run["seconds"], run["cpu"] / options.events * 1e6, run["others"])
        for number, run in enumerate(runs, start=1)
    ]
    show(
        f"log_table: {options.events:,} events of {size:.0f} bytes, {options.policy}",
        ("run", "events/s", "CPU µs an event", "CPU of other processes"),
        rows,
    )
    goals = [Goal("events/s, median", statistics.median(speeds), _GOAL, at_least=True)]
    show_goals(goals)
    found = {
        "options": asdict(options),
        "bytes_per_event": size,
        "runs": answer["runs"],
        "cpu_us_per_event": statistics.median(cpu),
        "stolen": steal.share(),
        "wrong": answer["wrong"],
    }
    save(results, f"log_table-{options.policy}", found, goals)
    return not answer["wrong"]


def _events(count: int) -> Iterator[bytes]:
    random = Random(1)
    for number in range(count):
        second = number * 7200 // count
        event = {
            "id": number,
            "at": f"2026-11-29T{10 + second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}Z",
            "user": f"user-{random.randint(1, 100_000)}",
            "action": ("view", "click", "buy")[number % 3],
            "price": round(random.random() * 100, 2),
            "ok": number % 2 == 0,
            "page": f"https://shop.example/products/{random.randint(1, 1_000_000)}?ref={number}",
            "session": f"{random.getrandbits(128):032x}",
            "device": {"os": "linux", "version": number % 20},
            "note": "a text of no meaning at all",
        }
        yield json.dumps(event, separators=(",", ":")).encode()


def _fill(bootstrap: str, count: int) -> float:
    """Write the topic; return the mean size of an event."""
    sample = [len(event) for event in _events(1_000)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = admin.list_topics(timeout=30).topics
    if _TOPIC in topics:
        for done in admin.delete_topics([_TOPIC]).values():
            done.result()
        while _TOPIC in admin.list_topics(timeout=30).topics:
            time.sleep(0.2)
    settings = {"retention.ms": "-1", "retention.bytes": "-1"}
    for done in admin.create_topics([NewTopic(_TOPIC, _PARTITIONS, 1, config=settings)]).values():
        done.result()
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 500_000,
            "queue.buffering.max.kbytes": 262_144,
        }
    )
    for number, event in enumerate(_events(count)):
        producer.produce(_TOPIC, event, partition=number % _PARTITIONS)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
            while len(producer) > 400_000:
                producer.poll(0.1)
    producer.flush()
    return statistics.mean(sample)


def _main(path: Path, runs: int) -> None:
    config, measured, wrong = load(path), [], []
    with running_session(config) as spark:
        for number in range(runs):
            target = _renamed(config, f"logs.clicks{number}")
            if not isinstance(target.log, KafkaLog):
                raise TypeError
            with closing(LogTables.open(target, own_session(spark), target.log)) as tables:
                others, cpu, began = psutil.cpu_times(), _cpu(), time.monotonic()
                results = tables.catch_up()
                seconds, used = time.monotonic() - began, _cpu() - cpu
                now = psutil.cpu_times()
            busy = now.user + now.system + now.nice - others.user - others.system - others.nice
            measured.append({"seconds": seconds, "cpu": used, "others": busy - used})
            rows = sum(result.rows for result in results if isinstance(result, Appended))
            if (problem := _problem(spark.sql, f"lake.logs.clicks{number}", rows)) is not None:
                wrong.append(problem)
    print(json.dumps({"runs": measured, "wrong": wrong}))


def _renamed(config: Config, table: str) -> Config:
    settings = config.log_tables[0].model_copy(update={"table": table})
    return config.model_copy(update={"log_tables": (settings,)})


def _cpu() -> float:
    """Return the CPU seconds of this process and those below it: Java and Python's workers."""
    root = psutil.Process()
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system
    return total


def _problem(sql: "object", table: str, rows: int) -> str | None:
    query = (
        "SELECT count(*), count(DISTINCT kafka_partition, kafka_offset), sum(id), max(kafka_offset) "
        f"FROM {table}"
    )
    count, places, total, last = sql(query).collect()[0]  # type: ignore[operator]
    expected = rows * (rows - 1) // 2
    if (count, places, total, last) == (rows, rows, expected, rows // _PARTITIONS - 1):
        return None
    return f"{table}: {count} rows, {places} places, sum {total}, last {last}; expected {rows} and {expected}"


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]))
