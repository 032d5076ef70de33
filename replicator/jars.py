"""The Java libraries, at pinned versions, fetched by the Ivy that is inside PySpark.

A set is fetched once into `<cache>/jars/<name>-<fingerprint>/lib`. The fingerprint covers the whole request,
so a new version never mixes with an old one, and a directory appears only when it is complete.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from replicator.errors import JavaMissing, ReplicatorError

MARKER = "complete.json"
JAVA_MIN, JAVA_MAX = 17, 22
"""Spark 4.0 needs 17; since 24 (and by default 23) Java refuses a call that Spark's Hadoop client makes."""


Tell = Callable[[str], None]

_tell: Tell = lambda _: None  # noqa: E731


def tell_downloads(tell: Tell) -> None:
    """Let `tell` hear of each download, in a line for people: the first one takes a minute."""
    global _tell  # noqa: PLW0603 - of the process, as its standard error is
    _tell = tell


@dataclass(frozen=True, slots=True)
class JarSet:
    """What one Java program needs: root libraries (`group:artifact:version`) less what must stay out.

    `distribution` (`group:artifact:version:classifier`) is a whole program as one `tar.gz`, which is unpacked.
    `services` are pairs of interface and class that Java's service loader is to find; they become a jar of their own.
    """

    name: str
    roots: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    """`group:artifact`, where artifact may be `*`."""
    distribution: str | None = None
    services: tuple[tuple[str, str], ...] = ()

    def ivy_xml(self) -> str:
        """The request as an Ivy module descriptor. One request, so that each library has one version."""
        lines = [
            '<ivy-module version="2.0">',
            f'  <info organisation="replicator" module="{self.name}"/>',
            "  <dependencies>",
        ]
        for root in self.roots:
            group, artifact, version = root.split(":")
            lines.append(f'    <dependency org="{group}" name="{artifact}" rev="{version}" conf="default"/>')
        if self.distribution:
            group, artifact, version, classifier = self.distribution.split(":")
            extra = 'xmlns:e="http://ant.apache.org/ivy/extra"'
            lines += [
                f'    <dependency org="{group}" name="{artifact}" rev="{version}" conf="default" transitive="false">',
                f'      <artifact name="{artifact}" type="tar.gz" ext="tar.gz" {extra} e:classifier="{classifier}"/>',
                "    </dependency>",
            ]
        for pattern in self.exclude:
            group, artifact = pattern.split(":")
            lines.append(f'    <exclude org="{group}" module="{artifact}"/>')
        return "\n".join([*lines, "  </dependencies>", "</ivy-module>", ""])

    def directory(self, cache: Path) -> Path:
        """Where the set is or will be; its jars are in `lib` below."""
        request = self.ivy_xml() + "".join(map(str, self.services))
        fingerprint = hashlib.sha256(request.encode()).hexdigest()[:12]
        return cache / "jars" / f"{self.name}-{fingerprint}"


SPARK = JarSet(
    "spark",
    (
        "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
        # 4.0.0 is the newest whose whole tree resolves; it works with later 4.0 releases of Spark
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",
        "org.apache.spark:spark-avro_2.13:4.0.2",
        "org.xerial:sqlite-jdbc:3.50.3.0",
        # Hadoop's own local file system starts a `chmod` process for each file and directory that it makes.
        "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0",
    ),
    # PySpark brings these itself; a second copy on the driver's class path would shadow or clash
    (
        "org.apache.hadoop:*",
        "org.scala-lang:*",
        "org.scala-lang.modules:*",
        "org.slf4j:*",
        "org.lz4:*",
        "org.xerial.snappy:*",
        "org.tukaani:*",
        "com.google.code.findbugs:*",
        "org.apache.spark:spark-tags_2.13",
    ),
)

KAFKA = JarSet(
    "kafka",
    (
        "org.apache.kafka:kafka_2.13:4.3.1",
        "org.apache.kafka:connect-runtime:4.3.1",
        "org.apache.kafka:connect-json:4.3.1",
        "org.apache.kafka:connect-transforms:4.3.1",
        "org.apache.logging.log4j:log4j-core:2.25.4",
        "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
    ),
)

