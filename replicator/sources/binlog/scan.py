"""Scan binary log files: is each complete, what precedes and follows it, and which tables does it define or change."""

import mmap
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

from replicator.errors import BinlogError
from replicator.model.common import counted
from replicator.model.table import TableId
from replicator.sources.binlog.events import (
    IN_USE,
    MAGIC,
    Damaged,
    Event,
    Kind,
    Query,
    count_gtids,
    read_events,
    read_format,
    read_payload,
    read_query,
    read_rotate,
    table_map_name,
)

REPORT_BYTES: Final = 64 * 2**20
"""How often the progress of a scan is reported."""

_DEFINES: Final = re.compile(
    # Possessive quantifiers: otherwise each comment may be divided in many ways, and the time is exponential.
    rb"\s*+(?:/\*(?:[^*]++|\*(?!/))*+\*/\s*+)*+(?:CREATE|ALTER|DROP|RENAME)\b",
    re.IGNORECASE,
)

OnBytes = Callable[[int], None]
"""Called with the number of bytes read since the last call."""


@dataclass(slots=True)
class BinlogFile:
    """One binary log file; a scan completes it.

    Attributes:
        path: where it is; `path.name` is the name that the server gave it.
        size: in bytes.
        version: version of the server that wrote it.
        created: when it was begun, Unix seconds, and `server_id` by which server; they identify it.
        events: number of complete events.
        gtids, anonymous: numbers of transactions with and without a GTID.
        earlier_gtids: number of GTIDs of all transactions before the file; None if unknown.
        next_name: name of the file after it; None if it does not end with a rotation.
        is_open: whether the server was still writing the file when it was copied.
        cut_at: offset of an incomplete event at its end; None if its last event is complete.
        collation: id of the server's collation; None if no statement shows it.
        compressed: whether it has compressed transactions.
        incident_at: offset of an event that tells that the server could not write changes; None if there is none.
    """

    path: Path
    size: int
    version: str
    created: int
    server_id: int
    events: int = 0
    gtids: int = 0
    anonymous: int = 0
    earlier_gtids: int | None = None
    next_name: str | None = None
    is_open: bool = False
    cut_at: int | None = None
    collation: int | None = None
    compressed: bool = False
    incident_at: int | None = None

    @property
    def name(self) -> str:
        """Return the name of the file, such as mysql-bin.000001."""
        return self.path.name


@dataclass(frozen=True, slots=True)
class Scan:
    """Files in order, and what tells of their tables: statements that define some, and the tables that have rows.

    `items` has both in the order of the files; each table is there once, where its first row is. `partial` are the
    tables with events that have parts of values only.
    """

    files: tuple[BinlogFile, ...]
    items: tuple[Query | TableId, ...]
    partial: frozenset[TableId] = frozenset()


def scan(paths: Sequence[Path], on_bytes: OnBytes = lambda _: None) -> Scan:
    """Read the files, in order, completely; verify the checksums of their events.

    Raises:
        BinlogError: a file is missing, encrypted or damaged, or not a binary log of MySQL.
    """
    items: list[Query | TableId] = []
    described: set[TableId] = set()
    partial: set[TableId] = set()
    files = tuple(_FileScan(path, items, (described, partial), on_bytes).run() for path in paths)
    return Scan(files, tuple(items), frozenset(partial))


class _FileScan:
    def __init__(
        self,
        path: Path,
        items: list[Query | TableId],
        tables: tuple[set[TableId], set[TableId]],
        on_bytes: OnBytes,
    ) -> None:
        """Add to `items`, and to `tables`: those that are described, and those with parts of values."""
        self._path = path
        self._items = items
        self._described, self._partial = tables
        # The newest description of each number that row events have.
        self._by_id: dict[bytes, memoryview] = {}
        self._on_bytes = on_bytes

    def run(self) -> BinlogFile:
        try:
            with self._path.open("rb") as stream:
                size = self._path.stat().st_size
                if size <= len(MAGIC):
                    raise BinlogError(f"{self._path} is empty", "leave it out, or copy it again")
                # It is unmapped with the last view of it.
                return self._read(memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)), size)
        except FileNotFoundError:
            raise BinlogError(f"{self._path}: no such file", "check the names of the files") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise BinlogError(f"cannot read {self._path}: {reason}") from error

    def _read(self, data: memoryview, size: int) -> BinlogFile:
        format_ = read_format(data, self._path.name)
        found: BinlogFile | None = None
        cut: int | None = None
        reported = 0
        try:
            for event in read_events(data, format_):
                if found is None:
                    found = BinlogFile(self._path, size, format_.version, event.seconds, event.server_id)
                    found.is_open = bool(event.flags & IN_USE)
                elif event.kind in _READERS:
                    self._look_at(event, found)
                found.events += 1
                if event.at - reported > REPORT_BYTES:
                    self._on_bytes(event.at - reported)
                    reported = event.at
        except Damaged as error:
            if not error.cut:
                raise BinlogError(
                    f"{self._path.name} is damaged at offset {error.at}: the checksum of the event is wrong",
                    "copy the file again",
                ) from None
            cut = error.at
        self._on_bytes(size - reported)
        if found is None:
            raise BinlogError(f"{self._path.name} has no events", "leave it out, or copy it again")
        found.cut_at = cut
        return found

    def _look_at(self, event: Event, file: BinlogFile) -> None:
        match event.kind:
            case Kind.TABLE_MAP:
                self._describe(event)
            case Kind.PARTIAL_UPDATE | Kind.INCIDENT:
                self._note_loss(event, file)
            case Kind.GTID | Kind.GTID_TAGGED | Kind.ANONYMOUS_GTID:
                is_anonymous = event.kind == Kind.ANONYMOUS_GTID
                file.anonymous += is_anonymous
                file.gtids += not is_anonymous
            case Kind.QUERY:
                self._statement(event, file)
            case Kind.PAYLOAD:
                file.compressed = True
                for inner in read_payload(event.body):
                    if inner.kind in (Kind.TABLE_MAP, Kind.QUERY, Kind.PARTIAL_UPDATE):
                        self._look_at(inner, file)
            case Kind.PREVIOUS_GTIDS:
                file.earlier_gtids = count_gtids(event.body)
            case Kind.ROTATE:
                file.next_name = read_rotate(event.body)

    def _statement(self, event: Event, file: BinlogFile) -> None:
        query = read_query(event.body)
        if file.collation is None:
            file.collation = query.collation
        if _DEFINES.match(query.text.encode()):
            self._items.append(query)

    def _note_loss(self, event: Event, file: BinlogFile) -> None:
        if event.kind == Kind.INCIDENT:
            file.incident_at = event.at
        elif (described := self._by_id.get(bytes(event.body[:6]))) is not None:
            self._partial.add(table_map_name(described))

    def _describe(self, event: Event) -> None:
        self._by_id[bytes(event.body[:6])] = event.body
        table = table_map_name(event.body)
        if table not in self._described:
            self._described.add(table)
            self._items.append(table)


