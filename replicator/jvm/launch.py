"""Start Spark's Java process without any setting that may be a secret on its command line.

Every user of a machine can read the command lines of all processes. The settings are therefore read from files that
only this user can read, and that are deleted once the process has started.

It is started without PySpark, which takes half a second to import and waits for it. Meanwhile, Python can import.
"""

import atexit
import contextlib
import os
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from replicator.config import Config
from replicator.errors import ConfigError, JavaGone, ReplicatorError
from replicator.jvm.class_data_sharing import class_archive
from replicator.jvm.jars import are_fetched, find_java, lake_jars, pyspark_folder
from replicator.jvm.settings import CLASS_PATH, DEFAULT_OPTIONS, WIDE_ROWS, session_conf

_SUBMIT_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_CONNECTION: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_LOG: Final = "spark.log"
_PRIVATE: Final = "launch-"
_POLL_S: Final = 0.02
_END_S: Final = 5.0
_LEFT_S: Final = 60.0
"""Java has started after this time."""
_JAVA_OPTIONS: Final = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
"""Spark puts these settings on the command line, in this order."""

_PRIVATE_OPTIONS: Final = ("-D", "-javaagent:", "-agentpath:", "-agentlib:")
"""Java options with free text, which may contain a secret: `-Djavax.net.ssl.trustStorePassword=...`."""


@dataclass(slots=True)
class JavaProcess:
    """Spark's Java process, which may still be starting.

    It ends only with this process, or by `discard`: stop signals are not delivered to it. Python handles them; running
    tables need Java for their commits. If Python is killed, Java reads the end of its standard input and ends too.

    Attributes:
        process: it has its own session, as a terminal and a shell send signals to the whole process group.
        private: the folder of the files with settings, in which Java tells how to connect.
        log: its standard output and error.
    """

    process: "subprocess.Popen[bytes]"
    private: "tempfile.TemporaryDirectory[str]"
    log: Path
    _started: threading.Event = field(default_factory=threading.Event)
    _answer: bytes = b""
    _is_used: bool = False

    def __post_init__(self) -> None:
        # The files are deleted as soon as Java has read them, whatever this process does meanwhile.
        threading.Thread(target=self._await, name="start of Java", daemon=True).start()

    def _await(self) -> None:
        file = _connection(self.private)
        while not file.exists() and self.process.poll() is None:
            time.sleep(_POLL_S)
        with contextlib.suppress(OSError):
            self._answer = file.read_bytes()
        self.private.cleanup()
        self._started.set()

    def gateway(self) -> Any:
        """Wait until it has started, and return PySpark's gateway to it.

        Raises:
            JavaGone: it has ended.
        """
        from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - see above

        self._started.wait()
        if not self._answer:
            code = self.process.wait(_END_S)
            raise JavaGone(f"Spark's Java process ended at its start (exit code {code})", f"see {self.log}")
        port, length = struct.unpack_from(">ii", self._answer)
        secret = self._answer[8 : 8 + length].decode()
        with _environment(PYSPARK_GATEWAY_PORT=str(port), PYSPARK_GATEWAY_SECRET=secret):
            gateway: Any = launch_gateway()
        gateway.proc, self._is_used = self.process, True
        # A service manager sends signals to every process that it finds.
        signals = gateway.jvm.sun.misc
        for name in ("INT", "TERM", "HUP"):
            signals.Signal.handle(signals.Signal(name), signals.SignalHandler.SIG_IGN)
        return gateway

    def discard(self) -> None:
        """End it if it is not used."""
        if not self._is_used:
            self.process.kill()
            self._started.wait(_END_S)


def begin_java(config: Config) -> JavaProcess:
    """Start Spark's Java process, without waiting for it. The first call fetches the Java libraries.

    Raises:
        JavaMissing: no usable Java on this machine.
        ReplicatorError: the libraries could not be fetched.
        ConfigError: the Java options contain an unclosed quote.
    """
    java = find_java()
    os.environ.setdefault("JAVA_HOME", str(java.resolve().parent.parent))
    # Executors must run the interpreter that has our libraries, not the first python3 on PATH.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    conf = session_conf(config, lake_jars(config.lake))
    # SQL settings are read from the context later.
    early = {name: value for name, value in conf.items() if not name.startswith("spark.sql.")}
    libraries = [path for path in map(Path, conf[CLASS_PATH].split(os.pathsep)) if path.exists()]
    classes = class_archive(java, [*libraries, pyspark_folder() / "jars"])
    # Before it lets the heap grow, the parallel collector scans all of it, twice in a large batch.
    heap = f"-Xms{config.spark.driver_memory}"
    options = [*classes.java_options(), heap, WIDE_ROWS, early.get(DEFAULT_OPTIONS, "")]
    early |= {"spark.master": config.spark.master, DEFAULT_OPTIONS: " ".join(options)}
    started = _launched(early, config.mirror.state_dir)
    atexit.register(classes.keep, started.process)
    return started


