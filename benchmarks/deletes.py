"""What position deletes cost a reader: one data file, with more and more deleted rows, in format versions 2 and 3.

No mirror runs. The figures are the least that any merge-on-read table costs, however well it is maintained.
"""

import shutil
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.broker import cache_folder
from benchmarks.engine import Target
from benchmarks.lake import aggregate, scan
from benchmarks.report import save, show
from replicator.config import load
from replicator.jvm.spark import build_session

_NAMESPACE = "deletes"
_WARM_UPS, _READS = 20, 20


@dataclass(frozen=True, slots=True)
class Options:
    """What to run: the rows of each table, and the shares of them that are deleted."""

    rows: int = 2_000_000
    shares: Sequence[float] = (0, 0.0001, 0.001, 0.01, 0.05, 0.1)
    versions: Sequence[int] = (2, 3)


@dataclass(frozen=True, slots=True)
class Cost:
    """Median warm seconds to count the rows and sum one column, and to read all columns."""

    format_version: int
    share: float
    deleted: int
    one_column: float
    all_columns: float


def deletes(options: Options, results: Path) -> None:
    """Run, print and save."""
    folder = cache_folder() / "lakes" / "deletes"
    shutil.rmtree(folder, ignore_errors=True)
    config = Target(folder, "127.0.0.1:1").config(_NAMESPACE, _NAMESPACE)
    spark = build_session(load(config))
    costs = _measure(spark, options)
    show(
        f"reading one data file of {options.rows:,} rows",
        ("format version, share deleted", "deleted rows", "one column s", "all columns s"),
        [(f"v{c.format_version}, {c.share:.2%}", c.deleted, c.one_column, c.all_columns) for c in costs],
    )
    save(results, "deletes", {"options": asdict(options), "costs": [asdict(cost) for cost in costs]}, ())
    spark.stop()
    shutil.rmtree(folder)


def _measure(spark: SparkSession, options: Options) -> list[Cost]:
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS lake.{_NAMESPACE}")
    tables = {
        (version, share): _table(spark, options.rows, version, share)
        for version in options.versions
        for share in options.shares
    }
    seconds: dict[tuple[int, float], tuple[list[float], list[float]]] = {key: ([], []) for key in tables}
    # The reads take turns, so that all of them find the same machine and the same compiled code.
    for _ in range(_WARM_UPS + _READS):
        for key, name in tables.items():
            for read, columns, found in zip((aggregate, scan), ("amount", "*"), seconds[key], strict=True):
                began = time.monotonic()
                read(spark, f"SELECT {columns} FROM {name}")
                found.append(time.monotonic() - began)
    return [
        Cost(version, share, _deleted(spark, name), *(statistics.median(s[_WARM_UPS:]) for s in found))
        for ((version, share), name), found in zip(tables.items(), seconds.values(), strict=True)
    ]


def _table(spark: SparkSession, rows: int, version: int, share: float) -> str:
    """Create a table with one data file, and delete a share of its rows, evenly spread, in one commit."""
    name = f"lake.{_NAMESPACE}.v{version}_{str(share).replace('.', '_')}"
    spark.sql(
        f"CREATE TABLE {name} USING iceberg TBLPROPERTIES "
        f"('format-version' = '{version}', 'write.delete.mode' = 'merge-on-read') AS "
        "SELECT id, CAST(id % 90 AS INT) AS quantity, CAST(id * 7 % 100000 / 100 AS DECIMAL(12, 2)) AS amount, "
        "concat('state ', id % 5) AS status, concat('a note about order ', hash(id)) AS note, "
        f"timestamp_seconds(id) AS updated_at FROM range(0, {rows}, 1, 1)"
    )
    if share:
        spark.sql(f"DELETE FROM {name} WHERE id % {round(1 / share)} = 3")
    return name


def _deleted(spark: SparkSession, name: str) -> int:
    found = spark.sql(f"SELECT coalesce(sum(record_count), 0) AS n FROM {name}.delete_files").collect()
    return int(found[0].n)