_READERS: Final = frozenset(
    {
        Kind.TABLE_MAP,
        Kind.INCIDENT,
        Kind.PARTIAL_UPDATE,
        Kind.GTID,
        Kind.GTID_TAGGED,
        Kind.ANONYMOUS_GTID,
        Kind.QUERY,
        Kind.PAYLOAD,
        Kind.PREVIOUS_GTIDS,
        Kind.ROTATE,
    }
)


def check_sequence(files: Sequence[BinlogFile]) -> None:
    """Check that the files follow each other, and that only the last one may be incomplete.

    Raises:
        BinlogError: a file between them is missing, or incomplete.
    """
    for problem in _problems(files):
        raise problem


def _problems(files: Sequence[BinlogFile]) -> Iterator[BinlogError]:
    if not files:
        yield BinlogError("no binary log file was given", "give the files in their order")
    for file in files:
        if not re.fullmatch(r".+\.\d{6,}", file.name):
            yield BinlogError(
                f"{file.name} does not have the name of a binary log, such as mysql-bin.000001",
                "give it the name that the server gave it: the name is a part of each position",
            )
        if "MariaDB" in file.version:
            yield BinlogError(f"{file.name} was written by {file.version}", "only MySQL is supported")
        if file.incident_at is not None:
            yield BinlogError(
                f"{file.name} lacks changes: the server could not write them, and noted an incident at offset "
                f"{file.incident_at}",
                "import the files after it into an archive of their own, with definitions and rows from after it",
            )
    for file, following in pairwise(files):
        yield from _gap(file, following)
    if any(f.gtids for f in files) and any(f.anonymous for f in files):
        yield BinlogError(
            "some transactions of these files have GTIDs, and others have none",
            "gtid_mode was changed in between: import the files before and after it into two archives",
        )


def _gap(file: BinlogFile, following: BinlogFile) -> Iterator[BinlogError]:
    (base, number), (next_base, next_number) = map(_numbered, (file.name, following.name))
    if base != next_base:
        yield BinlogError(f"{following.name} is of another server than {file.name}", "import them separately")
    if next_number != number + 1:
        missing = f"{base}.{number + 1:06d}"
        yield BinlogError(
            f"{missing} is missing between {file.name} and {following.name}"
            if next_number > number
            else f"{following.name} was given after {file.name}",
            "give all files, in the order of their numbers",
        )
    if file.cut_at is not None or file.is_open:
        end = "" if file.cut_at is None else f" at offset {file.cut_at}"
        yield BinlogError(
            f"{file.name} is not complete: it was copied while the server wrote it, or is truncated{end}",
            "copy it again; only the last file may be incomplete",
        )
    if file.next_name is not None and Path(file.next_name).name != following.name:
        yield BinlogError(
            f"after {file.name} the server wrote {file.next_name}, not {following.name}",
            "give the files of one server, in their order",
        )
    if file.earlier_gtids is not None and following.earlier_gtids is not None:
        lost = following.earlier_gtids - file.earlier_gtids - file.gtids
        if lost:
            yield BinlogError(
                f"{following.name} follows {counted(lost, 'transaction')} that {file.name} lacks"
                if lost > 0
                else f"{following.name} does not follow {file.name}: it was begun before {-lost} of its transactions",
                "copy both files again, from one server",
            )


def _numbered(name: str) -> tuple[str, int]:
    base, _, number = name.rpartition(".")
    return base, int(number)


def total_bytes(paths: Iterable[Path]) -> int:
    """Return the size of all files that exist, in bytes."""
    return sum(path.stat().st_size for path in paths if path.exists())
