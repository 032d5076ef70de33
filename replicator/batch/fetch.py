"""The records of all small tables of a batch, fetched together: one question to the log, not one each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from replicator.batch.work import Engine, Work
from replicator.held import FEW_BYTES, FEW_EVENTS, FEW_IN_ALL, RecordSizes
from replicator.source.log import RECORDS, ChangeLog, TooLarge


def fetched(engine: Engine, works: Sequence[Work]) -> list[Work]:
    """`works`; the small ones with their records, which are fetched together: one question to the log, not one each."""
    small = _small(works, engine.sizes)
    found = _fetch(engine.log, engine.sizes, small)
    nothing, chosen = RECORDS.empty_table(), {w.topic for w in small}
    return [replace(w, records=found.get(w.topic, nothing)) if w.topic in chosen else w for w in works]


def _small(works: Sequence[Work], sizes: RecordSizes) -> list[Work]:
    """The works that the driver takes, by number of events and by what their records were so far."""
    small: list[Work] = []
    events_left, bytes_left = FEW_IN_ALL, float(FEW_BYTES)
    for work in sorted(works, key=lambda w: w.count):
        if work.count > min(FEW_EVENTS, events_left):
            break
        size = sizes.expected(work.topic, work.count)
        if size > bytes_left:
            continue
        small.append(work)
        events_left -= work.count
        bytes_left -= size
    return small


def _fetch(log: ChangeLog, sizes: RecordSizes, small: list[Work]) -> Mapping[str, pa.Table]:
    """Topic → records of the works in `small`, which loses those whose records turn out to be too large."""
    while small:
        found = log.fetch([r for work in small for r in work.ranges], FEW_BYTES)
        if not isinstance(found, TooLarge):
            for topic, records in found.items():
                sizes.note(topic, records.column("value").nbytes / len(records))
            return found
        # What was read is lost, but only once: this topic's next records are expected to be of that size.
        sizes.note(found.topic, found.record_bytes)
        small[:] = [work for work in small if work.topic != found.topic]
    return {}
