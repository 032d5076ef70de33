"""Find events by their places in the binlog, in one pass over the records of a task."""

from collections.abc import Callable
from functools import partial
from typing import Final

import pyarrow as pa

from replicator.batch.task import Segment
from replicator.decode.event_format import EventParser
from replicator.decode.records import values_of
from replicator.decode.schemas.discovery import parser_for
from replicator.decode.schemas.versions import Longs, Places

OTHERS: Final = -1
"""The class of events that are not looked for."""

_FIRST: Final = pa.schema([("class", pa.int64()), ("partition", pa.int32()), ("offset", pa.int64())])


def first_offsets(segment: Segment, classify: Callable[[Places], Longs]) -> dict[int, dict[int, int]]:
    """Return class → partition → the offset of the class's first event in the task; without `OTHERS`.

    `classify` returns the class of each event. It can be pickled.
    """
    records = segment.records()
    parser = parser_for(records, segment.context.schemas.format)
    found: dict[int, dict[int, int]] = {}
    rows = records.summarized(partial(_first_events, parser, classify), _FIRST)
    for row in rows.sort_by([("offset", "descending")]).to_pylist():
        found.setdefault(row["class"], {})[row["partition"]] = row["offset"]
    found.pop(OTHERS, None)
    return found


def _first_events(parser: EventParser, classify: Callable[[Places], Longs], records: pa.Table) -> pa.Table:
    classes = classify(Places.of(parser.sources(values_of(records))))
    events = pa.table(
        {"class": classes, "partition": records.column("partition"), "offset": records.column("offset")}
    )
    first = events.group_by(["class", "partition"]).aggregate([("offset", "min")])
    return first.rename_columns(["class", "partition", "offset"]).cast(_FIRST)
