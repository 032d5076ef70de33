"""Build the statements that read the rows of a table, in parts, as values that binlog events have too.

A connection would return some values changed: FLOAT with six digits, a zero date as an error, a TIMESTAMP in its own
time zone. So each column is read through an expression that has one of few simple types (`Wire`), which the engine
decodes. The session must have the time zone UTC and an empty `sql_mode`, in which a zero date is no error.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Connection, text

from replicator.errors import SourceError, UsageError
from replicator.model.common import quoted
from replicator.model.reread import Narrowed
from replicator.model.table import Column, TableId
from replicator.schema.types.table import GEOMETRIES, KeyKind, MySqlType, Wire, type_of
from replicator.sources.mysql.definitions import column_of, read_columns


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of a source table.

    Attributes:
        column: its name, and its type in the lake without column rules.
        declared: the whole declared type, as MySQL shows it.
        expression: the SQL expression that reads it.
        wire: the type of the expression.
        charset: the character set of a text.
    """

    column: Column
    declared: str
    expression: str
    wire: Wire
    charset: str | None = None


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """A column of the index by which a table is read in parts.

    Attributes:
        name: its name.
        expression: the SQL expression whose text `literal` accepts.
    """

    name: str
    expression: str
    kind: KeyKind

    def literal(self, value: str) -> str:
        """Return a value, as `expression` returns it, as SQL text.

        Raises:
            ValueError: the text is not a value of the column.
        """
        if not _KEY_TEXTS[self.kind].fullmatch(value):
            raise ValueError(f"not a value of the key column {self.name}: {value[:100]!r}")
        match self.kind:
            case KeyKind.NUMBER:
                return value
            case KeyKind.TIME:
                return f"'{value}'"
            case KeyKind.TEXT:
                # An introducer instead of CONVERT: the comparison then uses the column's collation.
                return f"_utf8mb4 x'{value}'"
            case KeyKind.BYTES:
                return f"x'{value}'"


_KEY_TEXTS: Final = {
    KeyKind.NUMBER: re.compile(r"-?\d+(\.\d+)?"),
    KeyKind.TIME: re.compile(r"-?[\d:. -]+"),
    KeyKind.TEXT: re.compile(r"([0-9A-F]{2})*"),
    KeyKind.BYTES: re.compile(r"([0-9A-F]{2})*"),
}
_CAST_TO: Final = {
    Wire.LONG: "CAST({} AS SIGNED)",
    Wire.DOUBLE: "CAST({} AS DOUBLE)",
    Wire.TEXT: "CAST({} AS CHAR)",
    Wire.BYTES: "CAST({} AS BINARY)",
    Wire.FLOATS: "HEX({})",
}
_UNKNOWN: Final = MySqlType(event="string")

_SMALL_BYTES: Final = 70
"""A DECIMAL has up to 65 digits."""
_LARGE_BYTES: Final = 1 << 32
"""JSON and geometries have the limit of LONGBLOB."""

Boundary = tuple[str, ...]
"""The key of a row: the text of each key column."""


