"""Read which binlog files the source has, and what is in them, without fetching them."""

from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from replicator.model.binlog import BinaryLogs
from replicator.model.position import SourcePosition

_HEAD_EVENTS: Final = 4
"""The events at the beginning of a file among which `Previous_gtids` is."""
_NO_SUCH_EVENT: Final = 1220


def read_binlogs(connection: Connection) -> BinaryLogs:
    """Read which binlog files the server has.

    Raises:
        SourceError: the server cannot be queried.
    """
    # Files: name and size; MySQL adds whether they are encrypted.
    sizes = {str(row[0]): int(row[1]) for row in connection.execute(text("SHOW BINARY LOGS"))}
    server = connection.execute(text("SELECT @@server_id, @@server_uuid, @@gtid_mode")).one()
    # Servers before 8.0.20 do not compress.
    compresses = connection.execute(
        text("SHOW GLOBAL VARIABLES LIKE 'binlog_transaction_compression'")
    ).first()
    return BinaryLogs(
        sizes,
        int(server[0]),
        str(server[1]),
        has_gtids=str(server[2]).upper() == "ON",
        compresses=compresses is not None and str(compresses[1]).upper() == "ON",
    )


def previous_gtids(connection: Connection, file: str) -> str:
    """Return the GTIDs of the transactions in all files before `file`; empty if they have none.

    Raises:
        SourceError: the server cannot be queried, or the account lacks REPLICATION SLAVE.
    """
    rows = connection.exec_driver_sql(f"SHOW BINLOG EVENTS IN %s LIMIT {_HEAD_EVENTS}", (file,))
    found = next((str(row[5]) for row in rows if row[2] == "Previous_gtids"), "")
    return "".join(found.split())


def has_event(connection: Connection, file: str, position: SourcePosition) -> bool:
    """Return whether an event of the position's server begins at its offset in `file`.

    Raises:
        SourceError: the server cannot be queried, or the account lacks REPLICATION SLAVE.
    """
    try:
        row = connection.exec_driver_sql(
            f"SHOW BINLOG EVENTS IN %s FROM {int(position.pos)} LIMIT 1", (file,)
        ).first()
    except DBAPIError as error:
        if error.orig is not None and error.orig.args and error.orig.args[0] == _NO_SUCH_EVENT:
            return False
        raise
    return row is not None and (int(row[1]), int(row[3])) == (position.pos, position.server_id)
