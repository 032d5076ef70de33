"""Build the Spark session of the engine."""

import contextlib
import logging
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from replicator.config import Config
from replicator.errors import JavaGone, ReplicatorError
from replicator.jvm.calls import Conversions, ReleasedObjects
from replicator.jvm.jars import lake_jars
from replicator.jvm.launch import JavaProcess, begin_java
from replicator.jvm.settings import session_conf

_CODEGEN: Final = {
    "spark.sql.codegen.wholeStage": ("false", "true"),
    "spark.sql.codegen.factoryMode": ("NO_CODEGEN", "FALLBACK"),
}

_END_S: Final = 1.0
"""A process whose connections break has usually ended within this time."""

_OFTEN_USED: Final = ("PythonUtils", "PythonSQLUtils", "functions", "org.apache.spark.sql.functions")
"""Classes that PySpark looks up whenever it builds an expression."""


def build_session(config: Config, java: JavaProcess | None = None) -> SparkSession:
    """Start (or reuse) the session for this mirror, on `java` if that was started already.

    Raises:
        ReplicatorError: as `begin_java`; or Spark does not start.
        JavaGone: the Java process ended.
    """
    conf = session_conf(config, lake_jars(config.lake))
    builder = SparkSession.builder.appName(f"replicator {config.mirror.name}").master(config.spark.master)
    for name, value in conf.items():
        builder = builder.config(name, value)
    if SparkContext._gateway is None:  # noqa: SLF001 no public way
        gateway = (java or begin_java(config)).gateway()
        ReleasedObjects(gateway)
        Conversions(gateway)
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001
    try:
        session = builder.getOrCreate()
    except Py4JError as error:
        log = config.mirror.state_dir / "spark.log"
        raise ReplicatorError(
            f"Spark does not start: {first_line(error)}",
            f"check [spark], and that its master, {config.spark.master}, can be reached; see {log}",
        ) from error
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


@contextlib.contextmanager
def running_session(config: Config, java: JavaProcess | None = None) -> Iterator[SparkSession]:
    """Provide the session of `build_session` while the block runs; a session that already ran is not stopped.

    Raises:
        JavaGone: the Java process ended, whichever error that caused.
    """
    joined = SparkSession.getActiveSession() is not None
    session = build_session(config, java)
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
