"""The Spark session that the engine runs in."""

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
from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from replicator.class_archive import class_archive
from replicator.config import CATALOG_NAME, Config, LakeConfig
from replicator.errors import JavaGone
from replicator.jars import find_java, spark_jars

_CATALOG: Final = f"spark.sql.catalog.{CATALOG_NAME}"

_CHECKPOINT_FILES: Final = "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"

_CODEGEN: Final = {
    "spark.sql.codegen.wholeStage": ("false", "true"),
    "spark.sql.codegen.factoryMode": ("NO_CODEGEN", "FALLBACK"),
}

_KAFKA_CONSUMERS: Final = {
    # Each read has consumers of its own, of no use to the next one. Spark keeps them for minutes, with all records that
    # they gave and those that they read ahead: many tables filled the heap with them.
    f"spark.kafka.consumer.{cache}.{setting}": "1s"
    for cache in ("cache", "fetchedData.cache")
    for setting in ("timeout", "evictorThreadRunInterval")
}

_END_S: Final = 1.0
"""A process whose connections break is gone a moment later."""

_JAVA_OPTIONS: Final = (
    # Parallel collection has the best throughput for a small heap; G1 is Java's default.
    "-XX:+UseParallelGC",
    # Planning many small batches warms up very much code a little. At the default thresholds the optimizing compiler
    # takes as much of the processor as the batches do; ten times those leaves it the loops over rows, which count.
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
)
_WIDE_ROWS: Final = "-XX:-DontCompileHugeMethods"
"""What Spark generates for a row of a few columns exceeds 8,000 bytes of code. Java would interpret that for ever."""

_LARGEST_VALUE: Final = 128 << 20
_AVRO_LIMITS: Final = " ".join(
    f"-Dorg.apache.avro.limits.{kind}.maxLength={limit}"
    # What is no Avro may announce two gigabytes; the memory for them would be taken before anybody finds out.
    for kind, limit in (("bytes", _LARGEST_VALUE), ("string", _LARGEST_VALUE), ("collectionItems", 1 << 20))
)


def build_session(config: Config) -> SparkSession:
    """Start (or join) the session for this mirror; the first call fetches the Java libraries.

    Raises:
        JavaMissing: no usable Java on this machine.
        ReplicatorError: the libraries could not be fetched.
    """
    java = find_java()
    os.environ.setdefault("JAVA_HOME", str(java.resolve().parent.parent))
    # Executors must run the interpreter that has our libraries, not the first python3 on PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf = session_conf(config, spark_jars())
    builder = SparkSession.builder.appName(f"replicator {config.mirror.name}").master(config.spark.master)
    for name, value in conf.items():
        builder = builder.config(name, value)
    with _console_to(config.mirror.state_dir / "spark.log"):
        if SparkContext._gateway is None:  # noqa: SLF001 no public way
            SparkContext._ensure_initialized(gateway=_java(config, conf, java))  # noqa: SLF001
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    # It logs each error of a foreachBatch function with two stack traces; the mirror reports them itself.
    logging.getLogger("py4j.clientserver").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_not_py4j)
    return session


