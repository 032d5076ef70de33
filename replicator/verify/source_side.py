"""Read checksums and rows of the source, in one consistent transaction at a known position.

No lock is taken. The position is known by two ends instead: all transactions of `Fence.seen` were visible when the
transaction began, and none from `Fence.before` on. What committed in the few milliseconds between is known by key from
the changelog; a row that changed there may be any of its versions.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain, pairwise
from queue import LifoQueue
from typing import Any, Final

from sqlalchemy import Connection, text

from replicator.config import Config
from replicator.model.binlog import BinlogEnd
from replicator.model.common import quoted
from replicator.model.table import TableId
from replicator.sources.mysql.connection import connect, read_binlog_end
from replicator.sources.mysql.replication import FILE_START, rotate_binlog
from replicator.verify.canonical import combined_hash
from replicator.verify.chunks import BucketChunks, KeyRange
from replicator.verify.compared_table import ComparedTable
from replicator.verify.lake_rows import Checksum, Row
from replicator.verify.ordered_keys import Key, key_value

_SAVEPOINT: Final = "replicator_verify"
_RELEASE: Final = text(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
_ISOLATION: Final = text("SET SESSION transaction_isolation = 'REPEATABLE-READ'")
_BEGIN: Final = text("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
_SETTLE_S: Final = 2.0
"""How long a transaction may take from the binlog to the storage engine, if nothing better is known."""
_NUMBERED_S: Final = 0.25
_ANSWER_S: Final = 30
"""How long a statement may take that reads some rows by their keys."""
_ENOUGH: Final = 2
"""A row, and one that shows that there are more."""
_CHUNK_BYTES: Final = 16_000_000
"""Estimated size of the rows of a chunk at most."""
_CHUNK_ROWS: Final = 20_000
_KEYS_AT_ONCE: Final = 1_000
_DENSE: Final = 0.5
"""If at least this part of the integers between the first and the last key are keys, they are not counted."""
_PROBED_ROWS: Final = 500
_CHUNK_S: Final = 0.25
"""The source should need no longer for the checksum of a chunk."""


@dataclass(frozen=True, slots=True)
class Fence:
    """The position of a consistent transaction.

    Attributes:
        seen: it sees for certain the transactions that are executed here, or without GTIDs, all before this position.
        before: it sees nothing that is in the binlog behind this position.
        awaited: everything that it sees is among these transactions, or before this position.
        server_version: the version of the server.
    """

    seen: BinlogEnd
    before: BinlogEnd
    awaited: BinlogEnd
    server_version: str


@contextmanager
def open_source(config: Config, connections: int = 1) -> Iterator[tuple[Sequence[Connection], Fence]]:
    """Begin consistent transactions of the source, and keep them open during the block.

    They may see different versions of a row that changes while they begin; the position is one of all of them.
    Needs SELECT and REPLICATION CLIENT; on a server without GTIDs also RELOAD, to begin a new binlog file.

    Raises:
        SourceError: the source does not answer, or writes no binlog.
    """
    with ExitStack() as stack:
        opened = [stack.enter_context(connect(config.source)) for _ in range(connections)]
        for connection in opened:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            connection.execute(_ISOLATION)
        seen = _settled_end(opened[0])
        for connection in opened:
            connection.execute(_BEGIN)
        before = read_binlog_end(opened[0])
        for connection in opened:
            connection.execute(text(f"SAVEPOINT {_SAVEPOINT}"))
        version = str(opened[0].scalar(text("SELECT VERSION()")))
        # A transaction that is visible is among the executed GTIDs only some microseconds later.
        time.sleep(_NUMBERED_S)
        awaited = read_binlog_end(opened[0])
        yield opened, Fence(seen, before, awaited, version)
        for connection in opened:
            connection.execute(text("ROLLBACK"))


@contextmanager
def open_snapshot(config: Config) -> Iterator[Connection]:
    """Begin a consistent transaction of the source at an unknown position, and keep it open during the block.

    Raises:
        SourceError: the source does not answer.
    """
    with connect(config.source, read_timeout=_ANSWER_S) as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        connection.execute(_ISOLATION)
        connection.execute(_BEGIN)
        connection.execute(text(f"SAVEPOINT {_SAVEPOINT}"))
        yield connection
        connection.execute(text("ROLLBACK"))


def _settled_end(connection: Connection) -> BinlogEnd:
    """Return a position before which all transactions are visible.

    MySQL writes a transaction to the binlog before it commits it in the storage engine. It is among the executed GTIDs
    only after that. Without GTIDs, a new binlog file is begun, which waits for the commits of the former.
    """
    end = read_binlog_end(connection)
    if end.gtids is not None:
        return end
    if not rotate_binlog(connection, _SETTLE_S):
        return end
    return BinlogEnd(read_binlog_end(connection).file, FILE_START)


def has_rows(connection: Connection, table: TableId) -> bool:
    """Return whether a table of the source has rows."""
    query = f"SELECT EXISTS (SELECT 1 FROM {quoted(table.database, table.name)})"
    found = connection.exec_driver_sql(query, execution_options={"no_parameters": True}).scalar()
    connection.execute(_RELEASE)
    return bool(found)


@dataclass(frozen=True, slots=True)
class SourceSide:
    """Reads one table in open transactions. As many threads may use it as it has connections.

    Attributes:
        connections: the connections with the transactions, with the one that is used next at the end.
        table: the table.
    """

    connections: "LifoQueue[Connection]"
    table: ComparedTable

    @classmethod
    def of(cls, connections: Sequence[Connection], table: ComparedTable) -> "SourceSide":
        """Return a reader with some connections."""
        free: LifoQueue[Connection] = LifoQueue()
        for connection in connections:
            free.put(connection)
        return cls(free, table)

    def chunk_rows(self, within: KeyRange) -> int:
        """Return the number of rows of a chunk, by their size and by how long the first of them take."""
        most = max(1, min(_CHUNK_ROWS, _CHUNK_BYTES // self.table.source.bytes_per_row))
        first = next(self.ranges(within, min(_PROBED_ROWS, most)))
        began = time.monotonic()
        rows = self.checksum(first).rows
        seconds = time.monotonic() - began
        return most if seconds == 0 else max(1, min(most, int(rows / seconds * _CHUNK_S) or most))

    def ranges(self, within: KeyRange, rows: int) -> Iterator[KeyRange]:
        """Divide a range into ranges of about `rows` rows each.

        Integers that are dense, by the server's estimate, are divided evenly, other keys by a walk along the index.
        """
        if not self.table.source.has_integer_key:
            yield from self._walked(within, rows)
            return
        column, condition = quoted(self.table.ranges[0].source), within.condition(self.table)
        query = f"SELECT MIN({column}), MAX({column}) FROM {self.table.source.name} WHERE {condition}"
        low, high = (None if end is None else int(end) for end in self._rows(query)[0])
        if low is None or high is None:
            yield within
        elif self._estimated(within) < _DENSE * (high - low + 1):
            yield from self._walked(within, rows)
        else:
            ends = ((key,) for key in range(low + rows - 1, high, rows))
            bounds = chain([within.after], ends, [within.upto])
            yield from (KeyRange(*pair) for pair in pairwise(bounds))

    def _estimated(self, within: KeyRange) -> int:
        """Return the number of rows of a range as the server estimates it."""
        query = f"SELECT 1 FROM {self.table.source.name} WHERE {within.condition(self.table)}"
        return int(self._rows(f"EXPLAIN FORMAT=TRADITIONAL {query}")[0].rows or 1)

    def _walked(self, within: KeyRange, rows: int) -> Iterator[KeyRange]:
        """Divide a range by walking along the index."""
        after = within.after
        while (upto := self._key_at(KeyRange(after, within.upto), rows)) is not None:
            yield KeyRange(after, upto)
            after = upto
        if after is None or after != within.upto:
            yield KeyRange(after, within.upto)

    def _key_at(self, within: KeyRange, number: int) -> Key | None:
        """Return the key of row `number`, counted from 1; None if there are not more rows."""
        names = ", ".join(quoted(k.name) for k in self.table.range_key)
        query = (
            f"SELECT {names} FROM {self.table.source.name} WHERE {within.condition(self.table)} "
            f"ORDER BY {names} LIMIT {_ENOUGH} OFFSET {number - 1}"
        )
        rows = self._rows(query)
        if len(rows) < _ENOUGH:
            return None
        return tuple(key_value(v, c) for v, c in zip(rows[0], self.table.ranges, strict=True))

    def checksum(self, chunk: KeyRange) -> Checksum:
        """Return the checksum of the rows of a range."""
        query = (
            f"SELECT COUNT(*), {self._combined} FROM {self.table.source.name} "
            f"WHERE {chunk.condition(self.table)}"
        )
        return Checksum.of_source(*self._rows(query)[0])

    def bucket_checksums(self, chunks: BucketChunks) -> dict[int, Checksum]:
        """Return bucket → checksum for the buckets that have rows; all of one statement."""
        query = (
            f"SELECT {chunks.bucket} AS replicator_bucket, COUNT(*), {self._combined} "
            f"FROM {self.table.source.name} GROUP BY replicator_bucket ORDER BY NULL"
        )
        return {int(b): Checksum.of_source(rows, combined) for b, rows, combined in self._rows(query)}

    def rows(self, chunk: KeyRange | BucketChunks) -> Iterator[Row]:
        """Yield the rows of a range, or of buckets, as canonical forms."""
        yield from self._rows_where(
            chunk.condition(self.table) if isinstance(chunk, KeyRange) else chunk.condition()
        )

    def _rows_where(self, condition: str) -> Iterator[Row]:
        read = ", ".join(f"CAST({c.expression} AS BINARY)" for c in self.table.columns)
        query = f"SELECT {read} FROM {self.table.source.name} WHERE {condition}"
        for row in self._rows(query):
            yield tuple(row)

    def rows_with(self, keys: Sequence[Row]) -> Iterator[Row]:
        """Yield the rows with some keys, given as canonical forms of the key columns."""
        names = ", ".join(quoted(column.source) for column in self.table.key)
        for start in range(0, len(keys), _KEYS_AT_ONCE):
            values = ", ".join(map(self._literal, keys[start : start + _KEYS_AT_ONCE]))
            yield from self._rows_where(f"({names}) IN ({values})")

    def _literal(self, key: Row) -> str:
        literals = ", ".join(c.literal(value or b"") for c, value in zip(self.table.key, key, strict=True))
        return f"({literals})" if len(key) > 1 else literals

    @property
    def _combined(self) -> str:
        return combined_hash(self.table.hashed, distinct=self.table.is_distinct)

    def _rows(self, query: str) -> Sequence[Any]:
        connection = self.connections.get()
        try:
            # Without this option, SQLAlchemy would take a percent sign in a name for a parameter.
            rows = connection.exec_driver_sql(query, execution_options={"no_parameters": True}).all()
            # This releases the lock with which the transaction would make an ALTER TABLE wait for the end of the check.
            connection.execute(_RELEASE)
        finally:
            self.connections.put(connection)
        return rows
