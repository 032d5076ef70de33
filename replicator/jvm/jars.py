"""Fetch the Java libraries, at pinned versions, with the Ivy that is part of PySpark.

A set is fetched once into `<cache>/jars/<name>-<fingerprint>/lib`. The fingerprint covers the whole request,
so versions never mix, and a directory appears only when it is complete.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from replicator.errors import JavaMissing, ReplicatorError
from replicator.locks import FileLock

if TYPE_CHECKING:
    from replicator.config import LakeConfig

MARKER = "complete.json"
_FILE_IO = "io-impl"
JAVA_MIN, JAVA_MAX = 17, 22
"""Spark 4.1 needs 17; since 24 (and by default 23) Java refuses a call that Spark's Hadoop client makes."""


Report = Callable[[str], None]

_report: Report = lambda _: None  # noqa: E731


def report_downloads(report: Report) -> None:
    """Pass one line per download to `report`, for the operator: the first download takes a minute."""
    global _report  # noqa: PLW0603 - of the process, as its standard error is
    _report = report


def report_download(line: str) -> None:
    """Report a download to the function that `report_downloads` set."""
    _report(line)


@dataclass(frozen=True, slots=True)
class JarSet:
    """The libraries of one Java program: root libraries (`group:artifact:version`), minus exclusions.

    A root with a classifier (`group:artifact:version:classifier`, which may be empty) is one jar, without the libraries
    that it needs.
    `distribution` (`group:artifact:version:classifier`) is a complete program as one file of the kind `packaging`.
    `services` are pairs of interface and class for Java's service loader; they are written to a jar of their own.
    """

    name: str
    roots: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    """`group:artifact`, where artifact may be `*`."""
    distribution: str | None = None
    packaging: str = "tar.gz"
    services: tuple[tuple[str, str], ...] = ()

    def ivy_xml(self) -> str:
        """Return the request as an Ivy module descriptor. One request ensures one version of each library."""
        lines = [
            '<ivy-module version="2.0">',
            f'  <info organisation="replicator" module="{self.name}"/>',
            "  <dependencies>",
        ]
        extra = 'xmlns:e="http://ant.apache.org/ivy/extra"'
        for root in self.roots:
            group, artifact, version, *classifiers = root.split(":")
            start = f'    <dependency org="{group}" name="{artifact}" rev="{version}" conf="default"'
            if not classifiers:
                lines.append(f"{start}/>")
            for classifier in classifiers:
                named = f'name="{artifact}" type="jar" ext="jar"'
                named += f' {extra} e:classifier="{classifier}"' if classifier else ""
                lines.append(f'{start} transitive="false"><artifact {named}/></dependency>')
        if self.distribution:
            group, artifact, version, classifier = self.distribution.split(":")
            kind = self.packaging
            lines += [
                f'    <dependency org="{group}" name="{artifact}" rev="{version}" conf="default" transitive="false">',
                f'      <artifact name="{artifact}" type="{kind}" ext="{kind}" {extra} e:classifier="{classifier}"/>',
                "    </dependency>",
            ]
        for pattern in self.exclude:
            group, artifact = pattern.split(":")
            lines.append(f'    <exclude org="{group}" module="{artifact}"/>')
        return "\n".join([*lines, "  </dependencies>", "</ivy-module>", ""])

    def directory(self, cache: Path) -> Path:
        """Return the directory of the set, whether or not it exists; its jars are in the subdirectory `lib`."""
        request = self.ivy_xml() + "".join(map(str, self.services))
        fingerprint = hashlib.sha256(request.encode()).hexdigest()[:12]
        return cache / "jars" / f"{self.name}-{fingerprint}"


SPARK = JarSet(
    "spark",
    (
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        # 4.1.1 is the newest whose whole tree resolves; it works with later 4.1 releases of Spark
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1",
        "org.xerial:sqlite-jdbc:3.50.3.0",
        # Reads tables of the source; the version that Debezium uses.
        "com.mysql:mysql-connector-j:9.1.0",
        # Hadoop's own local file system starts a `chmod` process for each file and directory that it creates.
        "com.globalmentor:hadoop-bare-naked-local-fs:0.1.0",
    ),
    # PySpark has these itself; a second copy on the driver's class path would shadow them or conflict
    (
        "org.apache.hadoop:*",
        "org.scala-lang:*",
        "org.scala-lang.modules:*",
        "org.slf4j:*",
        "org.lz4:*",
        "org.xerial.snappy:*",
        "org.tukaani:*",
        "com.google.code.findbugs:*",
        "com.google.protobuf:*",
        "org.apache.spark:spark-tags_2.13",
    ),
)

POSTGRESQL = JarSet("postgresql", ("org.postgresql:postgresql:42.7.14",), ("org.checkerframework:*",))
"""The driver of JDBC catalogs in PostgreSQL."""

