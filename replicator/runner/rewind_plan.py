"""Decide from where the connector must send events again that the log has lost. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from replicator.lake.ledger import Progress
from replicator.model.binlog import BinaryLogs
from replicator.model.commit_marker import HighWater
from replicator.model.position import SourcePosition, binlog_number
from replicator.model.table import TableId


@dataclass(frozen=True, slots=True)
class LostTable:
    """A table of which the log has lost events.

    Attributes:
        reached: the last event that the lake has of it; None if `obstacle` says why that does not help.
    """

    table: TableId
    reached: HighWater | None
    obstacle: str | None = None


@dataclass(frozen=True, slots=True)
class RewindPlan:
    """What the connector must send again.

    Attributes:
        tables: the tables whose lost events it then sends.
        file: the binlog file at whose beginning it begins; None if there are no such tables.
        bytes: size of that file and of all later ones.
        refused: the other tables → why their events cannot be sent again.
    """

    tables: tuple[TableId, ...]
    file: str | None
    bytes: int
    refused: Mapping[TableId, str]


def lost_table(
    table: TableId, topic: str, progress: Progress, topic_id: str | None, first: Mapping[int, int]
) -> LostTable:
    """Return what the lake has of a table, and whether its lost events could follow.

    `first` is partition → first offset of its topic.
    """
    marker = progress.resume_marker
    if marker is None:
        return LostTable(table, None, "the lake has no position of it")
    if len(first) != 1:
        return LostTable(table, None, f"its topic has {len(first)} partitions")
    (partition, begin), *_ = first.items()
    known = marker.progress.get(topic, {}).get(partition)
    if known is None or known.high_water is None:
        return LostTable(table, None, "the lake has no position of it in the binlog")
    if known.high_water.snapshot is not None:
        return LostTable(table, None, "its last event is from before a snapshot")
    if marker.topic_ids.get(topic, topic_id) != topic_id:
        return LostTable(table, None, "its topic was deleted and recreated")
    if known.next_offset >= begin:
        return LostTable(table, None, "its topic has lost other events than the oldest ones")
    markers = [m for m in (progress.mirror, progress.changelog if progress.changelog_wanted else None) if m]
    if any(_reached(m.progress.get(topic, {}).get(partition)) != known.high_water for m in markers):
        return LostTable(table, None, "its mirror and its changelog end at different events")
    return LostTable(table, known.high_water)


def _reached(progress: object) -> HighWater | None:
    return getattr(progress, "high_water", None)


def plan_rewind(
    lost: Iterable[LostTable],
    logs: BinaryLogs,
    others: Iterable[HighWater],
    *,
    max_bytes: int,
    first_known_file: int | None,
    numbered: bool,
) -> RewindPlan:
    """Return from where the connector must begin for as many of the tables as possible.

    Args:
        others: the last events that the lake has of all other tables.
        max_bytes: the connector may read at most this much again.
        first_known_file: number of the first binlog file that the connector can read from its beginning.
        numbered: whether the connector numbers the events of a transaction.
    """
    refused: dict[TableId, str] = {}
    files: dict[TableId, int] = {}
    for entry in lost:
        found = _file(entry, logs, max_bytes, first_known_file, numbered=numbered)
        if isinstance(found, str):
            refused[entry.table] = found
        else:
            files[entry.table] = found
    start = min(files.values(), default=0)
    told = next((t for other in others if (t := _unrecognized(other, logs, start))), None) if files else None
    if told is not None:
        refused |= dict.fromkeys(files, told)
        files = {}
    if not files:
        return RewindPlan((), None, 0, refused)
    return RewindPlan(tuple(sorted(files)), logs.named(start), logs.bytes_from(start), refused)


def _file(
    lost: LostTable, logs: BinaryLogs, max_bytes: int, first_known_file: int | None, *, numbered: bool
) -> int | str:
    """Return the number of the file from which a table's events must be sent, or why they cannot be."""
    reached = lost.reached
    if reached is None:
        return lost.obstacle or "the lake has no position of it"
    position = reached.position
    number = binlog_number(position.file) if position.file else 0
    if not _is_of(position, logs):
        return f"its position {position} is one of another server"
    if logs.named(number) is None:
        return f"MySQL has deleted the binlog of its position {position}"
    if first_known_file is None:
        return "it is unknown since when the connector knows the tables"
    if number < first_known_file:
        return (
            f"the connector took its snapshot of the definitions after the beginning of {logs.named(number)}"
        )
    if (size := logs.bytes_from(number)) > max_bytes:
        return f"the binlogs since then have {size:,} bytes, more than heal.max_binlog"
    if (logs.compresses or not reached.rows_ascending) and not (numbered and reached.tx_order is not None):
        return "compressed transactions: events that are sent again are not recognized for certain"
    return number


def _is_of(position: SourcePosition, logs: BinaryLogs) -> bool:
    """Return whether a position is one in the binlogs of this server."""
    if position.server_id != logs.server_id:
        return False
    uuid = (position.gtid or "").partition(":")[0].lower()
    return not uuid or uuid == logs.server_uuid.lower()


def _unrecognized(reached: HighWater, logs: BinaryLogs, start: int) -> str | None:
    """Return why events of another table would not be recognized if they came again from binlog number `start` on."""
    position = reached.position
    number = binlog_number(position.file) if position.file else 0
    if number < start:
        return None
    if position.server_id != logs.server_id:
        return f"other tables have changes of another server, such as {position}"
    if reached.snapshot is not None:
        return f"the connector took a snapshot after the last change of another table, {position}"
    return None
