"""Compare the log with what the lake needs of it, and with the configuration. Pure."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from replicator.config import Config
from replicator.config.unmatched import unmatched_columns, unmatched_sections, unmatched_tables
from replicator.errors import EventsLost
from replicator.model.commit_marker import CommitMarker
from replicator.model.table import TableId


def lost_events(
    topic: str, marker: CommitMarker, first: Mapping[int, int], ends: Mapping[int, int], *, log_grows: bool
) -> EventsLost | None:
    """Return what is wrong if the topic no longer has all events after `marker`; None if it has them."""
    for partition, begin in first.items():
        known = marker.next_offset(topic, partition)
        if known is not None and known < begin:
            return EventsLost(
                f"{topic} partition {partition}: the lake needs offset {known} next, the log begins at {begin}",
                "replay an archive that has them, or read the table again: replicator heal DATABASE.TABLE",
            )
        end = ends.get(partition, begin)
        if known is not None and known > end and log_grows:
            return EventsLost(
                f"{topic} partition {partition} ends at offset {end}, and the lake has events up to {known}: "
                "the log has lost its newest events, and new events would be mistaken for them",
                "read the table again: replicator heal DATABASE.TABLE",
            )
    return None


def unmatched_patterns(
    config: Config, tables: AbstractSet[TableId], defined: Mapping[TableId, AbstractSet[str]]
) -> list[str]:
    """Return the patterns of `config` that match no table or column of the log.

    Column patterns are included only if the columns of all `tables` are in `defined`.
    """
    names = {str(table) for table in tables | defined.keys()}
    found = [*unmatched_tables(config, names), *unmatched_sections(config, names)]
    if tables <= defined.keys():
        mirrored = {str(t): columns for t, columns in defined.items() if config.includes(str(t))}
        found += unmatched_columns(config, mirrored)
    return found
