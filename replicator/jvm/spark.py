"""Build the Spark session of the engine."""

import atexit
import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from replicator.config import CATALOG_NAME, Config, LakeConfig
from replicator.errors import JavaGone, ReplicatorError
from replicator.jvm.class_data_sharing import class_archive
from replicator.jvm.jars import find_java, lake_jars, spark_jars
from replicator.jvm.launch import launch_java

_CATALOG: Final = f"spark.sql.catalog.{CATALOG_NAME}"
STAGED_CATALOG: Final = f"{CATALOG_NAME}_staged"
"""A catalog of tables whose written rows are not committed; see `lake.files.spark_tables`."""

_CHECKPOINT_FILES: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)

_CODEGEN: Final = {
    "spark.sql.codegen.wholeStage": ("false", "true"),
    "spark.sql.codegen.factoryMode": ("NO_CODEGEN", "FALLBACK"),
}

_CLASS_PATH: Final = "spark.driver.extraClassPath"
_END_S: Final = 1.0
"""A process whose connections break has usually ended within this time."""

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
_DEFAULT_OPTIONS: Final = "spark.driver.defaultJavaOptions"
_WIDE_ROWS: Final = "-XX:-DontCompileHugeMethods"
"""Generated code for a row of only a few columns exceeds HotSpot's 8,000-byte limit and would never be JIT-compiled."""

_OFTEN_USED: Final = ("PythonUtils", "PythonSQLUtils", "functions", "org.apache.spark.sql.functions")
"""Classes that PySpark looks up whenever it builds an expression."""


def build_session(config: Config) -> SparkSession:
    """Start (or reuse) the session for this mirror; the first call fetches the Java libraries.

    Raises:
        JavaMissing: no usable Java on this machine.
        ReplicatorError: the libraries could not be fetched.
    """
    java = find_java()
    os.environ.setdefault("JAVA_HOME", str(java.resolve().parent.parent))
    # Executors must run the interpreter that has our libraries, not the first python3 on PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf = session_conf(config, [*spark_jars(), *lake_jars(config.lake)])
    builder = SparkSession.builder.appName(f"replicator {config.mirror.name}").master(config.spark.master)
    for name, value in conf.items():
        builder = builder.config(name, value)
    with _console_to(config.mirror.state_dir / "spark.log"):
        if SparkContext._gateway is None:  # noqa: SLF001 no public way
            SparkContext._ensure_initialized(gateway=_java(config, conf, java))  # noqa: SLF001
        session = builder.getOrCreate()
    _remember_classes(session._jvm)  # noqa: SLF001 no public way
    session.sparkContext.setLogLevel("ERROR")
    # Py4J logs each error of a foreachBatch function with two stack traces; the mirror reports these errors itself.
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_py4j)
    return session


def _remember_classes(jvm: Any) -> None:
    """Keep what PySpark would ask Java for again and again: Java searches all libraries for a name that is no class."""
    for name in _OFTEN_USED:
        setattr(jvm, name, getattr(jvm, name))
    # Of each error of Java, PySpark asks a dozen times what it is.
    jvm.py4j = jvm.py4j
    jvm.py4j.reflection = jvm.py4j.reflection
    jvm.py4j.reflection.TypeUtil = jvm.py4j.reflection.TypeUtil


