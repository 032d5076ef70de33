"""Wait for transactions that are in the binlog, but not yet visible to readers."""

import time
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import OperationalError

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
