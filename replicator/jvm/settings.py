"""The settings of the engine's Spark session, and of its Java process."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from replicator.config import CATALOG_NAME, Config, LakeConfig

_CATALOG: Final = f"spark.sql.catalog.{CATALOG_NAME}"
STAGED_CATALOG: Final = f"{CATALOG_NAME}_staged"
"""A catalog of tables whose written rows are not committed; see `lake.files.spark_tables`."""

_CHECKPOINT_FILES: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

CLASS_PATH: Final = "spark.driver.extraClassPath"
_JAVA_OPTIONS: Final = (
    # Parallel collection has the best throughput for a small heap; G1 is Java's default.
    "-XX:+UseParallelGC",
    # Most rows never reach Java: a fifth of the heap is enough for new objects. All of their space is filled before
    # any of it is used again, so by default, a third, the process is half a gibibyte larger.
    "-XX:NewRatio=4",
    # Planning many small batches warms up a lot of code a little. With the default thresholds the optimizing compiler
    # uses as much CPU as the batches do; with ten times those it compiles only the loops over rows, which matter.
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
)
DEFAULT_OPTIONS: Final = "spark.driver.defaultJavaOptions"
WIDE_ROWS: Final = "-XX:-DontCompileHugeMethods"
"""Generated code for a row of only a few columns exceeds HotSpot's 8,000-byte limit and would never be JIT-compiled."""


def session_conf(config: Config, jars: list[Path]) -> dict[str, str]:
    """Return all settings of the session; the user's [spark] conf takes precedence."""
    conf = {
        "spark.driver.memory": config.spark.driver_memory,
        # On the class path the JVM finds the libraries at once; spark.jars would copy 60 MB on each start.
        CLASS_PATH: os.pathsep.join(map(str, jars)),
        "spark.driver.extraJavaOptions": " ".join(_JAVA_OPTIONS),
        "spark.executor.defaultJavaOptions": WIDE_ROWS,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        # A value that does not fit becomes null and is reported; it must not fail the whole batch.
        "spark.sql.ansi.enabled": "false",
        "spark.sql.caseSensitive": "true",
        # Spark cannot write a column that MySQL declares as VARCHAR to a column of type string.
        "spark.sql.legacy.charVarcharAsString": "true",
        "spark.sql.streaming.metricsEnabled": "false",
        # Spark formats each plan as text before it runs it, even if the text is never used.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.debug.maxToStringFields": "1",
        # PySpark would tell Java in five calls where in Python each expression was made.
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        # Spark's older Kafka source creates a Java row for each record, and then unpacks it again.
        "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
        # The driver holds only small numbers of rows: one task, and one file if they are written.
        "spark.sql.leafNodeDefaultParallelism": "1",
        # Spark traverses the rows of a local relation in each step of planning.
        "spark.sql.execution.arrow.localRelationThreshold": "1MB",
        "spark.sql.files.minPartitionNum": str(os.cpu_count() or 1),
        # The records that a Python worker decodes at a time.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "20000",
        "spark.sql.execution.arrow.maxBytesPerBatch": "64MB",
        "spark.python.daemon.module": "replicator.decode.worker_daemon",
        "spark.sql.parquet.fieldId.write.enabled": "true",
        "spark.sql.parquet.compression.codec": "zstd",
        **catalog_conf(config.lake),
        f"spark.sql.catalog.{STAGED_CATALOG}": "org.apache.iceberg.spark.SparkRewriteTableCatalog",
    }
    if config.spark.is_local:
        # One process: nothing must reach it from outside.
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # Spark's default of 200 is for clusters; here most partitions would be empty.
        conf["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
    else:
        conf["spark.jars"] = ",".join(map(str, jars))
        # The size of the first tasks follows from the cores that are known then. Spark waits for executors if it knows
        # their number, but on a standalone cluster for none of them by default.
        conf["spark.scheduler.minRegisteredResourcesRatio"] = "0.8"
    chosen = config.spark.session_conf()
    if CLASS_PATH in chosen:
        # Further drivers and file systems. Without the engine's own libraries, nothing works.
        chosen = chosen | {CLASS_PATH: os.pathsep.join((conf[CLASS_PATH], chosen[CLASS_PATH]))}
    return conf | chosen


def catalog_conf(lake: LakeConfig) -> Mapping[str, str]:
    """Return the Iceberg catalog's settings, secrets included: never log them."""
    conf = {
        _CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        f"{_CATALOG}.type": lake.catalog,
        # Commits go through Iceberg's Java API; a cached table would show Spark the state before them.
        f"{_CATALOG}.cache-enabled": "false",
    }
    if lake.uri is not None:
        conf[f"{_CATALOG}.uri"] = lake.uri
    if lake.warehouse is not None:
        conf[f"{_CATALOG}.warehouse"] = lake.warehouse
    options = {**lake.kind.spark, **lake.catalog_options()}
    return conf | {f"{_CATALOG}.{name}": value for name, value in options.items()}