DEBEZIUM = JarSet(
    "debezium",
    ("io.debezium:debezium-connector-mysql:3.6.1.Final",),
    # Kafka Connect lends these to its plugins; zstd stays, the binlog reader needs it
    (
        "org.apache.kafka:*",
        "org.slf4j:*",
        "org.lz4:*",
        "org.xerial.snappy:*",
        "jakarta.ws.rs:*",
    ),
)

CONVERTER = JarSet(
    "avro-converter",
    ("io.apicurio:apicurio-registry-utils-converter:2.6.13.Final",),
    ("org.apache.kafka:*", "org.slf4j:*"),
    # It does not announce itself, and without that Connect would have to look into every class at its start.
    services=(
        (
            "org.apache.kafka.connect.storage.Converter",
            "io.apicurio.registry.utils.converter.AvroConverter",
        ),
    ),
)

REGISTRY = JarSet("registry", distribution="io.apicurio:apicurio-registry-app:2.6.13.Final:all")
"""3.x needs Java 21."""


def default_cache() -> Path:
    """The folder for downloads: $REPLICATOR_CACHE, else `replicator` in the user's cache folder."""
    if chosen := os.environ.get("REPLICATOR_CACHE"):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "replicator"


def spark_jars(cache: Path | None = None) -> list[Path]:
    """What the engine adds to PySpark's class path. Raises JavaMissing, ReplicatorError."""
    return jars(SPARK, cache)


def kafka_jars(cache: Path | None = None) -> list[Path]:
    """The class path of a Kafka broker and of a Connect worker. Raises JavaMissing, ReplicatorError."""
    return jars(KAFKA, cache)


def debezium_plugin_dir(cache: Path | None = None) -> Path:
    """An entry for Connect's `plugin.path` with the connector in it. Raises JavaMissing, ReplicatorError."""
    return jars(DEBEZIUM, cache)[0].parent.parent


def converter_plugin_dir(cache: Path | None = None) -> Path:
    """An entry for Connect's `plugin.path` with the Avro converter in it. Raises JavaMissing, ReplicatorError."""
    return jars(CONVERTER, cache)[0].parent.parent


def registry_jar(cache: Path | None = None) -> Path:
    """The schema registry, as a jar that `java -jar` runs. Raises JavaMissing, ReplicatorError."""
    return next(path for path in jars(REGISTRY, cache) if path.name.endswith("-runner.jar"))


def jars(wanted: JarSet, cache: Path | None = None) -> list[Path]:
    """The set's jars, sorted by name, from the cache or fetched into it; two processes may ask at once.

    Raises JavaMissing where no usable Java is found, ReplicatorError where the download fails.
    """
    cache = cache or default_cache()
    directory = wanted.directory(cache)
    if found := _complete(directory):
        return found
    with locked(cache / "jars" / f"{wanted.name}.lock"):
        # Another process may have fetched the set while this one waited.
        if not (found := _complete(directory)):
            _fetch(wanted, cache, directory)
            found = _complete(directory)
    if not found:
        raise ReplicatorError(f"the jars of {wanted.name} in {directory} are damaged", f"remove {directory}")
    return found


