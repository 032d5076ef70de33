"""Tags each lake table at one position of the source, in the batch that reaches it.

While a tag is pending, the task of a table is cut at the tag's position: the events before it are applied, the table
is tagged, and then the others are applied. So the tagged snapshot has exactly the changes before the position, and the
table does not wait. No change from after the position is applied before the tag exists, so a crash at any point is
harmless: the next process does the same again.

An event after the position proves that no earlier event of its partition follows: the connector sends the events of a
partition in the order of the binlog. For a partition without such an event, the connector's confirmed position proves
it (`PendingTag.proven`). Until then, a table waits if only some of its partitions have reached the position.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from replicator.batch.context import MirrorContext
from replicator.batch.plan.places import first_offsets
from replicator.batch.plan.segments import cut_task
from replicator.batch.state.tagging import PendingTag
from replicator.batch.task import Segment, TableTask
from replicator.decode.schemas.versions import Longs, Places
from replicator.errors import CommitConflict
from replicator.lake.catalog.tables import LakeTable
from replicator.lake.tags import create_tag, has_tag
from replicator.model.commit_marker import CommitMarker
from replicator.model.roles import COMMIT_ORDER, LakeRole
from replicator.model.table import TableId
from replicator.schema.history.order import binlog_key


@dataclass(frozen=True, slots=True)
class TagPoint:
    """The place in a task where a tag belongs.

    Attributes:
        whole: the task.
        earlier: its events from before the tag's position.
        later: the others; None if the task does not reach the position.
        reached: the partitions with an event after the position.
    """

    tag: PendingTag
    whole: TableTask
    earlier: TableTask
    later: TableTask | None
    reached: frozenset[int] = frozenset()


def cut_at_tag(context: MirrorContext, task: TableTask) -> list[TableTask | TagPoint]:
    """Cut a task where the pending tag belongs; what follows that place is planned once the tag is made."""
    tag = _awaited_tag(context, task.table)
    if tag is None:
        return [task]
    first = _first_after(Segment.begin(context, task), tag) if task.ranges else {}
    earlier, later = cut_task(task, first) if task.ranges else (task, task)
    reaches = bool(later.ranges) or (not task.ranges and has_later_schema(context, task.table, tag))
    point = TagPoint(tag, task, earlier, later if reaches else None, frozenset(first))
    if earlier.ranges:
        return [earlier, point]
    return [point] if reaches else [task, point]


def _awaited_tag(context: MirrorContext, table: TableId) -> PendingTag | None:
    """Return the tag that must be made before the table gets later changes; None if there is none."""
    tag = context.tagging.awaited_by(table)
    if tag is not None and tag.resumed and is_tagged(context, table, tag):
        tag.settled.add(table)
        return None
    return tag


def _first_after(whole: Segment, tag: PendingTag) -> dict[int, int]:
    """Return partition → offset of the first event after the position of a tag, in a task with events.

    Events of several servers are a problem of the tag: their positions do not compare.
    """
    found = first_offsets(whole, partial(_servers, tag.position_key))
    marker = whole.progress.resume_marker
    servers = {server for place in found if (server := place >> 1)}
    if marker is not None and marker.position is not None and marker.position.server_id:
        servers.add(marker.position.server_id)
    if len(servers) > 1:
        tag.problems[whole.table] = (
            f"{whole.table} has changes of several MySQL servers, whose positions cannot be compared"
        )
    first: dict[int, int] = {}
    for place, offsets in found.items():
        for partition, offset in offsets.items() if place & 1 else ():
            first[partition] = min(offset, first.get(partition, offset))
    return first


def _servers(position_key: int, places: Places) -> Longs:
    """Return the server id of each event (31 bits or more), and in the lowest bit whether it is after a position."""
    after = places.is_known & (places.key >= position_key)
    return np.maximum(places.server_id, 0) << 1 | after


def has_later_schema(context: MirrorContext, table: TableId, tag: PendingTag) -> bool:
    """Return whether the source table was altered, dropped or renamed after the position of a tag."""
    history = context.schemas.history(table)
    ends = [version.at for version in history.versions] + ([history.gone.at] if history.gone else [])
    return max(ends, default=0) >= tag.position_key


def has_earlier_schema(context: MirrorContext, table: TableId, tag: PendingTag) -> bool:
    """Return whether the lake tables must still follow a schema change from before the position of a tag."""
    known = context.ledger.progress(table).schema_at
    if known is None:
        return False
    return any(version.at < tag.position_key for version in context.schemas.history(table).after(known))


def has_all_before(
    context: MirrorContext, table: TableId, topic: str, tag: PendingTag, reached: frozenset[int] = frozenset()
) -> bool:
    """Return whether the lake certainly has all changes of a table from before the position of a tag."""
    marker, proven = context.ledger.progress(table).resume_marker, tag.proven
    partitions = set(tag.topics.get(topic, ())) | (set() if proven is None else set(proven.get(topic, {})))
    if not partitions:
        # A table without a topic has no change that could be missing, if the log is complete up to the position.
        return proven is not None

    def is_complete(partition: int) -> bool:
        if partition in reached:
            return True
        if proven is None:
            return False
        end = proven.get(topic, {}).get(partition, 0)
        return end <= ((None if marker is None else marker.next_offset(topic, partition)) or 0)

    return all(map(is_complete, partitions))


def settle(context: MirrorContext, table: TableId, tag: PendingTag) -> None:
    """Tag the changelog and the mirror of a source table at their current snapshots, which have all earlier changes.

    Raises:
        CommitConflict: another commit was made; try again.
        LakeUnavailable: the catalog failed.
    """
    for role, found in _lake_tables(context, table):
        marker = found.marker()
        if marker != context.ledger.progress(table).marker(role):
            raise CommitConflict(f"{found.namespace}.{found.name} was changed since it was loaded")
        if has_tag(found, tag.name):
            continue
        if marker is not None and _is_past(marker, tag):
            if found.oldest_snapshot_ms >= tag.read_ms:
                # The table was created after the position, by a process that was interrupted since.
                continue
            tag.problems[table] = f"{table} has changes from after the position"
            return
        create_tag(found, tag.name)
    tag.settled.add(table)


def _is_past(marker: CommitMarker, tag: PendingTag) -> bool:
    """Return whether a lake table has changes from after the position of a tag."""
    if marker.position is None:
        return False
    at = binlog_key(marker.position)
    if at != tag.position_key:
        return at > tag.position_key
    # A change begins at its position, so it is after the tag's. A read from the source ends at its position.
    furthest = (p.high_water for partitions in marker.progress.values() for p in partitions.values())
    return any(high is not None and binlog_key(high.position) == at for high in furthest)


def is_tagged(context: MirrorContext, table: TableId, tag: PendingTag) -> bool:
    """Return whether another process has tagged the lake tables of a source table."""
    found = [t for _, t in _lake_tables(context, table)]
    return bool(found) and all(has_tag(t, tag.name) for t in found)


def _lake_tables(context: MirrorContext, table: TableId) -> Iterator[tuple[LakeRole, LakeTable]]:
    """Load the lake tables of a source table that have a commit: first the changelog, as in every batch."""
    progress = context.ledger.progress(table)
    for role in COMMIT_ORDER:
        if progress.marker(role) is not None:
            found = context.lake.load(context.ledger.namespace(role), table.name)
            if found is not None:
                yield role, found
