"""How long `replicator drop --purge` takes for a table of many small files, beside Spark's DROP TABLE PURGE.

The table is a real one: each data file is in a manifest of a commit.
"""

import os
import shutil
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.typedef import Record

from benchmarks.broker import cache_folder
from benchmarks.processes import run_measured
from benchmarks.report import CONSOLE, Goal, save, show, show_goals
from replicator.config import CATALOG_NAME, load
from replicator.jvm.spark import build_session
from replicator.model.commit_marker import MARKER_KEY, CommitMarker
from replicator.model.table import SOURCE_KEY

_CONFIG = """\
[mirror]
name = "drop"
[source]
tables = ["shop.*"]
[log]
kind = "archive"
path = "archive"
[lake]
catalog = "jdbc"
uri = "jdbc:sqlite:lake/catalog.db"
warehouse = "lake"
namespace = "drop"
"""
_NAME = ("drop", "orders")


@dataclass(frozen=True, slots=True)
class Options:
    """What to run.

    Attributes:
        files: number of data files of the table.
        commits: number of commits that added them.
        runs: number of tables that are made and dropped.
        with_spark: whether Spark drops such a table too.
    """

    files: int = 100_000
    commits: int = 20
    runs: int = 3
    with_spark: bool = True


def drop(options: Options, results: Path) -> bool:
    """Run, print and save; return whether no file was left."""
    folder = cache_folder() / "lakes" / "drop"
    seconds: list[float] = []
    left: list[int] = []
    for number in range(options.runs):
        config = _make_table(options, folder)
        CONSOLE.print(f"run {number + 1}: dropping {_count(folder):,} files")
        seconds.append(_drop(config, folder.parent / "drop.log"))
        left.append(_count(folder))
    spark_seconds = None
    if options.with_spark:
        config = _make_table(options, folder)
        CONSOLE.print("dropping with Spark")
        spark_seconds = _drop_with_spark(config)
    shutil.rmtree(folder)
    rows: list[tuple[object, ...]] = [("replicator drop --purge", statistics.median(seconds), max(seconds))]
    if spark_seconds is not None:
        rows.append(("Spark, DROP TABLE PURGE, without the start of Spark", spark_seconds, spark_seconds))
    show(
        f"drop: {options.files:,} files, {options.commits} commits",
        ("command", "median s", "slowest s"),
        rows,
    )
    goals = [Goal("seconds to drop a table, whole process", statistics.median(seconds), 10.0, at_least=False)]
    show_goals(goals)
    result = {
        "options": asdict(options),
        "seconds": seconds,
        "files_left": left,
        "spark_seconds": spark_seconds,
    }
    save(results, "drop", result, goals)
    return not any(left)


def _make_table(options: Options, folder: Path) -> Path:
    """Make a lake with one table; return the configuration of its mirror."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "lake").mkdir(parents=True)
    config = folder / "replicator.toml"
    config.write_text(_CONFIG)
    catalog = SqlCatalog(CATALOG_NAME, uri=f"sqlite:///{folder}/lake/catalog.db", warehouse=f"{folder}/lake")
    for namespace in ("drop", "drop_changes", "drop_ops"):
        catalog.create_namespace(namespace)
    rows = pa.table({"id": pa.array([1], pa.int64()), "note": ["a row"]})
    marker = CommitMarker("drop", 1, 1, {}, None, None, 1)
    properties = {
        MARKER_KEY: marker.to_json(),
        SOURCE_KEY: "shop.orders",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": "50",
    }
    table = catalog.create_table(_NAME, rows.schema, properties=properties)
    buffer = pa.BufferOutputStream()
    pq.write_table(rows, buffer)
    content = buffer.getvalue().to_pybytes()
    data = Path(table.location()) / "data"
    data.mkdir(parents=True)
    for commit in range(options.commits):
        with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
            for number in range(commit, options.files, options.commits):
                path = data / f"{number:08d}-7-0b5f9c8e-2f0f-4a6e-9d5d-5c1f2f2f7c11-0-00001.parquet"
                path.write_bytes(content)
                append.append_data_file(_data_file(path, len(content)))
    catalog.close()
    # Files that never reached the disk are deleted several times as fast.
    os.sync()
    return config


def _data_file(path: Path, size: int) -> DataFile:
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=str(path),
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=size,
    )
    file.spec_id = 0
    return file


def _count(folder: Path) -> int:
    return sum(1 for path in (folder / "lake").rglob("*") if path.is_file() and path.name != "catalog.db")


def _drop(config: Path, log: Path) -> float:
    program = Path(sys.executable).parent / "replicator"
    command = [str(program), "drop", "shop.orders", "--purge", "--yes", "--json", "-c", str(config)]
    return run_measured(command, log).seconds


def _drop_with_spark(config: Path) -> float:
    spark = build_session(load(config))
    name = ".".join((CATALOG_NAME, *_NAME))
    spark.sql(f"SELECT * FROM {name} LIMIT 1").collect()
    started = time.monotonic()
    spark.sql(f"DROP TABLE {name} PURGE")
    seconds = time.monotonic() - started
    spark.stop()
    return seconds