def _complete(directory: Path) -> list[Path]:
    """The jars that the marker lists, or nothing where the marker or any jar is missing or cut short."""
    try:
        sizes: dict[str, int] = json.loads((directory / MARKER).read_text())
        files = {directory / "lib" / name: size for name, size in sizes.items()}
        if all(path.stat().st_size == size for path, size in files.items()):
            return sorted(files)
    except (OSError, ValueError):
        pass
    return []


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time inside, by a lock file that stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _fetch(wanted: JarSet, cache: Path, directory: Path) -> None:
    java = find_java()
    _tell(f"downloading the Java libraries for {wanted.name} into {cache}, this once")
    work = Path(tempfile.mkdtemp(prefix=f"{wanted.name}-", dir=directory.parent))
    try:
        (work / "ivy.xml").write_text(wanted.ivy_xml())
        _run_ivy(_ivy_command(java, cache, work), work / "ivy.log", wanted.name)
        lib = work / "lib"
        _unpack(lib)
        _announce(lib, wanted.services)
        sizes = {str(jar.relative_to(lib)): jar.stat().st_size for jar in lib.rglob("*.jar")}
        if not sizes:
            raise ReplicatorError(f"the download of the {wanted.name} jars brought no file")
        (work / MARKER).write_text(json.dumps(sizes, indent=1, sort_keys=True))
        work.chmod(0o755)
        # A rename is one step, so that a set is there whole or not at all.
        shutil.rmtree(directory, ignore_errors=True)
        work.rename(directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _unpack(lib: Path) -> None:
    for archive in sorted(lib.glob("*.tar.gz")):
        with tarfile.open(archive) as content:
            content.extractall(lib, filter="data")
        archive.unlink()


def _announce(lib: Path, services: Iterable[tuple[str, str]]) -> None:
    for interface, implementation in services:
        with zipfile.ZipFile(lib / f"{implementation.rpartition('.')[2]}-service.jar", "w") as jar:
            jar.writestr(f"META-INF/services/{interface}", f"{implementation}\n")


def _ivy_command(java: Path, cache: Path, work: Path) -> list[str]:
    # Finding the package without importing it saves half a second.
    pyspark = find_spec("pyspark")
    folder = Path(pyspark.origin).parent if pyspark and pyspark.origin else Path()
    found = sorted((folder / "jars").glob("ivy-*.jar"))
    if not found:
        raise ReplicatorError("PySpark has no Ivy among its jars", "reinstall pyspark")
    # Sites that may reach only a mirror of their own name it in an Ivy settings file.
    settings = os.environ.get("REPLICATOR_IVY_SETTINGS")
    return [
        *(str(java), "-jar", str(found[-1])),
        *(("-settings", settings) if settings else ()),
        *("-cache", str(cache / "ivy")),
        *("-ivy", str(work / "ivy.xml")),
        *("-retrieve", str(work / "lib" / "[artifact]-[revision](-[classifier]).[ext]")),
    ]


def _run_ivy(command: list[str], log: Path, name: str) -> None:
    problems: list[str] = []
    with (
        log.open("w") as copy,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy,
    ):
        for line in ivy.stdout or ():
            copy.write(line)
            if "::" not in line and re.search(r"ERROR|FAILED|not found|Exception", line):
                problems.append(line.strip())
    if ivy.returncode != 0:
        cause = problems[0] if problems else f"Ivy stopped with code {ivy.returncode}"
        raise ReplicatorError(
            f"the {name} jars could not be downloaded: {cause}",
            "check that the network reaches the Maven repositories; behind a mirror, name an Ivy settings "
            "file in REPLICATOR_IVY_SETTINGS",
        )


def find_java() -> Path:
    """The first usable `java`: of $JAVA_HOME, on PATH, below /usr/lib/jvm. Raises JavaMissing."""
    hint = f"install Java {JAVA_MIN}, on Debian by: apt-get install openjdk-{JAVA_MIN}-jre-headless"
    seen: list[str] = []
    for candidate in _java_candidates():
        version = java_version(candidate)
        if version is not None and JAVA_MIN <= version <= JAVA_MAX:
            return candidate
        seen.append(f"{candidate} is {'no Java' if version is None else f'Java {version}'}")
    if not seen:
        raise JavaMissing("no Java is installed", hint)
    raise JavaMissing(f"no Java from {JAVA_MIN} to {JAVA_MAX}: {', '.join(seen)}", hint)


def _java_candidates() -> Iterator[Path]:
    if home := os.environ.get("JAVA_HOME"):
        yield Path(home) / "bin" / "java"
    if on_path := shutil.which("java"):
        yield Path(on_path)
    yield from sorted(Path("/usr/lib/jvm").glob("*/bin/java"))


def java_version(java: Path) -> int | None:
    """The feature release, such as 17, of a `java` program; None where it does not run."""
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(match[1]) if match else None
