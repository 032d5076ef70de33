"""Find out whether the definition of a table is late: its newest events have a column that it lacks.

Definitions come by another topic than events, without an order between the two. Events without a schema would be
decoded without the column, so they wait. Definitions arrive in the order of the schema changes: if that of a
partition's last event is there, those of all earlier ones are.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pyarrow as pa

from replicator.batch.context import TAIL, MirrorContext
from replicator.batch.task import Segment, TableTask
from replicator.batch.values import TableBatch
from replicator.decode.event_format import ImageFields
from replicator.errors import LateDefinition
from replicator.model.commit_marker import OffsetRange
from replicator.model.events import adjusted
from replicator.model.table import TableId
from replicator.schema.history.versions import SchemaHistory

_SHOWN: Final = 5
"""Number of columns in a message."""


def check_definition(segment: Segment, since: int | None) -> None:
    """Check that the definition of a table is not late for the events of a task, as far as they have no schema.

    `since` is what `epochs.oldest_version` returns.

    Raises:
        LateDefinition: it is.
    """
    context, task = segment.context, segment.task
    history = context.schemas.history(task.table)
    if task.records is not None:
        # Other records, those of the table's tail, may have later versions than the segment.
        history = history.until(task.target_schema_at)
    if not history or not context.log.grows:
        return
    for r in task.ranges:
        if (last := next(_images(context, task, r), None)) is not None:
            _check(task.table, history, since, last)


def check_followed(batch: TableBatch) -> None:
    """Check that the lake tables have no later version than all known ones: those could not be compared with it.

    A batch that only has events from before needs no definition.

    Raises:
        LateDefinition: a lake table has a later one.
    """
    table = batch.task.table
    followed = batch.segment.progress.newest_schema_at
    if followed is not None and batch.stats.changes and batch.schema.history.lacks(followed):
        raise LateDefinition(
            f"the lake has a later definition of {table} than the log: the schema-change topic has lost records, or "
            "it is not written and the connector reads a server with lower binlog positions",
            f"restore the records of the topic, or read the table again: replicator heal {table}",
        )


def _images(context: MirrorContext, task: TableTask, r: OffsetRange) -> Iterator[ImageFields]:
    """Yield the fields of the last events of a range, as far as they have a row and no schema; newest first.

    If the task has no records, they are the last ones of the table (`task.tail`): once the definition of its newest
    event has arrived, those of all earlier events have.
    """
    records, end = (task.tail, None) if task.records is None else (task.records, r.end)
    if records is None:
        return
    partitions, offsets = (records.column(name).to_numpy() for name in ("partition", "offset"))
    inside = (partitions == r.partition) & (offsets >= r.start)
    if end is not None:
        inside &= offsets < end
    rows = np.flatnonzero(inside)
    last = rows[np.argsort(offsets[rows])][-TAIL:][::-1]
    for value in records.column("value").take(pa.array(last)).to_pylist():
        if value is not None and (found := context.schemas.format.image_fields(value)) is not None:
            yield found


def _check(table: TableId, history: SchemaHistory, since: int | None, last: ImageFields) -> None:
    """Compare the last event with its version of the definition."""
    oldest = 0 if since is None else history.index_at(since)
    is_row = not last.position.server_id
    version = history.versions[history.index_of(last.position, last.ts_ms, oldest, is_row=is_row)]
    begun = version.start.is_before(last.position, last.ts_ms, is_row=is_row)
    if version.is_given or not begun:
        # The source's present definition lacks columns that were dropped since; and an event that comes again may be
        # older than the definitions that are compared.
        return
    written = {c.written for c in version.schema.columns}
    more = last.names - written - {adjusted(name) for name in written}
    if more:
        names = sorted(more)
        shown = ", ".join(names[:_SHOWN]) + (", …" if len(names) > _SHOWN else "")
        raise LateDefinition(
            f"events of {table} differ from its definition: the definition lacks {shown}",
            "let the connector write the schema-change topic (include.schema.changes=true), or check that its records "
            "reach the broker; the table then continues by itself",
        )