def local_frame(spark: SparkSession, rows: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Rows of the driver as a frame; one partition, by the session's `leafNodeDefaultParallelism`."""
    return spark.createDataFrame(rows, schema)


def compile_plans(session: SparkSession, config: Config, *, worth_it: bool) -> None:
    """Let Spark compile plans to Java code from now on, or interpret them, where the user did not say which.

    To compile a plan takes longer than to interpret it for a few thousand rows, above all in a process's first batches.
    """
    chosen = config.spark.session_conf()
    for name, (interpreted, compiled) in _CODEGEN.items():
        if name not in chosen:
            session.conf.set(name, compiled if worth_it else interpreted)


def _not_py4j(record: logging.LogRecord) -> bool:
    """Py4J logs each broken connection with its stack by the root logger, and then raises the error too."""
    return "py4j" not in Path(record.pathname).parts


def _java(config: Config, conf: Mapping[str, str], java: Path) -> Any:
    """Start the Java process. It ends with this one, and with nothing else: signals to stop are not for it.

    Python answers them; the tables at work need Java for their commits. Where Python is killed, Java reads the end of
    its standard input and ends too.
    """
    # What concerns SQL is read from the context later; passwords of the catalog would stand in the list of processes.
    early = [(name, value) for name, value in conf.items() if not name.startswith("spark.sql.")]
    settings = SparkConf(loadDefaults=False).setMaster(config.spark.master).setAll(early)
    classes = class_archive(java, [*spark_jars(), Path(pyspark.__file__).parent / "jars"])
    # Before it lets the heap grow, the parallel collector goes through all of it, twice in a large batch.
    heap = f"-Xms{config.spark.driver_memory}"
    options = [*classes.java_options(), heap, _WIDE_ROWS, _AVRO_LIMITS]
    settings.set("spark.driver.defaultJavaOptions", " ".join(options))
    # A terminal and a shell signal the whole process group.
    gateway: Any = launch_gateway(settings, {"start_new_session": True})
    # A service manager signals every process that it finds.
    signals = gateway.jvm.sun.misc
    signals.Signal.handle(signals.Signal("TERM"), signals.SignalHandler.SIG_IGN)
    atexit.register(classes.keep, gateway.proc)
    return gateway


@contextlib.contextmanager
def running_session(config: Config) -> Iterator[SparkSession]:
    """The session of `build_session` while the block runs; one that ran before goes on afterwards.

    Raises:
        JavaGone: the Java process ended meanwhile, whatever error that showed as.
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
    """Ask whether the session's Java process is there, after an error that may come of its end.

    Raises:
        JavaGone: it is not.
    """
    code = _exit_code(session, _END_S)
    if code is not None:
        end = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise JavaGone(
            f"Spark's Java process has ended ({end})",
            "see spark.log in the state folder; signal 9 is often a machine out of memory:"
            " lower [spark] driver_memory or give it more. Then start the mirror again; nothing is lost",
        )


def _exit_code(session: SparkSession, seconds: float) -> int | None:
    """How the Java process ended, or does within `seconds`; None while it runs, or where another started it."""
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001 no public way
    process: subprocess.Popen[bytes] | None = gateway.proc
    if process is None:
        return None
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        return None


def first_line(error: BaseException) -> str:
    """What an error says, in one line. For an exception of Java's that is its own message, not where it was called."""
    text = str(error.java_exception.toString() if isinstance(error, Py4JJavaError) else error)
    return next((line for line in text.splitlines() if line.strip()), type(error).__name__).strip()


@contextlib.contextmanager
def _console_to(log: Path) -> Iterator[None]:
    """A process that is started inside writes its console output to `log`, for good: the JVM talks a lot."""
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
    """Every setting of the session; what the user wrote under [spark] conf wins."""
    conf = {
        "spark.driver.memory": config.spark.driver_memory,
        # On the class path the JVM finds the libraries at once; spark.jars would copy 60 MB on each start.
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.driver.extraJavaOptions": " ".join(_JAVA_OPTIONS),
        "spark.executor.defaultJavaOptions": f"{_WIDE_ROWS} {_AVRO_LIMITS}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.session.timeZone": "UTC",
        # A value that does not fit becomes null and is reported; it must not fail the whole batch.
        "spark.sql.ansi.enabled": "false",
        "spark.sql.caseSensitive": "true",
        "spark.sql.streaming.metricsEnabled": "false",
        # Spark describes each plan in words before it runs it, whether or not anybody looks.
        "spark.sql.ui.explainMode": "simple",
        "spark.sql.debug.maxToStringFields": "1",
        # Spark's older way to read Kafka makes a Java row of each record, and takes it apart again.
        "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
        "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
        "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINT_FILES,
        **_KAFKA_CONSUMERS,
        # Rows that the driver holds are few: one task, and one file where they are written.
        "spark.sql.leafNodeDefaultParallelism": "1",
        # Spark goes through the rows of a local relation in each step of planning.
        "spark.sql.execution.arrow.localRelationThreshold": "1MB",
        "spark.sql.files.minPartitionNum": str(os.cpu_count() or 1),
        "spark.sql.parquet.fieldId.write.enabled": "true",
        "spark.sql.parquet.compression.codec": "zstd",
        **catalog_conf(config.lake),
    }
    if config.columns.hash_key is not None:
        # The key of the hashes stands in plans as two literals of this length; what Spark writes of plans hides them.
        conf["spark.sql.redaction.string.regex"] = "[0-9a-fA-F]{128}"
    if config.spark.master.startswith("local["):
        # One process: nothing has to reach it from outside.
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # Spark's default of 200 is for clusters; here most of them would be empty.
        conf["spark.sql.shuffle.partitions"] = str(2 * (os.cpu_count() or 1))
    else:
        conf["spark.jars"] = ",".join(map(str, jars))
    return conf | config.spark.session_conf()


def catalog_conf(lake: LakeConfig) -> Mapping[str, str]:
    """The Iceberg catalog's settings, secrets included: never log them."""
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
    return conf | {f"{_CATALOG}.{name}": value for name, value in lake.catalog_options().items()}
