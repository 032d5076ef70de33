"""Where replayed records come from."""

import json
from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest

from replicator.config import parse
from replicator.decode.avro_book import AvroBook
from replicator.decode.schema_book import SchemaBook
from replicator.errors import DataLossError, UsageError
from replicator.model.commit import OffsetRange
from replicator.model.quarantined import EventPlace, QuarantinedEvent, Replayed, Wanted
from replicator.process import only_one
from replicator.redo import _ranges, _records, _replay_definitions, drop_quarantined, replay_quarantined
from replicator.registry import GivenSchemas
from replicator.source.log import RECORDS
from tests.oracle.avro import SCHEMA_CHANGE, AvroTopics
from tests.oracle.events import ColumnSpec, Place, schema_change_event


def event(offset: int, value: bytes | None) -> QuarantinedEvent:
    return QuarantinedEvent(EventPlace("t", 1, offset), "shop.orders", 7, 8, "bad", b"k", value)


def test_records_without_payload_are_read_from_the_log_as_long_as_it_has_them() -> None:
    def fetch(ranges: list[OffsetRange], _: int) -> dict[str, pa.Table]:
        (r,) = ranges
        if r.start == 3:
            raise DataLossError("gone")
        if r.start == 4:
            return {}  # compacted away
        return {"t": pa.table([[1], [r.start], [9], [b"k"], [b"from the log"]], schema=RECORDS)}

    events = [event(1, b"kept"), event(2, None), event(3, None), event(4, None)]
    records, gone = _records(Mock(fetch=fetch), events)
    assert records.schema == RECORDS
    assert list(zip(records["offset"].to_pylist(), records["value"].to_pylist(), strict=True)) == [
        (1, b"kept"),
        (2, b"from the log"),
    ]
    assert [place.offset for place in gone] == [3, 4]
    assert _records(Mock(), [])[0].num_rows == 0


def test_schema_changes_are_read_in_the_log_s_own_encoding() -> None:
    topics = AvroTopics()
    change = schema_change_event(
        Place(1, 4), "orders", [ColumnSpec("id", "bigint", False)], ["id"], kind="CREATE"
    )
    good = event(1, topics.write(SCHEMA_CHANGE, json.loads(change)))
    book = AvroBook(GivenSchemas(topics.schemas))
    done = _replay_definitions(book, [good, event(2, b"{}")])
    assert done.taken == [good.place]
    assert [place.offset for place, _ in done.bad] == [2]
    assert _replay_definitions(SchemaBook(), [event(3, change)]).taken == [EventPlace("t", 1, 3)]


def test_one_range_for_each_partition() -> None:
    places = [EventPlace("t", 1, 9), EventPlace("t", 0, 4), EventPlace("t", 1, 5)]
    assert _ranges("t", places) == (OffsetRange("t", 0, 4, 5), OffsetRange("t", 1, 5, 10))


def test_nothing_is_replayed_or_dropped_while_the_mirror_runs(tmp_path: Path) -> None:
    config = parse(
        {
            "mirror": {"name": "shop", "state_dir": "state"},
            "source": {"tables": ["shop.*"]},
            "log": {"kind": "archive", "path": "archive"},
            "lake": {"catalog": "jdbc", "uri": "jdbc:sqlite:c.db", "warehouse": "lake", "namespace": "shop"},
        },
        base=tmp_path,
    )
    with only_one(config):
        for call in (lambda: drop_quarantined(config, []), lambda: replay_quarantined(config, Wanted())):
            with pytest.raises(UsageError, match="already running"):
                call()
    assert replay_quarantined(config, Wanted()) == Replayed()