@dataclass(frozen=True, slots=True)
class SourceTable:
    """A table of the source, as it is read.

    Attributes:
        columns: all columns, in order.
        key: the columns of the index by which the table is read in parts; empty if it can only be read as a whole.
        has_integer_key: whether the key is one column of integers.
        rows: estimated number of rows.
        bytes_per_row: estimated size of a row.
        most_bytes_per_row: size of the largest row that its declaration allows.
        narrowed: the part of the table that is read; None for all of it.
    """

    table: TableId
    columns: tuple[SourceColumn, ...]
    key: tuple[KeyColumn, ...]
    rows: int
    bytes_per_row: int
    most_bytes_per_row: int
    has_integer_key: bool = False
    narrowed: Narrowed | None = None

    def part(self, narrowed: Narrowed) -> "SourceTable":
        """Return the table with only a part of its rows.

        Raises:
            UsageError: another column orders the table now.
        """
        if not self.key or self.key[0].name != narrowed.column:
            raise UsageError(
                f"the key of {self.table} does not begin with {narrowed.column} any more", "check it again"
            )
        return replace(self, narrowed=narrowed, rows=sum(span.rows for span in narrowed.spans))

    @property
    def name(self) -> str:
        """The quoted name."""
        return quoted(self.table.database, self.table.name)

    @property
    def fingerprint(self) -> str:
        """A text that differs if the columns or the key differ."""
        columns = [f"{c.column.name} {c.declared} {c.column.nullable}" for c in self.columns]
        return "; ".join([*columns, *(k.name for k in self.key)])

    def rows_query(self, columns: Sequence[SourceColumn]) -> str:
        """Return the query for `columns`, as c0, c1, …; the key columns are k0, k1, … for `key_range`."""
        read = [f"{c.expression} AS c{i}" for i, c in enumerate(columns)]
        keys = [f"{quoted(k.name)} AS k{i}" for i, k in enumerate(self.key)]
        return f"SELECT {', '.join([*read, *keys])} FROM {self.name}"

    def boundary_query(self, after: Boundary | None, last: Boundary, count: int) -> str:
        """Return the query for the key of the row that is number `count` after `after` and not after `last`."""
        names = [quoted(k.name) for k in self.key]
        read = ", ".join(k.expression for k in self.key)
        where = self.range_condition(names, after, last)
        return f"SELECT {read} FROM {self.name} WHERE {where} ORDER BY {', '.join(names)} LIMIT 1 OFFSET {count - 1}"

    def range_condition(self, names: Sequence[str], after: Boundary | None, upto: Boundary | None) -> str:
        """Return the condition for the rows to read with keys after `after` up to `upto`; see `key_range`."""
        condition = key_range(names, self.key, after, upto)
        return (
            condition if self.narrowed is None else f"{condition} AND ({self.narrowed.condition(names[0])})"
        )

    def zero_date_query(self, key: Sequence[str]) -> str | None:
        """Return a query for a row with a zero date in a DATE or DATETIME column of `key`; None if it has none.

        A date such as 2024-02-31 counts too: MySQL's number for it is that of 2024-03-02.
        """
        kinds = ("date", "timestamp")
        names = [
            quoted(c.column.name)
            for c in self.columns
            if c.column.name in key and c.column.type.name in kinds
        ]
        if not names:
            return None
        tests = (
            f"DATEDIFF({name}, '1970-01-01') IS NULL OR DAY({name}) > DAY(LAST_DAY({name}))" for name in names
        )
        where = " OR ".join(tests)
        return f"SELECT 1 FROM {self.name} WHERE {where} LIMIT 1"

    @property
    def first_query(self) -> str:
        """The query for the smallest key."""
        return self._end_query("ASC")

    @property
    def last_query(self) -> str:
        """The query for the greatest key."""
        return self._end_query("DESC")

    def _end_query(self, direction: str) -> str:
        names = [quoted(k.name) for k in self.key]
        read, where = ", ".join(k.expression for k in self.key), self.range_condition(names, None, None)
        order = ", ".join(f"{name} {direction}" for name in names)
        return f"SELECT {read} FROM {self.name} WHERE {where} ORDER BY {order} LIMIT 1"


def key_range(
    names: Sequence[str], key: Sequence[KeyColumn], after: Boundary | None, upto: Boundary | None
) -> str:
    """Return the condition for keys after `after` (exclusive; None: from the first) up to `upto` (inclusive).

    If `upto` is None, the range ends with the last key. `names` are the key columns in SQL.
    """
    conditions = []
    if after is not None:
        conditions.append(_bounded(names, key, after, ">", ">"))
    if upto is not None:
        conditions.append(_bounded(names, key, upto, "<", "<="))
    return " AND ".join(conditions) or "TRUE"


def _bounded(
    names: Sequence[str], key: Sequence[KeyColumn], bound: Boundary, strictly: str, at_last: str
) -> str:
    """Return a comparison of a key with a bound."""
    values = [k.literal(value) for k, value in zip(key, bound, strict=True)]
    if len(key) == 1:
        return f"{names[0]} {at_last} {values[0]}"
    return f"{names[0]} {strictly[0]}= {values[0]} AND {_beside(names, values, strictly, at_last)}"


def _beside(names: Sequence[str], values: Sequence[str], strictly: str, at_last: str) -> str:
    """Return a comparison of several columns, from which MySQL can make a range of an index."""
    parts = []
    for i, name in enumerate(names):
        equal = [f"{n} = {v}" for n, v in zip(names[:i], values[:i], strict=True)]
        sign = at_last if i == len(names) - 1 else strictly
        parts.append(" AND ".join([*equal, f"{name} {sign} {values[i]}"]))
    return f"({' OR '.join(f'({part})' for part in parts)})"


def describe(connection: Connection, table: TableId, key: Sequence[str]) -> SourceTable | None:
    """Describe a table of the source; None if it does not exist. `key` are the columns that identify a row.

    Raises:
        SourceError: a column has a type that the engine does not read.
    """
    found = read_columns(connection, table)
    if not found:
        return None
    columns = tuple(_column(row) for row in found)
    parts = unique_key(connection, table, key)
    by_name = {str(row["name"]): row for row in found}
    keys = tuple(_key_column(by_name[name]) for name in parts if _type(by_name[name]).key is not None)
    size = connection.execute(
        text(
            "SELECT table_rows, avg_row_length FROM information_schema.tables "
            "WHERE table_schema = :database AND table_name = :name"
        ),
        {"database": table.database, "name": table.name},
    ).first()
    rows, length = (0, 0) if size is None else (int(size[0] or 0), int(size[1] or 0))
    most = max(sum(_most_bytes(row) for row in found), 1)
    # Of a table of few rows, the server divides the size of a page by their number.
    usual = max(min(length, most), 1)
    integer = len(parts) == 1 and _type(by_name[parts[0]]).bits > 0
    return SourceTable(
        table,
        columns,
        keys if len(keys) == len(parts) else (),
        rows,
        usual,
        most,
        integer,
    )


