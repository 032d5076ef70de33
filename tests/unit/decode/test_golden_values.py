"""Decode real envelopes of every column type, and compare the values with the source."""

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from replicator.decode.decoder import Decoder
from replicator.decode.decoding import Decoding
from replicator.decode.json.format import JsonFormat
from replicator.decode.records import DriverRecords
from replicator.decode.schemas.tracker import SchemaTracker
from replicator.model.batch_stats import UNDECODABLE
from replicator.model.commit_marker import OffsetRange
from replicator.model.events import RawRecord
from replicator.model.table import TableId
from replicator.sources.change_log import RECORDS
from tests.oracle.values import plain_value
from tests.support.canonical_rows import Kind, canonical_value
from tests.support.golden import golden_events, golden_files


@pytest.mark.parametrize("path", golden_files(), ids=lambda p: p.stem)
def test_recorded_events_are_decoded_to_the_source_values(path: Path) -> None:
    golden = json.loads(path.read_text(encoding="utf-8"))
    events = golden_events(golden)
    rows = [
        {"partition": 0, "offset": i, "timestamp": 0, "key": key, "value": value}
        for i, (key, value) in enumerate(events)
    ]
    records = pa.Table.from_pylist(rows, RECORDS)
    schemas, table = SchemaTracker(JsonFormat()), TableId("zoo", path.stem.split("-")[0])
    assert schemas.add_schema_changes([RawRecord("p", 0, 0, 0, None, golden["definition"].encode())]) == []
    writer_schemas = schemas.discovery.learn(table, DriverRecords(records), patient=False)
    decoding = Decoding(tuple(writer_schemas), writer_schemas[-1].schema, True, UNDECODABLE)
    decoder = Decoder(schemas.format.parser(), decoding, (OffsetRange("t", 0, 0, len(rows)),))
    found = decoder.decode(records).to_pylist()
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