AWS = JarSet("aws", ("org.apache.iceberg:iceberg-aws-bundle:1.12.0",))
"""The clients that Iceberg's S3FileIO and its Glue catalog use."""

_OF_LAKES = (POSTGRESQL, AWS)
"""The sets that `config.catalogs` names."""

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
    # Kafka Connect provides these to its plugins; zstd stays, because the binlog reader needs it
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
    # It has no service file, and without one Connect would have to scan every class at its start.
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
    """Return the folder for downloads: $REPLICATOR_CACHE, else `replicator` in the user's cache folder."""
    if chosen := os.environ.get("REPLICATOR_CACHE"):
        return Path(chosen).expanduser().absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "replicator"


def are_fetched(lake: "LakeConfig") -> bool:
    """Return whether `lake_jars` has nothing to fetch."""
    return all(_complete(each.directory(default_cache())) for each in _sets_of(lake))


def lake_jars(lake: "LakeConfig") -> list[Path]:
    """Return the jars that the engine adds to PySpark's class path, also for this catalog and its file system.

    Raises JavaMissing, ReplicatorError.
    """
    return [jar for wanted in _sets_of(lake) for jar in jars(wanted)]


def _sets_of(lake: "LakeConfig") -> list[JarSet]:
    database = lake.database.jars if lake.database is not None else ()
    # Each command imports this module, and the models of the configuration take time.
    from replicator.config.catalogs import FILE_IO_JARS  # noqa: PLC0415

    names = {*lake.kind.jars, *database, *FILE_IO_JARS.get(str(lake.options.get(_FILE_IO)), ())}
    return [SPARK, *(wanted for wanted in _OF_LAKES if wanted.name in names)]


def kafka_jars(cache: Path | None = None) -> list[Path]:
    """Return the class path of a Kafka broker and of a Connect worker. Raises JavaMissing, ReplicatorError."""
    return jars(KAFKA, cache)


def debezium_plugin_dir(cache: Path | None = None) -> Path:
    """Return an entry for Connect's `plugin.path` with the connector. Raises JavaMissing, ReplicatorError."""
    return jars(DEBEZIUM, cache)[0].parent.parent


def converter_plugin_dir(cache: Path | None = None) -> Path:
    """Return an entry for Connect's `plugin.path` with the Avro converter. Raises JavaMissing, ReplicatorError."""
    return jars(CONVERTER, cache)[0].parent.parent


def registry_jar(cache: Path | None = None) -> Path:
    """Return the schema registry as a jar for `java -jar`. Raises JavaMissing, ReplicatorError."""
    return next(path for path in jars(REGISTRY, cache) if path.name.endswith("-runner.jar"))


def jars(wanted: JarSet, cache: Path | None = None) -> list[Path]:
    """Return the set's jars, sorted by name; fetch them if they are not cached. Safe for concurrent processes.

    Raises JavaMissing if no usable Java is found, ReplicatorError if the download fails.
    """
    cache = cache or default_cache()
    directory = wanted.directory(cache)
    if found := _complete(directory):
        return found
    with FileLock(cache / "jars" / f"{wanted.name}.lock", wait=True):
        # Another process may have fetched the set while this one waited.
        if not (found := _complete(directory)):
            _fetch(wanted, cache, directory)
            found = _complete(directory)
    if not found:
        raise ReplicatorError(f"the jars of {wanted.name} in {directory} are damaged", f"remove {directory}")
    return found


def _complete(directory: Path) -> list[Path]:
    """Return the jars that the marker lists; nothing if the marker or any jar is missing or truncated."""
    try:
        sizes: dict[str, int] = json.loads((directory / MARKER).read_text())
        files = {directory / "lib" / name: size for name, size in sizes.items()}
        if all(path.stat().st_size == size for path, size in files.items()):
            return sorted(files)
    except (OSError, ValueError):
        pass
    return []


@contextmanager
def work_folder(target: Path) -> Iterator[Path]:
    """Create a folder beside `target`, to be filled and renamed to it; delete it at the end if it still exists.

    The caller holds the lock of `target`, so folders that earlier processes left when killed are deleted too.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    prefix = f"{target.name}.part-"
    for left in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=prefix, dir=target.parent))
    try:
        work.chmod(0o755)
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def fetch_zip(
    coordinates: str, work: Path, what: str, progress: Callable[[int], None] = lambda _: None
) -> Path:
    """Download one zip file into `work` and return its path. Ivy verifies its published checksum.

    Args:
        coordinates: `group:artifact:version:classifier`.
        what: its name in messages.
        progress: called every half second with the number of bytes in `work`.

    Raises:
        JavaMissing: no usable Java is found.
        ReplicatorError: the download fails.
    """
    wanted = JarSet("download", distribution=coordinates, packaging="zip")
    found = work / "found"
    with _watching(work, progress):
        # A separate cache, which is deleted with `work`: the shared one would keep the whole archive.
        _run_ivy(wanted, find_java(), work / "ivy", work, what, ["-cachepath", str(found)])
    return Path(found.read_text().strip())


@contextmanager
def _watching(folder: Path, progress: Callable[[int], None]) -> Iterator[None]:
    """Report the size of a folder's files while the block runs."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.5):
            progress(_size(folder))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # renamed by Ivy since it was listed
            total += path.stat().st_size
    return total


