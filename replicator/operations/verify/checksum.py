"""Compute one text per value, one hash per row, one checksum per table: equal for MySQL and the lake.

A value's canonical text depends only on its *kind*, which is the source column's: neither on the width of the
column's type in the lake, nor on the type in which a driver returns the value.

| kind      | text                                                                                       |
|-----------|--------------------------------------------------------------------------------------------|
| number    | plain digits, no exponent, no zeros after the last digit of a fraction; TRUE is 1          |
| float     | shortest text that parses to the same double (`repr`); FLOAT is widened to double; no -0   |
| text      | UTF-8                                                                                      |
| bytes     | lower-case hex                                                                             |
| date      | YYYY-MM-DD                                                                                 |
| datetime  | YYYY-MM-DD HH:MM:SS.ffffff, the wall clock of DATETIME, UTC of TIMESTAMP                   |
| time      | microseconds, negative or above a day if the source has such a value                       |
| json      | parsed, keys sorted, no spaces, numbers that are whole without a fraction                  |
| vector    | the elements as 32-bit floats, little-endian, in lower-case hex                            |

A zero date, which MySQL can contain and the lake cannot, is the text that MySQL shows.

Row text: for each column in order `-` for NULL, else the length of the value's text in bytes, a colon, and
the text. Row hash: MD5 of the row text as two unsigned 64-bit numbers, big-endian. Table checksum: both
numbers summed over all rows modulo 2^64, so that order does not matter and duplicates count.
"""

import hashlib
import json
import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from replicator.errors import SchemaError
from replicator.model.table import lake_names


class Kind(StrEnum):
    """The kinds of column values that comparisons distinguish."""

    NUMBER = "number"
    FLOAT = "float"
    TEXT = "text"
    BYTES = "bytes"
    DATE = "date"
    DATETIME = "datetime"
    TIME = "time"
    JSON = "json"
    VECTOR = "vector"


@dataclass(frozen=True, slots=True)
class CanonicalColumn:
    """A column that is compared."""

    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class TableChecksum:
    """Number of rows, and their order-independent checksum."""

    rows: int = 0
    high: int = 0
    low: int = 0

    def __add__(self, other: Self) -> "TableChecksum":
        return TableChecksum(
            self.rows + other.rows, (self.high + other.high) % 2**64, (self.low + other.low) % 2**64
        )

    @property
    def hex(self) -> str:
        """Return both sums as 32 hexadecimal digits."""
        return f"{self.high:016x}{self.low:016x}"


def canonical_value(kind: Kind, value: Any) -> bytes | None:
    """Return the canonical text of one Python value, None for NULL.

    Raises:
        SchemaError: the value's type does not belong to `kind`.
    """
    if value is None:
        return None
    try:
        return _SCALAR[kind](value).encode()
    except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError) as error:
        raise SchemaError(f"{type(value).__name__} value where the source has {kind}: {error}") from error


