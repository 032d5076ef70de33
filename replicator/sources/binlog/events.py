"""Read the events of a binary log file, and decode the few kinds that describe the file and its tables.

Format: MySQL's source, `libs/mysql/binlog/event/*.h`; numbers are little-endian.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple
from zlib import crc32

from replicator.errors import BinlogError
from replicator.model.table import TableId

MAGIC: Final = b"\xfebin"
ENCRYPTED_MAGIC: Final = b"\xfdbin"
HEADER_BYTES: Final = 19
CHECKSUM_BYTES: Final = 4
IN_USE: Final = 1
"""Flag of a file's first event while the server writes the file; not part of the event's checksum."""

_HEADER: Final = struct.Struct("<IBIIIH")
_CRC32: Final = 1


class Kind(IntEnum):
    """The kinds of events that are looked at."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    FORMAT = 15
    TABLE_MAP = 19
    INCIDENT = 26
    GTID = 33
    ANONYMOUS_GTID = 34
    PREVIOUS_GTIDS = 35
    PARTIAL_UPDATE = 39
    PAYLOAD = 40
    GTID_TAGGED = 42


class Event(NamedTuple):
    """One event: its kind, offset in the file, time (Unix seconds), server, flags, and body without checksum."""

    kind: int
    at: int
    seconds: int
    server_id: int
    flags: int
    body: memoryview


@dataclass(frozen=True, slots=True)
class Format:
    """The first event of a file: the version of the server that wrote it, and whether events have checksums."""

    version: str
    checksums: bool


@dataclass(frozen=True, slots=True)
class Query:
    """A statement: its current database (empty if none), text, and the server's collation id if it is known."""

    database: str
    text: str
    collation: int | None


class Damaged(Exception):  # noqa: N818 -- says what the file is
    """The event at offset `at` is incomplete, or does not have its checksum."""

    def __init__(self, at: int, *, cut: bool) -> None:
        super().__init__(at)
        self.at = at
        self.cut = cut


def read_events(data: memoryview, format_: Format, start: int = len(MAGIC)) -> Iterator[Event]:
    """Yield the events of a file from offset `start`. Raises Damaged at the first one that cannot be read."""
    end, at, tail = len(data), start, CHECKSUM_BYTES if format_.checksums else 0
    unpack = _HEADER.unpack_from
    while at < end:
        if at + HEADER_BYTES > end:
            raise Damaged(at, cut=True)
        seconds, kind, server_id, size, _, flags = unpack(data, at)
        if size < HEADER_BYTES + tail:
            raise Damaged(at, cut=False)
        if at + size > end:
            raise Damaged(at, cut=True)
        if tail and not _has_checksum(data[at : at + size], kind, flags):
            raise Damaged(at, cut=False)
        yield Event(kind, at, seconds, server_id, flags, data[at + HEADER_BYTES : at + size - tail])
        at += size


def _has_checksum(event: memoryview, kind: int, flags: int) -> bool:
    wanted = int.from_bytes(event[-CHECKSUM_BYTES:], "little")
    content: bytes | memoryview = event[:-CHECKSUM_BYTES]
    if kind == Kind.FORMAT and flags & IN_USE:
        cleared = bytearray(content)
        cleared[HEADER_BYTES - 2] &= ~IN_USE
        content = bytes(cleared)
    return crc32(content) == wanted


