"""Spark's Python workers decode to what the driver decodes to."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from replicator.decode.decoder import Decoder
from replicator.decode.decoding import Decoding, WriterSchema
from replicator.decode.json.parser import JsonParser
from replicator.decode.records import SparkRecords
from replicator.model.batch_stats import UNDECODABLE
from replicator.model.commit_marker import OffsetRange
from replicator.model.table import Column, TableSchema
from replicator.model.types import BINARY, DATE, STRING, TIMESTAMP, TIMESTAMPTZ, VECTOR, Encoding, decimal
from replicator.sources.change_log import ChangeLog, LogPart
from tests.oracle.events import Place, change_event
from tests.support.decoding import ID, RANGES, records

COLUMNS = (
    ID,
    Column("text", STRING),
    Column("bytes", BINARY),
    Column("day", DATE, Encoding.DAYS),
    Column("local", TIMESTAMP, Encoding.MICROS),
    Column("instant", TIMESTAMPTZ),
    Column("price", decimal(38, 10), Encoding.BASE64_DECIMAL),
    Column("vector", VECTOR),
)
ROW = {
    "id": 1,
    "text": "größe 🦊",
    "bytes": "AP8=",
    "day": -1,
    "local": 1,
    "instant": "2024-02-29T23:59:59.5Z",
}


class PartsLog:
    """A log whose parts Spark's workers read by themselves."""

    def __init__(self, *parts: pa.Table) -> None:
        self._parts = parts

    def parts(self, _ranges: Sequence[OffsetRange], _tasks: int) -> list[LogPart]:
        return [partial(_batches, part) for part in self._parts]


def _batches(part: pa.Table, _prefixes: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
    yield from part.to_batches()


@pytest.mark.parametrize("for_changelog", [True, False])
def test_workers_decode_to_what_the_driver_decodes_to(spark: SparkSession, for_changelog: bool) -> None:
    row = ROW | {"price": "AfQ=", "vector": [1.5, -2.0]}
    raw = records(
        change_event("c", Place(1, 4), "t", after=row),
        None,
        change_event("u", Place(1, 5), "t", before=row, after={"id": 1}),
        b"garbage{",
        change_event("d", Place(1, 6), "t", before={"id": 1}),
    )
    schema = TableSchema(COLUMNS, ("id",))
    decoding = Decoding((WriterSchema(schema),), schema, for_changelog, UNDECODABLE)
    decoder = Decoder(JsonParser(), decoding, RANGES)
    wanted = decoder.decode(raw)
    assert wanted.column("bad").null_count == 3
    log = cast("ChangeLog", PartsLog(raw.slice(0, 2), raw.slice(2)))
    found = decoder.frame(SparkRecords(spark, log, RANGES)).toArrow()
    assert found.sort_by("offset").to_pylist() == wanted.to_pylist()
