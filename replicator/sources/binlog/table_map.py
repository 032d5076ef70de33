"""Decode how row events describe their table: with `binlog_row_metadata = FULL` this is nearly its definition.

Format: MySQL's `libs/mysql/binlog/event/rows_event.h`, `Table_map_event`, and `sql/log_event.cc`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from replicator.model.table import TableId
from replicator.sources.binlog.events import length_encoded

TINY, SHORT, LONG, FLOAT, DOUBLE, LONGLONG, INT24 = 1, 2, 3, 4, 5, 8, 9
DATE, YEAR, VARCHAR, BIT = 10, 13, 15, 16
TIMESTAMP, DATETIME, TIME = 17, 18, 19
VECTOR, JSON, NEWDECIMAL, ENUM, SET, BLOB, VAR_STRING, STRING, GEOMETRY = (
    242,
    245,
    246,
    247,
    248,
    252,
    253,
    254,
    255,
)
"""The types of columns in row events, MySQL's `enum_field_types`."""

_NUMERIC: Final = frozenset({TINY, SHORT, INT24, LONG, LONGLONG, FLOAT, DOUBLE, NEWDECIMAL})
# The list of collations has an entry for each of them. MySQL 9 counts vectors too.
_TEXT: Final = frozenset({VARCHAR, VAR_STRING, STRING, BLOB, VECTOR})
_METADATA_BYTES: Final = {
    **dict.fromkeys((FLOAT, DOUBLE, BLOB, GEOMETRY, JSON, VECTOR, TIMESTAMP, DATETIME, TIME), 1),
    **dict.fromkeys((VARCHAR, BIT, NEWDECIMAL, STRING, VAR_STRING, ENUM, SET), 2),
}
_BINARY: Final = 63
"""The id of the collation `binary`."""


@dataclass(frozen=True, slots=True)
class MapColumn:
    """A column of a row event.

    Attributes:
        name: empty if the event has no names.
        type: one of the types above.
        meta: the type's metadata, as a number (two bytes: the first one is the lower).
        nullable: whether it may be NULL.
        unsigned: whether a number has no sign.
        collation: the id of a text's collation; None if unknown or not a text.
        labels: of an ENUM or SET, in the column's character set.
        subtype: the id of a geometry's type, or the number of a vector's dimensions.
    """

    name: str
    type: int
    meta: int
    nullable: bool
    unsigned: bool = False
    collation: int | None = None
    labels: tuple[bytes, ...] = ()
    subtype: int = 0


@dataclass(frozen=True, slots=True)
class TableMap:
    """The description of a table in front of its row events.

    Attributes:
        table: its name.
        columns: in order.
        key: names of the primary key's columns, in order, with the length of a prefix (0: the whole column).
    """

    table: TableId
    columns: tuple[MapColumn, ...]
    key: tuple[tuple[str, int], ...] = ()

    @property
    def has_names(self) -> bool:
        """Return whether it was written with `binlog_row_metadata = FULL`."""
        return all(column.name for column in self.columns)


def table_map_name(body: memoryview) -> TableId:
    """Return the table of a description, without decoding the rest."""
    size = body[8]
    at = 9 + size + 1
    return TableId(_text(body[9 : 9 + size]), _text(body[at + 1 : at + 1 + body[at]]))


