"""How far a result has the changes of an input, as a part of what it records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from replicator.model.recorded import UNLESS_EMPTY, UNLESS_NONE, Count, Long, Part


@dataclass(frozen=True, slots=True)
class InputProgress(Part):
    """The changes of an input that a result has.

    A changelog's commit has changes from before and after a boundary. The ones after it are held: a result has all
    changes up to a commit, without those that are held. In a partition of the log, these follow all others.

    Attributes:
        table: Iceberg's UUID of the table with the changes; of the input itself if it has no changelog.
        commit: number of the newest commit of it (`CommitMarker.sequence`) of which the result has changes.
        held: partition of the log → the first offset that is held.
        held_commit: the first commit with a change that is held; None if none is.
        steps_at: binlog key of the newest statement of the source that the result has; see `SchemaSteps`.
        snapshot: of a log table, the snapshot whose rows the result has; None if it had none.
        offsets, rows: of a log table, the first offset of each partition that it lacked, and the number of its rows.
        kept: whether the result also has rows that were deleted from the log table before that.
    """

    WHAT = "the progress of an input"
    table: str
    commit: Count = 0
    held: Mapping[int, int] = field(default_factory=dict)
    held_commit: Count | None = None
    steps_at: int = -1
    snapshot: Annotated[Long | None, UNLESS_NONE] = None
    offsets: Annotated[Mapping[int, int], UNLESS_EMPTY] = field(default_factory=dict)
    rows: Annotated[Count, UNLESS_EMPTY] = 0
    kept: Annotated[bool, UNLESS_EMPTY] = False

    @property
    def first_commit(self) -> int:
        """The first commit that may have changes that the result lacks."""
        return self.commit + 1 if self.held_commit is None else min(self.commit + 1, self.held_commit)
