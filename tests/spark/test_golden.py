"""Real envelopes of every column type, decoded: the values that the source showed."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from replicator.decode.envelope import decode
from replicator.decode.schema_book import SchemaBook
from replicator.model.census import STRAY
from replicator.model.commit import OffsetRange
from replicator.model.record import RawRecord
from replicator.model.table import TableId
from replicator.verify.canonical import Kind, canonical_value
from tests.support.golden import golden_events, golden_files


@pytest.mark.parametrize("path", golden_files(), ids=lambda p: p.stem)
def test_real_events(spark: SparkSession, path: Path) -> None:
    golden = json.loads(path.read_text(encoding="utf-8"))
    rows = [(0, i, 0, key, value) for i, (key, value) in enumerate(golden_events(golden))]
    records = spark.createDataFrame(
        rows, "partition int, offset long, timestamp long, key binary, value binary"
    )
    book, table = SchemaBook(), TableId("zoo", path.stem.split("-")[0])
    assert book.add_schema_changes([RawRecord("p", 0, 0, 0, None, golden["definition"].encode())]) == []
    epochs = book.learn(table, records)
    frame = decode(
        records,
        epochs,
        epochs[-1].schema,
        [OffsetRange("t", 0, 0, len(rows))],
        for_changelog=True,
        stray=STRAY,
    )
    found = frame.select("bad", "after").toArrow().to_pylist()
    assert len(found) == len(rows)
    differing = []
    for row in found:
        assert row["bad"] is None
        wanted = golden["rows"][str(row["after"]["id"])]
        for name, kind in golden["kinds"].items():
            text = canonical_value(Kind(kind), row["after"][name])
            shown = None if text is None else text.decode()
            if name not in golden["known"] and shown != wanted[name]:
                differing.append((row["after"]["id"], name, wanted[name], shown))
    assert differing == []
