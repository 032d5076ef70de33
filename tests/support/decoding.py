"""Build raw records, and decode them."""

import base64
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from replicator.decode.decoder import Decoder
from replicator.decode.decoding import Decoding, WriterSchema
from replicator.decode.json.parser import JsonParser
from replicator.model.batch_stats import UNDECODABLE
from replicator.model.commit_marker import OffsetRange
from replicator.model.table import Column, TableSchema
from replicator.model.types import LONG, STRING, Encoding
from replicator.sources.change_log import RECORDS

RANGES = (OffsetRange("shop.shop.t", 0, 0, 1000),)
ID = Column("id", LONG)


def b64(data: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(data).decode()


def unscaled(number: int) -> str:
    """Return a decimal's unscaled value as Kafka Connect writes it, in the fewest possible bytes."""
    return b64(number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True))


def wide(encoding: Encoding, size: int) -> Column:
    """Return a column of decimals with too many digits for the lake."""
    return Column("c", STRING, encoding, size=size)


def records(*values: bytes | None) -> pa.Table:
    """Return records with these values, and offsets from 0."""
    rows = [(0, i, 1_700_000_000_000, b'{"id":1}', value) for i, value in enumerate(values)]
    return pa.Table.from_pylist([dict(zip(RECORDS.names, row, strict=True)) for row in rows], RECORDS)


def rows_of(frame: pa.Table) -> list[Any]:
    """Return the rows of a decoded frame, in the order of their offsets, with the columns as attributes."""
    return [SimpleNamespace(**row) for row in frame.sort_by("offset").to_pylist()]


def decoded(schema: TableSchema, *values: bytes | None, event_key: tuple[str, ...] = ()) -> list[Any]:
    """Decode events in JSON without a schema for a changelog."""
    decoding = Decoding((WriterSchema(schema, event_key=event_key),), schema, True, UNDECODABLE)
    return rows_of(Decoder(JsonParser(), decoding, RANGES).decode(records(*values)))