def _most_bytes(row: Mapping[str, object]) -> int:
    """Return the size of the largest value of a column, as text or as MySQL sends it."""
    if row["octets"] is not None:
        return int(str(row["octets"]))
    return _SMALL_BYTES if _type(row).is_small else _LARGE_BYTES


def unique_key(connection: Connection, table: TableId, key: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of the primary key, else of a unique key with the columns `key`; none if there is neither."""
    rows = connection.execute(
        text(
            "SELECT index_name, column_name, sub_part FROM information_schema.statistics "
            "WHERE table_schema = :database AND table_name = :name AND non_unique = 0 AND column_name IS NOT NULL "
            "ORDER BY index_name, seq_in_index"
        ),
        {"database": table.database, "name": table.name},
    ).all()
    indexes: dict[str, list[tuple[str, bool]]] = {}
    for index, column, part in rows:
        indexes.setdefault(str(index), []).append((str(column), part is None))
    # The order of an index on the beginning of texts is not that of the texts.
    whole = {
        index: tuple(name for name, _ in columns)
        for index, columns in indexes.items()
        if all(is_whole for _, is_whole in columns)
    }
    if "PRIMARY" in whole:
        return whole["PRIMARY"]
    return next((columns for columns in whole.values() if sorted(columns) == sorted(key)), ())


def _key_column(row: Mapping[str, object]) -> KeyColumn:
    name, kind = str(row["name"]), _type(row).key
    if kind is None:
        raise ValueError(f"no key column of a type that has literals: {name}")
    column = quoted(name)
    match kind:
        case KeyKind.NUMBER | KeyKind.TIME:
            expression = f"CAST({column} AS CHAR)"
        case KeyKind.TEXT:
            expression = f"HEX(CONVERT({column} USING utf8mb4))"
        case KeyKind.BYTES:
            expression = f"HEX({column})"
    return KeyColumn(name, expression, kind)


def _type(row: Mapping[str, object]) -> MySqlType:
    return type_of(str(row["kind"])) or _UNKNOWN


def _column(row: Mapping[str, object]) -> SourceColumn:
    column, name = column_of(row), quoted(str(row["name"]))
    kind, whole = str(row["kind"]), str(row["whole"])
    expression, wire = _expression(name, kind, column, text_is_binary=row["charset"] in ("binary", None))
    charset = None if row["charset"] is None else str(row["charset"])
    return SourceColumn(column, whole, expression, wire, charset)


def _expression(name: str, kind: str, column: Column, *, text_is_binary: bool) -> tuple[str, Wire]:
    """Return the expression that reads a column, and its type."""
    found = type_of(kind) or _UNKNOWN
    if found.key is KeyKind.TIME:
        return _time(name, kind, column)
    if kind.upper() in GEOMETRIES:
        # Four bytes of SRID and then WKB, which becomes EWKB.
        marked = f"CONCAT(SUBSTRING({name}, 5, 4), x'20', SUBSTRING({name}, 1, 4), SUBSTRING({name}, 10))"
        return f"CAST(IF(ST_SRID({name}) = 0, SUBSTRING({name}, 5), {marked}) AS BINARY)", Wire.BYTES
    if found.family == "text" and not text_is_binary:
        # MySQL converts it: no driver knows all of its character sets.
        return f"CONVERT({name} USING utf8mb4)", Wire.TEXT
    wire = found.wire
    if wire is None or found.family == "text":
        wire = Wire.BYTES if column.type.name == "binary" else None
    if kind == "bigint" and column.type.name == "decimal":
        wire = Wire.TEXT
    if kind == "bit":
        wire = Wire.LONG if column.type.name == "boolean" else Wire.BYTES
    if wire is None:
        raise SourceError(
            f"column {name} has the type {kind}, which cannot be read", "exclude it in [columns]"
        )
    return _CAST_TO[wire].replace("{}", name, 1), wire


def _time(name: str, kind: str, column: Column) -> tuple[str, Wire]:
    if kind == "time":
        sign = f"IF({name} < CAST('00:00:00' AS TIME), -1, 1)"
        return f"(TIME_TO_SEC({name}) * 1000000 + {sign} * MICROSECOND({name}))", Wire.LONG
    if kind == "date":
        value, wire = f"DATEDIFF({name}, '1970-01-01')", Wire.DAYS
    else:
        value, wire = f"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {name})", Wire.MICROS
    # MySQL has no number for a zero date. Events have NULL for it, and 0 if the column is not nullable.
    return (value if column.nullable else f"COALESCE({value}, 0)"), wire
