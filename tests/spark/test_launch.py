"""What other users of the machine can see of Spark's Java process: its command line and its ports."""

import ipaddress
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from replicator.errors import JavaGone
from replicator.jvm.launch import early_java
from replicator.sources.archive.writer import ArchiveWriter
from tests.support.config import minimal_config
from tests.support.config_files import ARCHIVE_MIRROR
from tests.support.mirror import START_S, MirrorProcess, family

SECRETS = {
    "spark.hadoop.fs.s3a.secret.key": "hadoop-7f3a",
    "spark.authenticate.secret": "authenticate-7f3a",
    # Not a setting of Spark, so only the session has it.
    "unusual.password": "unusual-7f3a",
    "spark.odd": ' odd = # ! : \\ " \t ü 7f3a',
    "spark.driver.defaultJavaOptions": "-Ddefault.password=default-7f3a",
    "spark.driver.extraJavaOptions": (
        "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC '-Dextra.password=a \"quoted\" extra-7f3a'"
    ),
}
CONFIG = (
    ARCHIVE_MIRROR
    + """\
options = {{ "jdbc.password" = {{ env = "SECRET_CATALOG" }} }}
[spark]
master = "{master}"
driver_memory = "512m"
[spark.conf]
"""
)
PROGRAM = """
import json, sys
from pathlib import Path
from replicator.config import load
from replicator.jvm.spark import build_session

session = build_session(load(Path("replicator.toml")))
names = json.loads(sys.argv[1])
java = session.sparkContext._jvm.System
properties = {name: java.getProperty(name) for name in ("default.password", "extra.password", "spark.odd")}
print(json.dumps({"conf": {name: session.conf.get(name) for name in names}, "properties": properties}), flush=True)
sys.stdin.readline()
"""


@dataclass(frozen=True, slots=True)
class Started:
    """A session in a separate process."""

    java: psutil.Process
    seen: frozenset[str]
    """The command lines of all its processes since its start."""
    conf: dict[str, str]
    properties: dict[str, str]


@contextmanager
def started(folder: Path, master: str) -> Iterator[Started]:
    """Start a session with `SECRETS`, and observe it from its start."""
    variables = {name: f"SECRET_{number}" for number, name in enumerate(SECRETS)}
    lines = [f'"{name}" = {{ env = "{variable}" }}' for name, variable in variables.items()]
    (folder / "replicator.toml").write_text(CONFIG.format(master=master) + "\n".join(lines))
    env = os.environ | {variable: SECRETS[name] for name, variable in variables.items()}
    env |= {"PYTHONPATH": str(Path(__file__).parents[2]), "SECRET_CATALOG": "catalog-7f3a"}
    command = [sys.executable, "-c", PROGRAM, json.dumps(list(SECRETS))]
    with (
        (folder / "output").open("w+") as output,
        subprocess.Popen(
            command, cwd=folder, env=env, text=True, stdin=subprocess.PIPE, stdout=output
        ) as python,
    ):
        seen: set[str] = set()
        try:
            while not (text := (folder / "output").read_text()).endswith("\n"):
                assert python.poll() is None, (folder / ".replicator/shop/spark.log").read_text()
                seen |= command_lines(python.pid)
            (java,) = psutil.Process(python.pid).children()
            yield Started(java, frozenset(seen | command_lines(python.pid)), **json.loads(text))
        finally:
            for process in family(python.pid):
                process.kill()
            python.kill()


def command_lines(pid: int) -> set[str]:
    """Return the command lines of all descendants of a process."""
    found = set()
    for process in psutil.Process(pid).children(recursive=True):
        try:
            found.add(" ".join(process.cmdline()))
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("master", ["local", "local[2]"])
def test_java_shows_no_secret_and_listens_only_on_loopback_when_the_master_is_local(
    tmp_path: Path, master: str
) -> None:
    with started(tmp_path, master) as session:
        shown = "\n".join(session.seen)
        assert "org.apache.spark.deploy.SparkSubmit" in shown
        assert "-Xmx512m" in shown
        assert "-XX:TieredStopAtLevel=1" in shown
        assert "7f3a" not in shown
        assert session.conf == SECRETS
        assert session.properties == {
            "default.password": "default-7f3a",
            "extra.password": 'a "quoted" extra-7f3a',
            # Spark removes white space from both ends of a property; the session has the whole value.
            "spark.odd": SECRETS["spark.odd"].strip(),
        }
        state = tmp_path / ".replicator" / "shop"
        assert not [file for file in state.rglob("*") if file.is_file() and "7f3a" in file.read_text()]
        listening = [c.laddr.ip for c in session.java.net_connections("inet") if c.status == "LISTEN"]
        assert listening
        assert all(is_loopback(address) for address in listening), listening


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address; Java's IPv4 addresses appear as IPv6."""
    found = ipaddress.ip_address(address)
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def test_spark_that_does_not_start_is_one_error_with_its_reason(tmp_path: Path) -> None:
    config = tmp_path / "replicator.toml"
    config.write_text(f'{ARCHIVE_MIRROR}[spark]\nmaster = "local[x]"\ndriver_memory = "512m"\n')
    with ArchiveWriter(tmp_path / "archive", topic_prefix="shop", encoding="json"):
        pass
    mirror = MirrorProcess(config, tmp_path / "out.log", ("--until-caught-up",))
    mirror.start()
    assert mirror.wait(START_S) == 3
    *_, error, following = mirror.tail().splitlines()
    assert error.startswith("error: Spark does not start: ")
    assert "'local[x]'" in error
    assert "check [spark]" in following


def test_java_that_was_started_early_ends_if_it_is_not_used(tmp_path: Path) -> None:
    config = minimal_config(tmp_path, spark={"master": "local", "driver_memory": "512m"})
    with early_java(config) as java:
        assert java is None, "the mirror never ran here"
    state = config.mirror.state_dir
    state.mkdir(parents=True, exist_ok=True)
    (state / "spark.log").touch()
    left = state / "launch-killed"
    left.mkdir()
    os.utime(left, (0, 0))
    with early_java(config) as java:
        assert java is not None
    assert java.process.wait(30) != 0
    assert list(state.glob("launch-*")) == []
    with pytest.raises(JavaGone, match="ended at its start"):
        java.gateway()
