"""Sends events that cannot be applied to quarantine."""

from replicator.batch.context import column_rules
from replicator.batch.events.changelog_rows import bad_events
from replicator.batch.values import DecodedBatch
from replicator.errors import TablePaused
from replicator.model.common import counted


def quarantine_bad(decoded: DecodedBatch) -> None:
    """Write the bad events to quarantine.

    Raises:
        TablePaused: the table is configured to pause for bad events, and some were not dropped from quarantine.
    """
    context, task = decoded.segment.context, decoded.segment.task
    frame = bad_events(decoded.events.frame, decoded.stats.duplicates)
    redacted = bool(column_rules(context, task.table))
    context.quarantine.add(task.table, task.topic, frame, task.batch, redacted=redacted)
    if decoded.segment.options.on_bad_event != "pause":
        return
    bad = frame.select("partition", "offset", "timestamp").collect()
    waiting = set(map(tuple, bad)) - context.quarantine.dropped(task.topic)
    if waiting:
        raise TablePaused(
            f"{counted(len(waiting), 'event')} of {task.topic} could not be decoded, and went to quarantine",
            "see their reasons with: replicator quarantine list; remove the cause, or drop the events with: "
            "replicator quarantine drop; then start the mirror again",
            quarantined=len(waiting),
        )
