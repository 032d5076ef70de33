"""Real servers of Iceberg catalogs: REST, Hive metastore and PostgreSQL, without containers."""

import contextlib
import os
import platform
import pwd
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyspark

from replicator.jvm.jars import AWS, SPARK, JarSet, find_java, jars

_READY_S: Final = 90.0
_SPARK: Final = Path(pyspark.__file__).parent / "jars"

# Iceberg's own server for tests of clients. Hadoop and SQLite are taken from Spark's libraries.
_REST_SERVER: Final = JarSet(
    "rest-catalog-server",
    (
        "org.apache.iceberg:iceberg-core:1.11.0:tests",
        "org.apache.iceberg:iceberg-open-api:1.11.0:test-fixtures",
    ),
)
_REST: Final = JarSet(
    "rest-catalog",
    (
        "org.apache.iceberg:iceberg-core:1.11.0",
        "org.eclipse.jetty.ee10:jetty-ee10-servlet:12.1.1",
        "org.eclipse.jetty.compression:jetty-compression-server:12.1.1",
        "org.eclipse.jetty.compression:jetty-compression-gzip:12.1.1",
    ),
    ("org.slf4j:*",),
)

# The server puts the credentials of all stores into its answers, and Iceberg's code for them knows their names.
_REST_STORES: Final = JarSet(
    "rest-catalog-stores",
    (
        *(f"org.apache.iceberg:iceberg-{name}:1.11.0:" for name in ("aws", "gcp", "azure")),
        "dev.failsafe:failsafe:3.3.2:",
    ),
)
_HADOOP: Final = ("hadoop-client-api-*.jar", "hadoop-client-runtime-*.jar", "slf4j-api-*.jar")

_HIVE_SETTINGS: Final = {
    "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
    "datanucleus.connectionPoolingType": "HikariCP",
    "datanucleus.schema.autoCreateAll": "true",
    "hive.metastore.schema.verification": "false",
    "hive.metastore.disallow.incompatible.col.type.changes": "false",
    "hive.async.log.enabled": "false",
}
_HIVE_LOCKS: Final = """
CREATE TABLE txns (txn_id bigint PRIMARY KEY, txn_state char(1) NOT NULL, txn_started bigint NOT NULL,
  txn_last_heartbeat bigint NOT NULL, txn_user varchar(128) NOT NULL, txn_host varchar(128) NOT NULL,
  txn_agent_info varchar(128), txn_meta_info varchar(128), txn_heartbeat_count integer);
CREATE TABLE txn_components (tc_txnid bigint, tc_database varchar(128) NOT NULL, tc_table varchar(128),
  tc_partition varchar(767), tc_operation_type char(1) NOT NULL);
CREATE TABLE completed_txn_components (ctc_txnid bigint, ctc_database varchar(128) NOT NULL,
  ctc_table varchar(128), ctc_partition varchar(767));
CREATE TABLE next_txn_id (ntxn_next bigint NOT NULL);
INSERT INTO next_txn_id VALUES (1);
CREATE TABLE hive_locks (hl_lock_ext_id bigint NOT NULL, hl_lock_int_id bigint NOT NULL, hl_txnid bigint,
  hl_db varchar(128) NOT NULL, hl_table varchar(128), hl_partition varchar(767), hl_lock_state char(1) NOT NULL,
  hl_lock_type char(1) NOT NULL, hl_last_heartbeat bigint NOT NULL, hl_acquired_at bigint,
  hl_user varchar(128) NOT NULL, hl_host varchar(128) NOT NULL, hl_heartbeat_count integer,
  hl_agent_info varchar(128), hl_blockedby_ext_id bigint, hl_blockedby_int_id bigint,
  PRIMARY KEY (hl_lock_ext_id, hl_lock_int_id));
CREATE TABLE next_lock_id (nl_next bigint NOT NULL);
INSERT INTO next_lock_id VALUES (1);
CREATE TABLE aux_table (mt_key1 varchar(128) NOT NULL, mt_key2 bigint NOT NULL, mt_comment varchar(255),
  PRIMARY KEY (mt_key1, mt_key2));
CREATE TABLE write_set (ws_database varchar(128) NOT NULL, ws_table varchar(128) NOT NULL,
  ws_partition varchar(767), ws_txnid bigint NOT NULL, ws_commit_id bigint NOT NULL,
  ws_operation_type char(1) NOT NULL);
"""
"""The metastore's tables for its locks, which `autoCreateAll` leaves out; from Hive's schema for Derby."""


def _postgres() -> JarSet:
    system = {"Linux": "linux", "Darwin": "darwin"}[platform.system()]
    machine = "arm64v8" if platform.machine() in ("aarch64", "arm64") else "amd64"
    name = f"embedded-postgres-binaries-{system}-{machine}"
    return JarSet("postgresql-server", (f"io.zonky.test.postgres:{name}:15.15.0",))