def _number(value: Any) -> str:
    if isinstance(value, bytes):  # BIT(1), as the driver hands it over
        value = int.from_bytes(value)
    text = format(value if isinstance(value, Decimal) else Decimal(value), "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def _float(value: Any) -> str:
    return repr(float(value) + 0.0)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _bytes(value: Any) -> str:
    return str(value.hex())


def _date(value: Any) -> str:
    if isinstance(value, str) and _ZERO.fullmatch(value):
        return value
    if isinstance(value, datetime) or not isinstance(value, date):
        raise TypeError("not a date")
    return value.isoformat()


def _datetime(value: Any) -> str:
    if isinstance(value, str) and _ZERO.fullmatch(value):
        return value
    if not isinstance(value, datetime):
        raise TypeError("not a date and time")
    plain = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    return plain.isoformat(sep=" ", timespec="microseconds")


def _time(value: Any) -> str:
    return str(value // timedelta(microseconds=1) if isinstance(value, timedelta) else int(value))


def _vector(value: Any) -> str:
    return value.lower() if isinstance(value, str) else struct.pack(f"<{len(value)}f", *value).hex()


@lru_cache(maxsize=10_000)
def _json(value: str) -> str:
    parsed = json.loads(value, parse_float=_json_float, parse_int=_json_int)
    return json.dumps(parsed, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _json_float(text: str) -> float | int:
    number = float(text)
    # 2.0 and 2 are equal values.
    return int(number) if number.is_integer() and abs(number) < _JSON_INTEGERS else number


def _json_int(text: str) -> float | int:
    number = int(text)
    return number if abs(number) < _JSON_INTEGERS else float(number)


_JSON_INTEGERS = 2**64
"""MySQL has no greater integers; greater numbers are doubles, even if written as integers."""
_ZERO = re.compile(r"(0000-\d\d-\d\d|\d{4}-00-\d\d|\d{4}-\d\d-00)( \d\d:\d\d:\d\d(\.\d+)?)?")


_SCALAR: dict[Kind, Callable[[Any], str]] = {
    Kind.NUMBER: _number,
    Kind.FLOAT: _float,
    Kind.TEXT: _text,
    Kind.BYTES: _bytes,
    Kind.DATE: _date,
    Kind.DATETIME: _datetime,
    Kind.TIME: _time,
    Kind.JSON: _json,
    Kind.VECTOR: _vector,
}


def canonical_array(kind: Kind, values: pa.Array) -> pa.Array:
    """Return the canonical texts of an Arrow array as large_binary, null for NULL; computed by column.

    Raises:
        SchemaError: the array's type does not belong to `kind`.
    """
    match kind:
        case Kind.TEXT if _is_text(values.type):
            return values.cast(pa.large_binary())
        case Kind.NUMBER | Kind.TIME if pa.types.is_integer(values.type):
            return _binary(values.cast(pa.large_string()))
        case Kind.NUMBER if pa.types.is_boolean(values.type):
            return _binary(values.cast(pa.int8()).cast(pa.large_string()))
        # Arrow prints decimals of a larger scale with an exponent.
        case Kind.NUMBER if pa.types.is_decimal(values.type) and 0 <= values.type.scale <= 6:
            return _decimals(values)
        case Kind.DATE if pa.types.is_date(values.type):
            return _binary(values.cast(pa.date32()).cast(pa.large_string()))
        case Kind.DATETIME if pa.types.is_timestamp(values.type):
            wall_clock = values.cast(pa.timestamp("us", values.type.tz)).view(pa.int64())
            return _binary(wall_clock.view(pa.timestamp("us")).cast(pa.large_string()))
        case _:
            texts = [canonical_value(kind, value) for value in values.to_pylist()]
            return pa.array(texts, pa.large_binary())


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _binary(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.large_binary())


def _decimals(values: pa.Array) -> pa.Array:
    texts = values.cast(pa.large_string())
    if values.type.scale > 0:
        texts = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")
    return _binary(texts)


def row_texts(columns: Sequence[pa.Array]) -> pa.Array:
    """Return the row texts (large_binary) of columns of canonical texts; at least one column."""
    colon, null, nothing = (pa.scalar(text, pa.large_binary()) for text in (b":", b"-", b""))
    pieces = []
    for texts in columns:
        lengths = pc.binary_length(texts).cast(pa.large_string()).cast(pa.large_binary())
        framed = pc.binary_join_element_wise(lengths, texts, colon, null_handling="emit_null")
        pieces.append(pc.fill_null(framed, null))
    return pc.binary_join_element_wise(*pieces, nothing)


def checksum_texts(texts: Iterable[bytes]) -> TableChecksum:
    """Return the checksum of rows given as row texts."""
    rows = high = low = 0
    for text in texts:
        digest = hashlib.md5(text, usedforsecurity=False).digest()
        rows += 1
        high += int.from_bytes(digest[:8])
        low += int.from_bytes(digest[8:])
    return TableChecksum(rows, high % 2**64, low % 2**64)


def canonical_columns(batch: pa.RecordBatch | pa.Table, columns: Sequence[CanonicalColumn]) -> list[pa.Array]:
    """Return the canonical texts of `columns`, all of the source table's, from a batch or table of the mirror.

    Columns are found by their names in the lake (`lake_names`).

    Raises:
        SchemaError: a column is missing, or its type does not match its kind.
    """
    arrays = []
    names = lake_names(column.name for column in columns)
    for column in columns:
        if names[column.name] not in batch.schema.names:
            raise SchemaError(f"column {column.name!r} of the source is missing in the mirror")
        values = batch.column(names[column.name])
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        try:
            arrays.append(canonical_array(column.kind, values))
        except (SchemaError, pa.ArrowException) as error:
            raise SchemaError(f"column {column.name!r}: {error}") from error
    return arrays


def checksum(
    batches: Iterable[pa.RecordBatch | pa.Table], columns: Sequence[CanonicalColumn]
) -> TableChecksum:
    """Return the checksum of all rows of `batches`, over `columns` in their order. Raises SchemaError."""
    total = TableChecksum()
    for batch in batches:
        total += checksum_texts(row_texts(canonical_columns(batch, columns)).to_pylist())
    return total
