"""What a batch costs on a small and on a large table: 10,000 uniform keys change in each batch.

The rows of the table come from Spark, as a bootstrap would write them: events would take hours. The program
`python -m benchmarks.size CONFIG ROWS` inserts them, and prints the state of the table with `CONFIG` alone.
"""

import json
import shutil
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from zlib import crc32

import psutil

from benchmarks.broker import broker, cache_folder
from benchmarks.engine import Target, drain_cold
from benchmarks.events import EventWriter
from benchmarks.following import follow_log, running_mirror
from benchmarks.load import Sender, fill
from benchmarks.processes import run_json
from benchmarks.report import CONSOLE, Goal, save, show, show_goals
from benchmarks.workload import UPDATE, Change, Layout, row
from replicator.config import load
from replicator.jvm.spark import build_session

_NAMESPACE = "size"
_GOAL = 1.5


@dataclass(frozen=True, slots=True)
class Options:
    """What to run: numbers of rows, keys that change in each batch, and batches."""

    rows: Sequence[int] = (1_000_000, 10_000_000, 100_000_000)
    keys: int = 10_000
    batches: int = 30
    driver_memory: str = "4g"


@dataclass(frozen=True, slots=True)
class Size:
    """The figures of one table. Times are in seconds, sizes in bytes.

    Attributes:
        first: the first batch of the process; with the first search of the table.
        index: time to read all keys into the index, which is part of one batch.
        batch: median of the batches after that.
        python, java: private memory of the mirror process and of Java at the end, in bytes, without mapped files. Java
            fills its heap up to `driver_memory`, whatever it needs.
    """

    rows: int
    first: float
    index: float
    batch: float
    slowest: float
    python: int
    java: int
    wrong: str


def size(options: Options, results: Path) -> bool:
    """Run, print and save; return whether all tables are right."""
    found = []
    with broker() as (bootstrap, _):
        for rows in options.rows:
            found.append(_measure(options, bootstrap, rows))
            CONSOLE.print(str(found[-1]))
    show(
        f"size: {options.keys:,} uniform keys in each batch",
        ("rows", "first batch s", "index s", "batch s", "slowest s", "Python bytes", "Java bytes", "wrong"),
        [tuple(asdict(each).values()) for each in found],
    )
    goals = [
        Goal("batch, most rows / fewest rows", found[-1].batch / found[0].batch, _GOAL, at_least=False),
        Goal("memory, most rows / fewest rows", _memory(found[-1]) / _memory(found[0]), 1.2, at_least=False),
    ]
    show_goals(goals)
    save(results, "size", {"options": asdict(options), "sizes": [asdict(each) for each in found]}, goals)
    return not any(each.wrong for each in found)


def _memory(of: Size) -> int:
    return of.python + of.java


def _measure(options: Options, bootstrap: str, rows: int) -> Size:
    layout = Layout(f"size{rows}", snapshot_rows=1, changes=0)
    fill(bootstrap, layout)
    target = Target(cache_folder() / "lakes" / "size", bootstrap, options.driver_memory)
    shutil.rmtree(target.folder, ignore_errors=True)
    config = target.config(
        _NAMESPACE, layout.prefix, trigger="continuous", max_events=options.keys, changelog=False
    )
    with config.open("a") as file:
        # The events are old, so the mirror would count as far behind.
        file.write('[maintenance]\nmax_lag = "1000000 days"\n')
    drain_cold(target, config)
    run_json([sys.executable, "-m", "benchmarks.size", str(config), str(rows)], target.log("insert"))
    versions = _write_changes(options, bootstrap, layout, rows)
    seconds, index, python, java = _run(options, config, target.log("mirror"))
    answers, _ = run_json([sys.executable, "-m", "benchmarks.size", str(config)], target.log("state"))
    expected = {"rows": rows, "checksum": sum(_checksum(key, n) for key, n in versions.items())}
    state = {name: answers[0][name] for name in expected}
    wrong = "" if state == expected else f"{state} instead of {expected}"
    indexed = seconds[len(seconds) // 2 :]
    return Size(rows, seconds[0], index, statistics.median(indexed), max(indexed), python, java, wrong)


def _write_changes(options: Options, bootstrap: str, layout: Layout, rows: int) -> dict[int, int]:
    """Append the updates of all batches; return key → quantity after the last one."""
    texts, sender, random = EventWriter(layout), Sender(bootstrap), Random(layout.seed)
    versions: dict[int, int] = {}
    for step in range(options.keys * options.batches):
        key = random.randint(1, rows)
        before = replace(row(key, 0), quantity=versions.get(key, 0))
        versions[key] = 1 + step // options.keys
        after = replace(before, quantity=versions[key])
        change = Change(UPDATE, key - 1, step, 1, 200 + 400 * step)
        sender.send(layout.topic(0), 0, texts.key(0, key), texts.value(0, change, before, after))
    sender.finish()
    return versions


def _run(options: Options, config: Path, log: Path) -> tuple[list[float], float, int, int]:
    """Return the seconds of each batch, those to build the index, and the memory of Python and of Java at the end."""
    seconds: list[float] = []
    index = 0.0
    with running_mirror(config, log) as mirror:
        for line in follow_log(log, mirror):
            if line.get("event") == "batch":
                seconds.append(float(str(line["seconds"])))
            elif line.get("event") == "row index built":
                index = float(str(line["seconds"]))
            if len(seconds) >= options.batches:
                break
        root = psutil.Process(mirror.pid)
        python, java = _private_bytes(root), sum(map(_private_bytes, root.children(recursive=True)))
    return seconds, index, python, java


def _private_bytes(process: psutil.Process) -> int:
    """Return the memory of a process without files that are mapped into it, as the index is."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return 1024 * int(next(line for line in status.splitlines() if line.startswith("RssAnon:")).split()[1])


def _checksum(key: int, quantity: int) -> int:
    return crc32(f"{key}|{quantity}".encode())


def _statements(rows: int) -> Iterator[str]:
    table = f"lake.{_NAMESPACE}.orders"
    # The only row of the snapshot is replaced too.
    yield f"DELETE FROM {table}"
    # These rows take hardly more than a byte in a file. So files of the usual size would have too many for an index.
    yield f"ALTER TABLE {table} SET TBLPROPERTIES ('write.target-file-size-bytes' = '8000000')"
    yield (
        f"INSERT INTO {table} SELECT id, 0, cast(id % 1000 AS decimal(12, 2)), 'new', "
        f"concat('note of ', cast(id AS string)), timestamp_ntz '2023-01-01' FROM range(1, {rows + 1})"
    )


def _main(config: Path, rows: int | None) -> None:
    spark = build_session(load(config))
    if rows is None:
        changed = (
            "sum(CASE WHEN quantity > 0 THEN crc32(cast(concat_ws('|', id, quantity) AS binary)) ELSE 0 END)"
        )
        count, checksum = spark.sql(
            f"SELECT count(DISTINCT id), {changed} FROM lake.{_NAMESPACE}.orders"
        ).collect()[0]
        print(json.dumps({"rows": count, "checksum": checksum}))
    else:
        for statement in _statements(rows):
            spark.sql(statement)
        print(json.dumps({"inserted": rows}))


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
