"""How far replicas are behind their source, and which transactions readers do not see yet."""

import time
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

from replicator.config import Config
from replicator.sources.mysql.connection import MySqlServer, server_version

_LACKS_PRIVILEGE: Final = 1227
FILE_START: Final = 4
"""The offset at which a binlog file begins. After `rotate_binlog`, all changes in earlier files are visible."""


def rotate_binlog(connection: Connection, settle_s: float) -> bool:
    """Wait until all transactions in the binlog are visible to readers.

    MySQL writes a transaction to the binlog, from which the connector reads it, before it commits it in the storage
    engine: a row could be in the log, and not be visible yet. A new binlog file begins only when all transactions of
    the previous one are committed in the engine.

    Return False if the account may not begin a new file (RELOAD): then the wait was `settle_s` seconds.
    """
    try:
        connection.execute(text("FLUSH BINARY LOGS"))
    except OperationalError as error:
        if not error.orig or error.orig.args[0] != _LACKS_PRIVILEGE:
            raise
        time.sleep(settle_s)
        return False
    return True


_OF_GROUPS: Final = "group_replication_"
"""The beginning of the names of group replication's channels, whose members wait for each other."""


@dataclass(frozen=True, slots=True)
class ReplicaLag:
    """How far a replica is behind.

    Attributes:
        seconds: the greatest lag of its channels, as MySQL shows it; None if one of them does not replicate.
    """

    seconds: int | None


@dataclass(frozen=True, slots=True)
class WatchedServer:
    """A server whose lag limits how fast tables are read.

    Attributes:
        is_replica: whether it must be a replica; the source may be one.
    """

    server: MySqlServer
    is_replica: bool


def watched_servers(config: Config) -> list[WatchedServer]:
    """Return the servers whose lag is limited: the source and the configured replicas; none without a limit."""
    bootstrap, source = config.bootstrap, config.source
    if bootstrap.max_replica_lag is None or source.url is None:
        return []
    own = bootstrap.replica_password
    keys = ("bootstrap.replica_urls", "source.password" if own is None else "bootstrap.replica_password")
    itself, password = MySqlServer.of(source), own or source.password
    replicas = [MySqlServer(url, password, itself.encrypted, keys) for url in bootstrap.replica_urls]
    return [WatchedServer(itself, False), *(WatchedServer(replica, True) for replica in replicas)]


def read_replica_lag(connection: Connection) -> ReplicaLag | None:
    """Read how far a server is behind its source; None if it is no replica.

    It needs the privilege REPLICATION CLIENT.
    """
    statement, column = "SHOW REPLICA STATUS", "Seconds_Behind_Source"
    if server_version(connection) < (8, 0, 22):
        statement, column = "SHOW SLAVE STATUS", "Seconds_Behind_Master"
    channels = [
        row[column]
        for row in connection.execute(text(statement)).mappings()
        if not str(row["Channel_Name"]).startswith(_OF_GROUPS)
    ]
    if not channels:
        return None
    return ReplicaLag(None if None in channels else max(int(seconds) for seconds in channels))
