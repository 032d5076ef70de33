"""Inspect the lake after a run: whether it is correct, how fast it can be read, how large it is.

The program `python -m benchmarks.lake CONFIG TIMED NAMESPACE...` prints one JSON line per namespace. It is a separate
process, so that no engine reads its own tables with warm caches. With TIMED = 1 it also measures how fast the first
namespace can be read.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.processes import run_json
from benchmarks.workload import TableState
from replicator.config import Config
from replicator.jvm.spark import build_session

CHECKSUM = (
    "sum(crc32(cast(concat_ws('|', id, quantity, amount, status, note, "
    "unix_micros(cast(updated_at AS timestamp))) AS binary)))"
)
_WARM_UPS, _READS = 20, 20
_MANY = 10
_WARM_UPS_OF_MANY, _READS_OF_MANY = 2, 5
"""For more than `_MANY` tables: one read includes all of them."""


@dataclass(frozen=True, slots=True)
class Look:
    """One namespace, and the median warm seconds to read its tables; None if they were not measured.

    `read_seconds` is for a count of the rows and a sum of one column, `full_read_seconds` for all columns. The others
    are for copies that were written in one commit.
    """

    namespace: str
    tables: dict[str, TableState]
    read_seconds: float | None
    compacted_read_seconds: float | None
    full_read_seconds: float | None
    compacted_full_read_seconds: float | None
    data_files: int
    delete_files: int


def written_bytes(warehouse: Path, namespace: str) -> int:
    """Return the bytes of all files of a namespace including metadata, from which no file was deleted."""
    return sum(path.stat().st_size for path in (warehouse / namespace).rglob("*") if path.is_file())


def look(config: Path, namespaces: list[str], log: Path, *, timed: bool = True) -> dict[str, Look]:
    """Inspect namespaces of the lake of `config` in a new process; with `timed`, measure reads of the first one."""
    command = [sys.executable, "-m", "benchmarks.lake", str(config), str(int(timed)), *namespaces]
    answers, _ = run_json(command, log)
    looks = {}
    for answer in answers:
        fields = {name: answer[name] for name in Look.__dataclass_fields__}
        fields["tables"] = {name: TableState(**state) for name, state in fields["tables"].items()}
        looks[fields["namespace"]] = Look(**fields)
    return looks


def differences(expected: dict[str, TableState], found: dict[str, TableState]) -> list[str]:
    """Return one line for each wrong table; an empty list if all are correct."""
    return [
        f"{name}: {found.get(name)} instead of {state}"
        for name, state in expected.items()
        if found.get(name) != state
    ]


def _look(spark: SparkSession, namespace: str, *, timed: bool) -> Look:
    names = [row.tableName for row in spark.sql(f"SHOW TABLES IN lake.{namespace}").collect()]
    full = [f"lake.{namespace}.{name}" for name in names]
    files = [
        spark.sql(f"SELECT content, count(*) AS n FROM {name}.files GROUP BY 1").collect() for name in full
    ]
    counted = [(row.content, row.n) for rows in files for row in rows]
    seconds = _read_seconds(spark, full, _copies(spark, namespace, names)) if timed else (None,) * 4
    return Look(
        namespace,
        {name: _state(spark, path) for name, path in zip(names, full, strict=True)},
        seconds[0],
        seconds[1],
        seconds[2],
        seconds[3],
        sum(n for content, n in counted if content == 0),
        sum(n for content, n in counted if content != 0),
    )


def _copies(spark: SparkSession, namespace: str, names: list[str]) -> list[str]:
    """Copy each table in one commit, and return the copies."""
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{namespace}_copy")
    for name in names:
        spark.sql(
            f"CREATE OR REPLACE TABLE lake.{namespace}_copy.{name} USING iceberg "
            f"AS SELECT /*+ REBALANCE */ * FROM lake.{namespace}.{name}"
        )
    return [f"lake.{namespace}_copy.{name}" for name in names]


def _state(spark: SparkSession, table: str) -> TableState:
    rows = spark.sql(f"SELECT count(*), sum(amount) * 100, {CHECKSUM} FROM {table}").collect()
    count, cents, checksum = rows[0]
    return TableState(count, int(cents or 0), checksum or 0)


def _read_seconds(spark: SparkSession, tables: list[str], copies: list[str]) -> list[float]:
    """Return the median seconds of each read, in the order of the fields of `Look`.

    The reads take turns, so that all of them find the same machine and the same compiled code.
    """
    reads: list[Callable[[], object]] = []
    for columns in ("amount", "*"):
        for names in (tables, copies):
            query = " UNION ALL ".join(f"SELECT {columns} FROM {name}" for name in names)
            reads.append(partial(aggregate if columns == "amount" else scan, spark, query))
    warm_ups, rounds = (_WARM_UPS_OF_MANY, _READS_OF_MANY) if len(tables) > _MANY else (_WARM_UPS, _READS)
    seconds: list[list[float]] = [[] for _ in reads]
    for _ in range(warm_ups + rounds):
        for read, found in zip(reads, seconds, strict=True):
            started = time.monotonic()
            read()
            found.append(time.monotonic() - started)
    return [statistics.median(found[warm_ups:]) for found in seconds]


def aggregate(spark: SparkSession, query: str) -> None:
    """Count the rows of a query and sum its column `amount`."""
    spark.sql(f"SELECT count(*), sum(amount) FROM ({query})").collect()


def scan(spark: SparkSession, query: str) -> None:
    """Read all rows and columns of a query."""
    spark.sql(query).write.format("noop").mode("overwrite").save()


def _main(config: Config, namespaces: list[str], *, timed: bool) -> None:
    spark = build_session(config)
    for namespace in namespaces:
        look = _look(spark, namespace, timed=timed and namespace == namespaces[0])
        print(json.dumps(asdict(look)), flush=True)


if __name__ == "__main__":
    from replicator.config import load

    _main(load(Path(sys.argv[1])), sys.argv[3:], timed=sys.argv[2] == "1")
