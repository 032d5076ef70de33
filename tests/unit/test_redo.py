"""Where replayed records come from."""

from unittest.mock import Mock

import pyarrow as pa

from replicator.errors import DataLossError
from replicator.model.commit import OffsetRange
from replicator.model.quarantined import EventPlace, QuarantinedEvent
from replicator.redo import _ranges, _records
from replicator.source.log import RECORDS


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


def test_one_range_for_each_partition() -> None:
    places = [EventPlace("t", 1, 9), EventPlace("t", 0, 4), EventPlace("t", 1, 5)]
    assert _ranges("t", places) == (OffsetRange("t", 0, 4, 5), OffsetRange("t", 1, 5, 10))