def read_format(data: memoryview, name: str) -> Format:
    """Read the first event of a file. Raises BinlogError if this is not a binary log that can be read."""
    magic = bytes(data[: len(MAGIC)])
    if magic == ENCRYPTED_MAGIC:
        raise BinlogError(
            f"{name} is encrypted (binlog_encryption = ON)",
            "only its server has the key, and sends the events in clear: use --from-server",
        )
    if magic != MAGIC:
        raise BinlogError(
            f"{name} is not a binary log of MySQL", "give the files as the server wrote them, uncompressed"
        )
    at = len(MAGIC)
    if len(data) < at + HEADER_BYTES:
        raise BinlogError(f"{name} has no events", "leave it out, or copy it again")
    _, kind, _, size, _, _ = _HEADER.unpack_from(data, at)
    body = data[at + HEADER_BYTES : at + size]
    if kind != Kind.FORMAT or len(body) < 57 or len(data) < at + size:
        raise BinlogError(f"{name} does not begin like a binary log", "copy the file again")
    version = bytes(body[2:52]).split(b"\0")[0].decode(errors="replace")
    # The algorithm is followed by the event's own checksum, which is there whether or not others have one.
    algorithm = body[-CHECKSUM_BYTES - 1]
    return Format(version, algorithm == _CRC32)


def read_query(body: memoryview) -> Query:
    """Decode a statement."""
    database_bytes, variables_bytes = body[8], int.from_bytes(body[11:13], "little")
    variables = body[13 : 13 + variables_bytes]
    at = 13 + variables_bytes
    database = bytes(body[at : at + database_bytes]).decode(errors="replace")
    text = bytes(body[at + database_bytes + 1 :]).decode(errors="replace")
    return Query(database, text, _server_collation(variables))


def _server_collation(variables: memoryview) -> int | None:
    """Return the server's collation from a statement's variables; None if others precede that are not known."""
    at = 0
    while at < len(variables):
        code = variables[at]
        at += 1
        match code:
            case 0:  # flags2
                at += 4
            case 1:  # sql_mode
                at += 8
            case 3:  # auto_increment
                at += 4
            case 6:  # catalog
                at += 1 + variables[at]
            case 4:  # character set of the client, collations of connection and server
                return int.from_bytes(variables[at + 4 : at + 6], "little")
            case _:
                return None
    return None


def table_map_name(body: memoryview) -> TableId:
    """Return the table of the description in front of its row events."""
    size = body[8]
    at = 9 + size + 1
    names = body[9 : 9 + size], body[at + 1 : at + 1 + body[at]]
    database, name = (bytes(part).decode(errors="replace") for part in names)
    return TableId(database, name)


def read_rotate(body: memoryview) -> str:
    """Return the name of the next file."""
    return bytes(body[8:]).decode(errors="replace")


def count_gtids(body: memoryview) -> int | None:
    """Return how many transactions precede a file, of its list of GTIDs; None if the list has tags."""
    sources = int.from_bytes(body[:8], "little")
    total, at = 0, 8
    if sources > 0xFFFF_FFFF:
        return None
    for _ in range(sources):
        intervals = int.from_bytes(body[at + 16 : at + 24], "little")
        at += 24
        for _ in range(intervals):
            first, end = struct.unpack_from("<QQ", body, at)
            total += end - first
            at += 16
    return total


def read_payload(body: memoryview) -> Iterator[Event]:
    """Yield the events in a compressed transaction; they have no checksums.

    Raises:
        BinlogError: the compression is unknown.
    """
    at, fields = 0, {}
    while at < len(body):
        field, at = length_encoded(body, at)
        if field == 0:
            break
        size, at = length_encoded(body, at)
        fields[field], _ = length_encoded(body, at)
        at += size
    compression, size = fields.get(2, 255), fields.get(3, 0)
    content = body[at:]
    if compression == 0:
        # Slow to import; `status` looks at other events only.
        import pyarrow as pa  # noqa: PLC0415

        content = memoryview(pa.decompress(bytes(content), size, codec="zstd", asbytes=True))
    elif compression != 255:
        raise BinlogError(f"a transaction has the unknown compression {compression}")
    return read_events(content, Format("", checksums=False), 0)


def length_encoded(data: memoryview, at: int) -> tuple[int, int]:
    """Decode a length-encoded integer at offset `at`; return it and the offset after it."""
    first = data[at]
    if first < 251:
        return first, at + 1
    width = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + width], "little"), at + 1 + width
