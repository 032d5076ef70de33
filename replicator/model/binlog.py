"""The source's binlog: its end, the connector's progress in it, and how far a mirror has watched it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from replicator.model.gtid import GtidSet
from replicator.model.position import binlog_number
from replicator.model.recorded import Record, reading, records_in


@dataclass(frozen=True, slots=True)
class BinlogEnd:
    """The end of a server's binlog at some moment; all transactions committed earlier lie before it.

    Attributes:
        file: the current binlog file.
        pos: the byte offset after its last event.
        gtids: the executed transactions; None if the server has no GTIDs.
    """

    file: str
    pos: int
    gtids: GtidSet | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"


_FIRST_TRANSACTION_ENDS: Final = 200
"""No transaction of a binlog file ends before this offset: the events that describe the file take 150 bytes or more."""


@dataclass(frozen=True, slots=True)
class ConnectorOffset:
    """A source offset of Debezium's MySQL connector; all changes before it are in Kafka.

    Attributes:
        file, pos: the position at which the connector would resume.
        gtids: the transactions that it has read; None if the server has no GTIDs. A statement outside a transaction,
            such as DDL, is added only with the next transaction.
        in_snapshot: whether the initial snapshot was still incomplete.
        ts_sec: when the source committed the newest change before the offset, seconds since the epoch.
    """

    file: str
    pos: int
    gtids: GtidSet | None = None
    in_snapshot: bool = False
    ts_sec: int | None = None

    @classmethod
    def from_json(cls, offset: Mapping[str, Any]) -> "ConnectorOffset":
        """Read an offset as Kafka Connect returns it.

        Raises:
            ValueError: it is not an offset of Debezium's MySQL connector.
        """
        with reading("not an offset of a MySQL connector: it"):
            gtids, snapshot, seconds = offset.get("gtids"), offset.get("snapshot"), offset.get("ts_sec")
            binlog_number(str(offset["file"]))
            return cls(
                file=str(offset["file"]),
                pos=int(offset["pos"]),
                gtids=GtidSet.parse(gtids) if gtids else None,
                in_snapshot=str(snapshot).lower() not in ("none", "false"),
                ts_sec=None if seconds is None else int(seconds),
            )

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"

    def transactions_behind(self, end: BinlogEnd) -> int | None:
        """Return how many transactions before `end` may be missing; None if the server has no GTIDs."""
        if end.gtids is None or self.gtids is None:
            return None
        return 0 if self.covers(end) else max(1, self.gtids.lacking(end.gtids))

    def covers(self, end: BinlogEnd) -> bool:
        """Return whether everything before `end` is in Kafka.

        Each server numbers its files independently, so GTIDs decide if the server has them. File and position decide
        only about the one transaction that `gtids` may lack (see there).
        """
        if self.in_snapshot:
            return False
        # The connector passes the events that describe a file with the first transaction in it.
        pos = 0 if end.pos < _FIRST_TRANSACTION_ENDS else end.pos
        behind = (binlog_number(self.file), self.pos) >= (binlog_number(end.file), pos)
        if end.gtids is None or self.gtids is None:
            return behind
        lacking = self.gtids.lacking(end.gtids)
        return lacking == 0 or (lacking == 1 and behind)


WATCHED_KEY: Final = "replicator.watched"
"""Property of the `_ops` namespace: up to where the source's binlog was watched."""


@dataclass(frozen=True, slots=True)
class Watched(Record):
    """Up to where the binlog of a server was watched; described in schemas/watched-v1.json.

    Attributes:
        server: UUID of the server.
        file, pos: where watching must begin again: at the oldest transaction whose outcome was not known.
        done_file, done_pos: all that ends up to here was dealt with.
        gtids: transactions that were dealt with for certain, by which another server can be watched; None if unknown.
    """

    WHAT = "the record of the watched binlog"
    server: str
    file: str
    pos: int
    done_file: str
    done_pos: int
    gtids: str | None = None


def watched_in(properties: Mapping[str, str]) -> Watched | None:
    """Return what the properties of the `_ops` namespace say; None if nothing that this version can read."""
    return records_in(properties, WATCHED_KEY, Watched.from_json).get("")
