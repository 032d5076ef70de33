"""Decode real envelopes of every column type, and compare the values with the source."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from replicator.decode.event_frame import Decoding
from replicator.decode.json.events import decode
from replicator.decode.json.format import JsonFormat
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.model.batch_stats import UNDECODABLE
from replicator.model.commit_marker import OffsetRange
from replicator.model.events import RawRecord
from replicator.model.table import TableId
from tests.oracle.values import plain_value
from tests.support.canonical_rows import Kind, canonical_value
from tests.support.golden import golden_events, golden_files


@pytest.mark.parametrize("path", golden_files(), ids=lambda p: p.stem)
def test_recorded_events_are_decoded_to_the_source_values(spark: SparkSession, path: Path) -> None:
    golden = json.loads(path.read_text(encoding="utf-8"))
    events = golden_events(golden)
    rows = [(0, i, 0, key, value) for i, (key, value) in enumerate(events)]
    records = spark.createDataFrame(
        rows, "partition int, offset long, timestamp long, key binary, value binary"
    )
    schemas, table = SchemaTracker(JsonFormat()), TableId("zoo", path.stem.split("-")[0])
    assert schemas.add_schema_changes([RawRecord("p", 0, 0, 0, None, golden["definition"].encode())]) == []
    writer_schemas = schemas.discovery.learn(table, records, patient=False)
    decoding = Decoding(tuple(writer_schemas), writer_schemas[-1].schema, True, UNDECODABLE)
    frame = decode(records, decoding, [OffsetRange("t", 0, 0, len(rows))])
    found = frame.select("offset", "bad", "after").toArrow().to_pylist()
    assert len(found) == len(rows)
    differing = []
    for row in found:
        assert row["bad"] is None
        event = json.loads(events[row["offset"]][1], parse_float=Decimal)
        sent = event.get("payload", event)["after"]
        wanted = golden["rows"][str(row["after"]["id"])]
        for column in writer_schemas[-1].schema.columns:
            name, kind = column.name, Kind(golden["kinds"][column.name])
            shown = canonical_value(kind, row["after"][name])
            source = wanted[name] if wanted[name] is None else wanted[name].encode()
            # A known difference is compared with the value that the connector sent.
            if name in golden["known"]:
                source = canonical_value(kind, plain_value(column, sent[name]))
            if shown != source:
                differing.append((row["after"]["id"], name, source, shown))
    assert differing == []
