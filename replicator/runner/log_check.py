"""Compare the log with what the lake needs of it, and with the configuration. Pure."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from replicator.batch import TableTask
from replicator.batch.state.partition_counts import number_of
from replicator.config import Config
from replicator.config.unmatched import unmatched_columns, unmatched_sections, unmatched_tables
from replicator.errors import EventsLost, NoProgress, OtherLog, PartitionsAdded, TailLost, TopicCompacted
from replicator.model.batch_stats import BatchStats
from replicator.model.commit_marker import CommitMarker
from replicator.model.common import counted
from replicator.model.table import TableId
from replicator.sources.archive.origin import is_import


def lost_events(
    topic: str,
    marker: CommitMarker,
    first: Mapping[int, int],
    ends: Mapping[int, int],
    topic_id: str | None = None,
    *,
    log_grows: bool,
) -> EventsLost | OtherLog | None:
    """Return what is wrong if the topic does not have all events after `marker`; None if it has them."""
    if topic in marker.progress and not log_grows and _is_other_import(marker.topic_ids.get(topic), topic_id):
        return OtherLog(
            f"the lake has events of {topic} from another log than this archive. Their offsets cannot be compared, "
            "because one of the two was imported from binary logs",
            "replay the archive into another namespace, or read the table again: replicator heal DATABASE.TABLE",
        )
    for partition, begin in first.items():
        known = marker.next_offset(topic, partition)
        if known is not None and known < begin:
            return EventsLost(
                f"{topic} partition {partition}: the lake needs offset {known} next, the log begins at {begin}",
                "replay an archive that has them, or read the table again: replicator heal DATABASE.TABLE",
            )
        end = ends.get(partition, begin)
        if known is not None and known > end and log_grows:
            return TailLost(
                f"{topic} partition {partition} ends at offset {end}, and the lake has events up to {known}: "
                "the log has lost its newest events, and new events would be mistaken for them",
                "read the table again: replicator heal DATABASE.TABLE",
            )
    return None


def check_progress(task: TableTask, stats: BatchStats, marker: CommitMarker | None) -> None:
    """Verify that a table that has changes of `task` does not lack them still, according to its `marker`.

    Otherwise the same events would be read again and again, as if the table were current.

    Raises:
        NoProgress: it lacks them.
    """
    if not stats.changes:
        return
    for r in task.ranges:
        known = None if marker is None else marker.next_offset(r.topic, r.partition)
        if known is None or known < r.end:
            raise NoProgress(
                f"{counted(stats.changes, 'change')} of {task.table} applied, and no commit contains them: {r.topic} "
                f"partition {r.partition} was read to offset {r.end}, the lake has it to {known or 0}",
                f"report this with the log of the mirror; read the table again: replicator heal {task.table}",
            )


def compacted(topic: str, table: TableId) -> TopicCompacted:
    """Return the error for a table whose topic is compacted."""
    return TopicCompacted(
        f"the topic {topic} is compacted: Kafka removes events that a later one of the same row follows, deletes too",
        f"set cleanup.policy = delete for the topic and restart the mirror; then run: replicator heal {table}",
    )


def partitions_added(
    topic: str, table: TableId, known: int | None, ends: Mapping[int, int]
) -> PartitionsAdded | None:
    """Return the error for a table whose topic, which ends at `ends`, has more than `known` partitions, else None."""
    count = number_of(ends)
    if known is None or count <= known:
        return None
    return PartitionsAdded(
        f"the topic {topic} has {count} partitions and had {known} before: changes of one row may be in two of them, "
        "in an unknown order",
        f"read the table again: replicator heal {table}; that begins when the connector uses the new partitions",
    )


def _is_other_import(known: str | None, given: str | None) -> bool:
    return known != given and (is_import(known) or is_import(given))


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
