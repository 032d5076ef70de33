"""Start Spark's Java process without any setting that may be a secret on its command line.

Every user of a machine can read the command lines of all processes. The settings are therefore read from files that
only this user can read, and that are deleted once the process has started.
"""

import atexit
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from replicator.config import Config
from replicator.errors import ConfigError, JavaGone
from replicator.jvm.class_data_sharing import class_archive
from replicator.jvm.jars import find_java, lake_jars, pyspark_folder, spark_jars
from replicator.jvm.settings import CLASS_PATH, DEFAULT_OPTIONS, WIDE_ROWS, session_conf

_JAVA_OPTIONS: Final = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
"""Spark puts these settings on the command line, in this order."""

_PRIVATE_OPTIONS: Final = ("-D", "-javaagent:", "-agentpath:", "-agentlib:")
"""Java options with free text, which may contain a secret: `-Djavax.net.ssl.trustStorePassword=...`."""


_POLL_S: Final = 0.02


class JavaProcess:
    """Spark's Java process, which may still be starting.

    It ends only with this process: stop signals are not delivered to it. Python handles them; running tables need
    Java for their commits. If Python ends, Java reads the end of its standard input and ends too.
    """

    def __init__(self, config: Config) -> None:
        """Start it, and do not wait until it answers.

        Raises:
            JavaMissing: no usable Java on this machine.
            ReplicatorError: the libraries could not be fetched.
            ConfigError: the Java options contain an unclosed quote.
            OSError: the state folder cannot be written.
        """
        self.config, java, state = config, find_java(), config.mirror.state_dir
        conf = session_conf(config, [*spark_jars(), *lake_jars(config.lake)])
        # SQL settings are read from the context later.
        early = {name: value for name, value in conf.items() if not name.startswith("spark.sql.")}
        libraries = [path for path in map(Path, conf[CLASS_PATH].split(os.pathsep)) if path.exists()]
        classes = class_archive(java, [*libraries, pyspark_folder() / "jars"], config.log.kind)
        # Before it lets the heap grow, the parallel collector scans all of it, twice in a large batch.
        heap = f"-Xms{config.spark.driver_memory}"
        options = [*classes.java_options(), heap, WIDE_ROWS, early.get(DEFAULT_OPTIONS, "")]
        early |= {"spark.master": config.spark.master, DEFAULT_OPTIONS: " ".join(options)}
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Removed when Java answers, or with this object.
        self._private = TemporaryDirectory(prefix="launch-", dir=state)
        self._answer = Path(self._private.name) / "gateway"
        os.environ.setdefault("JAVA_HOME", str(java.resolve().parent.parent))
        # Executors must run the interpreter that has our libraries, not the first python3 on PATH.
        os.environ |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        # Java is verbose.
        log = os.open(state / "spark.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._process = subprocess.Popen(
                _command(early, Path(self._private.name)),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=os.environ
                | {"SPARK_CONNECT_MODE": "0", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._answer)},
                # A terminal and a shell send signals to the whole process group.
                start_new_session=True,
            )
        finally:
            os.close(log)
        self._classes = classes
        # A mirror that may not start needs no Java.
        atexit.register(self._process.kill)

    def gateway(self) -> Any:
        """Wait until Java answers, and return PySpark's gateway to it.

        Raises:
            JavaGone: it has ended.
        """
        # PySpark takes a second to import, in which Java starts.
        from pyspark.java_gateway import launch_gateway  # noqa: PLC0415

        while not self._answer.exists():
            if (code := self._process.poll()) is not None:
                raise java_gone(code)
            time.sleep(_POLL_S)
        # A number, the length of a text, and the text.
        told = self._answer.read_bytes()
        self._private.cleanup()
        found = {
            "PYSPARK_GATEWAY_PORT": str(int.from_bytes(told[:4])),
            "PYSPARK_GATEWAY_SECRET": told[8:].decode(),
        }
        os.environ |= found
        try:
            gateway: Any = launch_gateway()
        finally:
            for name in found:
                del os.environ[name]
        gateway.proc = self._process
        atexit.unregister(self._process.kill)
        # A service manager sends signals to every process that it finds.
        signals = gateway.jvm.sun.misc
        for name in ("INT", "TERM", "HUP"):
            signals.Signal.handle(signals.Signal(name), signals.SignalHandler.SIG_IGN)
        atexit.register(self._classes.keep, self._process)
        return gateway


_begun: JavaProcess | None = None


def begin_java(config: Config) -> JavaProcess:
    """Start the Java process of a mirror, unless that was done. It starts while Python imports what the mirror needs.

    Raises:
        As `JavaProcess`.
    """
    global _begun  # noqa: PLW0603 - PySpark has one Java process, too
    if _begun is None or _begun.config != config:
        _begun = JavaProcess(config)
    return _begun


def java_gone(code: int) -> JavaGone:
    """Return the error that says that Java has ended."""
    end = f"signal {-code}" if code < 0 else f"exit code {code}"
    return JavaGone(
        f"Spark's Java process has ended ({end})",
        "see spark.log in the state folder; signal 9 often means that the machine ran out of memory:"
        " lower [spark] driver_memory or add memory. Then start the mirror again; nothing is lost",
    )


def _command(conf: Mapping[str, str], private: Path) -> list[str]:
    """Return the command of Java with `conf`. What may be secret is written to files in the folder `private`.

    Raises:
        ConfigError: the Java options contain an unclosed quote.
    """
    options, properties = private / "java.options", private / "spark.properties"
    settings, hidden = hide_java_options(conf, options)
    _write_private(options, vm_options_text(hidden))
    _write_private(properties, properties_text(settings))
    program = Path(os.environ.get("SPARK_HOME") or pyspark_folder()) / "bin" / "spark-submit"
    # If it is given a file, Spark ignores the defaults of the installation unless told to load them.
    given = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS") or "pyspark-shell")
    return [str(program), "--load-spark-defaults", "--properties-file", str(properties), *given]


def hide_java_options(conf: Mapping[str, str], file: Path) -> tuple[dict[str, str], list[str]]:
    """Move the Java options that may contain a secret from `conf` to `file`, which Java reads.

    Returns:
        The settings that remain, and the options for `file`.

    Raises:
        ConfigError: the options contain an unclosed quote.
    """
    settings, hidden = dict(conf), []
    for name in _JAVA_OPTIONS:
        options = _split(name, settings.pop(name, ""))
        hidden += [option for option in options if option.startswith(_PRIVATE_OPTIONS)]
        if visible := [option for option in options if not option.startswith(_PRIVATE_OPTIONS)]:
            settings[name] = shlex.join(visible)
    if hidden:
        name = _JAVA_OPTIONS[-1]
        last = shlex.quote(f"-XX:VMOptionsFile={file}")
        settings[name] = f"{settings[name]} {last}" if name in settings else last
    return settings, hidden


def _split(name: str, options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError:
        # The text is not included: it may contain a secret.
        raise ConfigError(
            f"{name} in [spark] conf cannot be read: a quote is not closed",
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
