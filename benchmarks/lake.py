"""Look at what a run left in the lake: is it right, how fast does it read, how large is it.

Run as a program (`python -m benchmarks.lake CONFIG COMPACT NAMESPACE...`) it answers in a process of its own,
so that no engine reads its own tables with warm caches; one JSON line a namespace.
"""

import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.processes import run_json
from benchmarks.workload import TableState
from replicator.config import Config
from replicator.spark import build_session

CHECKSUM = (
    "sum(crc32(cast(concat_ws('|', id, quantity, amount, status, note, "
    "unix_micros(cast(updated_at AS timestamp))) AS binary)))"
)
_WARM_UPS = 5
_READS = 15


@dataclass(frozen=True, slots=True)
class Look:
    """One namespace: seconds for count and sum over its tables (median, warm), the same after compaction."""

    namespace: str
    tables: dict[str, TableState]
    read_seconds: float
    compacted_read_seconds: float | None
    data_files: int
    delete_files: int


def written_bytes(warehouse: Path, namespace: str) -> int:
    """Bytes of all files below a namespace, metadata included; nothing was ever deleted from it."""
    return sum(path.stat().st_size for path in (warehouse / namespace).rglob("*") if path.is_file())


def look(config: Path, namespaces: list[str], log: Path, *, compact: bool = True) -> dict[str, Look]:
    """Look at the namespaces of the lake of `config`, in a fresh process."""
    command = [sys.executable, "-m", "benchmarks.lake", str(config), str(int(compact)), *namespaces]
    answers, _ = run_json(command, log)
    looks = {}
    for answer in answers:
        fields = {name: answer[name] for name in Look.__dataclass_fields__}
        fields["tables"] = {name: TableState(**state) for name, state in fields["tables"].items()}
        looks[fields["namespace"]] = Look(**fields)
    return looks


def differences(expected: dict[str, TableState], found: dict[str, TableState]) -> list[str]:
    """What is wrong, one line a table; empty where all is right."""
    return [
        f"{name}: {found.get(name)} instead of {state}"
        for name, state in expected.items()
        if found.get(name) != state
    ]


def _look(spark: SparkSession, namespace: str, *, compact: bool) -> Look:
    names = [row.tableName for row in spark.sql(f"SHOW TABLES IN lake.{namespace}").collect()]
    full = [f"lake.{namespace}.{name}" for name in names]
    files = [
        spark.sql(f"SELECT content, count(*) AS n FROM {name}.files GROUP BY 1").collect() for name in full
    ]
    counted = [(row.content, row.n) for rows in files for row in rows]
    compacted = None
    if compact:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{namespace}_copy")
        copies = [f"lake.{namespace}_copy.{name}" for name in names]
        for name, copy in zip(full, copies, strict=True):
            spark.sql(f"CREATE TABLE {copy} USING iceberg AS SELECT * FROM {name}")
        compacted = _read_seconds(spark, copies)
    return Look(
        namespace,
        {name: _state(spark, path) for name, path in zip(names, full, strict=True)},
        _read_seconds(spark, full),
        compacted,
        sum(n for content, n in counted if content == 0),
        sum(n for content, n in counted if content != 0),
    )


def _state(spark: SparkSession, table: str) -> TableState:
    rows = spark.sql(f"SELECT count(*), sum(amount) * 100, {CHECKSUM} FROM {table}").collect()
    count, cents, checksum = rows[0]
    return TableState(count, int(cents or 0), checksum or 0)


def _read_seconds(spark: SparkSession, tables: list[str]) -> float:
    """Median seconds to count the rows and sum the amounts of all tables, in one query."""
    everything = " UNION ALL ".join(f"SELECT amount FROM {table}" for table in tables)
    seconds = []
    for _ in range(_WARM_UPS + _READS):
        started = time.monotonic()
        spark.sql(f"SELECT count(*), sum(amount) FROM ({everything})").collect()
        seconds.append(time.monotonic() - started)
    return statistics.median(seconds[_WARM_UPS:])


def _main(config: Config, namespaces: list[str], *, compact: bool) -> None:
    spark = build_session(config)
    for namespace in namespaces:
        print(json.dumps(asdict(_look(spark, namespace, compact=compact))), flush=True)


if __name__ == "__main__":
    from replicator.config import load

    _main(load(Path(sys.argv[1])), sys.argv[3:], compact=sys.argv[2] == "1")