@contextlib.contextmanager
def early_java(config: Config) -> Iterator[JavaProcess | None]:
    """Start Java before the block, which imports and checks, and end it if the block did not use it.

    None if that is not possible: the block finds out why when it needs Java. None, too, if this mirror never ran here:
    if its first start is refused, nothing was downloaded or written.
    """
    java = None
    with contextlib.suppress(OSError, ReplicatorError):
        ran = (config.mirror.state_dir / _LOG).exists()
        java = begin_java(config) if ran and are_fetched(config.lake) else None
    try:
        yield java
    finally:
        if java is not None:
            java.discard()


def _launched(conf: Mapping[str, str], folder: Path) -> JavaProcess:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove_left(folder)
    private = tempfile.TemporaryDirectory(prefix=_PRIVATE, dir=folder)
    try:
        options = Path(private.name) / "java.options"
        settings, hidden = hide_java_options(conf, options)
        _write_private(options, vm_options_text(hidden))
        properties = Path(private.name) / "spark.properties"
        _write_private(properties, properties_text(settings))
        # If it is given a file, Spark ignores the defaults of the installation unless told to load them.
        arguments = ["--load-spark-defaults", "--properties-file", str(properties)]
        given = _split(_SUBMIT_ARGUMENTS, os.environ.get(_SUBMIT_ARGUMENTS) or "pyspark-shell")
        home = Path(os.environ.get("SPARK_HOME") or pyspark_folder())
        env = os.environ | {"SPARK_CONNECT_MODE": "0", _CONNECTION: str(_connection(private))}
        log = folder / _LOG
        log.touch(0o600)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [home / "bin" / "spark-submit", *arguments, *given],
                stdin=subprocess.PIPE, stdout=output, stderr=output, env=env, start_new_session=True,
            )  # fmt: skip
    except BaseException:
        private.cleanup()
        raise
    return JavaProcess(process, private, log)


def _remove_left(folder: Path) -> None:
    """Remove the private files of a process that was killed while Java started."""
    for left in folder.glob(f"{_PRIVATE}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _LEFT_S:
                shutil.rmtree(left)


def _connection(private: "tempfile.TemporaryDirectory[str]") -> Path:
    """Return the file in which Java tells its port and a secret, in the form of PySpark's `launch_gateway`."""
    return Path(private.name) / "connection"


def hide_java_options(conf: Mapping[str, str], file: Path) -> tuple[dict[str, str], list[str]]:
    """Move the Java options that may contain a secret from `conf` to `file`, which Java reads.

    Returns:
        The settings that remain, and the options for `file`.

    Raises:
        ConfigError: the options contain an unclosed quote.
    """
    settings, hidden = dict(conf), []
    for name in _JAVA_OPTIONS:
        options = _split(f"{name} in [spark] conf", settings.pop(name, ""))
        hidden += [option for option in options if option.startswith(_PRIVATE_OPTIONS)]
        if visible := [option for option in options if not option.startswith(_PRIVATE_OPTIONS)]:
            settings[name] = shlex.join(visible)
    if hidden:
        name = _JAVA_OPTIONS[-1]
        last = shlex.quote(f"-XX:VMOptionsFile={file}")
        settings[name] = f"{settings[name]} {last}" if name in settings else last
    return settings, hidden


def _split(where: str, options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError:
        # The text is not included: it may contain a secret.
        raise ConfigError(
            f"{where} cannot be read: a quote is not closed",
            "close each quote, and put a backslash before one that is part of a value",
        ) from None


def vm_options_text(options: list[str]) -> str:
    """Format options for -XX:VMOptionsFile: separated by white space, with quotes but without escapes."""
    return "".join('"' + option.replace('"', '"\'"\'"') + '"\n' for option in options)


def properties_text(settings: Mapping[str, str]) -> str:
    """Format settings as a Java properties file in UTF-8."""
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())


def _escaped(text: str) -> str:
    """Escape a text for a properties file."""
    named = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    return "".join(named.get(char) or (f"\\{char}" if char in "\\=:#! " else char) for char in text)


def _write_private(file: Path, text: str) -> None:
    """Write a new file that only this user can read."""
    file.touch(0o600, exist_ok=False)
    file.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            del os.environ[name]
