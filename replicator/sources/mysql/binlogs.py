"""Read which binlog files the source has, and what is in them, without fetching them."""

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from replicator.model.binlog import BinlogEnd
from replicator.model.gtid import GtidSet
from replicator.model.position import SourcePosition
from replicator.sources.mysql.connection import read_binlog_end

_HEAD_EVENTS: Final = 4
"""The events at the beginning of a file among which `Previous_gtids` is."""
_NO_SUCH_EVENT: Final = 1220
COMPRESSED: Final = "Transaction_payload"
"""The type of an event that contains all events of a compressed transaction."""
_ATTEMPTS: Final = 100
_COMMIT_S: Final = 0.01
"""Delay between two attempts. In all of them together, the transactions in the binlog should commit."""


def read_binlogs(connection: Connection) -> dict[str, int]:
    """Return name → size of the binlog files that the server has, from the oldest to the newest.

    Raises:
        SourceError: the server cannot be queried.
    """
    return {str(row[0]): int(row[1]) for row in connection.execute(text("SHOW BINARY LOGS"))}


def previous_gtids(connection: Connection, file: str) -> str:
    """Return the GTIDs of the transactions in all files before `file`; empty if they have none.

    Raises:
        SourceError: the server cannot be queried, or the account lacks REPLICATION SLAVE.
    """
    rows = connection.exec_driver_sql(f"SHOW BINLOG EVENTS IN %s LIMIT {_HEAD_EVENTS}", (file,))
    found = next((str(row[5]) for row in rows if row[2] == "Previous_gtids"), "")
    return "".join(found.split())


def event_type(connection: Connection, file: str, position: SourcePosition) -> str | None:
    """Return the type of the event of the position's server that begins at its offset in `file`; None if none does.

    Raises:
        SourceError: the server cannot be queried, or the account lacks REPLICATION SLAVE.
    """
    row = _event_at(connection, file, position.pos)
    same = row is not None and (int(row[1]), int(row[3])) == (position.pos, position.server_id)
    return str(row[2]) if row is not None and same else None


def _event_at(connection: Connection, file: str, pos: int) -> Sequence[Any] | None:
    """Return what MySQL lists of the event that begins at an offset; None if none does."""
    statement = f"SHOW BINLOG EVENTS IN %s FROM {int(pos)} LIMIT 1"
    try:
        return connection.exec_driver_sql(statement, (file,)).first()
    except DBAPIError as error:
        if error.orig is not None and error.orig.args and error.orig.args[0] == _NO_SUCH_EVENT:
            return None
        raise


def read_exact_binlog_end(connection: Connection) -> BinlogEnd:
    """Read the end of the server's binlog, with exactly the server's own transactions before it.

    MySQL lists a transaction among the executed ones only when it is committed in the storage engine, shortly after it
    was written to the binlog. In the binlog, the server's own transactions are in the order of their numbers: all that
    are below the one that begins at the position lie before it.

    Raises:
        SourceError: the server writes no binlog, or the account lacks REPLICATION SLAVE.
    """
    uuid = str(connection.scalar(text("SELECT @@server_uuid"))).lower()
    end = read_binlog_end(connection)
    for _ in range(_ATTEMPTS):
        following = _transaction_at(connection, end)
        # First what is being committed, then what is: a transaction is in at least one of the two.
        owned, now = _owned(connection), read_binlog_end(connection)
        if now.gtids is None:
            break
        if following is None and (now.file, now.pos) != (end.file, end.pos):
            # It was written just now, or the server has begun another file.
            end = end if now.file == end.file else now
        elif following is None:
            if uuid not in owned.intervals:
                return now
        elif following[0] != uuid:
            break
        else:
            found = now.gtids.below(*following)
            if found.next_number(uuid) == following[1]:
                return replace(end, gtids=found)
        time.sleep(_COMMIT_S)
    return end


def _transaction_at(connection: Connection, end: BinlogEnd) -> tuple[str, int] | None:
    """Return server and number of the transaction that begins at a position; None if none does yet."""
    row = _event_at(connection, end.file, end.pos)
    found = None if row is None else re.search(r"'([0-9a-f-]{36}):(\d+)'", str(row[5]).lower())
    return None if found is None else (found[1], int(found[2]))


def _owned(connection: Connection) -> GtidSet:
    """Return the transactions that are being committed; in MySQL's text, ``#`` and a thread follow each number."""
    return GtidSet.parse(
        re.sub(r"#\d+", "", str(connection.scalar(text("SELECT @@GLOBAL.gtid_owned")) or ""))
    )
