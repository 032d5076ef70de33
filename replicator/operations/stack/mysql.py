"""Run a real MySQL server: create its data folder, build its command line, check that it responds."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pymysql

from replicator.errors import StackError
from replicator.operations.stack.mysql_program import MySqlProgram
from replicator.operations.stack.process import tail

PRIVILEGES = "SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES"


def initialize(
    program: MySqlProgram,
    data: Path,
    log: Path,
    root_password: str,
    user_password: str,
    arguments: Sequence[str] = (),
) -> None:
    """Create a data folder with the two users of the stack, before the server runs: it never runs without passwords.

    Raises StackError with the end of the log if MySQL fails.
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
        # Some settings, such as lower_case_table_names, are of the data.
        *arguments,
        f"--init-file={script}",
    ]
    try:
        with log.open("a") as output:
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, check=False)
    finally:
        script.unlink()
    if done.returncode != 0:
        raise StackError("MySQL could not create its data folder", f"its log {log} ends with:\n{tail(log)}")
    fresh.rename(data)


def _users(root_password: str, user_password: str) -> str:
    """Return the SQL that creates the users. Passwords are hexadecimal, so they need no escaping."""
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
    """Return the arguments of the first and all later starts; they keep memory usage low."""
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
    """Return the command line of a server with a full row binlog and GTIDs, as change data capture needs them."""
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
        # With these two, a killed process loses nothing; only a power failure of the machine would.
        "--sync-binlog=0",
        "--innodb-flush-log-at-trx-commit=2",
        "--max-connections=200",
    ]


def answers(port: int, password: str) -> bool:
    """Return whether the server accepts a login as root."""
    try:
        connection = pymysql.connect(
            host="127.0.0.1",
            port=port,
            user="root",
            password=password,
            connect_timeout=2,
            # A frozen server accepts the connection and sends nothing.
            read_timeout=2,
        )
    except (pymysql.Error, OSError):
        return False
    connection.close()
    return True
