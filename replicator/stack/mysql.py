"""A real MySQL server: finding the program, making a data folder, the arguments to run it with."""

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pymysql

from replicator.errors import StackError
from replicator.jars import default_cache, locked
from replicator.stack.process import tail

PRIVILEGES = "SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES"
PACKAGES = "mysql-server-core,mysql-client-core"
NAMES = ("mysqld", "/usr/sbin/mysqld")


@dataclass(frozen=True, slots=True)
class MySqlProgram:
    """How to run `mysqld`: the words before its arguments, and arguments that say where its files are."""

    command: tuple[str, ...]
    files: tuple[str, ...] = ()
    root: Path | None = None
    """The folder of a foreign Linux system that the program comes from; None for this system's own."""


def find_mysqld(cache: Path | None = None) -> MySqlProgram:
    """This system's MySQL, else one from a small Debian system in the cache, which is made where possible.

    Raises StackError where there is none and none can be made.
    """
    for name in filter(None, (os.environ.get("REPLICATOR_MYSQLD"), *NAMES)):
        if (found := shutil.which(name)) and _is_mysql(found):
            return MySqlProgram((found,))
    root = Path(os.environ.get("REPLICATOR_MYSQL_ROOT") or (cache or default_cache()) / "mysql-root")
    with locked(root.with_name(f"{root.name}.lock")):
        if not (root / "usr/sbin/mysqld").exists():
            make_root(root)
    return program_in(root)


def _is_mysql(mysqld: str) -> bool:
    """MariaDB installs a `mysqld` too, and is no stand-in: its types and its binlog differ."""
    shown = subprocess.run(
        [mysqld, "--no-defaults", "--version"], capture_output=True, text=True, check=False
    )
    return shown.returncode == 0 and "MariaDB" not in shown.stdout


def program_in(root: Path) -> MySqlProgram:
    """How to run the `mysqld` of another Debian system below `root`, by that system's own loader.

    No chroot and no privileges are needed for that, and the data may be anywhere. Raises StackError.
    """
    loaders = [*root.glob("lib64/ld-linux-*.so.*"), *root.glob("lib/ld-linux-*.so.*")]
    if not loaders:
        raise StackError(f"the Debian system in {root} is incomplete", f"remove {root} and start again")
    libraries = [*root.glob("usr/lib/*-linux-gnu"), root / "usr/lib", *root.glob("usr/lib/mysql/private")]
    usr = root / "usr"
    return MySqlProgram(
        (str(loaders[0]), "--library-path", ":".join(map(str, libraries)), str(usr / "sbin/mysqld")),
        (
            f"--basedir={usr}",
            f"--lc-messages-dir={usr / 'share/mysql'}",
            f"--character-sets-dir={usr / 'share/mysql/charsets'}",
            f"--plugin-dir={usr / 'lib/mysql/plugin'}",
        ),
        root,
    )


def make_root(root: Path) -> None:
    """Make a small Debian sid system with MySQL below `root`: 640 MB, half a minute. Raises StackError."""
    debootstrap = shutil.which("debootstrap") or shutil.which("/usr/sbin/debootstrap")
    install = "install MySQL 8.0 or newer so that mysqld is on PATH (MariaDB is no stand-in)"
    if debootstrap is None or os.geteuid() != 0:
        raise StackError("no mysqld on this machine", f"{install}, or run as root with debootstrap installed")
    root.parent.mkdir(parents=True, exist_ok=True)
    fresh = root.with_name(f"{root.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    log = root.with_name(f"{root.name}.log")
    with log.open("w") as output:
        done = subprocess.run(
            [debootstrap, "--variant=minbase", f"--include={PACKAGES}", "sid", str(fresh)],
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        raise StackError(
            "MySQL could not be fetched with debootstrap", f"{install}; the log {log} ends with:\n{tail(log)}"
        )
    fresh.rename(root)


def initialize(program: MySqlProgram, data: Path, log: Path, root_password: str, user_password: str) -> None:
    """Make a data folder with the two users of the stack, so that no start is without passwords.

    Raises StackError with the log's end where MySQL refuses.
    """
    data.parent.mkdir(parents=True, exist_ok=True)
    script = data.parent / "users.sql"
    script.unlink(missing_ok=True)
    with os.fdopen(os.open(script, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as handle:
        handle.write(_users(root_password, user_password))
    fresh = data.with_name(f"{data.name}.new")
    shutil.rmtree(fresh, ignore_errors=True)
    command = [
        *program.command,
        "--no-defaults",
        *program.files,
        *_common(fresh),
        "--initialize-insecure",
        f"--init-file={script}",
    ]
    try:
        with log.open("a") as output:
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
    finally:
        script.unlink()
    if done.returncode != 0:
        raise StackError("MySQL could not make its data folder", f"its log {log} ends with:\n{tail(log)}")
    fresh.rename(data)


def _users(root_password: str, user_password: str) -> str:
    """Passwords here are hexadecimal, so they need no quoting beyond the quotes."""
    return "\n".join(
        [
            f"ALTER USER 'root'@'localhost' IDENTIFIED BY '{root_password}';",
            f"CREATE USER 'root'@'%' IDENTIFIED BY '{root_password}';",
            "GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;",
            f"CREATE USER 'replicator'@'%' IDENTIFIED BY '{user_password}';",
            f"GRANT {PRIVILEGES} ON *.* TO 'replicator'@'%';",
            "",
        ]
    )


def _common(data: Path) -> list[str]:
    """Arguments of the first and of every later start; memory stays small."""
    arguments = [
        f"--datadir={data}",
        "--secure-file-priv=NULL",
        "--mysqlx=OFF",
        "--performance-schema=OFF",
        "--innodb-buffer-pool-size=128M",
        "--innodb-redo-log-capacity=128M",
    ]
    return [*arguments, "--user=root"] if os.geteuid() == 0 else arguments


def server_command(program: MySqlProgram, data: Path, port: int) -> list[str]:
    """The command line of a server with a full row binlog and GTIDs, as change data capture needs them."""
    return [
        *program.command,
        "--no-defaults",
        *program.files,
        *_common(data),
        f"--port={port}",
        "--bind-address=127.0.0.1",
        # Relative to the data folder: the path of a socket has a short limit, and the folder may be deep.
        "--socket=mysqld.sock",
        "--pid-file=mysqld.pid",
        "--skip-name-resolve",
        "--log-bin=mysql-bin",
        "--server-id=1",
        "--binlog-row-image=FULL",
        "--binlog-row-metadata=FULL",
        "--binlog-expire-logs-seconds=0",
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
        # A killed process loses nothing by these two, only a machine that loses power would.
        "--sync-binlog=0",
        "--innodb-flush-log-at-trx-commit=2",
        "--max-connections=200",
    ]


def answers(port: int, password: str) -> bool:
    """Whether the server accepts the root user."""
    try:
        connection = pymysql.connect(
            host="127.0.0.1", port=port, user="root", password=password, connect_timeout=2
        )
    except (pymysql.Error, OSError):
        return False
    connection.close()
    return True
