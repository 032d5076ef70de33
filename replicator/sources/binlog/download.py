"""Fetch the binary log files of the source over its replication protocol, as a replica does.

The server decrypts encrypted files, and the user needs no privilege that the connector does not have too. The program
`mysqlbinlog`, which does the same, is not installed everywhere.

Format: MySQL's manual, "COM_BINLOG_DUMP"; the events that are received are the bytes of the file.
"""

import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

import pymysql
from pymysql.connections import Connection

from replicator.config import SourceConfig
from replicator.errors import BinlogError, PrivilegeError, SourceError, SourceUnavailable
from replicator.sources.binlog.events import HEADER_BYTES, MAGIC, Kind

_DUMP: Final = 0x12
_NO_WAIT: Final = 1
"""Flag: end after the last event instead of waiting for the next one."""
_ARTIFICIAL: Final = 0x20
"""Flag of events that the server makes for a replica; they are not in the file."""
_HEARTBEAT: Final = (27, 41)
_REPORT_BYTES: Final = 16 * 2**20
_TIMEOUT_S: Final = 60
_QUICK_S: Final = 10
_EOF: Final = 0xFE
_EOF_BYTES: Final = 9
_LACKS_PRIVILEGE: Final = (1142, 1227)
_NAME: Final = re.compile(r"[^/\\\0]{1,240}\.\d{6,10}", re.ASCII)
"""The name of a binary log file, as MySQL makes it: a name without a folder, and a number."""
_SHOWN: Final = 100


def download(
    source: SourceConfig,
    folder: Path,
    on_progress: Callable[[int, int], None],
    stopped: Callable[[], bool],
) -> tuple[Path, ...]:
    """Fetch all files that the server has now, except those that it begins meanwhile. Return them in order.

    `on_progress` is called with the bytes done and in total.

    Raises:
        SourceError: the server cannot be reached, writes no binlog, or sends an error.
        BinlogError: the files cannot be written.
    """
    found: list[Path] = []
    with replica_connection(source) as connection:
        names = _files(connection)
    total, done = sum(names.values()), 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            if stopped():
                break
            target = folder / name
            with target.open("wb") as stream, replica_connection(source) as connection:
                stream.write(MAGIC)
                for size in _copy(connection, name, stream):
                    done += size
                    on_progress(min(done, total), total)
            found.append(target)
    except OSError as error:
        raise BinlogError(f"cannot write to {folder}: {error.strerror}", "free some space there") from error
    return tuple(found)


@contextmanager
def replica_connection(source: SourceConfig, timeout_s: float = _TIMEOUT_S) -> Iterator[Connection]:
    """Connect to the source as a replica does.

    Raises:
        SourceUnavailable: the server cannot be reached, or sends an error.
        PrivilegeError: the account is no replica.
    """
    server = source.server()
    password = None if source.password is None else source.password.reveal().get_secret_value()
    try:
        with pymysql.connect(
            host=server.host,
            port=server.port,
            user=server.user,
            password=password or "",
            charset="utf8mb4",
            connect_timeout=10,
            read_timeout=timeout_s,
        ) as connection:
            yield connection
    except pymysql.MySQLError as error:
        code, reason = (error.args[0], error.args[-1]) if error.args else (0, str(error))
        if code in _LACKS_PRIVILEGE:
            raise PrivilegeError(
                f"the MySQL user {server.user} lacks a privilege: {reason}",
                "grant REPLICATION SLAVE and REPLICATION CLIENT",
            ) from error
        raise SourceUnavailable(
            f"MySQL at {server.host}:{server.port} does not send its binary log: {reason}",
            "check source.url and source.password, and that the user has REPLICATION SLAVE",
        ) from error


def _files(connection: Connection) -> dict[str, int]:
    """Return name → size of the server's files, in order."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT @@log_bin")
        if not (cursor.fetchone() or (0,))[0]:
            raise SourceError(
                "the server writes no binlog", "run: replicator check, which explains how to enable it"
            )
        cursor.execute("SHOW BINARY LOGS")
        return {_checked(str(row[0])): int(row[1]) for row in cursor.fetchall()}


def _checked(name: str) -> str:
    """Return the name of a file. Raises SourceError if it is not one in a folder: the server chooses it."""
    if not _NAME.fullmatch(name):
        raise SourceError(
            f"the server lists a binary log file with the name {name[:_SHOWN]!r}, which is not that of one",
            "check that source.url is the address of MySQL; copy the files, and give their names to the import",
        )
    return name


def _copy(connection: Connection, name: str, stream: IO[bytes]) -> Iterator[int]:
    """Write the events of one file; yield the bytes since the last report."""
    waiting = 0
    for event in _sent(connection, name, len(MAGIC)):
        stream.write(event)
        waiting += len(event)
        if waiting >= _REPORT_BYTES:
            yield waiting
            waiting = 0
    yield waiting


def first_commit_s(source: SourceConfig, file: str, pos: int) -> int | None:
    """Return when the first transaction that begins at or after an event of a binlog file was committed.

    In seconds since the epoch; None if there is none, also in later files.

    Raises:
        SourceError: the server cannot be reached, or does not have the event.
    """
    with replica_connection(source, _QUICK_S) as connection:
        for event in _sent(connection, file, pos, follow=True):
            if event[4] in (Kind.GTID, Kind.ANONYMOUS_GTID, Kind.GTID_TAGGED):
                return int.from_bytes(event[:4], "little")
    return None


def _sent(connection: Connection, name: str, pos: int, *, follow: bool = False) -> Iterator[memoryview]:
    """Yield the events of one file from an event on, as the file has them; with `follow`, those of later files too."""
    with connection.cursor() as cursor:
        # Without this, the server would leave out the checksums.
        cursor.execute("SET @source_binlog_checksum = @@global.binlog_checksum")
        cursor.execute("SET @master_binlog_checksum = @@global.binlog_checksum")
    server_id = 0
    command = struct.pack("<IHI", pos, _NO_WAIT, server_id) + name.encode()
    # PyMySQL has no public method for commands other than queries.
    private: Any = connection
    private._execute_command(_DUMP, command)  # noqa: SLF001
    while True:
        packet = private._read_packet().get_all_data()  # noqa: SLF001
        if packet[0] == _EOF and len(packet) < _EOF_BYTES:
            return
        event = memoryview(packet)[1:]
        kind, flags = event[4], int.from_bytes(event[HEADER_BYTES - 2 : HEADER_BYTES], "little")
        if kind == Kind.ROTATE and flags & _ARTIFICIAL:
            if not follow and event[HEADER_BYTES + 8 :][: len(name)] != name.encode():
                return  # The server goes on to the next file.
            continue
        if kind not in _HEARTBEAT:
            yield event
