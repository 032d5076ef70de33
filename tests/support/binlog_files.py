"""Write binary log files event by event, as a server would."""

import struct
from pathlib import Path
from zlib import crc32

from replicator.sources.binlog.events import HEADER_BYTES, IN_USE, MAGIC, Kind

UUID = bytes(range(16))
CREATED = 1_700_000_000


def event(kind: int, body: bytes, *, flags: int = 0, seconds: int = CREATED, checksum: bool = True) -> bytes:
    """Return an event; the flag of a file in use is not part of its checksum."""
    size = HEADER_BYTES + len(body) + (4 if checksum else 0)
    content = struct.pack("<IBIIIH", seconds, kind, 7, size, 0, flags & ~IN_USE) + body
    end = struct.pack("<I", crc32(content)) if checksum else b""
    return content[: HEADER_BYTES - 2] + struct.pack("<H", flags) + body + end


def format_event(version: str = "8.0.36", *, flags: int = 0, checksum: bool = True) -> bytes:
    body = struct.pack("<H50sIB", 4, version.encode(), CREATED, HEADER_BYTES) + bytes(40)
    algorithm = bytes([1 if checksum else 0])
    # The first event has a checksum in any case.
    return event(Kind.FORMAT, body + algorithm, flags=flags)


def previous_gtids(count: int) -> bytes:
    body = struct.pack("<Q", 1 if count else 0)
    if count:
        body += UUID + struct.pack("<QQQ", 1, 1, count + 1)
    return event(Kind.PREVIOUS_GTIDS, body)


def gtid(kind: Kind = Kind.GTID) -> bytes:
    return event(kind, bytes(42))


def query(text: str, database: str = "shop", collation: int = 255) -> bytes:
    variables = (
        bytes(5) + b"\x01" + bytes(8) + b"\x06\x03std" + b"\x04" + struct.pack("<HHH", 255, 255, collation)
    )
    head = struct.pack("<IIBHH", 1, 0, len(database), 0, len(variables))
    return event(Kind.QUERY, head + variables + database.encode() + b"\0" + text.encode())


def rotate(name: str) -> bytes:
    return event(Kind.ROTATE, struct.pack("<Q", 4) + name.encode())


def table_map(table: str, database: str = "shop") -> bytes:
    """Describe a table; only its name is looked at."""
    body = bytes(8) + bytes([len(database)]) + database.encode() + b"\0"
    return event(Kind.TABLE_MAP, body + bytes([len(table)]) + table.encode() + b"\0\x01\x03\0\0")


def write_file(folder: Path, number: int, *events: bytes, first: bytes | None = None) -> Path:
    """Write mysql-bin.NNNNNN with a first event and `events`, and return its path."""
    path = folder / f"mysql-bin.{number:06d}"
    path.write_bytes(MAGIC + (first or format_event()) + b"".join(events))
    return path
