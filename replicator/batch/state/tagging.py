"""The tag of all tables that is being made."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from replicator.model.table import TableId
from replicator.sources.change_log import Offsets


@dataclass(slots=True)
class PendingTag:
    """A tag of all tables at one position of the source, as the batches need it; see `batch.plan.tags`.

    Attributes:
        name: the name of the tag.
        position_key: changes with this position key or a greater one must not be in the tagged snapshots.
        read_ms: when the source was at the position, milliseconds since the epoch.
        resumed: whether another process has started it, so that tables may be tagged already.
        topics: topic → its partitions, as of the current batch.
        proven: the ends of the topics at a time when all changes before the position were in them; None before that.
        settled: tables that need nothing more: they are tagged, have nothing to tag, or are left out.
        problems: table → why it cannot be tagged.
        holds: whether a table with unread events waits because it is not proven that it has all earlier ones.
    """

    name: str
    position_key: int
    read_ms: int
    resumed: bool = False
    topics: Mapping[str, Collection[int]] = field(default_factory=dict)
    proven: Offsets | None = None
    settled: set[TableId] = field(default_factory=set)
    problems: dict[TableId, str] = field(default_factory=dict)
    holds: bool = False


@dataclass(slots=True)
class Tagging:
    """The tag that is being made; None if there is none."""

    pending: PendingTag | None = None

    def awaited_by(self, table: TableId) -> PendingTag | None:
        """Return the tag that must be made before `table` gets any change from after its position."""
        tag = self.pending
        return None if tag is None or table in tag.settled or table in tag.problems else tag