def free_port() -> int:
    """Return a port of this machine that is not in use."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextlib.contextmanager
def rest_server(folder: Path, s3: Mapping[str, str] | None = None) -> Iterator[int]:
    """Run a REST catalog, whose tables are in `folder`, while the block runs; yield its port.

    With `s3` (options of Iceberg with a `warehouse`), the tables are there, and clients get the credentials from the
    catalog.
    """
    port = free_port()
    libraries = [*jars(_REST), *jars(_REST_SERVER)]
    libraries += [path for name in _HADOOP for path in _SPARK.glob(name)]
    libraries += [path for path in jars(SPARK) if path.name.startswith("sqlite-jdbc")]
    settings = {"rest.port": str(port), "uri": f"jdbc:sqlite:{folder}/catalog.db?busy_timeout=60000"}
    if s3 is None:
        settings["warehouse"] = f"file://{folder}/warehouse"
    else:
        libraries += [*jars(_REST_STORES), *jars(AWS)]
        settings |= {**s3, "include-credentials": "true"}
    names = {key: "CATALOG_" + key.replace("-", "__").replace(".", "_").upper() for key in settings}
    environment = os.environ | {names[key]: value for key, value in settings.items()}
    command = _java(libraries, "org.apache.iceberg.rest.RESTCatalogServer")
    with _running(command, folder / "rest.log", port, env=environment):
        yield port


@contextlib.contextmanager
def hive_metastore(folder: Path) -> Iterator[int]:
    """Run the Hive metastore that PySpark has among its libraries while the block runs; yield its port."""
    port = free_port()
    database = f"jdbc:derby:{folder}/metastore;create=true"
    settings = _HIVE_SETTINGS | {
        "javax.jdo.option.ConnectionURL": database,
        "hive.metastore.warehouse.dir": f"file://{folder}/warehouse",
    }
    entries = (f"<property><name>{n}</name><value>{v}</value></property>" for n, v in settings.items())
    (folder / "hive-site.xml").write_text(f"<configuration>{''.join(entries)}</configuration>")
    options = [f"-Dderby.stream.error.file={folder}/derby.log", f"-Djava.io.tmpdir={folder}"]
    options.append("-Dderby.system.durability=test")
    classes = [folder, _SPARK / "*"]
    script = folder / "locks.sql"
    script.write_text(f"CONNECT '{database};user=APP';\n{_HIVE_LOCKS}")
    subprocess.run(
        _java(classes, *options, "org.apache.derby.tools.ij", str(script)), check=True, capture_output=True
    )
    command = _java(classes, *options, "org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port))
    with _running(command, folder / "hive.log", port):
        yield port


@contextlib.contextmanager
def postgres_server() -> Iterator[int]:
    """Run PostgreSQL, with a superuser `iceberg` without a password, while the block runs; yield its port."""
    port = free_port()
    # Below a test's folder, other users could not reach it, and PostgreSQL refuses to run as root.
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    user: dict[str, Any] = {}
    try:
        _unpack_postgres(folder)
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
            for path in (folder, *folder.rglob("*")):
                os.chown(path, nobody.pw_uid, nobody.pw_gid, follow_symlinks=False)
        data = folder / "data"
        initialize = [
            str(folder / "bin" / "initdb"),
            "-D",
            str(data),
            "-U",
            "iceberg",
            "--auth=trust",
            "--no-sync",
        ]
        subprocess.run(initialize, check=True, capture_output=True, cwd=folder, **user)
        settings = ("listen_addresses=127.0.0.1", f"unix_socket_directories={folder}", "fsync=off")
        server = [str(folder / "bin" / "postgres"), "-D", str(data), "-p", str(port)]
        for setting in settings:
            server += ["-c", setting]
        with _running(server, folder / "postgres.log", port, cwd=folder, **user):
            yield port
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unpack_postgres(folder: Path) -> None:
    (jar,) = jars(_postgres())
    with zipfile.ZipFile(jar) as content:
        (name,) = (name for name in content.namelist() if name.endswith(".txz"))
        with content.open(name) as packed, tarfile.open(fileobj=packed, mode="r:xz") as programs:
            programs.extractall(folder)


def _java(classes: Sequence[Path], *arguments: str) -> list[str]:
    path = os.pathsep.join(map(str, classes))
    return [
        str(find_java()),
        "-Xmx384m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-cp",
        path,
        *arguments,
    ]


@contextlib.contextmanager
def _running(command: list[str], log: Path, port: int, **options: Any) -> Iterator[None]:
    """Run a server while the block runs, which begins once its port is open.

    Raises:
        RuntimeError: the server ended.
        TimeoutError: the port is not open after a while.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, **options
        )
    try:
        _wait(lambda: _is_open(port), process, log)
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(is_ready: Callable[[], bool], process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + _READY_S
    while not is_ready():
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended: {log.read_text(errors='replace')[-2000:]}")
        if time.monotonic() > end:
            raise TimeoutError(f"{process.args!r} does not answer: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.1)


def _is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