def read_table_map(body: memoryview) -> TableMap:
    """Decode a description."""
    table = table_map_name(body)
    at = 8 + 1 + body[8] + 1
    at += 1 + body[at] + 1
    count, at = length_encoded(body, at)
    types = list(body[at : at + count])
    at += count
    size, at = length_encoded(body, at)
    metas = _metas(types, body[at : at + size])
    at += size
    nulls = body[at : at + (count + 7) // 8]
    fields = _fields(body[at + (count + 7) // 8 :])
    # An ENUM or SET has the type of a string, and its own one in the metadata.
    real = [
        meta & 0xFF if kind == STRING and meta & 0xFF in (ENUM, SET) else kind
        for kind, meta in zip(types, metas, strict=True)
    ]
    columns = _Columns(real, fields)
    names = columns.names()
    signs, collations = columns.signs(), columns.collations()
    labels, subtypes = columns.labels(), columns.subtypes()
    found = tuple(
        MapColumn(
            names[i],
            real[i],
            metas[i],
            bool(nulls[i // 8] >> (i % 8) & 1),
            signs.get(i, False),
            collations.get(i),
            labels.get(i, ()),
            subtypes.get(i, 0),
        )
        for i in range(count)
    )
    return TableMap(table, found, tuple((names[i], prefix) for i, prefix in columns.key()))


def _metas(types: list[int], data: memoryview) -> list[int]:
    metas, at = [], 0
    for kind in types:
        size = _METADATA_BYTES.get(kind, 0)
        metas.append(int.from_bytes(data[at : at + size], "little"))
        at += size
    return metas


def _fields(data: memoryview) -> dict[int, memoryview]:
    """Return the optional metadata by their kind."""
    found, at = {}, 0
    while at < len(data):
        kind = data[at]
        size, at = length_encoded(data, at + 1)
        found[kind] = data[at : at + size]
        at += size
    return found


class _Columns:
    """The optional metadata, which have entries only for the columns of some types."""

    def __init__(self, types: list[int], fields: dict[int, memoryview]) -> None:
        self._types = types
        self._fields = fields

    def names(self) -> list[str]:
        found = list(_texts(self._fields.get(4, memoryview(b""))))
        return found if len(found) == len(self._types) else [""] * len(self._types)

    def signs(self) -> dict[int, bool]:
        """Return column → whether it is unsigned."""
        bits = self._fields.get(1, memoryview(b""))
        numeric = [i for i, kind in enumerate(self._types) if kind in _NUMERIC]
        return {
            column: bool(bits[n // 8] >> (7 - n % 8) & 1)
            for n, column in enumerate(numeric)
            if n // 8 < len(bits)
        }

    def collations(self) -> dict[int, int]:
        return self._collations(_TEXT, 2, 3) | self._collations(frozenset({ENUM, SET}), 10, 11)

    def _collations(self, kinds: frozenset[int], usual: int, each: int) -> dict[int, int]:
        columns = [i for i, kind in enumerate(self._types) if kind in kinds]
        if each in self._fields:
            return dict(zip(columns, _numbers(self._fields[each]), strict=False))
        if usual not in self._fields:
            return {}
        default, *others = _numbers(self._fields[usual])
        differing = dict(zip(others[::2], others[1::2], strict=True))
        return {column: differing.get(n, default) for n, column in enumerate(columns)}

    def labels(self) -> dict[int, tuple[bytes, ...]]:
        found: dict[int, tuple[bytes, ...]] = {}
        for kind, field in ((SET, 5), (ENUM, 6)):
            columns = [i for i, found_kind in enumerate(self._types) if found_kind == kind]
            found |= dict(zip(columns, _label_lists(self._fields.get(field, memoryview(b""))), strict=False))
        return found

    def subtypes(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for kind, field in ((GEOMETRY, 7), (VECTOR, 13)):
            columns = [i for i, found_kind in enumerate(self._types) if found_kind == kind]
            found |= dict(zip(columns, _numbers(self._fields.get(field, memoryview(b""))), strict=False))
        return found

    def key(self) -> list[tuple[int, int]]:
        """Return the primary key as (column, length of the prefix)."""
        if 9 in self._fields:
            numbers = list(_numbers(self._fields[9]))
            return list(zip(numbers[::2], numbers[1::2], strict=True))
        return [(column, 0) for column in _numbers(self._fields.get(8, memoryview(b"")))]


def _numbers(data: memoryview) -> Iterator[int]:
    at = 0
    while at < len(data):
        number, at = length_encoded(data, at)
        yield number


def _texts(data: memoryview) -> Iterator[str]:
    at = 0
    while at < len(data):
        size, at = length_encoded(data, at)
        yield _text(data[at : at + size])
        at += size


def _label_lists(data: memoryview) -> Iterator[tuple[bytes, ...]]:
    at = 0
    while at < len(data):
        count, at = length_encoded(data, at)
        labels = []
        for _ in range(count):
            size, at = length_encoded(data, at)
            labels.append(bytes(data[at : at + size]))
            at += size
        yield tuple(labels)


def _text(data: memoryview) -> str:
    return bytes(data).decode(errors="replace")
