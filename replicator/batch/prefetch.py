"""The records of all small tables of a batch, fetched together: one question to the log, not one each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from replicator.batch.context import MirrorContext, TableTask
from replicator.batch.driver_limits import (
    DRIVER_MAX_BATCH_EVENTS,
    DRIVER_MAX_BYTES,
    DRIVER_MAX_EVENTS,
    RecordSizes,
)
from replicator.sources.change_log import RECORDS, ChangeLog, TooLarge


def prefetch_records(context: MirrorContext, tasks: Sequence[TableTask]) -> list[TableTask]:
    """`works`; the small ones with their records, which are fetched together: one question to the log, not one each."""
    small = _small(tasks, context.sizes)
    found = _fetch(context.log, context.sizes, small)
    nothing, chosen = RECORDS.empty_table(), {w.topic for w in small}
    return [replace(w, records=found.get(w.topic, nothing)) if w.topic in chosen else w for w in tasks]


def _small(tasks: Sequence[TableTask], sizes: RecordSizes) -> list[TableTask]:
    """The works that the driver takes, by number of events and by what their records were so far."""
    small: list[TableTask] = []
    events_left, bytes_left = DRIVER_MAX_BATCH_EVENTS, float(DRIVER_MAX_BYTES)
    for task in sorted(tasks, key=lambda w: w.count):
        if task.count > min(DRIVER_MAX_EVENTS, events_left):
            break
        size = sizes.expected(task.topic, task.count)
        if size > bytes_left:
            continue
        small.append(task)
        events_left -= task.count
        bytes_left -= size
    return small


def _fetch(log: ChangeLog, sizes: RecordSizes, small: list[TableTask]) -> Mapping[str, pa.Table]:
    """Topic → records of the works in `small`, which loses those whose records turn out to be too large."""
    while small:
        found = log.fetch([r for task in small for r in task.ranges], DRIVER_MAX_BYTES)
        if not isinstance(found, TooLarge):
            for topic, records in found.items():
                sizes.note(topic, records.column("value").nbytes / len(records))
            return found
        # What was read is lost, but only once: this topic's next records are expected to be of that size.
        sizes.note(found.topic, found.record_bytes)
        small[:] = [task for task in small if task.topic != found.topic]
    return {}
