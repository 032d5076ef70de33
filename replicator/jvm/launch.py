"""Start Spark's Java process without any setting that may be a secret on its command line.

Every user of a machine can read the command lines of all processes. The settings are therefore read from files that
only this user can read, and that are deleted once the process has started.
"""

import contextlib
import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.java_gateway import launch_gateway

from replicator.errors import ConfigError

_SUBMIT_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_JAVA_OPTIONS: Final = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
"""Spark puts these settings on the command line, in this order."""

_PRIVATE_OPTIONS: Final = ("-D", "-javaagent:", "-agentpath:", "-agentlib:")
"""Java options with free text, which may contain a secret: `-Djavax.net.ssl.trustStorePassword=...`."""


def launch_java(conf: Mapping[str, str], folder: Path) -> Any:
    """Start the Java process with `conf` and return PySpark's gateway to it.

    The process has its own session: a terminal and a shell send signals to the whole process group.

    Args:
        folder: location of the private files while the process starts.

    Raises:
        ConfigError: the Java options contain an unclosed quote.
    """
    with tempfile.TemporaryDirectory(prefix="launch-", dir=folder) as private:
        options = Path(private) / "java.options"
        settings, hidden = hide_java_options(conf, options)
        _write_private(options, vm_options_text(hidden))
        properties = Path(private) / "spark.properties"
        _write_private(properties, properties_text(settings))
        # If it is given a file, Spark ignores the defaults of the installation unless told to load them.
        arguments = shlex.join(["--load-spark-defaults", "--properties-file", str(properties)])
        with _submit_arguments(arguments):
            return launch_gateway(None, {"start_new_session": True})


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


@contextlib.contextmanager
def _submit_arguments(arguments: str) -> Iterator[None]:
    """Let PySpark call spark-submit with `arguments`, placed before those from the user's environment."""
    given = os.environ.get(_SUBMIT_ARGUMENTS)
    os.environ[_SUBMIT_ARGUMENTS] = f"{arguments} {given or 'pyspark-shell'}"
    try:
        yield
    finally:
        if given is None:
            del os.environ[_SUBMIT_ARGUMENTS]
        else:
            os.environ[_SUBMIT_ARGUMENTS] = given
