"""Decides which of the decoded events are applied, and whether they may be."""

from dataclasses import replace

from replicator.batch.evolution.late_definitions import check_followed
from replicator.batch.plan.renames import lost_name
from replicator.batch.steps.decode import current_schema
from replicator.batch.steps.unclear_values import find_misread, refuse_unclear_keys
from replicator.batch.task import Segment
from replicator.batch.values import DecodedBatch, TableBatch
from replicator.errors import UnknownPast, UnorderedTruncate, UnsupportedChange
from replicator.model.batch_stats import BatchStats, EarliestEvent
from replicator.model.snapshot import Truncate
from replicator.model.table import TableSchema
from replicator.schema.history.order import VersionStart


def admit(decoded: DecodedBatch) -> TableBatch | None:
    """Return the part of a decoded batch that must be applied; None if nothing can be applied yet.

    Raises:
        UnknownPast: the log lacks earlier changes of the table.
        UnorderedTruncate: a TRUNCATE is in one of several partitions.
        UnsupportedChange: the table has a mirror, and no key any more.
        UnknownValues: a key may be another one in the source, or rows must be read again on command.
        LateDefinition: a lake table has a later schema version than all known ones.
    """
    segment, stats = decoded.segment, decoded.stats
    if decoded.schema is None and segment.progress.resume_marker is None:
        # The table's columns are unknown until the first good event; then these records are read again.
        return None
    if segment.progress.awaits_snapshot(segment.task.topic) and not stats.changes:
        return None
    if stats.changes and not stats.begins_with_snapshot:
        _check_beginning(segment)
    schema = decoded.schema or current_schema(segment)
    batch = TableBatch(segment, schema, decoded.good_events(), stats, _has_mirror(segment, schema.source))
    if batch.has_mirror:
        _refuse_unordered_truncate(segment, stats)
    refuse_unclear_keys(batch)
    check_followed(batch)
    return replace(batch, misread=find_misread(batch))


def _check_beginning(segment: Segment) -> None:
    """Raise UnknownPast if changes without a snapshot are the first of a topic that has lost earlier ones."""
    context, task, table = segment.context, segment.task, segment.table
    if segment.progress.awaits_snapshot(task.topic):
        raise UnknownPast(
            f"{task.topic} was deleted and recreated, and does not begin with a snapshot: the log lacks the changes "
            f"of {table} in between",
            f"read the table again: replicator heal {table}",
        )
    if context.ledger.resume_marker_for(table, task.topic) is not None:
        return
    if (old := lost_name(context, table)) is not None:
        raise UnknownPast(
            f"{old} was renamed to {table}, and the lake has the rows of another table under the old name",
            f"read the table: replicator heal {table}",
        )
    first = min((r.start for r in task.ranges if r.start), default=0)
    if first and context.log.grows:
        raise UnknownPast(
            f"{task.topic} begins at offset {first} without a snapshot, and the lake has nothing of {table}: the "
            "log lacks its earlier changes",
            f"read the table: replicator heal {table}",
        )


def _refuse_unordered_truncate(segment: Segment, stats: BatchStats) -> None:
    """Raise UnorderedTruncate if a table was truncated, and its topic has several partitions."""
    task = segment.task
    markers = [m for m in (segment.progress.mirror, segment.progress.changelog) if m is not None]
    if stats.truncates:
        several = segment.partitions > 1
    else:
        # An archive does not list partitions that have no events yet.
        read = {partition for m in markers for partition in m.progress.get(task.topic, {})}
        own = {r.partition for r in task.ranges}
        truncates = [t for m in markers if (t := m.known_truncate(task.topic)) is not None]
        several = bool(own - read) and not all(_is_before_all(t, stats.earliest) for t in truncates)
    if several:
        raise UnorderedTruncate(
            f"{segment.table} was truncated, and its topic has several partitions: which changes in the others are "
            "from before that is not known",
            f"read the table again: replicator heal {segment.table}; a topic of one partition prevents this",
        )


def _is_before_all(truncate: Truncate, earliest: EarliestEvent | None) -> bool:
    """Return whether a TRUNCATE is before all events of a batch, none of which is earlier than `earliest`."""
    start = VersionStart(truncate.position_key, truncate.position.gtid, truncate.ts_ms)
    return earliest is not None and start.is_before(earliest.position, earliest.ts_ms)


def _has_mirror(segment: Segment, schema: TableSchema) -> bool:
    """Return whether the table has a mirror; one without a key may be configured to have a changelog only.

    Raises:
        UnknownPast: the table has a key now, and only a changelog, whose beginning the log no longer has.
        UnsupportedChange: the table has a mirror, and no key any more.
    """
    table, progress = segment.table, segment.progress
    if not schema.columns:
        return progress.mirror is not None
    alone = not schema.key and segment.options.keyless == "changelog"
    if progress.stands_alone and not alone:
        raise UnknownPast(
            f"{table} has a key now; so far it has a changelog and no mirror",
            f'set keyless = "identity" under [[table]] name = "{table}" and start the mirror again: '
            "it is then created from the beginning of the log",
        )
    if alone and progress.mirror is not None:
        raise UnsupportedChange(
            f'{table} has no key any more, and keyless = "changelog" excludes a mirror',
            f'set keyless = "identity" under [[table]] name = "{table}" to continue its mirror, or drop the '
            f"table in the lake (replicator drop {table}) and start again",
        )
    return not alone