def local_frame(spark: SparkSession, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Return the driver's rows as a frame; one partition, by the session's `leafNodeDefaultParallelism`.

    Without a schema, times without a zone stay such. PySpark would give them the zone of the session.
    """
    # PySpark fails for a nested column that has no chunk.
    chunked = rows if rows.num_rows else rows.schema.empty_table()
    return spark.createDataFrame(chunked, schema or from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))


def own_session(session: SparkSession) -> SparkSession:
    """Return a session with settings of its own, for this thread. It shares everything else with `session`."""
    own = session.newSession()
    # Spark reads some settings from the session of the thread, not from that of the query.
    jvm: Any = own._jvm  # noqa: SLF001 no public way
    jvm.SparkSession.setActiveSession(own._jsparkSession)  # noqa: SLF001
    return own


def compile_plans(session: SparkSession, config: Config, *, worth_it: bool) -> None:
    """Let Spark compile plans to Java code or interpret them from now on, unless the user configured it.

    Compiling a plan takes longer than interpreting it for a few thousand rows, especially in a process's first batches.
    """
    chosen = config.spark.session_conf()
    for name, (interpreted, compiled) in _CODEGEN.items():
        if name not in chosen:
            session.conf.set(name, compiled if worth_it else interpreted)


def _not_py4j(record: logging.LogRecord) -> bool:
    """Filter out Py4J's log records: it logs each broken connection with a stack trace and raises the error too."""
    return "py4j" not in Path(record.pathname).parts


def _java(config: Config, conf: Mapping[str, str], java: Path) -> Any:
    """Start the Java process. It ends only with this process: stop signals are not delivered to it.

    Python handles them; running tables need Java for their commits. If Python is killed, Java reads the end of its
    standard input and ends too.
    """
    # SQL settings are read from the context later.
    early = {name: value for name, value in conf.items() if not name.startswith("spark.sql.")}
    libraries = [path for path in map(Path, conf[_CLASS_PATH].split(os.pathsep)) if path.exists()]
    classes = class_archive(java, [*libraries, Path(pyspark.__file__).parent / "jars"])
    # Before it lets the heap grow, the parallel collector scans all of it, twice in a large batch.
    heap = f"-Xms{config.spark.driver_memory}"
    options = [*classes.java_options(), heap, _WIDE_ROWS, early.get(_DEFAULT_OPTIONS, "")]
    early |= {"spark.master": config.spark.master, _DEFAULT_OPTIONS: " ".join(options)}
    gateway: Any = launch_java(early, config.mirror.state_dir)
    # A service manager sends signals to every process that it finds.
    signals = gateway.jvm.sun.misc
    for name in ("TERM", "HUP"):
        signals.Signal.handle(signals.Signal(name), signals.SignalHandler.SIG_IGN)
    atexit.register(classes.keep, gateway.proc)
    return gateway


@contextlib.contextmanager
def running_session(config: Config) -> Iterator[SparkSession]:
    """Provide the session of `build_session` while the block runs; a session that already ran is not stopped.

    Raises:
        JavaGone: the Java process ended, whichever error that caused.
    """
    joined = SparkSession.getActiveSession() is not None
    session = build_session(config)
    try:
        yield session
    except Exception as error:
        try:
            check_java(session)
        except JavaGone as gone:
            raise gone from error
        raise
    finally:
        if not joined and _exit_code(session, 0) is None:
            session.stop()


def check_java(session: SparkSession) -> None:
    """Check that the session's Java process is running, after an error that its end may have caused.

    Raises:
        JavaGone: the process has ended.
    """
    code = _exit_code(session, _END_S)
    if code is not None:
        end = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise JavaGone(
            f"Spark's Java process has ended ({end})",
            "see spark.log in the state folder; signal 9 often means that the machine ran out of memory:"
            " lower [spark] driver_memory or add memory. Then start the mirror again; nothing is lost",
        )


def _exit_code(session: SparkSession, seconds: float) -> int | None:
    """Return the exit code if Java has ended or ends within `seconds`; None while it runs or if it is not our child."""
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001 no public way
    process: subprocess.Popen[bytes] | None = gateway.proc
    if process is None:
        return None
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


_EXPLAINED: Final = (ReplicatorError, PySparkException, Py4JError, OSError)
"""Errors whose message is a sentence."""


def is_explained(error: BaseException) -> bool:
    """Return whether an error's message says what is wrong; otherwise the place in the code is needed too."""
    return isinstance(error, _EXPLAINED)


def first_line(error: BaseException) -> str:
    """Return an error's message as one line. For a Java exception that is its own message, without Py4J's call text.

    The messages of Python's own errors, such as KeyError, are not sentences: the class precedes them.
    """
    text = str(error.java_exception.toString() if isinstance(error, Py4JJavaError) else error)
    line = next((line for line in text.splitlines() if line.strip()), "").strip()
    if line and is_explained(error):
        return line
    return f"{type(error).__name__}: {line}".removesuffix(": ")


@contextlib.contextmanager
def _console_to(log: Path) -> Iterator[None]:
    """Redirect the console output of processes started inside to `log`, permanently: the JVM is verbose."""
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(number) for number in (1, 2)]
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        for number in (1, 2):
            os.dup2(target, number)
        yield
    finally:
        for number, old in zip((1, 2), kept, strict=True):
            os.dup2(old, number)
            os.close(old)
        os.close(target)


def session_conf(config: Config, jars: list[Path]) -> dict[str, str]:
    """Return all settings of the session; the user's [spark] conf takes precedence."""
    conf = {
        "spark.driver.memory": config.spark.driver_memory,
        # On the class path the JVM finds the libraries at once; spark.jars would copy 60 MB on each start.
        _CLASS_PATH: os.pathsep.join(map(str, jars)),
        "spark.driver.extraJavaOptions": " ".join(_JAVA_OPTIONS),
        "spark.executor.defaultJavaOptions": _WIDE_ROWS,
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
    chosen = config.spark.session_conf()
    if _CLASS_PATH in chosen:
        # Further drivers and file systems. Without the engine's own libraries, nothing works.
        chosen = chosen | {_CLASS_PATH: os.pathsep.join((conf[_CLASS_PATH], chosen[_CLASS_PATH]))}
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