def _fetch(wanted: JarSet, cache: Path, directory: Path) -> None:
    java = find_java()
    report_download(f"downloading the Java libraries for {wanted.name} into {cache} (only once)")
    with work_folder(directory) as work:
        lib = work / "lib"
        retrieve = ["-retrieve", str(lib / "[artifact]-[revision](-[classifier]).[ext]")]
        _run_ivy(wanted, java, cache / "ivy", work, f"the {wanted.name} jars", retrieve)
        _unpack(lib)
        _announce(lib, wanted.services)
        sizes = {str(jar.relative_to(lib)): jar.stat().st_size for jar in lib.rglob("*.jar")}
        if not sizes:
            raise ReplicatorError(f"the download of the {wanted.name} jars contained no file")
        (work / MARKER).write_text(json.dumps(sizes, indent=1, sort_keys=True))
        # A rename is atomic, so the set exists completely or not at all.
        shutil.rmtree(directory, ignore_errors=True)
        work.rename(directory)


def _unpack(lib: Path) -> None:
    for archive in sorted(lib.glob("*.tar.gz")):
        with tarfile.open(archive) as content:
            # The filters of tarfile do not exist before Python 3.11.4, and Debian 12 has 3.11.2.
            for member in content:
                name = Path(os.path.normpath(member.name))
                if name.is_absolute() or ".." in name.parts:
                    raise ReplicatorError(f"{archive.name} has a file outside of its folder: {member.name}")
                if member.isfile() and (source := content.extractfile(member)):
                    target = lib / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("wb") as copy:
                        shutil.copyfileobj(source, copy)
        archive.unlink()


def _announce(lib: Path, services: Iterable[tuple[str, str]]) -> None:
    for interface, implementation in services:
        with zipfile.ZipFile(lib / f"{implementation.rpartition('.')[2]}-service.jar", "w") as jar:
            jar.writestr(f"META-INF/services/{interface}", f"{implementation}\n")


def pyspark_folder() -> Path:
    """Return the folder of PySpark, without importing it: that takes half a second."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ReplicatorError("PySpark is not installed", "install replicator again")
    return Path(spec.origin).parent


def _run_ivy(wanted: JarSet, java: Path, cache: Path, work: Path, what: str, options: list[str]) -> None:
    """Let Ivy download what is `wanted`, which has the name `what` in messages; `work` has its request and its log."""
    found = sorted((pyspark_folder() / "jars").glob("ivy-*.jar"))
    if not found:
        raise ReplicatorError("PySpark has no Ivy among its jars", "reinstall pyspark")
    # Sites that can reach only an internal mirror set an Ivy settings file that names it.
    settings = os.environ.get("REPLICATOR_IVY_SETTINGS")
    request = work / "ivy.xml"
    request.write_text(wanted.ivy_xml())
    command = [
        *(str(java), "-jar", str(found[-1])),
        *(("-settings", settings) if settings else ()),
        *("-cache", str(cache)),
        *("-ivy", str(request)),
        *options,
    ]
    problems: list[str] = []
    with (
        (work / "ivy.log").open("w") as copy,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy,
    ):
        for line in ivy.stdout or ():
            copy.write(line)
            if "::" not in line and re.search(r"ERROR|FAILED|not found|Exception", line):
                problems.append(line.strip())
    if ivy.returncode != 0:
        cause = problems[0] if problems else f"Ivy stopped with code {ivy.returncode}"
        raise ReplicatorError(
            f"{what} could not be downloaded: {cause}",
            "check that the network reaches the Maven repositories; behind a mirror, name an Ivy settings "
            "file in REPLICATOR_IVY_SETTINGS",
        )


def find_java(candidates: Iterable[Path] | None = None) -> Path:
    """Return the first usable `java` of `candidates`; by default of $JAVA_HOME, on PATH, below /usr/lib/jvm.

    Raises JavaMissing.
    """
    hint = f"install Java {JAVA_MIN}, on Debian by: apt-get install openjdk-{JAVA_MIN}-jre-headless"
    seen: list[str] = []
    for candidate in _java_candidates() if candidates is None else candidates:
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
    """Return the feature release of a `java` program, such as 17; None if it does not run."""
    try:
        shown = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r'version "(?:1\.)?(\d+)', shown.stderr + shown.stdout)
    return int(match[1]) if match else None
